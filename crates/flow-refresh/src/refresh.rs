//! One full refresh: compute, compare, hand back what differs.
//!
//! 1. The SELECT is compiled over the input snapshots, with the columns the plan was made for.
//! 2. Its result streams into [`Difference`], then the stored rows do.
//! 3. What found no twin on the other side is the refresh's change.
//!
//! Memory is bounded at every step: sorts, aggregates and the comparison go on in files, in one
//! partition where several do not fit. A join holds its smaller side, which must fit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow_schema::{Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::execute_stream;
use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use futures::StreamExt;

use crate::compile;
use crate::difference::{Bound, Difference};
use crate::error::RefreshError;
use crate::output::{LINEAGE_COLUMNS, schema_difference};
use crate::plan::{Mode, PlannedTable, output_columns};
use crate::select;
use crate::session::{self, Means};
use crate::source::SnapshotTable;
use crate::spool::{Scratch, Spooled};
use crate::tokens;

/// Is the part of the memory that the rows may take in the comparison with the stored ones, and again
/// the places of those to delete. The computation has the rest.
const DIFFERENCE_SHARE: usize = 4;

/// Says which snapshot of an input a refresh reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshInput {
    /// Is the input's name.
    pub name: TableName,
    /// Is the snapshot; `None` stands for a table without rows.
    pub snapshot_id: Option<i64>,
}

/// Holds what a refresh may use and what it writes into lineage columns.
#[derive(Clone, Debug)]
pub struct RefreshContext {
    /// Is the value of `_flow_job_run_id`.
    pub run_id: String,
    /// Is the value of `_flow_processed_at`, in microseconds since 1970 UTC.
    pub processed_at_us: i64,
    /// Is the time that `now()` gives in conditions, in microseconds since 1970 UTC. Only a table that is
    /// [`PlannedTable::time_bound`] depends on it.
    pub at_us: i64,
    /// Is how much memory the computation and the comparison may hold, in bytes.
    pub memory_bytes: usize,
    /// Is how many partitions the engine computes in parallel; 0 takes the number of cores.
    pub partitions: usize,
    /// Is where what does not fit in memory goes.
    pub scratch: Scratch,
}

impl RefreshContext {
    pub(crate) fn means(&self) -> Means<'_> {
        Means {
            partitions: self.partitions,
            memory_bytes: self.memory_bytes - 2 * (self.memory_bytes / DIFFERENCE_SHARE),
            scratch: Some(&self.scratch),
        }
    }
}

/// Is rows to insert, to be read once.
#[derive(Debug)]
pub struct Inserted {
    table: String,
    rows: Spooled,
    /// Is the schema of the table, lineage columns included.
    schema: SchemaRef,
    first_input: Option<i64>,
    context: RefreshContext,
}

impl Inserted {
    /// Counts the rows.
    pub fn rows(&self) -> u64 {
        self.rows.rows()
    }

    /// Gives the rows, lineage columns included, in the types of `flow_core::arrow::arrow_schema(output)`.
    ///
    /// # Errors
    /// Retry: the scratch folder cannot be read.
    pub fn batches(self) -> Result<impl Iterator<Item = Result<RecordBatch, RefreshError>> + Send, RefreshError> {
        let Inserted {
            table,
            rows,
            schema,
            first_input,
            context,
        } = self;
        let failed = move |error: DataFusionError| RefreshError::from_engine(&table, 0, &error);
        let batches = rows.batches().map_err(&failed)?;
        Ok(batches.map(move |batch| {
            let columns = batch.map_err(&failed)?.columns().to_vec();
            let columns = with_lineage(columns, Mode::Full, first_input, &context);
            RecordBatch::try_new(schema.clone(), columns).map_err(|error| failed(error.into()))
        }))
    }
}

/// Is what a refresh changes.
#[derive(Debug)]
pub struct RefreshOutput {
    /// Holds the rows to insert.
    pub inserted: Inserted,
    /// Holds file and position of each row to delete, sorted.
    pub deleted: Vec<(Arc<str>, u64)>,
    /// Counts the rows read from inputs and from the stored table.
    pub rows_read: u64,
}

/// Computes a table over its inputs and compares it with what is stored.
///
/// `stored` is the dynamic table's own snapshot; `None` where it has none yet. Rows whose user
/// columns did not change appear in neither result, so they keep their lineage values. An input
/// that `inputs` does not name is read as a table without rows.
///
/// # Errors
/// BlockTable: a value that cannot be computed exactly, too little memory, other columns.
/// The reader's remedy: an input cannot be read. Retry: the scratch folder cannot be used.
pub async fn refresh_full(
    table: &PlannedTable,
    inputs: &[RefreshInput],
    stored: Option<i64>,
    reader: Arc<dyn SnapshotReader>,
    context: &RefreshContext,
) -> Result<RefreshOutput, RefreshError> {
    match compute(table, inputs, stored, &reader, context).await {
        // Partitions share the memory and do not wait for each other to put theirs down.
        Err(RefreshError::Memory { .. }) if context.partitions != 1 => {
            let alone = RefreshContext {
                partitions: 1,
                ..context.clone()
            };
            compute(table, inputs, stored, &reader, &alone).await
        }
        computed => computed,
    }
}

async fn compute(
    table: &PlannedTable,
    inputs: &[RefreshInput],
    stored: Option<i64>,
    reader: &Arc<dyn SnapshotReader>,
    context: &RefreshContext,
) -> Result<RefreshOutput, RefreshError> {
    let name = table.name.to_string();
    let engine = |error: DataFusionError| RefreshError::from_engine(&name, context.memory_bytes, &error);
    let rows_read = Arc::new(AtomicU64::new(0));
    let tables = open_inputs(table, inputs, reader, &rows_read).await?;
    let session = session::open(tables, context.means()).map_err(engine)?;
    let state = session.state();
    let plan = compile_again(table, &state, context).await?;
    let physical = state.create_physical_plan(&plan).await.map_err(engine)?;

    let arrow = flow_core::arrow::arrow_schema(&table.output);
    let user: SchemaRef = Arc::new(Schema::new(arrow.fields()[..table.user_columns].to_vec()));
    let bound = Bound {
        bytes: context.memory_bytes / DIFFERENCE_SHARE,
        scratch: context.scratch.clone(),
    };
    let mut difference = Difference::new(user, stored.is_some(), bound).map_err(engine)?;
    let mut batches = execute_stream(physical, state.task_ctx()).map_err(engine)?;
    while let Some(batch) = batches.next().await {
        difference.computed(&batch.map_err(engine)?).map_err(engine)?;
    }
    drop(batches);
    if let Some(snapshot_id) = stored {
        let compared = compare_stored(table, snapshot_id, reader, &mut difference, context).await?;
        rows_read.fetch_add(compared, Ordering::Relaxed);
    }
    let (rows, deleted) = difference.finish().map_err(engine)?;
    Ok(RefreshOutput {
        rows_read: rows_read.load(Ordering::Relaxed),
        inserted: Inserted {
            table: name,
            rows,
            schema: arrow,
            first_input: first_snapshot(table, inputs),
            context: context.clone(),
        },
        deleted,
    })
}

/// Opens the inputs with the columns the plan was made for.
pub(crate) async fn open_inputs(
    table: &PlannedTable,
    inputs: &[RefreshInput],
    reader: &Arc<dyn SnapshotReader>,
    rows_read: &Arc<AtomicU64>,
) -> Result<Vec<SnapshotTable>, RefreshError> {
    let snapshots: BTreeMap<&TableName, Option<i64>> =
        inputs.iter().map(|input| (&input.name, input.snapshot_id)).collect();
    let mut tables = Vec::with_capacity(table.inputs.len());
    for (name, schema) in &table.input_schemas {
        let snapshot_id = snapshots.get(name).copied().flatten();
        let mut stored = schema.clone();
        let mut rows = Some(0);
        if snapshot_id.is_some() {
            let read = |source| RefreshError::Read {
                table: table.name.to_string(),
                source,
            };
            let loaded = reader.load(name).await.map_err(read)?;
            let loaded = loaded.ok_or_else(|| RefreshError::Plan {
                table: table.name.to_string(),
                message: format!("input {name} is gone"),
            })?;
            rows = loaded.rows_at(snapshot_id);
            stored = loaded.schema_at(snapshot_id).clone();
            table.check_input(name, &stored)?;
        }
        tables.push(SnapshotTable {
            name: name.clone(),
            schema: schema.clone(),
            stored,
            snapshot_id,
            rows,
            reader: reader.clone(),
            rows_read: rows_read.clone(),
        });
    }
    Ok(tables)
}

/// Compiles the SELECT once more, over the tables at hand; its columns must be the planned ones.
async fn compile_again(
    table: &PlannedTable,
    state: &datafusion::execution::session_state::SessionState,
    context: &RefreshContext,
) -> Result<datafusion::logical_expr::LogicalPlan, RefreshError> {
    let changed = |message: String| RefreshError::Plan {
        table: table.name.to_string(),
        message,
    };
    let (tokens, fault) = tokens::read(&table.definition.sql);
    if let Some(fault) = fault {
        return Err(changed(fault.message));
    }
    let mut query = select::parse_tokens(&tokens).map_err(|fault| changed(fault.message))?;
    select::resolve(&mut query).map_err(|fault| changed(fault.message))?;
    let compiled = compile::definition(state, *query, context.at_us)
        .await
        .map_err(|error| RefreshError::from_engine(&table.name.to_string(), context.memory_bytes, &error))?;
    if let Some(finding) = compiled.findings.first() {
        return Err(changed(finding.message.clone()));
    }
    let columns = output_columns(&compiled.plan).map_err(|(message, _)| changed(message))?;
    match schema_difference(&table.output, &crate::output::table_schema(columns)) {
        None => Ok(compiled.plan),
        Some(difference) => Err(changed(difference)),
    }
}

/// Pairs the stored rows off; gives their number.
async fn compare_stored(
    table: &PlannedTable,
    snapshot_id: i64,
    reader: &Arc<dyn SnapshotReader>,
    difference: &mut Difference,
    context: &RefreshContext,
) -> Result<u64, RefreshError> {
    let name = table.name.to_string();
    let read = |source| RefreshError::Read {
        table: name.clone(),
        source,
    };
    let mut rows = 0;
    let mut batches = reader.scan_located(&table.name, snapshot_id).await.map_err(read)?;
    while let Some(located) = batches.next().await {
        let located = located.map_err(read)?;
        let columns = stored_columns(table, &located.batch)?;
        difference
            .stored(&located.file, &located.positions, &columns)
            .map_err(|error| RefreshError::from_engine(&name, context.memory_bytes, &error))?;
        rows += located.batch.num_rows() as u64;
    }
    Ok(rows)
}

/// Takes the user's columns of stored rows, in the order of the definition.
pub(crate) fn stored_columns(table: &PlannedTable, batch: &RecordBatch) -> Result<Vec<ArrayRef>, RefreshError> {
    let user = &table.output.columns[..table.user_columns];
    let stored = batch.schema();
    let extra = stored.fields().iter().map(|field| field.name()).find(|name| {
        let lineage = LINEAGE_COLUMNS.contains(&name.as_str());
        !lineage && !user.iter().any(|column| column.name == **name)
    });
    let other = |difference: String| RefreshError::Schema {
        table: table.name.to_string(),
        difference,
    };
    if let Some(extra) = extra {
        return Err(other(format!("the table has column {extra}, the definition has not")));
    }
    let columns = user.iter().map(|column| {
        let array = batch.column_by_name(&column.name);
        array
            .cloned()
            .ok_or_else(|| other(format!("the definition has column {}, the table has not", column.name)))
    });
    columns.collect()
}

/// Is the snapshot of the first table in FROM order.
pub(crate) fn first_snapshot(table: &PlannedTable, inputs: &[RefreshInput]) -> Option<i64> {
    let first = table.inputs.first()?;
    inputs.iter().find(|input| input.name == *first)?.snapshot_id
}

/// Puts the lineage columns behind a user's.
pub(crate) fn with_lineage(
    mut columns: Vec<ArrayRef>,
    mode: Mode,
    first_input: Option<i64>,
    context: &RefreshContext,
) -> Vec<ArrayRef> {
    let rows = columns.first().map_or(0, |column| column.len());
    let repeat = |text: &str| Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)));
    columns.push(Arc::new(Int64Array::from(vec![first_input; rows])));
    columns.push(repeat(&context.run_id));
    let processed_at = TimestampMicrosecondArray::from(vec![context.processed_at_us; rows]);
    columns.push(Arc::new(processed_at.with_timezone(flow_core::arrow::UTC)));
    columns.push(repeat(mode.as_str()));
    columns
}
