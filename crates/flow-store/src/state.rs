//! The state that operators of dynamic tables keep: an ordered map of bytes per table and generation.
//!
//! Owns the family `state`. Knows nothing of operators: their keys and values are bytes. Keys carry a
//! number and a generation, so that state is built anew beside what is read, and what was left is
//! dropped by range.
//!
//! 1. `builder` fills a generation that nobody reads yet, without the log.
//! 2. `reader` answers from one moment, whatever is written meanwhile.
//! 3. What a refresh changes arrives as blocks of an operation ([`crate::Operations::stage_state`]),
//!    or with the record of a refresh that wrote no row ([`crate::Refreshes::put_with_state`]).
//!
//! # Invariants
//! - Every value is wrapped as [`crate::record`] says, sums of weights too.
//! - Who reads state knows from the [`StateStamp`] of its table which generation is whole.

mod block;
mod builder;
mod reader;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use flow_core::Generation;
use flow_core::frontier::Frontier;
use flow_core::state::StateError;
use rocksdb::{Range, ReadOptions, WriteBatch};
use serde::{Deserialize, Serialize};

pub(crate) use self::block::{decode, encode};
pub use self::builder::BulkState;
pub use self::reader::PinnedState;

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::facts;
use crate::layout::{FactKey, Family, after_prefix, state_prefix};
use crate::record;

/// Names one content of one dynamic table's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateId {
    /// Is the dynamic table's number; see [`States::next_number`].
    pub number: u32,
    /// Counts the contents that the table's state has had.
    pub generation: Generation,
}

/// Says which state of a dynamic table is whole, and what it reflects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateStamp {
    /// Is where the state is.
    #[serde(flatten)]
    pub id: StateId,
    /// Is which input snapshots it reflects.
    pub frontier: Frontier,
    /// Names the operators that keep it and the form in which they do; others must build it anew.
    pub layout: String,
    /// Is how long building it took, in milliseconds; `None` of one that no record tells of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_ms: Option<u64>,
}

/// Reads and fills the dynamic tables' state.
#[derive(Clone, Debug)]
pub struct States {
    database: Arc<Database>,
}

impl States {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        States { database }
    }

    /// Takes a number that no dynamic table has had, from 1.
    ///
    /// # Durability
    /// Synced: the number is never given again, used or not.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn next_number(&self) -> Result<u32, StoreError> {
        let _held = self.database.exclusive();
        let last: Option<u32> = self.database.get_json(Family::Facts, FactKey::StateNumbers.bytes())?;
        let next = last.unwrap_or(0) + 1;
        let mut batch = WriteBatch::default();
        facts::stage(&self.database, &mut batch, FactKey::StateNumbers, &next);
        self.database.write(batch, Durability::Synced)?;
        Ok(next)
    }

    /// Reads a state as it stands now: what is written later does not show.
    ///
    /// Drop it soon: as long as it is held, what it sees is not compacted away.
    pub fn reader(&self, id: StateId) -> PinnedState {
        PinnedState::new(self.database.clone(), id)
    }

    /// Begins to fill a state that nobody reads.
    pub fn builder(&self, id: StateId) -> BulkState {
        BulkState::new(self.database.clone(), id)
    }

    /// Removes a state: one that was left, or whose building was abandoned. Who still reads it sees
    /// parts of it go.
    ///
    /// IMPORTANT: where nothing is, nothing is written. Table files that are taken in under a deleted
    /// range would stay in the first level, where every read looks into each of them, until all are
    /// written again.
    ///
    /// # Durability
    /// Durable with the next synced write.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn drop_generation(&self, id: StateId) -> Result<(), StoreError> {
        if is_empty(&self.database, id)? {
            return Ok(());
        }
        let (prefix, end) = bounds(id);
        let mut batch = WriteBatch::default();
        let handle = self.database.family(Family::State);
        batch.delete_range_cf(handle, &prefix[..], &end[..]);
        self.database.write(batch, Durability::Logged)?;
        // Whole files go at once; what shares a file with others goes when that is compacted.
        self.database.guard("drop files of dynamic tables' state", |db| {
            db.delete_file_in_range_cf(handle, &prefix[..], &end[..])
        })
    }

    /// Lists the states that have entries, whole or not. Those that no stamp names may be dropped.
    ///
    /// # Errors
    /// Crash if a read fails.
    pub fn generations(&self) -> Result<Vec<StateId>, StoreError> {
        let family = Family::State;
        let handle = self.database.family(family);
        let mut rows = self.database.raw().raw_iterator_cf_opt(handle, ReadOptions::default());
        let mut out = Vec::new();
        rows.seek_to_first();
        while let Some(key) = rows.key() {
            let id = parse_id(key).ok_or_else(|| StoreError::corrupt(family, key, "key is too short"))?;
            out.push(id);
            rows.seek(bounds(id).1);
        }
        rows.status().map_err(|source| StoreError::Read { family, source })?;
        Ok(out)
    }

    /// Drops every state that is not in `keep`; returns those dropped.
    ///
    /// # Durability
    /// Durable with the next synced write.
    ///
    /// # Errors
    /// Crash if a read or write fails. Replan if state is damaged: who reads it will find that too, and
    /// builds it anew.
    pub fn drop_others(&self, keep: &BTreeSet<StateId>) -> Result<Vec<StateId>, StateError> {
        let drop_others = || {
            let mut left = self.generations()?;
            left.retain(|id| !keep.contains(id));
            left.iter().try_for_each(|id| self.drop_generation(*id))?;
            Ok(left)
        };
        drop_others().map_err(|error: StoreError| error.into_state("list"))
    }

    /// Estimates the bytes a state takes on disk. What is still in write buffers is not counted.
    pub fn size_bytes(&self, id: StateId) -> u64 {
        let (prefix, end) = bounds(id);
        let handle = self.database.family(Family::State);
        let ranges = [Range::new(&prefix, &end)];
        self.database.raw().get_approximate_sizes_cf(handle, &ranges)[0]
    }
}

/// Is the range of a state's keys.
fn bounds(id: StateId) -> ([u8; 8], Vec<u8>) {
    let prefix = state_prefix(id.number, id.generation);
    let end = after_prefix(&prefix).expect("numbers do not reach their type's end");
    (prefix, end)
}

/// Says whether a state has no entry.
fn is_empty(database: &Database, id: StateId) -> Result<bool, StoreError> {
    let (prefix, end) = bounds(id);
    let found = database.scan(Family::State, &prefix, Some(end), 1, |_, _| Ok(()))?;
    Ok(found.is_empty())
}

fn parse_id(key: &[u8]) -> Option<StateId> {
    let (number, rest) = key.split_first_chunk::<4>()?;
    let (generation, _) = rest.split_first_chunk::<4>()?;
    Some(StateId {
        number: u32::from_be_bytes(*number),
        generation: Generation(u32::from_be_bytes(*generation)),
    })
}

/// Adds changes of one state to a batch.
pub(crate) fn stage<'a>(
    database: &Database,
    batch: &mut WriteBatch,
    id: StateId,
    changes: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) {
    let handle = database.family(Family::State);
    let mut full = state_prefix(id.number, id.generation).to_vec();
    let mut sealed = Vec::new();
    for (key, value) in changes {
        full.truncate(8);
        full.extend_from_slice(key);
        match value {
            Some(value) => {
                record::seal_into(&mut sealed, &full, |out| out.extend_from_slice(value));
                batch.put_cf(handle, &full, &sealed);
            }
            None => batch.delete_cf(handle, &full),
        }
    }
}

/// Lends the entries of a delta.
pub(crate) fn lend(delta: &[(Bytes, Option<Bytes>)]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    delta.iter().map(|(key, value)| (&key[..], value.as_deref()))
}

#[cfg(test)]
mod tests {
    use flow_core::state::StateBuilder;

    use super::*;
    use crate::tuning::MEMORY_BYTES_MIN;

    #[test]
    fn a_built_state_lies_in_the_last_level() {
        let dir = tempfile::tempdir().expect("a folder");
        let database = Arc::new(Database::open(dir.path(), MEMORY_BYTES_MIN).expect("opens"));
        let states = States::new(database.clone());
        let files = |level: u8| {
            let name = format!("rocksdb.num-files-at-level{level}");
            let handle = database.family(Family::State);
            let found = database.raw().property_value_cf(handle, &name).expect("answers");
            found.expect("there are levels").parse::<u64>().expect("a number")
        };
        let merges = || {
            let handle = database.family(Family::State);
            let properties = database
                .raw()
                .property_value_cf(handle, "rocksdb.aggregated-table-properties");
            let properties = properties.expect("answers").expect("there are files");
            let operands = properties
                .split(';')
                .find_map(|part| part.trim().strip_prefix("# merge operands="));
            operands.expect("they are counted").parse::<u64>().expect("a number")
        };
        for generation in 1..=3 {
            let id = StateId {
                number: 4,
                generation: Generation(generation),
            };
            // What a refresh does before it builds: an interrupted build may have left something.
            states.drop_generation(id).expect("drops");
            let mut builder = states.builder(id);
            for n in 0..1000_u32 {
                builder.add(&n.to_be_bytes(), 1).expect("takes it");
            }
            builder.finish().expect("finishes");
            assert_eq!((files(0), files(6)), (0, u64::from(generation)));
            assert_eq!(merges(), 0, "sums are written as values");
        }
    }
}
