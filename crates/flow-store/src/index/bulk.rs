//! Filling a generation that nobody reads yet.

use std::sync::Arc;

use flow_core::{Generation, TableId};
use rocksdb::WriteBatch;

use crate::database::{Database, Durability};
use crate::delta::{HotChange, Location};
use crate::error::StoreError;
use crate::index::batch::seal_location;
use crate::layout::{Family, row_prefix};
use crate::record;
use crate::runs::Runs;

/// Is how many bytes of row copies are written at once.
const COPIES_BYTES: usize = 256 << 10;

/// Fills one generation of a table, outside the log. Rows may come in any order, from several
/// writers at once; in the order of their key they cost least.
///
/// Dropping a writer without `finish` may leave rows behind: the generation must then be dropped.
#[derive(Debug)]
pub struct BulkWriter {
    database: Arc<Database>,
    rows: u64,
    places: Runs,
    copies: Copies,
    /// Begins with the generation's prefix; the key is written behind it.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Gathers row copies. They go through the write buffers, which keep large ones in blob files.
#[derive(Default)]
struct Copies {
    batch: WriteBatch,
    any: bool,
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copies").field("any", &self.any).finish_non_exhaustive()
    }
}

impl BulkWriter {
    pub(super) fn new(database: Arc<Database>, table: TableId, generation: Generation) -> Self {
        BulkWriter {
            places: Runs::new(database.clone(), Family::Index),
            database,
            rows: 0,
            copies: Copies::default(),
            key: row_prefix(table, generation).to_vec(),
            value: Vec::new(),
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
        self.key.truncate(8);
        self.key.extend_from_slice(key);
        let change = hot.map_or(HotChange::None, HotChange::Keep);
        seal_location(&mut self.value, &self.key, location, change);
        self.places.put(&self.key, &self.value)?;
        self.rows += 1;
        let Some(row) = hot else {
            return Ok(());
        };
        record::seal_into(&mut self.value, &self.key, |out| out.extend_from_slice(row));
        let family = self.database.family(Family::Hot);
        self.copies.batch.put_cf(family, &self.key, &self.value);
        self.copies.any = true;
        if self.copies.batch.size_in_bytes() >= COPIES_BYTES {
            self.write_copies()?;
        }
        Ok(())
    }

    fn write_copies(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.copies.batch);
        self.database.write(batch, Durability::Unlogged)
    }

    /// Writes what is left and makes every row durable; returns their number.
    ///
    /// # Durability
    /// Durable when it returns, this writer's rows and those that others have put before.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn finish(mut self) -> Result<u64, StoreError> {
        if self.copies.any {
            self.write_copies()?;
            self.database.flush(&[Family::Hot])?;
        }
        self.places.finish()?;
        Ok(self.rows)
    }
}
