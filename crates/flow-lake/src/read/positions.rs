//! Position deletes of a snapshot, by data file.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection};

use super::plan::{PlannedFile, ScanPlan};
use crate::error::LakeError;
use crate::files;

/// Holds the deleted positions of each data file, ascending and without repeats.
pub(super) type DeletedPositions = HashMap<Arc<str>, Vec<u64>>;

/// Reads all delete files of a plan. Blocks. Takes eight bytes per deleted row of live files.
pub(super) fn load(plan: &ScanPlan) -> Result<DeletedPositions, LakeError> {
    if plan.position_deletes.is_empty() {
        return Ok(HashMap::new());
    }
    let data: HashMap<&str, i64> = plan
        .data
        .iter()
        .map(|file| (file.path.as_str(), file.sequence_number))
        .collect();
    collect(&plan.position_deletes, |path, sequence_number| {
        data.get(path).is_some_and(|data| sequence_number >= *data)
    })
}

/// Reads delete files. Blocks. Takes eight bytes per deleted row.
///
/// `applies` says of a data file and a delete file's sequence number whether the deletes count.
pub(super) fn collect<'a>(
    files: impl IntoIterator<Item = &'a PlannedFile>,
    applies: impl Fn(&str, i64) -> bool,
) -> Result<DeletedPositions, LakeError> {
    let mut deleted = DeletedPositions::new();
    for file in files {
        let path = files::local_path(&file.path);
        let handle = File::open(&path).map_err(|e| LakeError::file("open", &path, e))?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(handle, options)
            .and_then(|builder| builder.build())
            .map_err(LakeError::parquet("read", &file.path))?;
        let counts = |path: &str| applies(path, file.sequence_number);
        for batch in reader {
            let batch = batch.map_err(LakeError::arrow("read the deletes", &file.path))?;
            add(&mut deleted, &batch, &counts).ok_or_else(|| LakeError::Unsupported {
                table: file.path.clone(),
                reason: "it is not a position-delete file".to_owned(),
            })?;
        }
    }
    for positions in deleted.values_mut() {
        positions.sort_unstable();
        positions.dedup();
    }
    Ok(deleted)
}

/// Adds a batch's deletes; `None` if its columns are not `file_path` and `pos`.
fn add(deleted: &mut DeletedPositions, batch: &RecordBatch, counts: &impl Fn(&str) -> bool) -> Option<()> {
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
        if counts(path) {
            let known = match deleted.get_mut(path) {
                Some(known) => known,
                None => deleted.entry(path.into()).or_default(),
            };
            for position in &positions.values()[row..end] {
                known.push(u64::try_from(*position).ok()?);
            }
        }
        row = end;
    }
    Some(())
}

/// Says which rows of a file are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    /// All but those at these positions, which ascend.
    Except(&'a [u64]),
    /// Those at these positions, which ascend.
    Only(&'a [u64]),
}

impl Wanted<'_> {
    /// Lists the wanted rows of a file as ranges.
    fn ranges(self, rows: u64) -> Vec<Range<usize>> {
        match self {
            Wanted::Except(deleted) => ranges_between(rows, deleted),
            Wanted::Only(positions) => runs(rows, positions),
        }
    }

    /// Chooses row groups, and the rows within those.
    ///
    /// `groups` counts the rows of each row group. A group without a wanted row is left out.
    pub(super) fn select(self, groups: &[usize]) -> (Vec<usize>, RowSelection) {
        let rows: usize = groups.iter().sum();
        let ranges = self.ranges(rows as u64);
        let (mut chosen, mut within) = (Vec::new(), Vec::with_capacity(ranges.len()));
        let (mut start, mut kept) = (0, 0);
        let mut left = &ranges[..];
        for (number, count) in groups.iter().enumerate() {
            let end = start + count;
            // A range may end in a later group, which then begins with it again.
            left = &left[left.partition_point(|range| range.end <= start)..];
            let here = &left[..left.partition_point(|range| range.start < end)];
            if !here.is_empty() && *count > 0 {
                let clip =
                    |range: &Range<usize>| range.start.max(start) - start + kept..range.end.min(end) - start + kept;
                within.extend(here.iter().map(clip));
                chosen.push(number);
                kept += count;
            }
            start = end;
        }
        (chosen, RowSelection::from_consecutive_ranges(within.into_iter(), kept))
    }
}

/// Lists the ranges of rows that are not deleted.
fn ranges_between(rows: u64, deleted: &[u64]) -> Vec<Range<usize>> {
    let mut ranges = Vec::with_capacity(deleted.len() + 1);
    let mut start = 0;
    for position in deleted.iter().copied().take_while(|position| *position < rows) {
        ranges.push(start as usize..position as usize);
        start = position + 1;
    }
    ranges.push(start as usize..rows as usize);
    ranges.retain(|range| !range.is_empty());
    ranges
}

/// Lists the ranges of neighbours among positions.
fn runs(rows: u64, positions: &[u64]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for position in positions.iter().copied().take_while(|position| *position < rows) {
        let at = position as usize;
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
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
            let (_, selection) = Wanted::Except(deleted).select(&[rows as usize]);
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

    #[test]
    fn only_row_groups_with_a_wanted_row_are_chosen() {
        let groups = [3, 2, 4, 0, 1];
        let all: Vec<u64> = (0..10).collect();
        // Every set of positions, against a walk over the rows.
        for set in 0..1024_u32 {
            let has = |at: &u64| set & (1 << *at) != 0;
            let positions: Vec<u64> = all.iter().copied().filter(has).collect();
            let others: Vec<u64> = all.iter().copied().filter(|at| !has(at)).collect();
            let (chosen, selection) = Wanted::Only(&positions).select(&groups);
            let same = Wanted::Except(&others).select(&groups);
            assert_eq!((&chosen, &selection), (&same.0, &same.1), "{positions:?}");
            let starts = [0, 3, 5, 9, 9];
            let rows_of = |group: usize| starts[group]..starts[group] + groups[group] as u64;
            let wanted: Vec<usize> = (0..5).filter(|group| rows_of(*group).any(|at| has(&at))).collect();
            assert_eq!(chosen, wanted, "{positions:?}");
            let kept: Vec<u64> = chosen.iter().flat_map(|group| rows_of(*group)).collect();
            let mut read: Vec<u64> = Vec::new();
            let mut at = 0;
            for part in selection.iter() {
                if !part.skip {
                    read.extend(&kept[at..at + part.row_count]);
                }
                at += part.row_count;
            }
            assert_eq!(read, positions);
        }
    }
}
