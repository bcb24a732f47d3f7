//! What changed in the inputs of an incremental refresh.
//!
//! 1. [`find`] asks the lake what changed between the stored frontier and the wanted one, and counts.
//!    No row is read for that.
//! 2. [`gather`] makes rows with weights of it: those that came from their files, those that went from
//!    the copies that the state keeps of them, or, where there is none, from the lake by place.
//! 3. Where a change cannot be told by place (rewritten files, tables of other programs), the lake
//!    reads both.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use flow_core::arrow::FIELD_ID_KEY;
use flow_core::changes::{ChangeBatch, ChangeStream, Changes};
use flow_core::frontier::Frontier;
use flow_core::lake::{LakeReadError, LakeTable, SnapshotReader};
use flow_core::state::StateReader;
use flow_lake::{PlacedChanges, Places};
use flow_refresh::{DeltaInput, DeltaPlan, InputChanges, PlannedTable, RefreshContext, RefreshError};
use flow_store::RefreshRecord;
use futures::StreamExt;

use crate::error::EngineError;
use crate::handover;
use crate::input_copies::{CopyDelta, InputCopies, keeps_copies};
use crate::shared::Shared;

/// Says why a refresh is a full one: a code in capitals, as `history` shows it.
pub(crate) type Full = &'static str;

/// Is the part of a refresh's memory that its inputs' changes may take.
const CHANGES_SHARE: usize = 4;

/// Is how many copies are looked up at once.
const PART_ROWS: usize = 8192;

/// Is what the removal of a copy takes: its key, and its entry in the delta.
const REMOVED_BYTES: usize = 96;

/// Is what changed, before a row is read.
pub(crate) struct Found {
    inputs: Vec<FoundInput>,
    /// Counts the rows that came or went.
    pub(crate) changed: u64,
    /// Counts the rows that the inputs have.
    pub(crate) whole: u64,
}

struct FoundInput {
    input: DeltaInput,
    /// Is its number among the plan's inputs.
    number: usize,
    /// Is the snapshot up to which the change goes.
    to: Option<i64>,
    columns: Vec<usize>,
    source: Source,
}

/// Is where the rows of a change are read.
enum Source {
    Placed(PlacedChanges),
    Lake(ChangeStream),
}

/// Is what changed, as rows.
pub(crate) struct Gathered {
    pub(crate) changes: InputChanges,
    /// Is what becomes of the copies of input rows.
    pub(crate) copies: CopyDelta,
    /// Counts the rows read, from the lake and from copies.
    pub(crate) rows_read: u64,
}

fn read_error(planned: &PlannedTable) -> impl Fn(LakeReadError) -> RefreshError {
    let table = planned.name.to_string();
    move |source| RefreshError::Read {
        table: table.clone(),
        source,
    }
}

/// Finds what changed in every input.
pub(crate) async fn find(
    shared: &Arc<Shared>,
    plan: &DeltaPlan,
    record: &RefreshRecord,
    planned: &PlannedTable,
    wanted: &Frontier,
) -> Result<Result<Found, Full>, EngineError> {
    let read = read_error(planned);
    let mut found = Found {
        inputs: Vec::new(),
        changed: 0,
        whole: 0,
    };
    for (number, input) in plan.inputs().iter().enumerate() {
        let name = &input.name;
        let from = record.frontier.0.get(&name.to_string()).copied().flatten();
        let to = wanted.0.get(&name.to_string()).copied().flatten();
        let loaded = SnapshotReader::load(&shared.lake, name).await.map_err(&read)?;
        let Some(loaded) = loaded else {
            return Ok(Err("INPUT_NOT_DESCENDED"));
        };
        found.whole += loaded.rows_at(to).unwrap_or(0);
        if from == to {
            continue;
        }
        let columns = places_of(&loaded, to, input).filter(|_| are_same(&loaded, from, to, input));
        let Some(columns) = columns else {
            return Ok(Err("INPUT_COLUMNS"));
        };
        let (source, changed) = match source(shared, planned, input, (from, to), &columns).await? {
            Ok(found) => found,
            Err(full) => return Ok(Err(full)),
        };
        found.changed += changed;
        found.inputs.push(FoundInput {
            input: input.clone(),
            number,
            to,
            columns,
            source,
        });
    }
    Ok(Ok(found))
}

/// Finds where the rows of a change are read, and counts them.
async fn source(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    input: &DeltaInput,
    (from, to): (Option<i64>, Option<i64>),
    columns: &[usize],
) -> Result<Result<(Source, u64), Full>, EngineError> {
    let read = read_error(planned);
    if let (Some(from), Some(to)) = (from, to)
        && let Some(placed) = placed(shared, input, (from, to), columns, &read).await?
    {
        let changed = placed.inserted + placed.deleted;
        return Ok(Ok((Source::Placed(placed), changed)));
    }
    let name = &input.name;
    let changes = shared.lake.changes(name, from, to, Some(columns.to_vec())).await;
    Ok(match changes.map_err(read)? {
        Changes::Unknown(gap) => Err(gap.code()),
        Changes::Rows {
            inserted,
            deleted,
            batches,
        } => Ok((Source::Lake(batches), inserted + deleted)),
    })
}

/// Takes what was handed over in memory, or asks the lake.
async fn placed(
    shared: &Arc<Shared>,
    input: &DeltaInput,
    (from, to): (i64, i64),
    columns: &[usize],
    read: &impl Fn(LakeReadError) -> RefreshError,
) -> Result<Option<PlacedChanges>, EngineError> {
    let name = &input.name;
    let taken = shared.handover.changes(name, (from, to), &input.columns)?;
    if taken.is_some() && !cfg!(debug_assertions) {
        return Ok(taken);
    }
    let told = shared
        .lake
        .changes_by_place(name, from, to, Some(columns.to_vec()))
        .await;
    match (taken, told.map_err(read)?) {
        (Some(taken), Some(told)) => handover::compared(name, taken, told).await.map(Some),
        (taken, told) => Ok(taken.or(told)),
    }
}

/// Lists the places of an input's columns in a snapshot; `None` if one is not there.
pub(crate) fn places_of(table: &LakeTable, snapshot: Option<i64>, input: &DeltaInput) -> Option<Vec<usize>> {
    let schema = table.schema_at(snapshot);
    let place = |column: &String| schema.index_of(column).ok();
    input.columns.iter().map(place).collect()
}

/// Says whether the names that are read mean the same columns in both snapshots: another program may
/// have given them to others, which the lake, that goes by field ids, holds for no change.
fn are_same(table: &LakeTable, from: Option<i64>, to: Option<i64>, input: &DeltaInput) -> bool {
    let (before, after) = (table.schema_at(from), table.schema_at(to));
    let id = |schema: &SchemaRef, column: &str| {
        let field = schema.field_with_name(column).ok();
        field.and_then(|field| field.metadata().get(FIELD_ID_KEY).cloned())
    };
    from.is_none()
        || input
            .columns
            .iter()
            .all(|column| id(before, column) == id(after, column))
}

/// Is what is gathered so far, within its bound.
struct Gathering {
    gathered: Gathered,
    batches: Vec<ChangeBatch>,
    bytes: usize,
    bytes_max: usize,
}

/// Says that a change does not fit memory.
struct TooLarge;

impl Gathering {
    fn push(&mut self, batch: ChangeBatch) -> Result<(), TooLarge> {
        self.gathered.rows_read += batch.weights.len() as u64;
        let bytes = batch.rows.get_array_memory_size();
        self.batches.push(batch);
        self.grow(bytes)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes += bytes;
        match self.bytes <= self.bytes_max {
            true => Ok(()),
            false => Err(TooLarge),
        }
    }
}

/// Reads what was found; `state` is the table's, at the stored frontier.
pub(crate) async fn gather(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    found: Found,
    state: &dyn StateReader,
    context: &RefreshContext,
) -> Result<Result<Gathered, Full>, EngineError> {
    let mut gathering = Gathering {
        gathered: Gathered {
            changes: InputChanges::new(),
            copies: CopyDelta::new(),
            rows_read: 0,
        },
        batches: Vec::new(),
        bytes: 0,
        bytes_max: context.memory_bytes / CHANGES_SHARE,
    };
    for found in found.inputs {
        let name = found.input.name.clone();
        let Ok(()) = gather_input(shared, planned, found, state, &mut gathering).await? else {
            return Ok(Err("CHANGE_EXCEEDS_MEMORY"));
        };
        let batches = std::mem::take(&mut gathering.batches);
        gathering.gathered.changes.insert(name, batches);
    }
    Ok(Ok(gathering.gathered))
}

async fn gather_input(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    found: FoundInput,
    state: &dyn StateReader,
    out: &mut Gathering,
) -> Result<Result<(), TooLarge>, EngineError> {
    let read = read_error(planned);
    let placed = match found.source {
        Source::Placed(placed) => placed,
        Source::Lake(mut batches) => {
            while let Some(batch) = batches.next().await {
                if out.push(batch.map_err(&read)?).is_err() {
                    return Ok(Err(TooLarge));
                }
            }
            return Ok(Ok(()));
        }
    };
    let copies = InputCopies::new(planned, &found.input, found.number)?;
    let kept = keeps_copies(shared, &found.input.name);
    let mut came = placed.came;
    while let Some(located) = came.next().await {
        let located = located.map_err(&read)?;
        let bytes = match kept {
            true => copies.came(&located, &mut out.gathered.copies)?,
            false => 0,
        };
        if out
            .grow(bytes)
            .and(out.push(ChangeBatch::of(located.batch, 1)))
            .is_err()
        {
            return Ok(Err(TooLarge));
        }
    }
    let mut missed = Vec::new();
    for places in in_parts(placed.went) {
        let went = copies.went(state, &places, &mut out.gathered.copies)?;
        missed.extend(went.missed);
        let removed = went.rows.num_rows() * REMOVED_BYTES;
        if out.grow(removed).and(out.push(ChangeBatch::of(went.rows, -1))).is_err() {
            return Ok(Err(TooLarge));
        }
    }
    let Some(to) = found.to.filter(|_| !missed.is_empty()) else {
        return Ok(Ok(()));
    };
    let rows = shared.lake.rows_at(&found.input.name, to, missed, Some(found.columns));
    let mut rows = rows.await.map_err(&read)?;
    while let Some(located) = rows.next().await {
        if out.push(ChangeBatch::of(located.map_err(&read)?.batch, -1)).is_err() {
            return Ok(Err(TooLarge));
        }
    }
    Ok(Ok(()))
}

/// Cuts places into parts of few rows.
fn in_parts(places: Vec<Places>) -> Vec<Vec<Places>> {
    let mut parts = vec![Vec::new()];
    let mut room = PART_ROWS;
    for Places { file, positions } in places {
        let mut left = &positions[..];
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(room));
            let part = Places {
                file: file.clone(),
                positions: now.to_vec(),
            };
            parts.last_mut().expect("there is a part").push(part);
            (left, room) = (later, room - now.len());
            if room == 0 {
                parts.push(Vec::new());
                room = PART_ROWS;
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_hold_all_places_in_order() {
        for counts in [
            vec![],
            vec![3],
            vec![PART_ROWS],
            vec![PART_ROWS + 1, 2],
            vec![5, PART_ROWS * 2, 7],
        ] {
            let places = counts.iter().enumerate().map(|(file, count)| Places {
                file: file.to_string().into(),
                positions: (0..*count as u64).collect(),
            });
            let flat = |places: &[Places]| -> Vec<(Arc<str>, u64)> {
                let each = |p: &Places| p.positions.iter().map(|at| (p.file.clone(), *at)).collect::<Vec<_>>();
                places.iter().flat_map(each).collect()
            };
            let places: Vec<Places> = places.collect();
            let parts = in_parts(places.clone());
            assert!(parts.iter().all(|part| (1..=PART_ROWS).contains(&flat(part).len())));
            assert_eq!(flat(&parts.concat()), flat(&places));
        }
    }
}
