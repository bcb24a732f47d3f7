//! A lake table at one snapshot, as the SQL engine sees it.
//!
//! Columns are matched by name and cast to the types the plan was made with; the row count of every
//! table is added to one shared counter.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use futures::{StreamExt, TryStreamExt};

/// Is a table at one snapshot.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotTable {
    pub(crate) name: TableName,
    /// Holds the columns that SQL sees, without field ids.
    pub(crate) schema: SchemaRef,
    /// Holds the snapshot's own columns: `projection` of a scan counts among these.
    pub(crate) stored: SchemaRef,
    /// Is the snapshot; `None` is a table without rows.
    pub(crate) snapshot_id: Option<i64>,
    /// Is about how many rows it has: of two sides of a join the smaller one is held in memory.
    pub(crate) rows: Option<u64>,
    pub(crate) reader: Arc<dyn SnapshotReader>,
    pub(crate) rows_read: Arc<AtomicU64>,
}

/// Takes field ids and other metadata off, at every level, so that the same type compares equal
/// wherever it came from.
pub(crate) fn plain_schema(schema: &Schema) -> Schema {
    Schema::new(schema.fields().iter().map(plain_field).collect::<Vec<_>>())
}

fn plain_field(field: &FieldRef) -> Field {
    Field::new(field.name(), plain_type(field.data_type()), field.is_nullable())
}

pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(item) => DataType::List(Arc::new(plain_field(item))),
        DataType::LargeList(item) => DataType::LargeList(Arc::new(plain_field(item))),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(Arc::new(plain_field(item)), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|f| Arc::new(plain_field(f))).collect()),
        other => other.clone(),
    }
}

#[async_trait]
impl TableProvider for SnapshotTable {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => self.schema.clone(),
        };
        let partition = Arc::new(SnapshotPartition {
            table: self.clone(),
            schema: schema.clone(),
        });
        let scan = StreamingTableExec::try_new(schema, vec![partition], None, [], false, limit)?;
        Ok(Arc::new(Counted {
            scan: Arc::new(scan),
            rows: self.rows.and_then(|rows| usize::try_from(rows).ok()),
        }))
    }
}

/// Is a scan that tells about how many rows it gives.
#[derive(Debug)]
struct Counted {
    scan: Arc<StreamingTableExec>,
    rows: Option<usize>,
}

impl DisplayAs for Counted {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.scan.fmt_as(format, f)
    }
}

impl ExecutionPlan for Counted {
    fn name(&self) -> &'static str {
        "SnapshotExec"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn fetch(&self) -> Option<usize> {
        self.scan.fetch()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(self: Arc<Self>, _children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.scan.execute(partition, context)
    }

    fn partition_statistics(&self, _partition: Option<usize>) -> Result<Statistics> {
        let unknown = Statistics::new_unknown(&self.schema());
        Ok(match self.rows {
            Some(rows) => unknown.with_num_rows(Precision::Inexact(rows)),
            None => unknown,
        })
    }
}

/// Reads the projected columns of a table, once.
#[derive(Debug)]
struct SnapshotPartition {
    table: SnapshotTable,
    schema: SchemaRef,
}

impl PartitionStream for SnapshotPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let table = self.table.clone();
        let schema = self.schema.clone();
        let batches = futures::stream::once(async move { open(table, schema).await }).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), batches))
    }
}

type Batches = futures::stream::BoxStream<'static, Result<RecordBatch>>;

async fn open(table: SnapshotTable, schema: SchemaRef) -> Result<Batches> {
    let Some(snapshot_id) = table.snapshot_id else {
        return Ok(futures::stream::empty().boxed());
    };
    let positions: BTreeMap<&str, usize> = table
        .stored
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| (field.name().as_str(), at))
        .collect();
    let columns = schema
        .fields()
        .iter()
        .map(|field| positions.get(field.name().as_str()).copied());
    let Some(columns) = columns.collect::<Option<Vec<usize>>>() else {
        let message = format!("{} no longer has every column that is read from it", table.name);
        return Err(crate::exactness::inexact(message));
    };
    let batches = table
        .reader
        .scan(&table.name, snapshot_id, Some(columns))
        .await
        .map_err(external)?;
    let rows_read = table.rows_read.clone();
    Ok(batches
        .map(move |batch| {
            let batch = batch.map_err(external)?;
            rows_read.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            conform(&batch, &schema)
        })
        .boxed())
}

fn external(error: flow_core::lake::LakeReadError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Gives a batch exactly the columns of `schema`, found by name.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| {
        let column = batch.column_by_name(field.name()).ok_or_else(|| {
            DataFusionError::Execution(format!("column {} is missing from what was read", field.name()))
        })?;
        match column.data_type() == field.data_type() {
            true => Ok(column.clone()),
            false => crate::output::cast_exactly(column, field.data_type()),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
