//! Which tables a definition reads, in which order tables refresh, and how.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use flow_core::lake::SnapshotReader;
use flow_core::{TableName, TableSchema};
use serde::Serialize;

use crate::definition::{Definition, Lag, Problem};

/// Says how a dynamic table is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// Every refresh computes the whole table and writes what differs.
    Full,
}

/// Says why a table has its mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Is a stable code in capitals, `REQUESTED` say.
    pub code: &'static str,
    /// Names the operator or clause.
    pub operator: String,
    /// Is the file's path.
    pub file: PathBuf,
    /// Is the line, from 1.
    pub line: u64,
    /// Is the column in characters, from 1.
    pub column: u64,
}

/// Is a dynamic table that can be refreshed.
#[derive(Clone, Debug)]
pub struct PlannedTable {
    /// Is namespace and name.
    pub name: TableName,
    /// Holds the tables it reads, each once, in FROM order.
    pub inputs: Vec<TableName>,
    /// Says how it is refreshed.
    pub mode: Mode,
    /// Says why.
    pub reasons: Vec<Reason>,
    /// Holds the user's columns and then the four lineage columns.
    pub output: TableSchema,
    /// Counts the user's columns.
    pub user_columns: usize,
    /// Bounds its age.
    pub lag: Lag,
    /// Is [`Definition::query_hash`].
    pub query_hash: String,
    /// Is what it was planned from.
    pub definition: Definition,
    /// Says what was added to the SQL so that its result is one: sort columns, mostly.
    pub notes: Vec<String>,
    /// Is 0 for a table that reads no other dynamic table, else one more than its deepest input's.
    pub level: usize,
}

/// Holds every dynamic table that can be refreshed, and what is wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Holds the tables, inputs before those that read them.
    pub tables: Vec<PlannedTable>,
    /// Holds what is wrong, by file, line and column.
    pub problems: Vec<Problem>,
}

impl Plan {
    /// Shows the graph as text, one table a line, inputs indented below it.
    pub fn dag_text(&self) -> String {
        String::new()
    }

    /// Is the output of `plan --json`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Plans all definitions against the tables of the catalog and those that the configuration
/// declares (bronze tables that may not exist yet).
///
/// A definition with a problem, or below one with a problem, is left out; all others are planned.
pub async fn plan(
    definitions: &[Definition],
    reader: &Arc<dyn SnapshotReader>,
    declared: &BTreeMap<TableName, SchemaRef>,
) -> Plan {
    let _ = (definitions, reader, declared);
    Plan::default()
}
