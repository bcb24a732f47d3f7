//! Dynamic tables: what each reflects, and its newest refreshes.

use std::sync::Arc;

use flow_core::Lsn;
use flow_core::frontier::Frontier;
use flow_core::state::StateDelta;
use rocksdb::WriteBatch;
use serde::{Deserialize, Serialize};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::layout::{Family, after_prefix, run_key, run_prefix};
use crate::record;
use crate::state::{self, StateStamp};

/// Counts the refreshes kept in a dynamic table's history.
pub const RUNS_MAX: u64 = 1000;

/// Is the mode of a refresh that found by snapshot ids alone that there was nothing to do.
pub const NO_DATA: &str = "NO_DATA";

/// Says why a dynamic table does not refresh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshBlocked {
    /// Names the page under `docs/errors/`.
    pub code: String,
    /// Says what happened; holds no row values.
    pub reason: String,
    /// Is when, in microseconds since 1970.
    pub since_us: i64,
    /// Is the hash of the query that could not be refreshed.
    pub query_hash: String,
}

/// Is one refresh that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshRun {
    /// Names the refresh; lineage columns and the snapshot carry it too.
    pub run_id: String,
    /// Is `NO_DATA`, `INCREMENTAL` or `FULL`.
    pub mode: String,
    /// Says why this mode.
    pub reason: String,
    /// Is when it began, in microseconds since 1970.
    pub started_us: i64,
    /// Is how long it was expected to take, in milliseconds; `None` without earlier runs to go by.
    #[serde(default)]
    pub predicted_ms: Option<u64>,
    /// Is how long it took, in milliseconds.
    pub duration_ms: u64,
    /// Counts the rows that changed in its inputs; `None` if it read them whole.
    #[serde(default)]
    pub rows_changed: Option<u64>,
    /// Counts the rows it read.
    pub rows_read: u64,
    /// Counts the rows it inserted.
    pub rows_inserted: u64,
    /// Counts the rows it deleted.
    pub rows_deleted: u64,
    /// Is what it reflects.
    pub frontier: Frontier,
    /// Is the source position it reflects.
    pub data_lsn: Lsn,
    /// Is the time that `now()` gave, in microseconds since 1970; `None` for a query that does not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// Counts the refreshes that this entry stands for: more than one of [`NO_DATA`] that followed each
    /// other, of which it has the first one's name and beginning and the newest one's position.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub runs: u64,
}

fn one() -> u64 {
    1
}

fn is_one(runs: &u64) -> bool {
    *runs == 1
}

/// Is all that is kept of a dynamic table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshRecord {
    /// Is Iceberg's UUID of the table.
    pub uuid: String,
    /// Is the hash of the query whose content the table holds.
    pub query_hash: String,
    /// Is which input snapshots it reflects.
    pub frontier: Frontier,
    /// Is the source position it reflects.
    pub data_lsn: Lsn,
    /// Is the epoch in which that position lies, or an earlier one since which its inputs did not change.
    pub epoch: u64,
    /// Is the time that it reflects, in microseconds since 1970; `None` for a query that does not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_us: Option<i64>,
    /// Is the newest refresh.
    pub last: Option<RefreshRun>,
    /// Says that the user suspended it.
    pub suspended: bool,
    /// Says why it does not refresh.
    pub blocked: Option<RefreshBlocked>,
    /// Is the snapshot this program wrote last.
    pub snapshot_id: Option<i64>,
    /// Is how long its newest full refresh took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_ms: Option<u64>,
    /// Is what a changed row took in its newest incremental refresh large enough to tell, in
    /// microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_us: Option<u64>,
    /// Is the state its operators keep; `None` if there is none that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateStamp>,
}

/// Is what a completed refresh leaves in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshCompletion {
    /// Names the dynamic table.
    pub name: String,
    /// Is its record.
    pub record: RefreshRecord,
    /// Is what enters its history.
    pub run: Option<RefreshRun>,
}

/// Reads and writes the dynamic tables' records.
#[derive(Clone, Debug)]
pub struct Refreshes {
    database: Arc<Database>,
}

impl Refreshes {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Refreshes { database }
    }

    /// Reads one dynamic table's record.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn get(&self, name: &str) -> Result<Option<RefreshRecord>, StoreError> {
        self.database.get_json(Family::Refresh, name.as_bytes())
    }

    /// Reads all records, by name.
    ///
    /// # Errors
    /// Crash if a record cannot be read.
    pub fn all(&self) -> Result<Vec<(String, RefreshRecord)>, StoreError> {
        self.database
            .scan(Family::Refresh, &[], None, usize::MAX, |key, value| {
                let name = String::from_utf8(key.to_vec());
                let name = name.map_err(|_| StoreError::corrupt(Family::Refresh, key, "name is not UTF-8"))?;
                Ok((name, record::open_json(Family::Refresh, key, value)?))
            })
    }

    /// Writes a dynamic table's record in place of the one before.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn put(&self, name: &str, refresh: &RefreshRecord) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        stage_record(&self.database, &mut batch, name, refresh);
        self.database.write(batch, Durability::Synced)
    }

    /// Writes what a refresh without a changed row leaves: the table's record, the refresh in its
    /// history, and what it does to the state that the record's stamp names.
    ///
    /// # Durability
    /// Synced, all or none.
    ///
    /// # Errors
    /// Crash if the write fails.
    ///
    /// # Panics
    /// If there is a change of state and no stamp: the caller's order is broken.
    pub fn put_with_state(
        &self,
        name: &str,
        refresh: &RefreshRecord,
        run: Option<&RefreshRun>,
        delta: &StateDelta,
    ) -> Result<(), StoreError> {
        let _held = self.database.exclusive();
        let mut batch = WriteBatch::default();
        match &refresh.state {
            Some(stamp) => state::stage(&self.database, &mut batch, stamp.id, state::lend(&delta.0)),
            None => assert!(delta.0.is_empty(), "changed state has a stamp"),
        }
        stage_record(&self.database, &mut batch, name, refresh);
        if let Some(run) = run {
            self.stage_run(&mut batch, name, run)?;
        }
        self.database.write(batch, Durability::Synced)
    }

    /// Forgets a dynamic table and its history. Its state is dropped apart.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        batch.delete_cf(self.database.family(Family::Refresh), name.as_bytes());
        for key in self.run_keys(name)? {
            batch.delete_cf(self.database.family(Family::RefreshRun), key);
        }
        self.database.write(batch, Durability::Synced)
    }

    /// Adds a refresh to a history; past [`RUNS_MAX`] the oldest goes. One of [`NO_DATA`] behind another
    /// of the same frontier joins that, so that thousands of them push nothing out.
    ///
    /// # Durability
    /// Durable with the next synced write.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn push_run(&self, name: &str, run: &RefreshRun) -> Result<(), StoreError> {
        let _held = self.database.exclusive();
        let mut batch = WriteBatch::default();
        match self.last_run(name)? {
            Some((key, last)) if run.mode == NO_DATA && last.mode == NO_DATA && last.frontier == run.frontier => {
                let joined = RefreshRun {
                    run_id: last.run_id,
                    started_us: last.started_us,
                    runs: last.runs + run.runs,
                    ..run.clone()
                };
                let family = self.database.family(Family::RefreshRun);
                batch.put_cf(family, &key, record::seal_json(&key, &joined));
            }
            _ => self.stage_run(&mut batch, name, run)?,
        }
        self.database.write(batch, Durability::Logged)
    }

    /// Reads the newest run of a history, with its key.
    fn last_run(&self, name: &str) -> Result<Option<(Vec<u8>, RefreshRun)>, StoreError> {
        let Some(key) = self.database.last_key(Family::RefreshRun, &run_prefix(name))? else {
            return Ok(None);
        };
        let run = self.database.get_json(Family::RefreshRun, &key)?;
        Ok(run.map(|run| (key, run)))
    }

    /// Reads a history, oldest first.
    ///
    /// # Errors
    /// Crash if a record cannot be read.
    pub fn history(&self, name: &str) -> Result<Vec<RefreshRun>, StoreError> {
        let prefix = run_prefix(name);
        self.database.scan(
            Family::RefreshRun,
            &prefix,
            after_prefix(&prefix),
            usize::MAX,
            |key, value| record::open_json(Family::RefreshRun, key, value),
        )
    }

    fn run_keys(&self, name: &str) -> Result<Vec<Vec<u8>>, StoreError> {
        let prefix = run_prefix(name);
        self.database.scan(
            Family::RefreshRun,
            &prefix,
            after_prefix(&prefix),
            usize::MAX,
            |key, _| Ok(key.to_vec()),
        )
    }

    /// Is the number of the newest run in a history.
    fn last_number(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let prefix = run_prefix(name);
        let Some(key) = self.database.last_key(Family::RefreshRun, &prefix)? else {
            return Ok(None);
        };
        let number = key[prefix.len()..].try_into().map(u64::from_be_bytes);
        let number = number.map_err(|_| StoreError::corrupt(Family::RefreshRun, &key, "key has no number"))?;
        Ok(Some(number))
    }

    fn stage_run(&self, batch: &mut WriteBatch, name: &str, run: &RefreshRun) -> Result<(), StoreError> {
        let number = self.last_number(name)?.map_or(0, |last| last + 1);
        let key = run_key(name, number);
        let family = self.database.family(Family::RefreshRun);
        batch.put_cf(family, &key, record::seal_json(&key, run));
        if let Some(old) = number.checked_sub(RUNS_MAX) {
            batch.delete_cf(family, run_key(name, old));
        }
        Ok(())
    }

    /// Adds a completed refresh to a batch. The caller is exclusive.
    pub(crate) fn stage(&self, batch: &mut WriteBatch, completion: &RefreshCompletion) -> Result<(), StoreError> {
        stage_record(&self.database, batch, &completion.name, &completion.record);
        match &completion.run {
            Some(run) => self.stage_run(batch, &completion.name, run),
            None => Ok(()),
        }
    }
}

fn stage_record(database: &Database, batch: &mut WriteBatch, name: &str, refresh: &RefreshRecord) {
    let key = name.as_bytes();
    batch.put_cf(database.family(Family::Refresh), key, record::seal_json(key, refresh));
}
