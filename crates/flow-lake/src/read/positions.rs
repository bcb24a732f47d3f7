//! Position deletes of a snapshot, by data file.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection};

use super::plan::ScanPlan;
use crate::error::LakeError;
use crate::files;

/// Holds the deleted positions of each data file, ascending and without repeats.
pub(super) type DeletedPositions = HashMap<Arc<str>, Vec<u64>>;

/// Reads all delete files of a plan. Blocks. Takes eight bytes per deleted row of live files.
pub(super) fn load(plan: &ScanPlan) -> Result<DeletedPositions, LakeError> {
    let mut deleted: HashMap<Arc<str>, (i64, Vec<u64>)> = HashMap::new();
    if plan.position_deletes.is_empty() {
        return Ok(HashMap::new());
    }
    for file in &plan.data {
        deleted.insert(file.path.as_str().into(), (file.sequence_number, Vec::new()));
    }
    for file in &plan.position_deletes {
        let path = files::local_path(&file.path);
        let handle = File::open(&path).map_err(|e| LakeError::file("open", &path, e))?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(handle, options)
            .and_then(|builder| builder.build())
            .map_err(LakeError::parquet("read", &file.path))?;
        for batch in reader {
            let batch = batch.map_err(LakeError::arrow("read the deletes", &file.path))?;
            add(&mut deleted, &batch, file.sequence_number).ok_or_else(|| LakeError::Unsupported {
                table: file.path.clone(),
                reason: "it is not a position-delete file".to_owned(),
            })?;
        }
    }
    let sorted = deleted.into_iter().map(|(path, (_, mut positions))| {
        positions.sort_unstable();
        positions.dedup();
        (path, positions)
    });
    Ok(sorted.collect())
}

/// Adds a batch's deletes; `None` if its columns are not `file_path` and `pos`.
fn add(deleted: &mut HashMap<Arc<str>, (i64, Vec<u64>)>, batch: &RecordBatch, sequence_number: i64) -> Option<()> {
    let paths = batch.column_by_name("file_path")?.as_string_opt::<i32>()?;
    let positions = batch.column_by_name("pos")?.as_primitive_opt::<Int64Type>()?;
    if paths.null_count() > 0 || positions.null_count() > 0 {
        return None;
    }
    let mut row = 0;
    while row < batch.num_rows() {
        // Rows are sorted by file, so one look-up serves a whole run.
        let path = paths.value(row);
        let mut end = row + 1;
        while end < batch.num_rows() && paths.value(end) == path {
            end += 1;
        }
        if let Some((data_sequence_number, known)) = deleted.get_mut(path)
            && sequence_number >= *data_sequence_number
        {
            for position in &positions.values()[row..end] {
                known.push(u64::try_from(*position).ok()?);
            }
        }
        row = end;
    }
    Some(())
}

/// Selects the rows of a file that are not deleted.
pub(super) fn live_rows(rows: u64, deleted: &[u64]) -> RowSelection {
    let mut ranges = Vec::with_capacity(deleted.len() + 1);
    let mut start = 0;
    for position in deleted.iter().copied().take_while(|position| *position < rows) {
        ranges.push(start as usize..position as usize);
        start = position + 1;
    }
    ranges.push(start as usize..rows as usize);
    RowSelection::from_consecutive_ranges(ranges.into_iter().filter(|range| !range.is_empty()), rows as usize)
}

/// Counts up the positions of live rows.
#[derive(Debug)]
pub(super) struct LivePositions<'a> {
    next: u64,
    deleted: &'a [u64],
}

impl<'a> LivePositions<'a> {
    pub(super) fn new(deleted: &'a [u64]) -> Self {
        LivePositions { next: 0, deleted }
    }

    /// Gives the positions of the next `rows` live rows.
    pub(super) fn take(&mut self, rows: usize) -> Vec<u64> {
        let mut out = Vec::with_capacity(rows);
        while out.len() < rows {
            match self.deleted.first() {
                Some(deleted) if *deleted == self.next => self.deleted = &self.deleted[1..],
                _ => out.push(self.next),
            }
            self.next += 1;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_and_positions_agree() {
        let check = |rows: u64, deleted: &[u64], live: &[u64]| {
            let selection = live_rows(rows, deleted);
            assert_eq!(selection.row_count(), live.len(), "{rows} {deleted:?}");
            let mut positions = LivePositions::new(deleted);
            let half = live.len() / 2;
            let mut all = positions.take(half);
            all.extend(positions.take(live.len() - half));
            assert_eq!(all, live, "{rows} {deleted:?}");
        };
        check(0, &[], &[]);
        check(3, &[], &[0, 1, 2]);
        check(5, &[0], &[1, 2, 3, 4]);
        check(5, &[4], &[0, 1, 2, 3]);
        check(5, &[1, 2], &[0, 3, 4]);
        check(5, &[0, 2, 4], &[1, 3]);
        check(2, &[0, 1], &[]);
        check(2, &[0, 1, 2, 9], &[]);
    }
}
