//! One full refresh: compute, compare, hand back what differs.

use std::sync::Arc;

use arrow_array::RecordBatch;
use flow_core::TableName;
use flow_core::lake::SnapshotReader;

use crate::error::RefreshError;
use crate::plan::PlannedTable;

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
    /// Is how much memory the computation and the comparison may hold, in bytes.
    pub memory_bytes: usize,
    /// Is how many partitions the engine computes in parallel; 0 takes the number of cores.
    pub partitions: usize,
}

/// Is what a refresh changes.
#[derive(Clone, Debug, Default)]
pub struct RefreshOutput {
    /// Holds the rows to insert, lineage columns included, in the types of
    /// `flow_core::arrow::arrow_schema(output)`.
    pub inserted: Vec<RecordBatch>,
    /// Holds file and position of each row to delete, sorted.
    pub deleted: Vec<(Arc<str>, u64)>,
    /// Counts the rows read from inputs and from the stored table.
    pub rows_read: u64,
    /// Counts the rows in `inserted`.
    pub rows_inserted: u64,
    /// Counts `deleted`.
    pub rows_deleted: u64,
}

/// Computes a table over its inputs and compares it with what is stored.
///
/// `stored` is the dynamic table's own snapshot; `None` where it has none yet. Rows whose user
/// columns did not change appear in neither result, so they keep their lineage values.
///
/// # Errors
/// BlockTable: a value that cannot be computed exactly, too little memory, other columns.
/// The reader's remedy: an input cannot be read.
pub async fn refresh_full(
    table: &PlannedTable,
    inputs: &[RefreshInput],
    stored: Option<i64>,
    reader: Arc<dyn SnapshotReader>,
    context: &RefreshContext,
) -> Result<RefreshOutput, RefreshError> {
    let _ = (inputs, stored, reader, context);
    Err(RefreshError::Plan {
        table: table.name.to_string(),
        message: "not built".into(),
    })
}
