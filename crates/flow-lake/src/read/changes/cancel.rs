//! Rewritten files: of rows that were only carried over, nothing is told.
//!
//! The rows of the removed files are counted by content, the added files' rows take from the counts,
//! and what is left has gone. Memory is bounded: when the counted rows pass [`COUNTED_BYTES_MAX`], the
//! content is parted by hash in two, and each half is gone through by itself.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::SchemaRef;

use crate::error::LakeError;

/// Bounds the rows counted at a time, in bytes with what the map takes: a sixteenth of a gigabyte
/// holds half a million rows of a hundred bytes.
const COUNTED_BYTES_MAX: usize = 64 << 20;

/// Is what the map takes for an entry beside the row, in bytes.
const ENTRY_BYTES: usize = 64;

/// Is the number of parts from which no part is parted again: its rows are nearly all equal in hash.
const PARTS_MAX: u64 = 1 << 16;

/// Is a sequence of batches.
pub(super) type Batches<'a> = Box<dyn Iterator<Item = Result<RecordBatch, LakeError>> + 'a>;

/// Is the rows whose hash leaves this rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    rest: u64,
    of: u64,
}

impl Share {
    fn halves(self) -> [Share; 2] {
        let of = self.of * 2;
        [self.rest, self.rest + self.of].map(|rest| Share { rest, of })
    }
}

/// Tells equal rows by their bytes.
pub(super) struct Canceller {
    schema: SchemaRef,
    converter: RowConverter,
    hasher: BuildHasherDefault<DefaultHasher>,
    bytes_max: usize,
}

type Counts = HashMap<Box<[u8]>, u64>;

impl Canceller {
    /// Prepares for rows of a schema; `None` if they cannot be compared.
    pub(super) fn new(schema: &SchemaRef) -> Option<Canceller> {
        let fields = schema.fields().iter();
        let fields: Vec<_> = fields.map(|field| SortField::new(field.data_type().clone())).collect();
        Some(Canceller {
            schema: schema.clone(),
            converter: RowConverter::new(fields).ok()?,
            hasher: BuildHasherDefault::default(),
            bytes_max: COUNTED_BYTES_MAX,
        })
    }

    /// Gives what of the added rows came, with weight 1, and what of the removed went, with −1, until
    /// `give` says that nobody listens: then it is `false`.
    pub(super) fn run<'a>(
        &self,
        removed: &dyn Fn() -> Batches<'a>,
        added: &dyn Fn() -> Batches<'a>,
        give: &mut dyn FnMut(RecordBatch, i64) -> bool,
    ) -> Result<bool, LakeError> {
        let mut shares = vec![Share { rest: 0, of: 1 }];
        while let Some(share) = shares.pop() {
            let Some(mut counts) = self.count(share, removed())? else {
                shares.extend(share.halves());
                continue;
            };
            let came = self.take(share, &mut counts, added(), false, &mut |batch| give(batch, 1))?;
            let went = match counts.is_empty() {
                true => true,
                false => self.take(share, &mut counts, removed(), true, &mut |batch| give(batch, -1))?,
            };
            if !(came && went) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the rows of a share; `None` if they take too much memory.
    fn count(&self, share: Share, batches: Batches<'_>) -> Result<Option<Counts>, LakeError> {
        let mut counts = Counts::new();
        let mut bytes = 0;
        for batch in batches {
            self.each_row(share, &batch?, &mut |_, row| match counts.get_mut(row) {
                Some(count) => *count += 1,
                None => {
                    bytes += row.len() + ENTRY_BYTES;
                    counts.insert(row.into(), 1);
                }
            })?;
            if bytes > self.bytes_max && share.of < PARTS_MAX {
                return Ok(None);
            }
        }
        Ok(Some(counts))
    }

    /// Takes a share's rows from the counts, and gives those that were counted, or those that were not.
    fn take(
        &self,
        share: Share,
        counts: &mut Counts,
        batches: Batches<'_>,
        counted: bool,
        give: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool, LakeError> {
        for batch in batches {
            let batch = batch?;
            let mut given = vec![false; batch.num_rows()];
            self.each_row(share, &batch, &mut |at, row| {
                given[at] = take_one(counts, row) == counted
            })?;
            if !given.contains(&true) {
                continue;
            }
            let chosen = arrow_select::filter::filter_record_batch(&batch, &BooleanArray::from(given))
                .map_err(LakeError::arrow("choose rows", "a rewritten file"))?;
            if !give(chosen) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn each_row(
        &self,
        share: Share,
        batch: &RecordBatch,
        visit: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), LakeError> {
        debug_assert!(Arc::ptr_eq(&self.schema, batch.schema_ref()) || &self.schema == batch.schema_ref());
        if batch.num_columns() == 0 {
            // Rows without a column are all equal.
            (0..batch.num_rows()).for_each(|at| visit(at, &[]));
            return Ok(());
        }
        let rows = self
            .converter
            .convert_columns(batch.columns())
            .map_err(LakeError::arrow("compare rows", "a rewritten file"))?;
        for (at, row) in rows.iter().enumerate() {
            let bytes: &[u8] = row.as_ref();
            if share.of == 1 || self.hasher.hash_one(bytes) % share.of == share.rest {
                visit(at, bytes);
            }
        }
        Ok(())
    }
}

/// Takes one row from the counts; `false` if none is left.
fn take_one(counts: &mut Counts, row: &[u8]) -> bool {
    let Some(count) = counts.get_mut(row) else {
        return false;
    };
    *count -= 1;
    if *count == 0
        && let Entry::Occupied(entry) = counts.entry(row.into())
    {
        entry.remove();
    }
    true
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn schema() -> SchemaRef {
        let fields = vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
        ];
        Arc::new(Schema::new(fields))
    }

    fn batch(rows: &[i64]) -> RecordBatch {
        let ids = Int64Array::from_iter(rows.iter().map(|n| (n % 7 != 0).then_some(*n)));
        let names = StringArray::from_iter(rows.iter().map(|n| (n % 5 != 0).then(|| format!("name {n}"))));
        RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names)]).expect("a batch")
    }

    fn pretty(batch: &RecordBatch) -> Vec<String> {
        use arrow_array::cast::AsArray;
        use arrow_array::types::Int64Type;
        let (ids, names) = (
            batch.column(0).as_primitive::<Int64Type>(),
            batch.column(1).as_string::<i32>(),
        );
        ids.iter().zip(names).map(|pair| format!("{pair:?}")).collect()
    }

    #[test]
    fn what_is_carried_over_is_not_told_however_little_memory_there_is() {
        let removed: Vec<i64> = (0..500).chain(100..150).collect();
        let added: Vec<i64> = (20..520).chain(100..120).chain(100..120).collect();
        let mut wanted: HashMap<String, i64> = HashMap::new();
        for (rows, weight) in [(&removed, -1), (&added, 1)] {
            for row in pretty(&batch(rows)) {
                *wanted.entry(row).or_default() += weight;
            }
        }
        wanted.retain(|_, weight| *weight != 0);
        for bytes_max in [1 << 20, 4000, 1] {
            let mut canceller = Canceller::new(&schema()).expect("comparable");
            canceller.bytes_max = bytes_max;
            let batches = |rows: &[i64]| -> Batches<'static> {
                let chunks: Vec<_> = rows.chunks(64).map(|chunk| Ok(batch(chunk))).collect();
                Box::new(chunks.into_iter())
            };
            let mut found: HashMap<String, i64> = HashMap::new();
            let mut told = 0;
            let all = canceller.run(&|| batches(&removed), &|| batches(&added), &mut |batch, weight| {
                told += batch.num_rows() as i64;
                for row in pretty(&batch) {
                    *found.entry(row).or_default() += weight;
                }
                true
            });
            assert!(all.expect("no error"));
            assert_eq!(found, wanted, "{bytes_max}");
            assert_eq!(
                told,
                wanted.values().map(|weight| weight.abs()).sum::<i64>(),
                "{bytes_max}"
            );
        }
    }
}
