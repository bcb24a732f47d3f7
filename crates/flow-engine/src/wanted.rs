//! What the configuration asks for, table by table, and how it compares with what the store has.

use std::collections::{BTreeMap, BTreeSet};

use flow_core::TableName;
use flow_source::{CaptureTable, Report, SourceError, SourceOptions, SourceTable, TableRequest, discover};
use flow_store::{Hot, TableRecord};
use serde::{Deserialize, Serialize};

use crate::adapters::{own_source, source_options};
use crate::error::EngineError;
use crate::options::{EngineOptions, HotRows, SourcePattern, TableOptions};
use crate::shared::Shared;

/// Is one table that is wanted, patterns resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedTable {
    pub(crate) request: TableRequest,
    pub(crate) target: TableName,
    pub(crate) hot_rows: HotRows,
}

/// Is what the store keeps of a table's configuration and of how it is captured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) request: TableRequest,
    pub(crate) hot_rows: String,
    pub(crate) capture: CaptureTable,
}

impl Settings {
    pub(crate) fn read(record: &TableRecord) -> Result<Settings, EngineError> {
        serde_json::from_value(record.settings.clone())
            .map_err(|error| EngineError::Invariant(format!("settings of {}: {error}", record.source)))
    }
}

/// Resolves the configured tables, of the system that the state directory belongs to.
pub(crate) async fn resolve_own(shared: &Shared) -> Result<Vec<WantedTable>, EngineError> {
    let resolved = resolve_at(&shared.options(), &own_source(shared)?).await;
    match resolved {
        Err(EngineError::Source(SourceError::PublicationMissing { publication }))
            if shared.tables().values().any(|table| table.start_lsn.is_some()) =>
        {
            Err(SourceError::PublicationGone { publication }.into())
        }
        resolved => resolved,
    }
}

/// Resolves the configured tables. Asks the server only if a whole schema is wanted.
pub(crate) async fn resolve(options: &EngineOptions) -> Result<Vec<WantedTable>, EngineError> {
    resolve_at(options, &source_options(options, None)).await
}

async fn resolve_at(options: &EngineOptions, source: &SourceOptions) -> Result<Vec<WantedTable>, EngineError> {
    let mut wanted = Vec::new();
    let mut named: BTreeSet<TableName> = BTreeSet::new();
    for table in &options.tables {
        if let SourcePattern::Table(name) = &table.source {
            named.insert(name.clone());
            wanted.push(want(table, name.clone()));
        }
    }
    for table in &options.tables {
        let SourcePattern::Schema(schema) = &table.source else {
            continue;
        };
        let found = discover(source, Some(schema)).await?;
        for name in found.into_iter().map(|found: SourceTable| found.name) {
            if named.insert(name.clone()) {
                wanted.push(want(table, name));
            }
        }
    }
    two_with_one_target(&wanted)?;
    Ok(wanted)
}

fn want(table: &TableOptions, source: TableName) -> WantedTable {
    WantedTable {
        target: table.target.clone().unwrap_or_else(|| source.clone()),
        request: TableRequest {
            source,
            primary_key: table.primary_key.clone(),
            columns: table.columns.clone(),
            append_only: table.append_only,
            types: table.types.clone(),
        },
        hot_rows: table.hot_rows,
    }
}

fn two_with_one_target(wanted: &[WantedTable]) -> Result<(), EngineError> {
    let mut targets: BTreeMap<&TableName, &TableName> = BTreeMap::new();
    for table in wanted {
        if let Some(other) = targets.insert(&table.target, &table.request.source) {
            return Err(EngineError::Reconfigure {
                code: "F0010",
                message: format!(
                    "tables {other} and {} both have the target {}; nothing was changed; give one of them another target",
                    table.request.source, table.target
                ),
            });
        }
    }
    Ok(())
}

/// Turns a report's problems into one error that lists them all.
pub(crate) fn require_ok(report: &Report) -> Result<(), EngineError> {
    let mut lines = Vec::new();
    for check in report.problems() {
        let table = check
            .table
            .as_ref()
            .map(|table| format!("{table}: "))
            .unwrap_or_default();
        let remedy = if check.remedy_text.is_empty() {
            String::new()
        } else {
            format!("; {}", check.remedy_text)
        };
        lines.push(format!("  {table}{}: {}{remedy}", check.name, check.message));
    }
    if lines.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the source cannot be captured as configured; nothing was changed:\n{}",
        lines.join("\n")
    );
    Err(EngineError::Reconfigure { code: "F0011", message })
}

/// Compares the configuration with the stored tables.
///
/// # Errors
/// Reconfigure, naming every setting that an initialised table cannot follow.
pub(crate) fn compare(wanted: &[WantedTable], records: &[TableRecord]) -> Result<Comparison, EngineError> {
    let mut comparison = Comparison::default();
    let mut problems = Vec::new();
    for table in wanted {
        let record = records.iter().find(|record| record.source == table.request.source);
        let Some(record) = record else {
            comparison.missing.push(table.request.source.clone());
            continue;
        };
        let settings = Settings::read(record)?;
        // A table that never got content can still be had otherwise.
        if record.start_lsn.is_none() {
            if settings.request != table.request
                || record.target != table.target
                || settings.hot_rows != hot_name(table.hot_rows)
            {
                comparison.missing.push(table.request.source.clone());
            }
            continue;
        }
        let mut differs = |what: &str, had: String, wants: String| {
            if had != wants {
                problems.push(format!("  {}: {what} was {had} and is {wants}", record.source));
            }
        };
        differs("target", record.target.to_string(), table.target.to_string());
        differs(
            "primary_key",
            format!("{:?}", settings.request.primary_key),
            format!("{:?}", table.request.primary_key),
        );
        differs(
            "columns",
            format!("{:?}", settings.request.columns),
            format!("{:?}", table.request.columns),
        );
        differs(
            "append_only",
            settings.request.append_only.to_string(),
            table.request.append_only.to_string(),
        );
        differs(
            "types",
            format!("{:?}", settings.request.types),
            format!("{:?}", table.request.types),
        );
        differs("hot_rows", settings.hot_rows, hot_name(table.hot_rows).to_owned());
    }
    if !problems.is_empty() {
        let message = format!(
            "a setting changed that an initialised table cannot follow; nothing was changed:\n{}\nset it back, or \
             initialise the table again in a fresh state directory with another target",
            problems.join("\n")
        );
        return Err(EngineError::Reconfigure { code: "F0012", message });
    }
    let is_wanted = |record: &&TableRecord| wanted.iter().any(|table| table.request.source == record.source);
    comparison.unwanted = records
        .iter()
        .filter(|record| !is_wanted(record))
        .map(|record| record.source.clone())
        .collect();
    Ok(comparison)
}

/// Is how the configuration differs from the store.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Holds tables that are wanted and have no content yet, or none by the settings they now have.
    pub(crate) missing: Vec<TableName>,
    /// Holds tables that are captured and no longer wanted.
    pub(crate) unwanted: Vec<TableName>,
}

impl Comparison {
    /// Logs which tables left the configuration and go on; once at each start and reload.
    pub(crate) fn warn_of_unwanted(&self) {
        if self.unwanted.is_empty() {
            return;
        }
        let names: Vec<String> = self.unwanted.iter().map(ToString::to_string).collect();
        tracing::warn!(
            tables = names.join(", "),
            "tables are no longer in the configuration and are captured and published as before; this version cannot \
             take a table out"
        );
    }
}

/// Spells a hot-rows setting as the configuration does.
pub(crate) fn hot_name(hot: HotRows) -> &'static str {
    match hot {
        HotRows::Auto => "auto",
        HotRows::All => "true",
        HotRows::None => "false",
    }
}

/// Decides which columns the row index keeps.
pub(crate) fn hot(hot: HotRows, capture: &CaptureTable) -> Hot {
    if !capture.schema.has_key() {
        return Hot::None;
    }
    match hot {
        HotRows::None => Hot::None,
        HotRows::All => Hot::All,
        HotRows::Auto => match capture.schema.toastable_columns() {
            columns if columns.is_empty() => Hot::None,
            columns => Hot::Columns(columns),
        },
    }
}
