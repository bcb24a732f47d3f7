//! What operations changed in tables that dynamic tables read, kept in memory for the refreshes to come.
//!
//! 1. Who writes a table's part of an operation notes the rows and places as it hands them to the lake.
//! 2. When the operation is complete, the note is kept under the snapshots between which it lies.
//! 3. A refresh takes exactly its interval: a chain of notes from one snapshot to the other, merged.
//!
//! # Invariants
//! - What is taken is what the lake tells of the same interval, by place. Builds with debug assertions
//!   ask the lake, too, and compare.
//! - Notes are a cache: within a budget the newest stay, and who does not find one asks the lake.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{BooleanArray, RecordBatch};
use flow_core::TableName;
use flow_core::lake::{LakeReadError, LocatedBatch};
use flow_lake::{Place, PlacedChanges, Places, WrittenFile};
use futures::StreamExt;

use crate::error::EngineError;

/// Is what one operation changes in one table.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Holds rows, each batch where the writer put it.
    came: Vec<(Place, RecordBatch)>,
    went: Vec<(Arc<str>, u64)>,
    bytes: usize,
}

/// Notes one table's part of an operation; nothing where nobody reads the table, or it is too much.
#[derive(Debug)]
pub(crate) struct Noting {
    note: Option<Note>,
    bytes_max: usize,
}

impl Noting {
    /// Begins a note; `wanted` says whether somebody reads the table.
    pub(crate) fn new(wanted: bool, bytes_max: usize) -> Self {
        Noting {
            note: wanted.then(Note::default),
            bytes_max,
        }
    }

    /// Notes rows that were written.
    pub(crate) fn came(&mut self, place: Place, batch: &RecordBatch) {
        let bytes = batch.get_array_memory_size();
        self.note(bytes, |note| note.came.push((place, batch.clone())));
    }

    /// Notes rows that were deleted.
    pub(crate) fn went(&mut self, went: &[(Arc<str>, u64)]) {
        self.note(std::mem::size_of_val(went), |note| note.went.extend_from_slice(went));
    }

    fn note(&mut self, bytes: usize, add: impl FnOnce(&mut Note)) {
        let Some(note) = &mut self.note else { return };
        note.bytes += bytes;
        match note.bytes <= self.bytes_max {
            true => add(note),
            false => self.note = None,
        }
    }

    /// Gives the note, whose files are those `added`.
    pub(crate) fn finish(self, added: &[WrittenFile]) -> Option<Changed> {
        let note = self.note?;
        let mut came = Vec::with_capacity(note.came.len());
        for (place, batch) in note.came {
            let rows = batch.num_rows() as u64;
            came.push(LocatedBatch {
                file: added.get(place.file)?.path.as_str().into(),
                positions: (place.position..place.position + rows).collect(),
                batch,
            });
        }
        Some(Changed {
            came,
            went: note.went,
            bytes: note.bytes,
        })
    }
}

/// Is a note whose places are known.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    came: Vec<LocatedBatch>,
    went: Vec<(Arc<str>, u64)>,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    table: TableName,
    from: i64,
    to: i64,
    changed: Changed,
}

/// Keeps notes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    kept: Mutex<VecDeque<Kept>>,
}

impl Handover {
    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.kept.lock().expect("a thread that held the notes panicked")
    }

    /// Keeps what changed in a table between two snapshots; all notes together take `bytes_max` at most.
    pub(crate) fn keep(&self, table: &TableName, (from, to): (i64, i64), changed: Changed, bytes_max: usize) {
        let mut kept = self.kept();
        kept.push_back(Kept {
            table: table.clone(),
            from,
            to,
            changed,
        });
        let mut bytes: usize = kept.iter().map(|kept| kept.changed.bytes).sum();
        while bytes > bytes_max
            && let Some(oldest) = kept.pop_front()
        {
            bytes -= oldest.changed.bytes;
        }
    }

    /// Gives what changed in a table between two snapshots, in the named columns; `None` if a part of
    /// that is not here.
    pub(crate) fn changes(
        &self,
        table: &TableName,
        (from, to): (i64, i64),
        columns: &[String],
    ) -> Result<Option<PlacedChanges>, EngineError> {
        let mut chain: Vec<Changed> = Vec::new();
        let mut at = from;
        for kept in self.kept().iter().filter(|kept| kept.table == *table) {
            if at != to && kept.from == at {
                chain.push(kept.changed.clone());
                at = kept.to;
            }
        }
        if at != to {
            return Ok(None);
        }
        let (came, went) = merged(chain)?;
        let project = |located: LocatedBatch| {
            let schema = located.batch.schema();
            let places = columns.iter().map(|column| schema.index_of(column).ok());
            let batch = located.batch.project(&places.collect::<Option<Vec<_>>>()?).ok()?;
            Some(LocatedBatch { batch, ..located })
        };
        // The table had other columns then.
        let Some(came) = came.into_iter().map(project).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        Ok(Some(PlacedChanges {
            inserted: came.iter().map(|located| located.positions.len() as u64).sum(),
            deleted: went.iter().map(|places| places.positions.len() as u64).sum(),
            went,
            came: Box::pin(futures::stream::iter(came).map(Ok::<_, LakeReadError>)),
        }))
    }
}

/// Puts changes together that follow each other: what came in one and went in a later is in neither.
fn merged(chain: Vec<Changed>) -> Result<(Vec<LocatedBatch>, Vec<Places>), EngineError> {
    let files: BTreeSet<Arc<str>> = chain
        .iter()
        .flat_map(|c| c.came.iter().map(|l| l.file.clone()))
        .collect();
    let mut went: BTreeMap<Arc<str>, Vec<u64>> = BTreeMap::new();
    let mut came = Vec::new();
    for changed in chain {
        came.extend(changed.came);
        for (file, position) in changed.went {
            went.entry(file).or_default().push(position);
        }
    }
    went.values_mut().for_each(|positions| positions.sort_unstable());
    for located in &mut came {
        if let Some(gone) = went.get(&located.file) {
            let stays = |position: &u64| gone.binary_search(position).is_err();
            let keep: BooleanArray = located.positions.iter().map(|at| Some(stays(at))).collect();
            let batch = arrow_select::filter::filter_record_batch(&located.batch, &keep);
            located.batch = batch.map_err(|error| EngineError::Invariant(format!("rows of a note: {error}")))?;
            located.positions.retain(stays);
        }
    }
    came.retain(|located| !located.positions.is_empty());
    went.retain(|file, _| !files.contains(file));
    let went = went.into_iter().map(|(file, positions)| Places { file, positions });
    Ok((came, went.collect()))
}

/// Compares what was taken with what the lake tells, and gives it back.
///
/// # Errors
/// Invariant: they differ.
pub(crate) async fn compared(
    table: &TableName,
    taken: PlacedChanges,
    told: PlacedChanges,
) -> Result<PlacedChanges, EngineError> {
    let differs = |what: &str| EngineError::Invariant(format!("{what} of {table} differ from what the lake tells"));
    let mut sides = Vec::new();
    for side in [taken, told] {
        let mut rows = BTreeMap::new();
        let mut batches = Vec::new();
        let mut came = side.came;
        while let Some(located) = came.next().await {
            let located = located.map_err(|error| EngineError::Invariant(error.to_string()))?;
            for (row, position) in located.positions.iter().enumerate() {
                rows.insert((located.file.clone(), *position), located.batch.slice(row, 1));
            }
            batches.push(located);
        }
        let went: BTreeSet<(Arc<str>, u64)> = side
            .went
            .iter()
            .flat_map(|places| places.positions.iter().map(|at| (places.file.clone(), *at)))
            .collect();
        sides.push((rows, went, batches, side.went, side.inserted, side.deleted));
    }
    let (told_rows, told_went, ..) = sides.pop().ok_or_else(|| differs("sides"))?;
    let (rows, went, batches, places, inserted, deleted) = sides.pop().ok_or_else(|| differs("sides"))?;
    if went != told_went {
        return Err(differs("places of rows that went"));
    }
    let same = |(a, b): (&RecordBatch, &RecordBatch)| a.columns() == b.columns();
    if !rows.keys().eq(told_rows.keys()) || !rows.values().zip(told_rows.values()).all(same) {
        return Err(differs("rows that came"));
    }
    Ok(PlacedChanges {
        inserted,
        deleted,
        went: places,
        came: Box::pin(futures::stream::iter(batches).map(Ok::<_, LakeReadError>)),
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;

    use super::*;

    fn changed(file: &str, rows: std::ops::Range<i64>, went: &[(&str, u64)]) -> Changed {
        let column: Arc<dyn arrow_array::Array> = Arc::new(Int64Array::from_iter_values(rows.clone()));
        Changed {
            came: vec![LocatedBatch {
                file: file.into(),
                positions: (0..rows.end as u64 - rows.start as u64).collect(),
                batch: RecordBatch::try_from_iter([("id", column)]).expect("a batch"),
            }],
            went: went.iter().map(|(file, at)| (Arc::from(*file), *at)).collect(),
            bytes: 1,
        }
    }

    #[test]
    fn what_came_and_went_is_in_neither() {
        let chain = vec![
            changed("b", 10..13, &[("a", 7), ("a", 2)]),
            changed("c", 20..22, &[("b", 1), ("a", 3)]),
            changed("d", 30..31, &[("c", 0), ("c", 1)]),
        ];
        let (came, went) = merged(chain).expect("merges");
        let came: Vec<_> = came
            .iter()
            .map(|l| (&*l.file, l.positions.clone(), l.batch.num_rows()))
            .collect();
        assert_eq!(came, [("b", vec![0, 2], 2), ("d", vec![0], 1)]);
        let positions = vec![2, 3, 7];
        assert_eq!(
            went,
            [Places {
                file: "a".into(),
                positions
            }]
        );
    }
}
