//! How the SQL layer sees lake tables it must not open itself.
//!
//! `flow-lake` implements [`SnapshotReader`]; `flow-refresh` reads through it and never learns of
//! files, catalogs or object stores.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use futures_core::Stream;

use crate::changes::Changes;
pub use crate::error::LakeReadError;
use crate::schema::TableName;

/// Is a stream of record batches.
pub type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, LakeReadError>> + Send>>;

/// Is a stream of record batches whose rows are known by file and position.
pub type LocatedStream = Pin<Box<dyn Stream<Item = Result<LocatedBatch, LakeReadError>> + Send>>;

/// Holds rows of one data file with their places in it.
#[derive(Clone, Debug)]
pub struct LocatedBatch {
    /// Is the data file's full path, exactly as the manifest has it.
    pub file: Arc<str>,
    /// Holds each row's position in the file, from 0, ascending.
    pub positions: Vec<u64>,
    /// Holds the rows, all columns of the table.
    pub batch: RecordBatch,
}

/// Is one snapshot of a table, as far as planning needs it.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    /// Is Iceberg's snapshot id.
    pub snapshot_id: i64,
    /// Is the snapshot it was built on; `None` for a table's first.
    pub parent_id: Option<i64>,
    /// Is when it was committed, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Is the summary's `operation`: `append`, `overwrite`, `delete`, `replace`.
    pub operation: String,
    /// Holds the other summary properties, `flow.epoch` and `flow.lsn` among them.
    pub summary: BTreeMap<String, String>,
    /// Is the schema it was written under, in Arrow's terms, field ids in the metadata: its content has
    /// these columns, whatever the table was given since.
    pub schema: SchemaRef,
}

/// Is a table as the catalog shows it at one moment.
#[derive(Clone, Debug)]
pub struct LakeTable {
    /// Is namespace and name.
    pub name: TableName,
    /// Is Iceberg's table UUID.
    pub uuid: String,
    /// Is the current schema in Arrow's terms, field ids in the metadata.
    pub schema: SchemaRef,
    /// Holds the retained snapshots on the main branch, oldest first; the last one is current.
    pub snapshots: Vec<SnapshotInfo>,
    /// Holds the table properties.
    pub properties: BTreeMap<String, String>,
}

impl LakeTable {
    /// Is the schema of a retained snapshot: what indexes of columns count among when it is read. That of
    /// the table for one that is not retained, and for the table without rows.
    pub fn schema_at(&self, snapshot_id: Option<i64>) -> &SchemaRef {
        let snapshot = self.snapshots.iter().find(|s| Some(s.snapshot_id) == snapshot_id);
        snapshot.map_or(&self.schema, |snapshot| &snapshot.schema)
    }

    /// Counts the rows of the data files of a snapshot, as its summary says; `None` where it does not.
    /// Rows that delete files took away are counted, too.
    pub fn rows_at(&self, snapshot_id: Option<i64>) -> Option<u64> {
        let snapshot = self.snapshots.iter().find(|s| Some(s.snapshot_id) == snapshot_id)?;
        snapshot.summary.get("total-records")?.parse().ok()
    }
}

/// Reads tables of the catalog at chosen snapshots. Never changes anything.
#[async_trait]
pub trait SnapshotReader: Send + Sync + std::fmt::Debug {
    /// Looks a table up; `None` if the catalog has no such table.
    async fn load(&self, name: &TableName) -> Result<Option<LakeTable>, LakeReadError>;

    /// Lists all tables of the catalog.
    async fn list(&self) -> Result<Vec<TableName>, LakeReadError>;

    /// Reads a snapshot's live rows, in any order.
    ///
    /// `projection` holds indexes into the snapshot's columns; `None` reads all.
    async fn scan(
        &self,
        name: &TableName,
        snapshot_id: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<BatchStream, LakeReadError>;

    /// Reads a snapshot's live rows with their places, for tables that this program writes.
    async fn scan_located(&self, name: &TableName, snapshot_id: i64) -> Result<LocatedStream, LakeReadError>;

    /// Reads what changed from one snapshot to another, in any order; equal rows may come in parts
    /// whose weights add up. `None` is the table without rows.
    ///
    /// `projection` holds indexes into the columns of `to`, or of `from` where there is no `to`; `None`
    /// reads all.
    async fn changes(
        &self,
        name: &TableName,
        from: Option<i64>,
        to: Option<i64>,
        projection: Option<Vec<usize>>,
    ) -> Result<Changes, LakeReadError>;
}
