//! What can be asked without a store: checks, discovery, plans, and read-only SQL. Makes nothing,
//! neither in the lake nor in PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use flow_core::changes::Changes;
use flow_core::clock::Clock;
use flow_core::lake::{BatchStream, LakeReadError, LakeTable, LocatedStream, SnapshotReader};
use flow_core::{Remedy, TableName, TableSchema};
use flow_lake::Lake;
use flow_refresh::{Definition, Plan, Problem};
use flow_source::{Check, Report, SourceTable, preflight, slot_state};

use crate::adapters::{local_lake_options, source_options};
use crate::continuity::reconfigure;
use crate::error::EngineError;
use crate::options::{EngineOptions, LocalOptions, SourcePattern, TableOptions};
use crate::plans::{parse_files, plan_parsed};
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

/// Asks whether catalog and warehouse can be used, or made where they are missing, and whether a
/// target is a table of somebody else. Leaves nothing.
///
/// # Errors
/// What keeps the catalog or the warehouse from being used.
pub async fn check_catalog(options: &LocalOptions, clock: Arc<dyn Clock>) -> Result<Vec<Check>, EngineError> {
    let place = local_lake_options(options);
    let probed = tokio::task::spawn_blocking(move || flow_lake::probe(&place)).await;
    probed.map_err(|error| EngineError::Invariant(error.to_string()))??;
    let path = options.catalog_path.display();
    let lake = open_existing(options, clock).await?;
    let message = match &lake {
        Some(lake) => match lake.list().await?.len() {
            1 => format!("{path} is there and can be written; it holds 1 table"),
            count => format!("{path} is there and can be written; it holds {count} tables"),
        },
        None => format!("{path} is not there and can be made"),
    };
    let mut checks = vec![Check {
        name: "catalog".to_owned(),
        ok: true,
        message,
        remedy_text: String::new(),
        table: None,
    }];
    if let Some(lake) = &lake {
        for table in &options.tables {
            checks.extend(check_target(lake, table).await?);
        }
    }
    Ok(checks)
}

/// Looks whether a table's target is there and was not made by its capture. The tables of a whole
/// schema are known to the source alone: `init` looks at theirs.
async fn check_target(lake: &Lake, table: &TableOptions) -> Result<Option<Check>, EngineError> {
    let SourcePattern::Table(source) = &table.source else {
        return Ok(None);
    };
    let target = table.target.as_ref().unwrap_or(source);
    let Some(found) = lake.load(target).await? else {
        return Ok(None);
    };
    if found.properties().get(SOURCE_TABLE) == Some(&source.to_string()) {
        return Ok(None);
    }
    Ok(Some(Check {
        name: "target".to_owned(),
        ok: false,
        message: format!("the catalog has a table {target} that does not come from this one"),
        remedy_text: "choose another target, or drop that table".to_owned(),
        table: Some(source.clone()),
    }))
}

/// Is the property that names the captured table which a lake table mirrors (`init` sets it).
const SOURCE_TABLE: &str = "flow.source-table";

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

/// Plans the dynamic tables, and makes nothing. The captured tables' shapes come from the catalog;
/// those it does not have yet are asked of the source, if there are options for it.
///
/// # Errors
/// An unreadable directory or catalog.
pub async fn plan(
    options: &LocalOptions,
    source: Option<&EngineOptions>,
    clock: Arc<dyn Clock>,
) -> Result<Plan, EngineError> {
    let reader: Arc<dyn SnapshotReader> = match open_existing(options, clock).await? {
        Some(lake) => Arc::new(lake),
        None => Arc::new(NoCatalog),
    };
    let (mut definitions, mut problems) = parse_files(&options.transformations)?;
    let mut declared = BTreeMap::new();
    // A schema's tables are known to the source alone.
    let mut ask = false;
    for table in &options.tables {
        match &table.source {
            SourcePattern::Table(name) => {
                let target = table.target.as_ref().unwrap_or(name);
                ask |= !declare(reader.as_ref(), target, &mut declared).await?;
            }
            SourcePattern::Schema(_) => ask = true,
        }
    }
    // The tables of a schema, and those that left the configuration and are captured still.
    for definition in &definitions {
        if captured(reader.as_ref(), &definition.name).await? {
            declare(reader.as_ref(), &definition.name, &mut declared).await?;
        }
    }
    if ask {
        declared.extend(declared_by_source(source).await);
    }
    let named = options.tables.iter().filter_map(|table| match &table.source {
        SourcePattern::Table(name) => Some(table.target.clone().unwrap_or_else(|| name.clone())),
        SourcePattern::Schema(_) => None,
    });
    let unknown: BTreeSet<TableName> = named.filter(|name| !declared.contains_key(name)).collect();
    definitions.retain(|definition| {
        let taken = unknown.contains(&definition.name);
        if taken {
            problems.push(taken_by_a_target(definition));
        }
        !taken
    });
    Ok(plan_parsed((definitions, problems), reader, &declared).await)
}

/// Takes a table's shape from the catalog; `false` if it is not there.
async fn declare(
    reader: &dyn SnapshotReader,
    name: &TableName,
    declared: &mut BTreeMap<TableName, SchemaRef>,
) -> Result<bool, EngineError> {
    let found = reader.load(name).await.map_err(unreadable)?;
    let there = found.is_some();
    declared.extend(found.map(|table| (name.clone(), table.schema)));
    Ok(there)
}

/// Says whether the catalog has a table of this name that capture made.
async fn captured(reader: &dyn SnapshotReader, name: &TableName) -> Result<bool, EngineError> {
    let found = reader.load(name).await.map_err(unreadable)?;
    Ok(found.is_some_and(|table| table.properties.contains_key(SOURCE_TABLE)))
}

fn unreadable(source: LakeReadError) -> EngineError {
    let table = source.table.clone();
    flow_refresh::RefreshError::Read { table, source }.into()
}

/// Is the problem of a definition whose name a captured table has that is known by name only.
fn taken_by_a_target(definition: &Definition) -> Problem {
    Problem {
        file: definition.file.clone(),
        line: definition.line,
        column: definition.column,
        code: "F0405",
        message: format!("{} is already the target of a captured table", definition.name),
        table: Some(definition.name.clone()),
    }
}

/// Is the catalog before anything is in it.
#[derive(Debug)]
struct NoCatalog;

impl NoCatalog {
    fn missing(action: &'static str, name: &TableName) -> LakeReadError {
        LakeReadError {
            action,
            table: name.to_string(),
            remedy: Remedy::Reconfigure,
            source: "there is no catalog yet".into(),
        }
    }
}

#[async_trait]
impl SnapshotReader for NoCatalog {
    async fn load(&self, _: &TableName) -> Result<Option<LakeTable>, LakeReadError> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<TableName>, LakeReadError> {
        Ok(Vec::new())
    }

    async fn scan(&self, name: &TableName, _: i64, _: Option<Vec<usize>>) -> Result<BatchStream, LakeReadError> {
        Err(NoCatalog::missing("scan", name))
    }

    async fn scan_located(&self, name: &TableName, _: i64) -> Result<LocatedStream, LakeReadError> {
        Err(NoCatalog::missing("scan", name))
    }

    async fn changes(
        &self,
        name: &TableName,
        _: Option<i64>,
        _: Option<i64>,
        _: Option<Vec<usize>>,
    ) -> Result<Changes, LakeReadError> {
        Err(NoCatalog::missing("read the changes of", name))
    }
}

/// Asks the source for the captured tables' shapes; none, and a warning, where it cannot be asked.
async fn declared_by_source(source: Option<&EngineOptions>) -> BTreeMap<TableName, SchemaRef> {
    let why = match source {
        Some(options) => match shapes(options).await {
            Ok(found) => return found,
            Err(error) => crate::board::chain(&error),
        },
        None => "the environment variable that source.connection_env names is not set".to_owned(),
    };
    tracing::warn!(error = why, "tables not copied yet are unknown to this plan");
    BTreeMap::new()
}

async fn shapes(options: &EngineOptions) -> Result<BTreeMap<TableName, SchemaRef>, EngineError> {
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

/// Runs read-only SQL over the catalog's tables, all as one catalog transaction shows them. Makes
/// nothing.
///
/// # Errors
/// The SQL's own, with its position; a missing or unreadable catalog.
pub async fn query(
    options: &LocalOptions,
    clock: Arc<dyn Clock>,
    sql: &str,
) -> Result<(SchemaRef, Vec<RecordBatch>), EngineError> {
    let Some(lake) = open_existing(options, clock).await? else {
        let message = format!(
            "there is no catalog at {}; nothing was made; `embrasure-flow init` makes it, or correct \
             catalog.warehouse or catalog.path",
            options.catalog_path.display()
        );
        return Err(reconfigure("F0022", &message));
    };
    let cut = lake.cut().await?;
    let reader: Arc<dyn SnapshotReader> = Arc::new(lake);
    let at = move |name: &TableName| cut.get(name).copied().flatten();
    Ok(flow_refresh::query(sql, reader, &at, options.memory_bytes).await?)
}

/// Opens the catalog to read it; `None` if there is none.
async fn open_existing(options: &LocalOptions, clock: Arc<dyn Clock>) -> Result<Option<Lake>, EngineError> {
    let options = local_lake_options(options);
    let opened = tokio::task::spawn_blocking(move || Lake::open_existing(options, clock)).await;
    Ok(opened.map_err(|error| EngineError::Invariant(error.to_string()))??)
}
