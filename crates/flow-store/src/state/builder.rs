//! Filling a state that nobody reads yet.

use std::sync::Arc;

use flow_core::state::{StateBuilder, StateError, encode_weight};

use crate::database::Database;
use crate::error::StoreError;
use crate::layout::{Family, state_prefix};
use crate::sorted::{Beneath, Sorted};
use crate::state::{StateId, is_empty};

/// Fills one state, outside the log. Entries may come in any order; several builders may fill one
/// state one after the other, where keys that both set or add to are weights.
///
/// Dropping it without `finish` leaves nothing behind, unless that failed half-way: the state must
/// then be dropped.
#[derive(Debug)]
pub struct BulkState {
    sorted: Sorted,
    database: Arc<Database>,
    id: StateId,
    entries: u64,
    /// Begins with the state's prefix; the key is written behind it.
    key: Vec<u8>,
}

impl BulkState {
    pub(super) fn new(database: Arc<Database>, id: StateId) -> Self {
        BulkState {
            sorted: Sorted::new(database.clone(), Family::State),
            database,
            id,
            entries: 0,
            key: state_prefix(id.number, id.generation).to_vec(),
        }
    }

    /// Counts what was put and added.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    fn enter(&mut self, key: &[u8]) {
        self.key.truncate(8);
        self.key.extend_from_slice(key);
        self.entries += 1;
    }

    /// Sorts and writes all entries and makes them durable; returns how many were put and added.
    ///
    /// # Durability
    /// Durable when it returns.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn finish(self) -> Result<u64, StoreError> {
        let beneath = match is_empty(&self.database, self.id)? {
            true => Beneath::Nothing,
            false => Beneath::Entries,
        };
        self.sorted.finish(beneath)?;
        Ok(self.entries)
    }
}

impl StateBuilder for BulkState {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.enter(key);
        let put = self.sorted.put(&self.key, value);
        put.map_err(|error| error.into_state("write"))
    }

    fn add(&mut self, key: &[u8], weight: i64) -> Result<(), StateError> {
        self.enter(key);
        let added = self.sorted.add(&self.key, &encode_weight(weight));
        added.map_err(|error| error.into_state("write"))
    }
}
