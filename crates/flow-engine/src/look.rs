//! What can be asked without a store: checks, discovery, plans, and read-only SQL.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use flow_core::clock::Clock;
use flow_core::lake::SnapshotReader;
use flow_core::{TableName, TableSchema};
use flow_lake::Lake;
use flow_refresh::Plan;
use flow_source::{Check, Report, SourceTable, preflight, slot_state};

use crate::adapters::{lake_options, source_options};
use crate::error::EngineError;
use crate::options::EngineOptions;
use crate::plans::plan_files;
use crate::wanted;

/// Asks PostgreSQL everything capture relies on. Read-only.
///
/// # Errors
/// Only where no answer could be had; what the answers forbid is in the report.
pub async fn check_source(options: &EngineOptions) -> Result<Report, EngineError> {
    let wanted = wanted::resolve(options).await?;
    let requests: Vec<_> = wanted.into_iter().map(|table| table.request).collect();
    let source = source_options(options, None);
    let fresh = slot_state(&source).await?.is_none();
    Ok(preflight(&source, &requests, fresh).await?)
}

/// Opens the catalog and lists it.
///
/// # Errors
/// What keeps the catalog or the warehouse from being used.
pub async fn check_catalog(options: &EngineOptions, clock: Arc<dyn Clock>) -> Result<Vec<Check>, EngineError> {
    let lake = open_lake(options, clock).await?;
    let tables = lake.list().await?;
    Ok(vec![Check {
        name: "catalog".to_owned(),
        ok: true,
        message: format!("{} holds {} tables", options.catalog_path.display(), tables.len()),
        remedy_text: String::new(),
        table: None,
    }])
}

/// Lists the tables of the publication, narrowed to a schema or to names.
///
/// # Errors
/// The source's own.
pub async fn discover(
    options: &EngineOptions,
    schema: Option<&str>,
    names: &[TableName],
) -> Result<Vec<SourceTable>, EngineError> {
    let mut found = flow_source::discover(&source_options(options, None), schema).await?;
    if !names.is_empty() {
        found.retain(|table| names.contains(&table.name));
    }
    Ok(found)
}

/// Plans the dynamic tables. The captured tables' shapes come from the catalog, or, where that has
/// none yet, from the source if it can be reached.
///
/// # Errors
/// An unreadable directory or catalog.
pub async fn plan(options: &EngineOptions, clock: Arc<dyn Clock>) -> Result<Plan, EngineError> {
    let lake = open_lake(options, clock).await?;
    let known = lake.list().await?;
    let mut declared = BTreeMap::new();
    let unknown = |name: &TableName| !known.contains(name);
    let patterns = options
        .tables
        .iter()
        .any(|table| matches!(table.source, crate::options::SourcePattern::Schema(_)));
    let some_missing = options.tables.iter().any(|table| match &table.source {
        crate::options::SourcePattern::Table(name) => unknown(table.target.as_ref().unwrap_or(name)),
        crate::options::SourcePattern::Schema(_) => false,
    });
    if patterns || some_missing {
        match declared_by_source(options).await {
            Ok(found) => declared = found,
            Err(error) => tracing::warn!(
                error = crate::board::chain(&error),
                "tables not copied yet are unknown to this plan"
            ),
        }
    }
    plan_files(options, Arc::new(lake), &declared).await
}

async fn declared_by_source(
    options: &EngineOptions,
) -> Result<BTreeMap<TableName, arrow_schema::SchemaRef>, EngineError> {
    let wanted = wanted::resolve(options).await?;
    let requests: Vec<_> = wanted.iter().map(|table| table.request.clone()).collect();
    let report = preflight(&source_options(options, None), &requests, false).await?;
    let mut declared = BTreeMap::new();
    for (request, _, schema) in report.tables {
        let target = wanted
            .iter()
            .find(|table| table.request == request)
            .map(|table| table.target.clone());
        if let (Some(target), Some(schema)) = (target, schema) {
            let schema: TableSchema = schema;
            declared.insert(target, flow_core::arrow::arrow_schema(&schema));
        }
    }
    Ok(declared)
}

/// Runs read-only SQL over the catalog's tables, all as one catalog transaction shows them.
///
/// # Errors
/// The SQL's own, with its position; an unreadable catalog.
pub async fn query(
    options: &EngineOptions,
    clock: Arc<dyn Clock>,
    sql: &str,
) -> Result<(arrow_schema::SchemaRef, Vec<RecordBatch>), EngineError> {
    let lake = open_lake(options, clock).await?;
    let cut = lake.cut().await?;
    let reader: Arc<dyn SnapshotReader> = Arc::new(lake);
    let at = move |name: &TableName| cut.get(name).copied().flatten();
    Ok(flow_refresh::query(sql, reader, &at, options.limits.memory_bytes).await?)
}

async fn open_lake(options: &EngineOptions, clock: Arc<dyn Clock>) -> Result<Lake, EngineError> {
    let options = lake_options(options);
    let opened = tokio::task::spawn_blocking(move || Lake::open(options, clock)).await;
    Ok(opened.map_err(|error| EngineError::Invariant(error.to_string()))??)
}
