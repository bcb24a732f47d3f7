//! Which tables a definition reads, in which order tables refresh, and how.
//!
//! 1. [`graph::arrange`] finds duplicates and cycles and orders the rest.
//! 2. Each definition is compiled over its inputs' columns: those planned before it, else those the
//!    catalog has, else those the configuration declares.
//! 3. What it gives becomes the table's columns.
//! 4. A definition that was refreshed before is compiled over the columns that its inputs had then
//!    ([`columns`]), so that `*` means the same for ever.
//!
//! A problem stops its own definition and those that read it, and no other.

mod columns;
mod graph;
mod show;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use std::sync::atomic::AtomicU64;

use arrow_schema::{Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use flow_core::lake::SnapshotReader;
use flow_core::{ColumnType, TableName, TableSchema};
use serde::Serialize;

use crate::compile::{self, Compiled};
use crate::definition::{Definition, Lag, Problem, RequestedMode};
use crate::delta::DeltaPlan;
use crate::determinism::Finding;
use crate::error::RefreshError;
use crate::output::{column_type, table_schema};
use crate::select::{self, Reference};
use crate::session;
use crate::source::{SnapshotTable, plain_schema};
use crate::tokens::Fault;
use crate::tokens::{self, Place, find_word};

use columns::{DeclaredColumns, ReadColumns};
pub use columns::{INPUT_COLUMNS, QUERY_HASH};

/// Is the refresh's time while a definition is only planned: any will do.
const PLANNED_AT_US: i64 = 0;

/// Says how a dynamic table is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// A refresh computes what changed, from what changed in the inputs, unless the whole table costs
    /// less or nothing is known of what changed.
    Incremental,
    /// Every refresh computes the whole table and writes what differs.
    Full,
}

impl Mode {
    /// Is the name in `_flow_refresh_mode`, `flow.refresh-mode` and `plan`.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Incremental => "INCREMENTAL",
            Mode::Full => "FULL",
        }
    }
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
    /// Computes its changes from those of its inputs, or says why only a full refresh can.
    pub delta: Result<Arc<DeltaPlan>, Vec<Reason>>,
    /// Says that its conditions name the refresh's time, so that time alone changes its content.
    pub time_bound: bool,
    /// Says which columns of inputs came after the table was declared and are not taken up by its `*`.
    pub drift: Vec<String>,
    /// Holds the columns of each input that the SQL may name.
    pub(crate) input_schemas: BTreeMap<TableName, SchemaRef>,
    /// Holds those that it reads.
    pub(crate) read: ReadColumns,
}

impl PlannedTable {
    /// Is what the table's properties keep of this definition: its hash, and the columns of its inputs.
    pub fn declaration(&self) -> BTreeMap<String, String> {
        let columns = DeclaredColumns::of(&self.input_schemas);
        let columns = serde_json::to_string(&columns).expect("names and types have a text");
        BTreeMap::from([
            (QUERY_HASH.to_owned(), self.query_hash.clone()),
            (INPUT_COLUMNS.to_owned(), columns),
        ])
    }

    /// Checks that an input has the columns that are read from it, with the types they were declared
    /// with. The others may come and go.
    ///
    /// # Errors
    /// BlockTable: one is gone or has another type.
    pub fn check_input(&self, input: &TableName, found: &Schema) -> Result<(), RefreshError> {
        match columns::changed(&self.read, input, found) {
            None => Ok(()),
            Some(changed) => Err(RefreshError::Columns {
                table: self.name.to_string(),
                message: changed.message,
            }),
        }
    }
}

/// Holds every dynamic table that can be refreshed, and what is wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Holds the tables, inputs before those that read them.
    pub tables: Vec<PlannedTable>,
    /// Holds what is wrong, by file, line and column.
    pub problems: Vec<Problem>,
}

/// Is a definition with its syntax tree and the tables it names.
pub(crate) struct Parsed<'a> {
    definition: &'a Definition,
    tokens: Vec<TokenWithSpan>,
    query: Box<Query>,
    references: Vec<Reference>,
}

impl Parsed<'_> {
    fn read(definition: &Definition) -> Result<Parsed<'_>, Problem> {
        let problem = |fault: Fault| problem(definition, fault);
        let (tokens, fault) = tokens::read(&definition.sql);
        if let Some(fault) = fault {
            return Err(problem(fault));
        }
        let mut query = select::parse_tokens(&tokens).map_err(problem)?;
        let references = select::resolve(&mut query).map_err(problem)?;
        Ok(Parsed {
            definition,
            tokens,
            query,
            references,
        })
    }
}

fn problem(definition: &Definition, fault: Fault) -> Problem {
    definition.problem((fault.place.line, fault.place.column), fault.code, fault.message)
}

/// Plans all definitions against the tables of the catalog and those that the configuration
/// declares (bronze tables that may not exist yet).
///
/// A definition with a problem, or below one with a problem, is left out; all others are planned. Of a
/// table that was refreshed before and of which an input lost a column that it reads, both are given: the
/// plan, since the column may come back, and the problem.
pub async fn plan(
    definitions: &[Definition],
    reader: &Arc<dyn SnapshotReader>,
    declared: &BTreeMap<TableName, SchemaRef>,
) -> Plan {
    let mut plan = Plan::default();
    let mut parsed = Vec::new();
    for definition in definitions {
        match Parsed::read(definition) {
            Ok(definition) => parsed.push(definition),
            Err(problem) => plan.problems.push(problem),
        }
    }
    let names: Vec<TableName> = definitions.iter().map(|definition| definition.name.clone()).collect();
    let arranged = graph::arrange(parsed, declared, &mut plan.problems);
    for definition in arranged {
        match plan_one(&definition, &plan.tables, &names, reader, declared).await {
            Ok((table, mut problems)) => {
                plan.tables.push(table);
                plan.problems.append(&mut problems);
            }
            Err(mut problems) => plan.problems.append(&mut problems),
        }
    }
    note_unread_downstream(&mut plan);
    plan.problems
        .sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    plan
}

/// Says where `LAG = DOWNSTREAM` has nothing downstream.
fn note_unread_downstream(plan: &mut Plan) {
    let read: Vec<TableName> = plan.tables.iter().flat_map(|table| table.inputs.clone()).collect();
    for table in &mut plan.tables {
        if table.lag == Lag::Downstream && !read.contains(&table.name) {
            let note = "LAG = DOWNSTREAM: no dynamic table reads this one, so it refreshes only on command";
            table.notes.push(note.to_owned());
        }
    }
}

/// Takes the lineage columns of a stored dynamic table away: they are no input.
pub(crate) fn user_schema(schema: &Schema) -> SchemaRef {
    let plain = plain_schema(schema);
    let user = plain
        .fields()
        .iter()
        .filter(|field| !field.name().starts_with("_flow_"));
    Arc::new(Schema::new(user.cloned().collect::<Vec<_>>()))
}

fn nullable(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Finds the columns of each input.
async fn input_schemas(
    parsed: &Parsed<'_>,
    planned: &[PlannedTable],
    names: &[TableName],
    reader: &Arc<dyn SnapshotReader>,
    declared: &BTreeMap<TableName, SchemaRef>,
) -> Result<BTreeMap<TableName, SchemaRef>, Vec<Problem>> {
    let mut schemas = BTreeMap::new();
    let mut problems = Vec::new();
    for Reference { name, place } in &parsed.references {
        let mut fail = |code, message| {
            problems.push(problem(parsed.definition, Fault::new(*place, code, message)));
        };
        if let Some(table) = planned.iter().find(|table| table.name == *name) {
            let arrow = flow_core::arrow::arrow_schema(&table.output);
            schemas.insert(name.clone(), user_schema(&arrow));
        } else if names.contains(name) {
            fail("F0406", format!("input {name} cannot be planned itself"));
        } else {
            match (reader.load(name).await, declared.get(name)) {
                (Ok(Some(table)), Some(_)) => {
                    schemas.insert(name.clone(), user_schema(&table.schema));
                }
                // Another program may let a column hold NULL at any time.
                (Ok(Some(table)), None) => {
                    schemas.insert(name.clone(), nullable(&user_schema(&table.schema)));
                }
                (_, Some(schema)) => {
                    schemas.insert(name.clone(), user_schema(schema));
                }
                (Ok(None), None) => fail("F0404", format!("unknown table {name}")),
                (Err(error), None) => fail("F0407", format!("input {name} cannot be looked up: {error}")),
            }
        }
    }
    if problems.is_empty() {
        Ok(schemas)
    } else {
        Err(problems)
    }
}

async fn plan_one(
    parsed: &Parsed<'_>,
    planned: &[PlannedTable],
    names: &[TableName],
    reader: &Arc<dyn SnapshotReader>,
    declared: &BTreeMap<TableName, SchemaRef>,
) -> Result<(PlannedTable, Vec<Problem>), Vec<Problem>> {
    let definition = parsed.definition;
    let today = input_schemas(parsed, planned, names, reader, declared).await?;
    let before = declared_before(definition, reader).await?;
    let schemas = match &before {
        Some(before) => today
            .iter()
            .map(|(n, schema)| (n.clone(), before.fix(n, schema)))
            .collect(),
        None => today.clone(),
    };
    let failed = |error: &DataFusionError| vec![problem(definition, compile::fault(error, "F0409", &parsed.tokens))];
    let (state, compiled) = compile_over(parsed, &schemas, reader).await.map_err(|e| failed(&e))?;
    if !compiled.findings.is_empty() {
        return Err(refused(parsed, &compiled.findings));
    }
    let columns = output_columns(&compiled.plan).map_err(|(message, column)| {
        let place = column.and_then(|column| find_word(&parsed.tokens, &[&column]));
        let place = place.unwrap_or(Place::START);
        vec![problem(definition, Fault::new(place, "F0411", message))]
    })?;
    let optimised = state.optimize(&compiled.plan).map_err(|error| failed(&error))?;
    // The engine meets some of what it cannot do only here.
    let planner = state.query_planner();
    let physical = planner.create_physical_plan(&optimised, &state).await;
    physical.map_err(|error| failed(&error))?;

    let time_bound = !compiled.times.is_empty();
    let delta = match time_bound {
        true => Err(reasons(parsed, compiled.times)),
        false => delta(parsed, &state, &compiled.plan, columns.clone()).await,
    };
    let (mode, reasons) = choose_mode(definition, &delta)?;
    let operators = delta.as_ref().ok().map(Arc::as_ref);
    let read = columns::read_columns(&optimised, operators).map_err(|error| failed(&error))?;

    let inputs: Vec<TableName> = parsed
        .references
        .iter()
        .map(|reference| reference.name.clone())
        .collect();
    let above = planned.iter().filter(|table| inputs.contains(&table.name));
    let lost = lost_columns(parsed, &read, &today);
    let table = PlannedTable {
        name: definition.name.clone(),
        level: above.map(|table| table.level + 1).max().unwrap_or(0),
        inputs,
        mode,
        reasons,
        user_columns: columns.len(),
        output: table_schema(columns),
        lag: definition.lag,
        query_hash: definition.query_hash.clone(),
        definition: definition.clone(),
        notes: compiled.notes,
        delta,
        time_bound,
        drift: drift(parsed, &schemas, &today, reader).await,
        input_schemas: schemas,
        read,
    };
    Ok((table, lost))
}

/// Places what a definition must not hold.
fn refused(parsed: &Parsed<'_>, findings: &[Finding]) -> Vec<Problem> {
    let placed = findings.iter().map(|finding| {
        let place = compile::place(finding, &parsed.tokens);
        let message = format!("{} ({})", finding.message, finding.code);
        problem(parsed.definition, Fault::new(place, "F0410", message))
    });
    placed.collect()
}

/// Reads over which columns of its inputs a definition was declared; `None` if its table is not there
/// or holds the content of another query.
async fn declared_before(
    definition: &Definition,
    reader: &Arc<dyn SnapshotReader>,
) -> Result<Option<DeclaredColumns>, Vec<Problem>> {
    let found = reader.load(&definition.name).await.map_err(|error| {
        let message = format!("{} cannot be looked up: {error}", definition.name);
        vec![problem(definition, Fault::new(Place::default(), "F0407", message))]
    })?;
    Ok(found.and_then(|table| DeclaredColumns::stored(&table, &definition.query_hash)))
}

/// Compiles a definition over inputs with these columns.
async fn compile_over(
    parsed: &Parsed<'_>,
    schemas: &BTreeMap<TableName, SchemaRef>,
    reader: &Arc<dyn SnapshotReader>,
) -> Result<(SessionState, Compiled), DataFusionError> {
    let tables = schemas.iter().map(|(name, schema)| SnapshotTable {
        name: name.clone(),
        schema: schema.clone(),
        stored: schema.clone(),
        snapshot_id: None,
        rows: None,
        reader: reader.clone(),
        rows_read: Arc::new(AtomicU64::new(0)),
    });
    let state = session::open(tables, session::Means::PLANNING)?.state();
    let compiled = compile::definition(&state, parsed.query.as_ref().clone(), PLANNED_AT_US).await?;
    Ok((state, compiled))
}

/// Names the columns that are read and that inputs do not have as they were declared.
fn lost_columns(parsed: &Parsed<'_>, read: &ReadColumns, today: &BTreeMap<TableName, SchemaRef>) -> Vec<Problem> {
    let changed = today
        .iter()
        .filter_map(|(name, schema)| columns::changed(read, name, schema));
    let lost = changed.map(|changed| {
        let place = find_word(&parsed.tokens, &[&changed.column]).unwrap_or_default();
        let message = format!(
            "{}, and the SELECT reads it; give the column back as it was, or change the SELECT",
            changed.message
        );
        problem(parsed.definition, Fault::new(place, "F0427", message))
    });
    lost.collect()
}

/// Says which columns came after the table was declared and would be read by its SELECT.
async fn drift(
    parsed: &Parsed<'_>,
    declared: &BTreeMap<TableName, SchemaRef>,
    today: &BTreeMap<TableName, SchemaRef>,
    reader: &Arc<dyn SnapshotReader>,
) -> Vec<String> {
    let with_later = |(name, schema): (&TableName, &SchemaRef)| {
        let today = today.get(name).unwrap_or(schema);
        (name.clone(), columns::with_later(schema, today))
    };
    let all: BTreeMap<TableName, SchemaRef> = declared.iter().map(with_later).collect();
    if all == *declared {
        return Vec::new();
    }
    let read = match compile_over(parsed, &all, reader).await {
        Ok((state, compiled)) => state
            .optimize(&compiled.plan)
            .and_then(|plan| columns::read_columns(&plan, None)),
        Err(error) => Err(error),
    };
    match read {
        Ok(read) => columns::drift(declared, &read),
        // A name means two columns then, say.
        Err(_) => columns::all_later(declared, today),
    }
}

/// Makes the operators that compute changes, or places the reasons why there are none.
async fn delta(
    parsed: &Parsed<'_>,
    state: &SessionState,
    plan: &LogicalPlan,
    columns: Vec<(String, ColumnType)>,
) -> Result<Arc<DeltaPlan>, Vec<Reason>> {
    let count = columns.len();
    let arrow = flow_core::arrow::arrow_schema(&table_schema(columns));
    let user = Arc::new(Schema::new(arrow.fields()[..count].to_vec()));
    let delta = DeltaPlan::compile(state, plan, user).await;
    delta.map(Arc::new).map_err(|findings| reasons(parsed, findings))
}

/// Places what keeps a table from incremental refreshes.
fn reasons(parsed: &Parsed<'_>, findings: Vec<Finding>) -> Vec<Reason> {
    let placed = findings.into_iter().map(|finding| {
        let place = compile::place(&finding, &parsed.tokens);
        let at = parsed
            .definition
            .problem((place.line, place.column), "F0410", String::new());
        Reason {
            code: finding.code,
            operator: finding.message,
            file: at.file,
            line: at.line,
            column: at.column,
        }
    });
    placed.collect()
}

/// Says how a table is refreshed and why; refuses what was asked for and cannot be.
fn choose_mode(
    definition: &Definition,
    delta: &Result<Arc<DeltaPlan>, Vec<Reason>>,
) -> Result<(Mode, Vec<Reason>), Vec<Problem>> {
    let reason = |code, operator: &str| {
        vec![Reason {
            code,
            operator: operator.to_owned(),
            file: definition.file.clone(),
            line: definition.line,
            column: definition.column,
        }]
    };
    match (definition.mode, delta) {
        (RequestedMode::Full, _) => Ok((Mode::Full, reason("REQUESTED", "REFRESH_MODE = FULL"))),
        (RequestedMode::Incremental, Ok(_)) => {
            Ok((Mode::Incremental, reason("REQUESTED", "REFRESH_MODE = INCREMENTAL")))
        }
        (RequestedMode::Auto, Ok(_)) => Ok((Mode::Incremental, reason("EVERY_OPERATOR", "REFRESH_MODE = AUTO"))),
        (RequestedMode::Auto, Err(reasons)) => Ok((Mode::Full, reasons.clone())),
        (RequestedMode::Incremental, Err(reasons)) => {
            let refused = reasons.iter().map(|reason| Problem {
                file: reason.file.clone(),
                line: reason.line,
                column: reason.column,
                code: "F0426",
                message: format!(
                    "{} is computed in full refreshes only ({}): write REFRESH_MODE = AUTO, or another SELECT",
                    reason.operator, reason.code
                ),
                table: Some(definition.name.clone()),
            });
            Err(refused.collect())
        }
    }
}

/// Maps the columns of a plan; an error names the column where there is one.
pub(crate) fn output_columns(plan: &LogicalPlan) -> Result<Vec<(String, ColumnType)>, (String, Option<String>)> {
    let mut columns: Vec<(String, ColumnType)> = Vec::new();
    for field in plan.schema().fields() {
        let name = field.name().clone();
        if columns.iter().any(|(known, _)| *known == name) {
            let message = format!("column '{name}' stands twice: give one of them another name with AS");
            return Err((message, Some(name)));
        }
        if name.to_lowercase().starts_with("_flow_") {
            let message = format!("column '{name}': names that begin with _flow_ are reserved");
            return Err((message, Some(name)));
        }
        match column_type(field.data_type()) {
            Ok(column_type) => columns.push((name, column_type)),
            Err(remedy) => {
                let message = format!(
                    "column '{name}' has type {}, which no column can hold: {remedy}",
                    field.data_type()
                );
                return Err((message, Some(name)));
            }
        }
    }
    if columns.is_empty() {
        return Err(("a table needs at least one column".to_owned(), None));
    }
    Ok(columns)
}
