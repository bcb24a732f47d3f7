//! One atomic batch of changes of the row index.

use flow_core::{Generation, TableId};
use rocksdb::{ColumnFamily, WriteBatch};

use crate::database::Database;
use crate::delta::{HotChange, Location};
use crate::layout::{Family, row_prefix};
use crate::record;

/// Writes what the index holds of a key: where its row stands, and whether there is a copy of it.
pub(super) fn seal_location(value: &mut Vec<u8>, key: &[u8], location: Location, hot: HotChange<'_>) {
    record::seal_into(value, key, |out| {
        location.write(out);
        out.push(u8::from(matches!(hot, HotChange::Keep(_))));
    });
}

/// Gathers puts and removes of one table's generation.
pub(crate) struct IndexBatch<'a> {
    index: &'a ColumnFamily,
    hot: &'a ColumnFamily,
    batch: WriteBatch,
    /// Begins with the generation's prefix; the key is written behind it.
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> IndexBatch<'a> {
    pub(crate) fn new(database: &'a Database, table: TableId, generation: Generation) -> Self {
        IndexBatch {
            index: database.family(Family::Index),
            hot: database.family(Family::Hot),
            batch: WriteBatch::default(),
            key: row_prefix(table, generation).to_vec(),
            value: Vec::new(),
        }
    }

    fn full_key(&mut self, key: &[u8]) {
        self.key.truncate(8);
        self.key.extend_from_slice(key);
    }

    pub(crate) fn put(&mut self, key: &[u8], location: Location, hot: HotChange<'_>) {
        self.full_key(key);
        seal_location(&mut self.value, &self.key, location, hot);
        self.batch.put_cf(self.index, &self.key, &self.value);
        match hot {
            HotChange::None => {}
            HotChange::Keep(row) => {
                record::seal_into(&mut self.value, &self.key, |out| out.extend_from_slice(row));
                self.batch.put_cf(self.hot, &self.key, &self.value);
            }
            HotChange::Drop => self.batch.delete_cf(self.hot, &self.key),
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8], hot: bool) {
        self.full_key(key);
        self.batch.delete_cf(self.index, &self.key);
        if hot {
            self.batch.delete_cf(self.hot, &self.key);
        }
    }

    pub(crate) fn finish(self) -> WriteBatch {
        self.batch
    }
}
