//! Compares a computed table with the stored one, as multisets of rows.
//!
//! 1. [`Difference::computed`] takes the result's batches and keeps each row as bytes, whose
//!    equality is equality of every value, bit for bit, NULL equal to NULL.
//! 2. [`Difference::stored`] takes the stored rows with their places: a row that has a twin among
//!    the computed ones pairs off with it, any other is to be deleted.
//! 3. [`Difference::finish`] gives the computed rows that found no twin.
//!
//! Memory: one copy of the computed rows and some 30 bytes a row, up to a bound. Behind it both sides
//! go to files, in parts by a hash of the row, and part after part is compared. Where nothing is
//! stored there is nothing to compare, and the rows pass. The places of rows to delete stay in memory
//! and have a bound of the same size.

mod pairs;
mod parts;

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SchemaRef;
use datafusion::common::{Result, resources_err};

use self::pairs::Pairs;
use self::parts::Parts;
use crate::output::cast_columns;
use crate::spool::{Scratch, Spool, Spooled};

/// Is how many rows an inserted batch holds at most.
const BATCH_ROWS_MAX: usize = 8192;

/// Is the part of the bound that rows to insert may take, beside what is compared.
const SPOOL_SHARE: usize = 4;

/// Bounds what a comparison holds.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// Is how many bytes of computed rows are held.
    pub(crate) bytes: usize,
    /// Is where the others go.
    pub(crate) scratch: Scratch,
}

/// Is a row's place in the stored table.
type Place = (Arc<str>, u64);

/// Compares a computed table with a stored one.
pub(crate) struct Difference {
    /// Holds the user's columns of the table, in its own types.
    schema: SchemaRef,
    converter: RowConverter,
    hasher: std::hash::RandomState,
    bound: Bound,
    /// Says whether stored rows may come.
    compares: bool,
    pairs: Pairs,
    /// Is there once the computed rows did not fit.
    parts: Option<Parts>,
    inserted: Spool,
    deleted: Vec<Place>,
}

impl Difference {
    /// Starts with nothing computed. `schema` holds the user's columns only; without `compares`, no
    /// stored row may come.
    pub(crate) fn new(schema: SchemaRef, compares: bool, bound: Bound) -> Result<Self> {
        let fields = schema
            .fields()
            .iter()
            .map(|field| SortField::new(field.data_type().clone()));
        Ok(Difference {
            converter: RowConverter::new(fields.collect())?,
            hasher: std::hash::RandomState::new(),
            inserted: Spool::new(schema.clone(), bound.scratch.clone(), bound.bytes / SPOOL_SHARE),
            schema,
            bound,
            compares,
            pairs: Pairs::default(),
            parts: None,
            deleted: Vec::new(),
        })
    }

    fn encode(&self, columns: &[ArrayRef]) -> Result<Rows> {
        let columns = cast_columns(columns, self.schema.fields())?;
        Ok(self.converter.convert_columns(&columns)?)
    }

    /// Takes a batch of the result.
    pub(crate) fn computed(&mut self, batch: &RecordBatch) -> Result<()> {
        if !self.compares && self.pairs.is_closed() {
            let columns = cast_columns(batch.columns(), self.schema.fields())?;
            return self.inserted.push(RecordBatch::try_new(self.schema.clone(), columns)?);
        }
        let encoded = self.encode(batch.columns())?;
        for row in &encoded {
            let hash = self.hasher.hash_one(row.data());
            match &mut self.parts {
                Some(parts) => parts.computed(hash, row.data())?,
                None => self.pairs.add(hash, row.data())?,
            }
        }
        if self.pairs.bytes() <= self.bound.bytes {
            return Ok(());
        }
        if self.compares {
            let mut parts = Parts::create(self.bound.scratch.clone())?;
            for (hash, row) in self.pairs.all() {
                parts.computed(hash, row)?;
            }
            self.parts = Some(parts);
        } else {
            self.insert_left()?;
        }
        self.pairs.close();
        Ok(())
    }

    /// Takes stored rows of one file, user columns only, in the table's order.
    pub(crate) fn stored(&mut self, file: &Arc<str>, positions: &[u64], columns: &[ArrayRef]) -> Result<()> {
        debug_assert!(self.compares, "stored rows come where they were announced");
        let encoded = self.encode(columns)?;
        for (row, position) in encoded.iter().zip(positions) {
            let hash = self.hasher.hash_one(row.data());
            match &mut self.parts {
                Some(parts) => parts.stored(hash, row.data(), file, *position)?,
                None if self.pairs.pair(hash, row.data()) => {}
                None => self.deleted.push((file.clone(), *position)),
            }
        }
        self.check_memory()
    }

    /// Refuses to hold much more than the bound: places beside rows.
    fn check_memory(&self) -> Result<()> {
        let places = self.deleted.len() * size_of::<Place>();
        match places.max(self.pairs.bytes()) <= self.bound.bytes {
            true => Ok(()),
            false => resources_err!("more than {} bytes to compare rows", self.bound.bytes),
        }
    }

    /// Hands on the computed rows that found no twin, in the order of their bytes.
    fn insert_left(&mut self) -> Result<()> {
        let left = self.pairs.left();
        for chunk in left.chunks(BATCH_ROWS_MAX) {
            let parser = self.converter.parser();
            let rows = chunk.iter().map(|row| parser.parse(self.pairs.row(*row)));
            let columns = cast_columns(&self.converter.convert_rows(rows)?, self.schema.fields())?;
            self.inserted
                .push(RecordBatch::try_new(self.schema.clone(), columns)?)?;
        }
        Ok(())
    }

    /// Ends the comparison: gives the rows to insert, and the places of those to delete, sorted.
    pub(crate) fn finish(mut self) -> Result<(Spooled, Vec<Place>)> {
        if let Some(parts) = self.parts.take() {
            for part in parts.finish()? {
                self.pairs = Pairs::default();
                part.computed(|row| {
                    let hash = self.hasher.hash_one(row);
                    self.pairs.add(hash, row)
                })?;
                self.check_memory()?;
                part.stored(|row, file, position| {
                    if !self.pairs.pair(self.hasher.hash_one(row), row) {
                        self.deleted.push((file.clone(), position));
                    }
                })?;
                self.check_memory()?;
                self.insert_left()?;
            }
        } else {
            self.insert_left()?;
        }
        self.deleted.sort_unstable();
        Ok((self.inserted.finish()?, self.deleted))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use arrow_array::{Int64Array, StringArray};

    use super::*;

    fn columns(rows: &[u64]) -> Vec<ArrayRef> {
        let text = |row: &u64| (!row.is_multiple_of(5)).then(|| "t".repeat((*row % 40) as usize));
        vec![
            Arc::new(Int64Array::from_iter(
                rows.iter().map(|row| (row % 7 != 0).then_some(*row as i64)),
            )),
            Arc::new(StringArray::from_iter(rows.iter().map(text))),
        ]
    }

    fn batch(rows: &[u64]) -> RecordBatch {
        let [number, text] = columns(rows).try_into().expect("two");
        RecordBatch::try_from_iter_with_nullable([("n", number, true), ("t", text, true)]).expect("a batch")
    }

    fn counted(rows: impl IntoIterator<Item = u64>) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        rows.into_iter()
            .for_each(|row| *counts.entry(format!("{:?}", batch(&[row]))).or_default() += 1);
        counts
    }

    fn shown(inserted: Spooled) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        for batch in inserted.batches().expect("opens") {
            let batch = batch.expect("reads");
            for row in 0..batch.num_rows() {
                *counts.entry(format!("{:?}", batch.slice(row, 1))).or_default() += 1;
            }
        }
        counts
    }

    fn computed_within(bytes: usize, compares: bool, folder: &Path, computed: &[u64]) -> Difference {
        let scratch = Scratch {
            folder: folder.to_owned(),
            bytes_max: 1 << 30,
        };
        let bound = Bound { bytes, scratch };
        let mut difference = Difference::new(batch(&[]).schema(), compares, bound).expect("starts");
        for rows in computed.chunks(100) {
            difference.computed(&batch(rows)).expect("taken");
        }
        difference
    }

    #[test]
    fn what_differs_is_the_same_within_any_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let computed: Vec<u64> = (0..5000).map(|n| n * n % 997).collect();
        let stored: Vec<u64> = (0..4000).map(|n| n * n * n % 1201).collect();
        let mut wanted = counted(computed.iter().copied());
        for (row, count) in counted(stored.iter().copied()) {
            *wanted.entry(row).or_default() -= count;
        }
        wanted.retain(|_, count| *count != 0);
        for bytes in [100_000, 200_000, 10_000_000] {
            let mut difference = computed_within(bytes, true, folder.path(), &computed);
            assert_eq!(difference.parts.is_some(), bytes < 10_000_000, "{bytes}");
            for (number, rows) in stored.chunks(1000).enumerate() {
                let file: Arc<str> = number.to_string().into();
                let positions: Vec<u64> = (0..1000).collect();
                difference.stored(&file, &positions, &columns(rows)).expect("taken");
            }
            let (inserted, deleted) = difference.finish().expect("ends");
            let mut found = shown(inserted);
            assert!(deleted.is_sorted());
            for (file, position) in deleted {
                let file: usize = file.parse().expect("a number");
                let row = stored[file * 1000 + position as usize];
                *found.entry(format!("{:?}", batch(&[row]))).or_default() -= 1;
            }
            assert_eq!(found, wanted, "within {bytes}");
        }
    }

    #[test]
    fn all_rows_pass_where_nothing_is_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let computed: Vec<u64> = (0..5000).map(|n| n * n % 997).collect();
        for bytes in [100_000, 200_000, 10_000_000] {
            let difference = computed_within(bytes, false, folder.path(), &computed);
            assert_eq!(difference.pairs.is_closed(), bytes < 10_000_000, "{bytes}");
            let (inserted, deleted) = difference.finish().expect("ends");
            assert_eq!((inserted.rows(), deleted.len()), (5000, 0));
            let found = shown(inserted);
            assert_eq!(found, counted(computed.iter().copied()), "within {bytes}");
        }
    }
}
