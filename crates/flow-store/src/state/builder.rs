//! Filling a state that nobody reads yet.

use std::sync::Arc;

use flow_core::state::{StateBuilder, StateError, encode_weight};
use rocksdb::WriteBatch;

use crate::database::{Database, Durability};
use crate::delta::BLOCK_BYTES;
use crate::error::StoreError;
use crate::layout::{Family, state_prefix};
use crate::record;
use crate::state::StateId;

/// Fills one state, outside the log. Entries may come in any order; several builders may fill one
/// state at once, where keys that both set or add to are weights.
///
/// Dropping it without `finish` leaves entries behind: the state must then be dropped.
pub struct BulkState {
    database: Arc<Database>,
    batch: WriteBatch,
    entries: u64,
    /// Begins with the state's prefix; the key is written behind it.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl std::fmt::Debug for BulkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkState")
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

impl BulkState {
    pub(super) fn new(database: Arc<Database>, id: StateId) -> Self {
        BulkState {
            database,
            batch: WriteBatch::default(),
            entries: 0,
            key: state_prefix(id.number, id.generation).to_vec(),
            value: Vec::new(),
        }
    }

    /// Counts what was put and added.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    fn wrap(&mut self, key: &[u8], value: &[u8]) {
        self.key.truncate(8);
        self.key.extend_from_slice(key);
        record::seal_into(&mut self.value, &self.key, |out| out.extend_from_slice(value));
        self.entries += 1;
    }

    fn write_full(&mut self) -> Result<(), StateError> {
        if self.batch.size_in_bytes() < BLOCK_BYTES {
            return Ok(());
        }
        self.write().map_err(|error| error.into_state("write"))
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.batch);
        self.database.write(batch, Durability::Unlogged)
    }

    /// Writes what is left and makes every entry durable; returns how many were put and added.
    ///
    /// # Durability
    /// Durable when it returns, this builder's entries and those that others have written before.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn finish(mut self) -> Result<u64, StoreError> {
        self.write()?;
        self.database.flush(&[Family::State])?;
        Ok(self.entries)
    }
}

impl StateBuilder for BulkState {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StateError> {
        self.wrap(key, value);
        let handle = self.database.family(Family::State);
        self.batch.put_cf(handle, &self.key, &self.value);
        self.write_full()
    }

    fn add(&mut self, key: &[u8], weight: i64) -> Result<(), StateError> {
        self.wrap(key, &encode_weight(weight));
        let handle = self.database.family(Family::State);
        self.batch.merge_cf(handle, &self.key, &self.value);
        self.write_full()
    }
}
