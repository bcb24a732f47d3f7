//! A user's read-only SQL over the catalog's tables at one cut.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use flow_core::TableName;
use flow_core::lake::SnapshotReader;

use crate::error::RefreshError;

/// Runs one SELECT, WITH, VALUES or EXPLAIN and gives its columns and rows.
///
/// `cut` says which snapshot of a table is read; `None` stands for a table without rows.
/// Lineage columns of dynamic tables are outside `*` and can be named.
///
/// # Errors
/// Reconfigure: anything but one read-only statement, or SQL that does not hold.
/// BlockTable: a value that cannot be computed exactly, too little memory.
/// The reader's remedy: a table cannot be read.
pub async fn query(
    sql: &str,
    reader: Arc<dyn SnapshotReader>,
    cut: &(dyn Fn(&TableName) -> Option<i64> + Send + Sync),
    memory_bytes: usize,
) -> Result<(SchemaRef, Vec<RecordBatch>), RefreshError> {
    let _ = (sql, reader, cut, memory_bytes);
    Err(RefreshError::Refused {
        line: 1,
        column: 1,
        message: "not built".into(),
    })
}
