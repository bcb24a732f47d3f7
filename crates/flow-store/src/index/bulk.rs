//! Filling a generation that nobody reads yet.

use std::sync::Arc;

use flow_core::{Generation, TableId};

use crate::database::{Database, Durability};
use crate::delta::{DeltaEntry, HotChange, IndexDelta, Location};
use crate::error::StoreError;
use crate::index::IndexBatch;
use crate::layout::Family;

/// Fills one generation of a table, outside the log. Rows may come in any order, from several
/// writers at once.
///
/// Dropping a writer without `finish` leaves rows behind: the generation must then be dropped.
#[derive(Debug)]
pub struct BulkWriter {
    database: Arc<Database>,
    table: TableId,
    generation: Generation,
    rows: u64,
    block: IndexDelta,
}

impl BulkWriter {
    pub(super) fn new(database: Arc<Database>, table: TableId, generation: Generation) -> Self {
        BulkWriter {
            database,
            table,
            generation,
            rows: 0,
            block: IndexDelta::new(),
        }
    }

    /// Counts the rows put.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds a row.
    ///
    /// # Durability
    /// None before [`BulkWriter::finish`].
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn put(&mut self, key: &[u8], location: Location, hot: Option<&[u8]>) -> Result<(), StoreError> {
        self.block
            .put(key, location, hot.map_or(HotChange::None, HotChange::Keep));
        self.rows += 1;
        if self.block.is_full() { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let mut batch = IndexBatch::new(&self.database, self.table, self.generation);
        for entry in self.block.entries() {
            let entry = entry.expect("the block was made here");
            let DeltaEntry::Put { key, location, hot } = entry else {
                unreachable!("a bulk writer only puts");
            };
            batch.put(key, location, hot);
        }
        self.database.write(batch.finish(), Durability::Unlogged)?;
        self.block.clear();
        Ok(())
    }

    /// Writes what is left and makes every row durable; returns their number.
    ///
    /// # Durability
    /// Durable when it returns, this writer's rows and those that others have put before.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn finish(mut self) -> Result<u64, StoreError> {
        self.write()?;
        self.database.flush(&[Family::Index, Family::Hot])?;
        Ok(self.rows)
    }
}
