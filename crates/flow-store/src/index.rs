//! The row index: where each live row stands in the lake, and a copy of what may be asked of it.
//!
//! Owns the families `index` and `hot`. Keys carry table and generation, so that a table's next
//! content is built beside the current one and the old one is dropped by range.
//!
//! 1. `locate` and `hot` answer for many keys at once.
//! 2. `bulk` fills a generation that is not current, without the log.
//! 3. Blocks of an operation's delta are applied by [`crate::Operations`].

mod batch;
mod bulk;

use std::sync::Arc;

use bytes::Bytes;
use flow_core::codec::Reader;
use flow_core::{Generation, TableId};
use rocksdb::{Range, ReadOptions, WriteBatch};

pub(crate) use self::batch::IndexBatch;
pub use self::bulk::BulkWriter;

use crate::database::{Database, Durability};
use crate::delta::Location;
use crate::error::StoreError;
use crate::layout::{Family, after_prefix, row_prefix};
use crate::{lookup, record};

/// Is what the index knows of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Is where the row stands.
    pub location: Location,
    /// Says whether there is a copy of the row.
    pub hot: bool,
}

/// Looks rows up by key.
#[derive(Clone, Debug)]
pub struct RowIndex {
    database: Arc<Database>,
}

impl RowIndex {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        RowIndex { database }
    }

    /// Finds where the keys' rows stand, in the order of `keys`; `None` for a key without a row.
    ///
    /// # Errors
    /// Crash if a read fails or a record cannot be read.
    pub fn locate(
        &self,
        table: TableId,
        generation: Generation,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Found>>, StoreError> {
        self.lookup(Family::Index, table, generation, keys, |key, value| {
            let broken = |error| record::malformed(Family::Index, key)(error);
            let mut reader = Reader::new(record::open(Family::Index, key, value)?);
            let location = Location::read(&mut reader).map_err(broken)?;
            let hot = reader.u8("row copy mark").map_err(broken)? != 0;
            if !reader.is_empty() {
                return Err(broken(reader.malformed("location end")));
            }
            Ok(Found { location, hot })
        })
    }

    /// Finds the copies of the keys' rows, in the order of `keys`; `None` for a key without a copy.
    ///
    /// # Errors
    /// Crash if a read fails or a record cannot be read.
    pub fn hot(
        &self,
        table: TableId,
        generation: Generation,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.lookup(Family::Hot, table, generation, keys, |key, value| {
            record::open(Family::Hot, key, value).map(Bytes::copy_from_slice)
        })
    }

    fn lookup<T>(
        &self,
        family: Family,
        table: TableId,
        generation: Generation,
        keys: &[&[u8]],
        read: impl Fn(&[u8], &[u8]) -> Result<T, StoreError>,
    ) -> Result<Vec<Option<T>>, StoreError> {
        let prefix = row_prefix(table, generation);
        lookup::lookup(&self.database, family, &prefix, keys, &ReadOptions::default(), read)
    }

    /// Begins to fill a generation that is not current. Several writers may fill one at once.
    pub fn bulk(&self, table: TableId, generation: Generation) -> BulkWriter {
        BulkWriter::new(self.database.clone(), table, generation)
    }

    /// Removes a whole generation: one that was left, or one whose copy was abandoned.
    ///
    /// # Durability
    /// Durable with the next synced write.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn drop_generation(&self, table: TableId, generation: Generation) -> Result<(), StoreError> {
        let prefix = row_prefix(table, generation);
        let end = after_prefix(&prefix).expect("table numbers do not reach their type's end");
        let mut batch = WriteBatch::default();
        for family in [Family::Index, Family::Hot] {
            batch.delete_range_cf(self.database.family(family), &prefix[..], &end[..]);
        }
        self.database.write(batch, Durability::Logged)?;
        // Whole files go at once; what shares a file with others goes when that is compacted.
        self.database.guard("drop files of the row index", |db| {
            [Family::Index, Family::Hot]
                .into_iter()
                .try_for_each(|family| db.delete_file_in_range_cf(self.database.family(family), &prefix[..], &end[..]))
        })
    }

    /// Estimates the rows of a generation, from what its part of the family's bytes is.
    ///
    /// # Errors
    /// Crash if RocksDB cannot answer.
    pub fn count_estimate(&self, table: TableId, generation: Generation) -> Result<u64, StoreError> {
        let family = Family::Index;
        let handle = self.database.family(family);
        let prefix = row_prefix(table, generation);
        let end = after_prefix(&prefix).expect("table numbers do not reach their type's end");
        let raw = self.database.raw();
        let ranges = [Range::new(&prefix, &end), Range::new(&[], &[0xff; 9])];
        let sizes = raw.get_approximate_sizes_cf(handle, &ranges);
        let keys = raw.property_int_value_cf(handle, "rocksdb.estimate-num-keys");
        let keys = keys.map_err(|source| StoreError::Read { family, source })?.unwrap_or(0);
        let part = sizes[0] as f64 / (sizes[1].max(1)) as f64;
        Ok((keys as f64 * part) as u64)
    }
}
