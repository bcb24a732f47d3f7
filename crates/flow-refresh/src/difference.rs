//! Compares a computed table with the stored one, as multisets of rows.
//!
//! 1. [`Difference::computed`] takes the result's batches and keeps each row as bytes, whose
//!    equality is equality of every value, bit for bit, NULL equal to NULL.
//! 2. [`Difference::stored`] takes the stored rows with their places: a row that has a twin among
//!    the computed ones pairs off with it, any other is to be deleted.
//! 3. [`Difference::inserted`] gives the computed rows that found no twin, in the order of their bytes.
//!
//! Memory: one copy of the computed rows, and 20 bytes a row; all of it counts against the budget.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use crate::output::cast_columns;

/// Marks the end of a chain.
const NONE: u32 = u32::MAX;

/// Is how many rows an inserted batch holds at most.
const BATCH_ROWS_MAX: usize = 8192;

/// Is what is kept of a row beside its bytes: a link, a flag, and its share of the hash table.
const ROW_OVERHEAD_BYTES: usize = 20 + size_of::<usize>();

/// Compares a computed table with a stored one.
pub(crate) struct Difference {
    /// Holds the user's columns of the table, in its own types.
    schema: SchemaRef,
    converter: RowConverter,
    reservation: MemoryReservation,
    hasher: RandomState,
    batches: Vec<Rows>,
    /// Holds, for each row, the batch and the row in it.
    rows: Vec<(u32, u32)>,
    /// Holds the first unpaired row of each hash, and for each row the next with that hash.
    heads: HashMap<u64, u32>,
    next: Vec<u32>,
    paired: Vec<bool>,
    deleted: Vec<(Arc<str>, u64)>,
}

impl Difference {
    /// Starts with nothing computed. `schema` holds the user's columns only.
    pub(crate) fn new(schema: SchemaRef, pool: &Arc<dyn MemoryPool>) -> Result<Self> {
        let fields = schema
            .fields()
            .iter()
            .map(|field| SortField::new(field.data_type().clone()));
        Ok(Difference {
            converter: RowConverter::new(fields.collect())?,
            schema,
            reservation: MemoryConsumer::new("difference").register(pool),
            hasher: RandomState::new(),
            batches: Vec::new(),
            rows: Vec::new(),
            heads: HashMap::new(),
            next: Vec::new(),
            paired: Vec::new(),
            deleted: Vec::new(),
        })
    }

    fn encode(&self, columns: &[ArrayRef]) -> Result<Rows> {
        let columns = cast_columns(columns, self.schema.fields())?;
        Ok(self.converter.convert_columns(&columns)?)
    }

    fn row(&self, index: u32) -> &[u8] {
        let (batch, row) = self.rows[index as usize];
        self.batches[batch as usize].row(row as usize).data()
    }

    /// Takes a batch of the result.
    pub(crate) fn computed(&mut self, batch: &RecordBatch) -> Result<()> {
        let encoded = self.encode(batch.columns())?;
        let bytes = encoded.size() + encoded.num_rows() * ROW_OVERHEAD_BYTES;
        self.reservation.try_grow(bytes)?;
        let batch = u32::try_from(self.batches.len()).map_err(|_| too_many())?;
        for (at, row) in encoded.iter().enumerate() {
            let index = u32::try_from(self.rows.len())
                .ok()
                .filter(|index| *index != NONE)
                .ok_or_else(too_many)?;
            let head = self.heads.entry(self.hasher.hash_one(row.data())).or_insert(NONE);
            self.next.push(*head);
            *head = index;
            self.rows.push((batch, u32::try_from(at).map_err(|_| too_many())?));
            self.paired.push(false);
        }
        self.batches.push(encoded);
        Ok(())
    }

    /// Takes stored rows of one file, user columns only, in the table's order.
    pub(crate) fn stored(&mut self, file: &Arc<str>, positions: &[u64], columns: &[ArrayRef]) -> Result<()> {
        let encoded = self.encode(columns)?;
        let before = self.deleted.len();
        for (row, position) in encoded.iter().zip(positions) {
            if !self.pair(row.data()) {
                self.deleted.push((file.clone(), *position));
            }
        }
        let added = self.deleted.len() - before;
        self.reservation.try_grow(added * size_of::<(Arc<str>, u64)>())?;
        Ok(())
    }

    /// Pairs a stored row off with a computed one; says whether there was one.
    fn pair(&mut self, row: &[u8]) -> bool {
        let hash = self.hasher.hash_one(row);
        let mut before = NONE;
        let mut index = self.heads.get(&hash).copied().unwrap_or(NONE);
        while index != NONE {
            if self.row(index) == row {
                let after = self.next[index as usize];
                match before {
                    NONE => {
                        self.heads.insert(hash, after);
                    }
                    _ => self.next[before as usize] = after,
                }
                self.paired[index as usize] = true;
                return true;
            }
            before = index;
            index = self.next[index as usize];
        }
        false
    }

    /// Ends the comparison: gives the columns of the rows to insert, and the places of those to delete.
    pub(crate) fn finish(mut self) -> Result<(Vec<Vec<ArrayRef>>, Vec<(Arc<str>, u64)>)> {
        let count = self.rows.len() as u32;
        let mut left: Vec<u32> = (0..count).filter(|index| !self.paired[*index as usize]).collect();
        left.sort_unstable_by(|a, b| self.row(*a).cmp(self.row(*b)));
        let mut inserted = Vec::with_capacity(left.len().div_ceil(BATCH_ROWS_MAX));
        for chunk in left.chunks(BATCH_ROWS_MAX) {
            let rows = chunk.iter().map(|index| {
                let (batch, row) = self.rows[*index as usize];
                self.batches[batch as usize].row(row as usize)
            });
            let columns = self.converter.convert_rows(rows)?;
            let bytes = columns.iter().map(|column| column.get_array_memory_size()).sum();
            self.reservation.try_grow(bytes)?;
            inserted.push(cast_columns(&columns, self.schema.fields())?);
        }
        self.deleted.sort_unstable();
        Ok((inserted, self.deleted))
    }
}

fn too_many() -> datafusion::common::DataFusionError {
    crate::exactness::inexact("a dynamic table holds at most four billion rows")
}
