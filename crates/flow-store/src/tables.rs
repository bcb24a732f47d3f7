//! Captured tables: their shape, their target and how they stand.

use std::sync::Arc;

use flow_core::{Epoch, Generation, Lsn, TableId, TableName, TableSchema};
use rocksdb::WriteBatch;
use serde::{Deserialize, Serialize};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::facts;
use crate::layout::{FactKey, Family, table_key};
use crate::record;

/// Says which columns of a row the row index keeps a copy of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hot {
    /// None: old rows come from the lake.
    None,
    /// Those with these indexes into the schema's columns, beside the key.
    Columns(Vec<usize>),
    /// All.
    All,
}

/// Says how a captured table stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum TableState {
    /// Its first content, or the next generation's, is being copied.
    Copying,
    /// It follows the source.
    Streaming,
    /// It cannot publish; its changes stay in the journal.
    Blocked {
        /// Names the page under `docs/errors/`.
        code: String,
        /// Says what happened; holds no row values.
        reason: String,
        /// Is when, in microseconds since 1970.
        since_us: i64,
        /// Is the position above which the journal keeps its changes.
        hold_lsn: Lsn,
    },
    /// Its changes are no longer complete: only another copy helps.
    ResyncRequired {
        /// Names the page under `docs/errors/`.
        code: String,
        /// Says what happened; holds no row values.
        reason: String,
        /// Is when, in microseconds since 1970.
        since_us: i64,
    },
    /// The user no longer asks for it, or paused it.
    Paused {
        /// Is when, in microseconds since 1970.
        since_us: i64,
        /// Is the position up to which the lake has it.
        hold_lsn: Lsn,
    },
}

/// Is all that is kept of a captured table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRecord {
    /// Is the table's number here.
    pub id: TableId,
    /// Names it in PostgreSQL.
    pub source: TableName,
    /// Is PostgreSQL's number for it.
    pub relation_oid: u32,
    /// Names it in the lake.
    pub target: TableName,
    /// Is Iceberg's UUID of the target, once it exists.
    pub target_uuid: Option<String>,
    /// Is its shape.
    pub schema: TableSchema,
    /// Counts its contents; row index keys carry it.
    pub generation: Generation,
    /// Says that only inserts are accepted.
    pub append_only: bool,
    /// Says what the row index copies.
    pub hot: Hot,
    /// Is what the configuration said when the table began, for later comparison.
    pub settings: serde_json::Value,
    /// Is the copy's consistent point: transactions at or below it are in the copy.
    pub start_lsn: Option<Lsn>,
    /// Says how it stands.
    pub state: TableState,
    /// Is the position up to which the lake has it.
    pub published_lsn: Lsn,
    /// Is the last epoch that changed it.
    pub published_epoch: Epoch,
    /// Is the target's snapshot this program wrote last.
    pub snapshot_id: Option<i64>,
}

/// Reads and writes the captured tables.
#[derive(Clone, Debug)]
pub struct Tables {
    database: Arc<Database>,
}

impl Tables {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Tables { database }
    }

    /// Writes a table's record in place of the one before.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn put(&self, table: &TableRecord) -> Result<(), StoreError> {
        self.put_all(std::slice::from_ref(table))
    }

    /// Writes several tables' records at once.
    ///
    /// # Durability
    /// Synced, all or none.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn put_all(&self, tables: &[TableRecord]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        tables.iter().for_each(|table| stage(&self.database, &mut batch, table));
        self.database.write(batch, Durability::Synced)
    }

    /// Reads all tables, by number.
    ///
    /// # Errors
    /// Crash if a record cannot be read.
    pub fn all(&self) -> Result<Vec<TableRecord>, StoreError> {
        self.database.scan(Family::Tables, &[], None, usize::MAX, |key, value| {
            record::open_json(Family::Tables, key, value)
        })
    }

    /// Reads one table.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn get(&self, id: TableId) -> Result<Option<TableRecord>, StoreError> {
        self.database.get_json(Family::Tables, &table_key(id))
    }

    /// Takes a number that no table has had, from 1.
    ///
    /// # Durability
    /// Synced: the number is never given again, used or not.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn next_id(&self) -> Result<TableId, StoreError> {
        let _held = self.database.exclusive();
        let last: Option<u32> = self.database.get_json(Family::Facts, FactKey::TableIds.bytes())?;
        let next = last.unwrap_or(0) + 1;
        let mut batch = WriteBatch::default();
        facts::stage(&self.database, &mut batch, FactKey::TableIds, &next);
        self.database.write(batch, Durability::Synced)?;
        Ok(TableId(next))
    }
}

/// Adds a table's record to a batch.
pub(crate) fn stage(database: &Database, batch: &mut WriteBatch, table: &TableRecord) {
    let key = table_key(table.id);
    batch.put_cf(database.family(Family::Tables), key, record::seal_json(&key, table));
}
