//! One incremental refresh, and the state it goes on from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::DataFusionError;
use flow_core::lake::SnapshotReader;
use flow_core::state::{StateBuilder, StateReader};

use crate::delta::{Delta, DeltaPlan, InputChanges};
use crate::error::RefreshError;
use crate::plan::PlannedTable;
use crate::refresh::{RefreshContext, RefreshInput, open_inputs};
use crate::session;

/// Computes what changes in a table from what changed in its inputs, all between the same two cuts.
///
/// `state` is the table's at the older cut. An input that `changes` does not name did not change.
///
/// # Errors
/// BlockTable: a value that cannot be computed exactly; too little memory ([`RefreshError::Memory`],
/// for which a full refresh may still do); a row that goes more often than it came, which says that
/// state or changes are wrong. The store's remedy: state cannot be read.
pub async fn refresh_delta(
    table: &PlannedTable,
    plan: &DeltaPlan,
    changes: &InputChanges,
    state: &dyn StateReader,
    context: &RefreshContext,
) -> Result<Delta, RefreshError> {
    step(table, plan, changes, state, context, false).await
}

/// Computes a table's first content from its inputs' rows as changes, over empty state.
///
/// Gives what [`build_state`] and a full refresh give together; meant for small inputs and tests.
///
/// # Errors
/// Those of [`refresh_delta`].
pub async fn begin_delta(
    table: &PlannedTable,
    plan: &DeltaPlan,
    changes: &InputChanges,
    state: &dyn StateReader,
    context: &RefreshContext,
) -> Result<Delta, RefreshError> {
    step(table, plan, changes, state, context, true).await
}

async fn step(
    table: &PlannedTable,
    plan: &DeltaPlan,
    changes: &InputChanges,
    state: &dyn StateReader,
    context: &RefreshContext,
    beginning: bool,
) -> Result<Delta, RefreshError> {
    let name = table.name.to_string();
    let engine = |error: DataFusionError| RefreshError::from_engine(&name, context.memory_bytes, &error);
    let task = session::task(context.memory_bytes).map_err(engine)?;
    plan.step(changes, state, task, beginning).await.map_err(engine)
}

/// Fills the state of a table from its inputs at their snapshots; gives the number of rows read.
///
/// # Errors
/// Those of [`crate::refresh_full`], and the store's.
pub async fn build_state(
    table: &PlannedTable,
    plan: &DeltaPlan,
    inputs: &[RefreshInput],
    reader: Arc<dyn SnapshotReader>,
    builder: &mut dyn StateBuilder,
    context: &RefreshContext,
) -> Result<u64, RefreshError> {
    let name = table.name.to_string();
    let engine = |error: DataFusionError| RefreshError::from_engine(&name, context.memory_bytes, &error);
    let rows_read = Arc::new(AtomicU64::new(0));
    let tables = open_inputs(table, inputs, &reader, &rows_read).await?;
    let session = session::open(tables.clone(), context.means()).map_err(engine)?;
    plan.build(&tables, &session.state(), builder).await.map_err(engine)?;
    Ok(rows_read.load(Ordering::Relaxed))
}
