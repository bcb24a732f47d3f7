//! Snapshot reads: what a table held at a snapshot, and what changed between two, as record batches.
//!
//! Our own tables are read here, Parquet files and position deletes, so that types come out exactly
//! as written and rows can be told with their places. Any other table goes through the Iceberg
//! library's scan. Never changes anything.
//!
//! All decoding happens on blocking threads; a bounded channel carries the batches.

use std::collections::BTreeMap;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use flow_core::changes::Changes;
use flow_core::lake::{BatchStream, LakeReadError, LakeTable, LocatedStream, SnapshotInfo, SnapshotReader};
use flow_core::{Remedial, TableName};
use futures::StreamExt;
use iceberg::spec::{Schema, SnapshotRef};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::table::Table;
use crate::{blocking, schema};

mod changes;
mod channel;
mod foreign;
mod native;
mod plan;
mod positions;
mod rows;

pub use changes::{PlacedChanges, Places};

/// Names the read that failed.
fn failed(action: &'static str, table: &TableName) -> impl Fn(LakeError) -> LakeReadError + Send + 'static {
    let table = table.to_string();
    move |source| LakeReadError {
        action,
        table: table.clone(),
        remedy: source.remedy(),
        source: Box::new(source),
    }
}

/// Says whether this program made the table, so that its files are ours to decode.
fn is_ours(table: &Table) -> bool {
    table.metadata().properties().contains_key(schema::KEY_PROPERTY) && table.table_schema().is_ok()
}

/// Gives an Iceberg schema of a table in Arrow's terms.
fn arrow_schema_of(table: &Table, iceberg: &Schema) -> Result<SchemaRef, LakeError> {
    if is_ours(table) {
        let own = schema::from_iceberg(table.name(), iceberg, table.metadata().properties())?;
        return Ok(flow_core::arrow::arrow_schema(&own));
    }
    let foreign = iceberg::arrow::schema_to_arrow_schema(iceberg);
    Ok(foreign
        .map_err(LakeError::iceberg("map the schema", table.name()))?
        .into())
}

fn describe(table: &Table) -> Result<LakeTable, LakeError> {
    let metadata = table.metadata();
    let current = arrow_schema_of(table, metadata.current_schema())?;
    // Snapshots share few schemas.
    let mut schemas = BTreeMap::from([(metadata.current_schema_id(), current.clone())]);
    let mut snapshots = Vec::new();
    for snapshot in table.main_snapshots() {
        let id = snapshot.schema_id().unwrap_or(metadata.current_schema_id());
        let schema = match schemas.get(&id) {
            Some(schema) => schema.clone(),
            None => {
                let iceberg = snapshot
                    .schema(metadata)
                    .map_err(LakeError::iceberg("find a snapshot's schema", table.name()))?;
                let schema = arrow_schema_of(table, &iceberg)?;
                schemas.insert(id, schema.clone());
                schema
            }
        };
        snapshots.push(SnapshotInfo {
            snapshot_id: snapshot.snapshot_id(),
            parent_id: snapshot.parent_snapshot_id(),
            timestamp_ms: snapshot.timestamp_ms(),
            operation: snapshot.summary().operation.as_str().to_owned(),
            summary: snapshot.summary().additional_properties.clone().into_iter().collect(),
            schema,
        });
    }
    Ok(LakeTable {
        name: table.name().clone(),
        uuid: table.uuid(),
        schema: current,
        snapshots,
        properties: table.properties(),
    })
}

fn snapshot_of(table: &Table, snapshot_id: i64) -> Result<SnapshotRef, LakeError> {
    let snapshot = table.metadata().snapshot_by_id(snapshot_id);
    snapshot.cloned().ok_or_else(|| LakeError::SnapshotGone {
        table: table.name().to_string(),
        snapshot_id,
    })
}

impl Lake {
    /// Loads a table and plans a snapshot's files, on a blocking thread.
    async fn plan(&self, name: &TableName, snapshot_id: i64) -> Result<(Table, plan::ScanPlan), LakeError> {
        let (shared, name) = (self.shared.clone(), name.clone());
        blocking::run(move || {
            let table = shared.require(&name)?;
            let snapshot = snapshot_of(&table, snapshot_id)?;
            let plan = plan::plan(&shared, &table, &snapshot)?;
            Ok((table, plan))
        })
        .await
    }

    async fn scan_inner(
        &self,
        name: &TableName,
        snapshot_id: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<BatchStream, LakeError> {
        let (table, plan) = self.plan(name, snapshot_id).await?;
        if is_ours(&table) && plan.is_plain() {
            let located = native::read(&table, snapshot_id, plan, projection).await?;
            let failed = failed("scan", name);
            let batches = located.map(move |item| item.map(|located| located.batch).map_err(&failed));
            return Ok(Box::pin(batches));
        }
        let stream = foreign::read(&table, snapshot_id, projection)?;
        let failed = failed("scan", name);
        Ok(Box::pin(stream.map(move |item| item.map_err(&failed))))
    }

    async fn scan_located_inner(&self, name: &TableName, snapshot_id: i64) -> Result<LocatedStream, LakeError> {
        let (table, plan) = self.plan(name, snapshot_id).await?;
        if !(is_ours(&table) && plan.is_plain()) {
            return Err(LakeError::Unsupported {
                table: name.to_string(),
                reason: "its rows have no places: another program made it or its files".to_owned(),
            });
        }
        let stream = native::read(&table, snapshot_id, plan, None).await?;
        let failed = failed("scan", name);
        Ok(Box::pin(stream.map(move |item| item.map_err(&failed))))
    }
}

#[async_trait]
impl SnapshotReader for Lake {
    async fn load(&self, name: &TableName) -> Result<Option<LakeTable>, LakeReadError> {
        let failed = failed("load", name);
        let table = Lake::load(self, name).await.map_err(&failed)?;
        table.map(|table| describe(&table)).transpose().map_err(&failed)
    }

    async fn list(&self) -> Result<Vec<TableName>, LakeReadError> {
        let failed = failed("list", &TableName::new("*", "*"));
        Lake::list(self).await.map_err(failed)
    }

    async fn scan(
        &self,
        name: &TableName,
        snapshot_id: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<BatchStream, LakeReadError> {
        let result = self.scan_inner(name, snapshot_id, projection).await;
        result.map_err(failed("scan", name))
    }

    async fn scan_located(&self, name: &TableName, snapshot_id: i64) -> Result<LocatedStream, LakeReadError> {
        let result = self.scan_located_inner(name, snapshot_id).await;
        result.map_err(failed("scan", name))
    }

    async fn changes(
        &self,
        name: &TableName,
        from: Option<i64>,
        to: Option<i64>,
        projection: Option<Vec<usize>>,
    ) -> Result<Changes, LakeReadError> {
        let result = changes::read(self, name, from, to, projection).await;
        result.map_err(failed("read the changes of", name))
    }
}
