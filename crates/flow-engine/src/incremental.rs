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
use flow_core::{Generation, Remedial, Remedy, TableName};
use flow_lake::Table;
use flow_refresh::{
    DeltaPlan, Mode, PlannedTable, RefreshContext, RefreshError, RefreshInput, RowDigests, RowsToWrite, build_state,
    refresh_delta, rows_to_write,
};
use flow_store::{BulkState, RefreshRecord, RefreshRun, StateId, StateStamp};
use futures::StreamExt;

use crate::error::EngineError;
use crate::input_changes::{self, Full, places_of};
use crate::input_copies::{InputCopies, keeps_copies};
use crate::output_index::{Filling, Located, locate};
use crate::publish::blocking;
use crate::refresh_request::Request;
use crate::shared::Shared;

/// Is the part of the rows that are read, in percent, from which a change is computed in full: there
/// reading, joining and writing every row once costs less than following each that changed.
const CHANGED_PERCENT_MAX: u64 = 25;

/// Is how many changed rows are always followed: a full refresh of so few is no faster.
const CHANGED_ROWS_MIN: u64 = 10_000;

/// Is how many times less a full refresh with its state must cost than what smaller changes foretell: a
/// row costs less the more there are, since they share blocks and what each refresh costs alone.
const FULL_ADVANTAGE: u64 = 2;

/// Is from how many changed rows on a refresh tells what a row costs: below it is its fixed part.
const RATED_ROWS_MIN: u64 = 1000;

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
    /// Counts the rows that changed in the inputs.
    pub(crate) rows_changed: u64,
    /// Is how long computing was expected to take, in milliseconds.
    pub(crate) predicted_ms: Option<u64>,
}

/// Is what refreshes of a table took, as far as they tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Costs {
    /// Is how long the newest full refresh took, in milliseconds.
    pub(crate) full_ms: Option<u64>,
    /// Is what a changed row took in the newest incremental refresh that was large enough to tell, in
    /// microseconds.
    pub(crate) row_us: Option<u64>,
    /// Is how long the state took to build, in milliseconds: after a full refresh it is built again.
    pub(crate) state_ms: Option<u64>,
}

impl Costs {
    /// Reads what a record tells.
    pub(crate) fn of(record: Option<&RefreshRecord>) -> Costs {
        Costs {
            full_ms: record.and_then(|record| record.full_ms),
            row_us: record.and_then(|record| record.row_us),
            state_ms: record.and_then(|record| record.state.as_ref()?.built_ms),
        }
    }

    /// Takes what one more refresh tells.
    pub(crate) fn after(mut self, run: &RefreshRun) -> Costs {
        match run.rows_changed {
            None => self.full_ms = Some(run.duration_ms),
            Some(rows @ RATED_ROWS_MIN..) => self.row_us = Some(run.duration_ms * 1000 / rows),
            Some(_) => {}
        }
        self
    }

    /// Is how long following so many changed rows would take, in milliseconds.
    fn incremental_ms(&self, rows: u64) -> Option<u64> {
        self.row_us.map(|row_us| row_us * rows / 1000)
    }

    /// Says whether computing everything costs less than following the changed rows of so many.
    fn prefers_full(&self, changed: u64, whole: u64) -> bool {
        if changed <= CHANGED_ROWS_MIN {
            return false;
        }
        match (self.incremental_ms(changed), self.full_ms) {
            (Some(incremental), Some(full)) => incremental > FULL_ADVANTAGE * (full + self.state_ms.unwrap_or(0)),
            _ => changed * 100 > whole * CHANGED_PERCENT_MAX,
        }
    }
}

/// Computes a refresh by what changed, or says why it must be a full one.
pub(crate) async fn change(
    shared: &Arc<Shared>,
    request: &Request,
    table: &Table,
    costs: &Costs,
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
    let rows_changed = found.changed;
    if costs.prefers_full(rows_changed, found.whole) {
        return Ok(Err("CHANGE_TOO_LARGE"));
    }
    let stamp = match state_of(shared, planned, plan, record, context).await? {
        Ok(stamp) => stamp,
        Err(full) => return Ok(Err(full)),
    };
    let reader = shared.store.states().reader(stamp.id);
    let gathered = match input_changes::gather(shared, planned, found, &reader, context).await {
        Err(error @ EngineError::State(_)) => return damaged(shared, error),
        gathered => match gathered? {
            Ok(gathered) => gathered,
            Err(full) => return Ok(Err(full)),
        },
    };
    let mut delta = match refresh_delta(planned, plan, &gathered.changes, &reader, context).await {
        Ok(delta) => delta,
        Err(RefreshError::Memory { .. }) => return Ok(Err("CHANGE_EXCEEDS_MEMORY")),
        Err(RefreshError::Store { source, .. }) => return damaged(shared, source.into()),
        Err(error) => return Err(error.into()),
    };
    let rows = rows_to_write(planned, &delta.rows, &request.inputs, context)?;
    let located = match locate(&reader, &rows.deleted) {
        Err(error @ EngineError::State(_)) => return damaged(shared, error),
        located => located?,
    };
    let Some(gone) = located else {
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
        rows_changed,
        predicted_ms: costs.incremental_ms(rows_changed),
        rows,
        gone,
        state: delta.state,
        stamp: StateStamp {
            frontier: request.frontier.clone(),
            ..stamp
        },
    }))
}

/// Names the state at the frontier of the record; it is built where there is none.
async fn state_of(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    plan: &DeltaPlan,
    record: &RefreshRecord,
    context: &RefreshContext,
) -> Result<Result<StateStamp, Full>, EngineError> {
    let usable = |stamp: &&StateStamp| stamp.layout == plan.layout() && stamp.frontier == record.frontier;
    if let Some(stamp) = record.state.as_ref().filter(usable) {
        return Ok(Ok(stamp.clone()));
    }
    match build(shared, planned, plan, &inputs_of(planned, record), record, context).await {
        Err(error) if is_of_state_alone(&error) => {
            shared.board.error(&error, "state of a dynamic table");
            Ok(Err("STATE_CANNOT_BE_BUILT"))
        }
        built => built.map(Ok),
    }
}

/// Answers state that cannot be read: what is damaged is built anew after a full refresh.
fn damaged(shared: &Shared, error: EngineError) -> Result<Result<Change, Full>, EngineError> {
    if error.remedy() != Remedy::Replan {
        return Err(error);
    }
    shared.board.error(&error, "state of a dynamic table");
    Ok(Err("STATE_DAMAGED"))
}

/// Says that a failed build concerns the state alone: a full refresh may do without.
fn is_of_state_alone(error: &EngineError) -> bool {
    matches!(error, EngineError::Refresh(_) | EngineError::State(_)) && error.remedy() != Remedy::Crash
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
pub(crate) fn inputs_of(planned: &PlannedTable, record: &RefreshRecord) -> Vec<RefreshInput> {
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
    let began = shared.clock.monotonic();
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
    let reader: Arc<dyn SnapshotReader> = Arc::new(shared.lake.clone());
    let mut builder = filled(shared, planned, plan, inputs, id, context).await?;
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
        layout: plan.layout().to_owned(),
        built_ms: u64::try_from(shared.clock.monotonic().saturating_sub(began).as_millis()).ok(),
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

/// Begins a state with what the operators keep.
async fn filled(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    plan: &DeltaPlan,
    inputs: &[RefreshInput],
    id: StateId,
    context: &RefreshContext,
) -> Result<BulkState, EngineError> {
    let begin = async |context: &RefreshContext| -> Result<BulkState, EngineError> {
        let states = shared.store.states();
        // What an interrupted build left of this very generation.
        states.drop_generation(id)?;
        let mut builder = states.builder(id);
        let reader: Arc<dyn SnapshotReader> = Arc::new(shared.lake.clone());
        build_state(planned, plan, inputs, reader, &mut builder, context).await?;
        Ok(builder)
    };
    match begin(context).await {
        // Partitions share the memory; one alone may do where several do not.
        Err(EngineError::Refresh(RefreshError::Memory { .. })) => {
            let alone = RefreshContext {
                partitions: 1,
                ..context.clone()
            };
            begin(&alone).await
        }
        begun => begun,
    }
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
        let Some(columns) = loaded.and_then(|table| places_of(&table, Some(snapshot), input)) else {
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
            match build(shared, planned, plan, &inputs, record, context).await {
                // The content is published and stands. The next refresh tries again.
                Err(error) if is_of_state_alone(&error) => {
                    shared.board.error(&error, "state of a dynamic table");
                    Ok(None)
                }
                built => built.map(Some),
            }
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changed_rows_are_followed_and_many_by_what_they_cost() {
        let check = |full_ms, row_us, state_ms, changed, whole, full| {
            let costs = Costs {
                full_ms,
                row_us,
                state_ms,
            };
            assert_eq!(
                costs.prefers_full(changed, whole),
                full,
                "{costs:?}, {changed} of {whole}"
            );
        };
        check(
            Some(1),
            Some(1_000_000),
            None,
            CHANGED_ROWS_MIN,
            CHANGED_ROWS_MIN,
            false,
        );
        check(None, None, None, 20_000, 100_000, false);
        check(None, None, None, 26_000, 100_000, true);
        check(Some(100), None, None, 26_000, 100_000, true);
        // 20,000 rows of 10 µs take 200 ms.
        check(Some(100), Some(10), None, 20_000, 20_000, false);
        check(Some(99), Some(10), None, 20_000, 10_000_000, true);
        // A full refresh pays for the state, too.
        check(Some(70), Some(10), Some(30), 20_000, 20_000, false);
        check(Some(70), Some(10), Some(29), 20_000, 20_000, true);
    }

    #[test]
    fn only_damage_and_what_concerns_state_alone_is_answered_by_a_full_refresh() {
        let state = |remedy| {
            EngineError::State(flow_core::state::StateError {
                action: "read",
                remedy,
                source: "test".into(),
            })
        };
        let memory = || {
            EngineError::Refresh(RefreshError::Memory {
                table: "a.b".to_owned(),
                limit_bytes: 1,
            })
        };
        assert!(is_of_state_alone(&memory()));
        assert!(is_of_state_alone(&state(Remedy::Replan)));
        assert!(!is_of_state_alone(&state(Remedy::Crash)));
        assert!(!is_of_state_alone(&EngineError::Stopped));
    }
}
