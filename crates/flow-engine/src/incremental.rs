//! A refresh by what changed: whether it can be, what changed, and what that makes of the table.
//!
//! 1. The table must stand where its record says, and its state with it; state that is missing is built
//!    at the stored frontier first.
//! 2. Each input's change between the stored frontier and the wanted one is read. Where that is not
//!    known, or is so much that the whole table costs less, the refresh is a full one, with a reason.
//! 3. The plan's operators give the change of the table, and of their state.
//! 4. Rows that go are found by their content.

use std::sync::Arc;

use flow_core::lake::SnapshotReader;
use flow_core::state::{StateBuilder, StateDelta};
use flow_core::{Generation, TableName};
use flow_lake::Table;
use flow_refresh::{
    DeltaPlan, Mode, PlannedTable, RefreshContext, RefreshError, RefreshInput, RowDigests, RowsToWrite, build_state,
    refresh_delta, rows_to_write,
};
use flow_store::{RefreshRecord, StateId, StateStamp};
use futures::StreamExt;

use crate::error::EngineError;
use crate::input_changes::{self, Full, places_of};
use crate::input_copies::{InputCopies, keeps_copies};
use crate::output_index::{Filling, Located, locate};
use crate::publish::blocking;
use crate::request::Request;
use crate::shared::Shared;

/// Is the part of the rows that are read, in percent, from which a change is computed in full: there
/// reading, joining and writing every row once costs less than following each that changed.
const CHANGED_PERCENT_MAX: u64 = 25;

/// Is how many changed rows are always followed: a full refresh of so few is no faster.
const CHANGED_ROWS_MIN: u64 = 10_000;

/// Is what changed in a table.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) rows: RowsToWrite,
    /// Holds the stored rows that go.
    pub(crate) gone: Vec<Located>,
    /// Is what becomes of the operators' state.
    pub(crate) state: StateDelta,
    /// Names the state, as it will be.
    pub(crate) stamp: StateStamp,
    pub(crate) rows_read: u64,
}

/// Computes a refresh by what changed, or says why it must be a full one.
pub(crate) async fn change(
    shared: &Arc<Shared>,
    request: &Request,
    table: &Table,
    context: &RefreshContext,
) -> Result<Result<Change, Full>, EngineError> {
    let (record, plan) = match eligible(request, table) {
        Ok(eligible) => eligible,
        Err(full) => return Ok(Err(full)),
    };
    let planned = &request.planned;
    let found = match input_changes::find(shared, plan, record, planned, &request.frontier).await? {
        Ok(found) => found,
        Err(full) => return Ok(Err(full)),
    };
    if found.changed > CHANGED_ROWS_MIN && found.changed * 100 > found.whole * CHANGED_PERCENT_MAX {
        return Ok(Err("CHANGE_TOO_LARGE"));
    }
    let usable = |stamp: &&StateStamp| stamp.query_hash == planned.query_hash && stamp.frontier == record.frontier;
    let stamp = match record.state.as_ref().filter(usable) {
        Some(stamp) => stamp.clone(),
        None => {
            let inputs = inputs_of(planned, record);
            match build(shared, planned, plan, &inputs, record, context).await {
                Ok(stamp) => stamp,
                Err(EngineError::Refresh(RefreshError::Read { .. })) => return Ok(Err("STATE_CANNOT_BE_BUILT")),
                Err(error) => return Err(error),
            }
        }
    };
    let reader = shared.store.states().reader(stamp.id);
    let gathered = match input_changes::gather(shared, planned, found, &reader, context).await? {
        Ok(gathered) => gathered,
        Err(full) => return Ok(Err(full)),
    };
    let mut delta = match refresh_delta(planned, plan, &gathered.changes, &reader, context).await {
        Ok(delta) => delta,
        Err(RefreshError::Memory { .. }) => return Ok(Err("CHANGE_EXCEEDS_MEMORY")),
        Err(error) => return Err(error.into()),
    };
    let rows = rows_to_write(planned, &delta.rows, &request.inputs, context)?;
    let Some(gone) = locate(&reader, &rows.deleted)? else {
        return Err(RefreshError::State {
            table: planned.name.to_string(),
            message: "a row that goes is not in the table".to_owned(),
        }
        .into());
    };
    // In order when all is known that changes.
    delta.state.0.extend(gathered.copies);
    Ok(Ok(Change {
        rows_read: gathered.rows_read + delta.rows_read + gone.len() as u64,
        rows,
        gone,
        state: delta.state,
        stamp: StateStamp {
            frontier: request.frontier.clone(),
            ..stamp
        },
    }))
}

/// Says whether a table's content is known well enough to go on from it.
fn eligible<'a>(request: &'a Request, table: &Table) -> Result<(&'a RefreshRecord, &'a DeltaPlan), Full> {
    let plan = match (&request.planned.mode, &request.planned.delta) {
        (Mode::Incremental, Ok(plan)) => plan,
        _ => return Err("NOT_INCREMENTAL"),
    };
    let Some(record) = request.record.as_ref().filter(|record| record.last.is_some()) else {
        return Err("FIRST_REFRESH");
    };
    if request.nonce.is_some() {
        return Err("REQUESTED");
    }
    if record.query_hash != request.planned.query_hash {
        return Err("QUERY_CHANGED");
    }
    if record.uuid != table.uuid() || record.snapshot_id != table.current_snapshot_id() {
        return Err("CONTENT_ADOPTED");
    }
    Ok((record, plan))
}

/// Are the snapshots that a table reflects.
fn inputs_of(planned: &PlannedTable, record: &RefreshRecord) -> Vec<RefreshInput> {
    let input = |name: &TableName| RefreshInput {
        name: name.clone(),
        snapshot_id: record.frontier.0.get(&name.to_string()).copied().flatten(),
    };
    planned.inputs.iter().map(input).collect()
}

/// Builds the state of a table at the snapshots that its content reflects, and records it.
pub(crate) async fn build(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    plan: &DeltaPlan,
    inputs: &[RefreshInput],
    record: &RefreshRecord,
    context: &RefreshContext,
) -> Result<StateStamp, EngineError> {
    let states = shared.store.states();
    let before = record.state.as_ref().map(|stamp| stamp.id);
    let id = match before {
        Some(StateId { number, generation }) => StateId {
            number,
            generation: Generation(generation.0 + 1),
        },
        None => StateId {
            number: states.next_number()?,
            generation: Generation(1),
        },
    };
    // What an interrupted build left of this very generation.
    states.drop_generation(id)?;
    let mut builder = states.builder(id);
    let reader: Arc<dyn SnapshotReader> = Arc::new(shared.lake.clone());
    build_state(planned, plan, inputs, reader.clone(), &mut builder, context).await?;
    if let Some(snapshot) = record.snapshot_id {
        let read = |source| RefreshError::Read {
            table: planned.name.to_string(),
            source,
        };
        let digests = RowDigests::new(planned)?;
        let mut filling = Filling::default();
        let mut rows = reader.scan_located(&planned.name, snapshot).await.map_err(read)?;
        while let Some(located) = rows.next().await {
            let located = located.map_err(read)?;
            let digests = digests.of_stored(planned, &located.batch)?;
            filling.put(&mut builder, &located.file, &located.positions, &digests)?;
        }
    }
    copy_inputs(shared, planned, plan, inputs, &mut builder).await?;
    let stamp = StateStamp {
        id,
        frontier: record.frontier.clone(),
        query_hash: planned.query_hash.clone(),
    };
    let mut stamped = record.clone();
    stamped.state = Some(stamp.clone());
    let name = planned.name.to_string();
    blocking(shared, move |shared| {
        builder.finish()?;
        crate::failpoint::hit("state_built");
        shared.store.refreshes().put(&name, &stamped)?;
        before.map_or(Ok(()), |before| shared.store.states().drop_generation(before))?;
        Ok(())
    })
    .await?;
    tracing::info!(table = %planned.name, generation = id.generation.0, "state of a dynamic table built");
    Ok(stamp)
}

/// Enters copies of the inputs' rows.
async fn copy_inputs(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    plan: &DeltaPlan,
    inputs: &[RefreshInput],
    builder: &mut dyn StateBuilder,
) -> Result<(), EngineError> {
    let read = |source| RefreshError::Read {
        table: planned.name.to_string(),
        source,
    };
    for (number, input) in plan.inputs().iter().enumerate() {
        let known = inputs.iter().find(|known| known.name == input.name);
        let (Some(snapshot), true) = (
            known.and_then(|known| known.snapshot_id),
            keeps_copies(shared, &input.name),
        ) else {
            continue;
        };
        let loaded = SnapshotReader::load(&shared.lake, &input.name).await.map_err(read)?;
        let Some(columns) = loaded.and_then(|table| places_of(&table, input)) else {
            continue;
        };
        let rows = shared.lake.scan_by_place(&input.name, snapshot, Some(columns));
        let Some(mut rows) = rows.await.map_err(read)? else {
            continue;
        };
        let copies = InputCopies::new(planned, input, number)?;
        while let Some(located) = rows.next().await {
            copies.fill(builder, &located.map_err(read)?)?;
        }
    }
    Ok(())
}

/// Builds the state that the next refresh goes on from, after a full one.
pub(crate) async fn build_after_full(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    record: &RefreshRecord,
    context: &RefreshContext,
) -> Result<Option<StateStamp>, EngineError> {
    match (&planned.mode, &planned.delta) {
        (Mode::Incremental, Ok(plan)) => {
            let inputs = inputs_of(planned, record);
            build(shared, planned, plan, &inputs, record, context).await.map(Some)
        }
        _ => Ok(None),
    }
}
