//! Incremental refreshes: from what changed in the inputs to what changes in the table.
//!
//! 1. [`rules`] runs the rewrites that are chosen from the engine's over a compiled plan.
//! 2. [`lower`] makes a tree of operators of it, or says why the table is refreshed in full.
//! 3. [`DeltaPlan::step`] hands the inputs' changes up the tree. Every operator gives the change of
//!    its result, reads its state as it was, and writes what becomes of it.
//! 4. [`DeltaPlan::build`] fills the state of all operators from whole inputs.
//!
//! | operator | its change |
//! |---|---|
//! | projection, filter, UNION ALL ([`linear`]) | that of its input's rows |
//! | joins, IN, EXISTS ([`join`]) | pairs of which one row changed, and rows whose partners came or went |
//! | GROUP BY, DISTINCT ([`aggregate`]) | old and new rows of the touched groups, whose states take rows back |
//! | windows, other aggregates ([`again`]) | what differs when the touched keys are computed again |
//! | ORDER BY … LIMIT ([`top`]) | what differs in the first rows |
//!
//! # State keys
//! `[operator u16, big-endian][part u8] ‖ key ‖ rest`: the bytes of the key end by themselves, so
//! that an operator finds all rows of a key under one prefix.
//!
//! # Invariants
//! - What a step gives is the query over the new inputs less the query over the old ones, bit for bit.
//! - State after a step is the state that [`DeltaPlan::build`] makes of the new inputs.
//! - Joins, windows and aggregates that are computed again take the touched keys in parts, so that what
//!   they hold beside changes is bounded by the rows of [`KEYS_AT_ONCE`] keys.
//! - Cost follows the change: no operator reads all its rows, but a join without an equality, whose
//!   rows all have one key, and NOT IN, when the first or last value or NULL comes or goes.

mod access;
mod again;
mod aggregate;
mod arrangement;
mod build;
mod engine;
mod faults;
mod join;
mod linear;
mod lower;
mod rows;
mod rules;
mod top;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use flow_core::TableName;
use flow_core::changes::ChangeBatch;
use flow_core::state::{StateDelta, StateReader};

use access::Access;
pub(crate) use faults::{DamagedState, NegativeWeight};

use sha2::{Digest, Sha256};

use crate::determinism::Finding;
use crate::output::cast_columns;
use crate::source::conform;

type Result<T, E = DataFusionError> = std::result::Result<T, E>;

/// Counts the ways in which operators have laid their state out.
const LAYOUT_VERSION: u32 = 1;

/// Counts the touched keys whose rows an operator holds at once; few in tests, so that these see parts.
const KEYS_AT_ONCE: usize = if cfg!(debug_assertions) { 4 } else { 4096 };

/// Is an operator over changes.
#[derive(Debug)]
enum Operator {
    /// Gives the changes of a table.
    Input(TableName),
    /// Gives rows that never change.
    Constant(RecordBatch),
    Project(Vec<Arc<dyn PhysicalExpr>>),
    Filter(Arc<dyn PhysicalExpr>),
    Union,
    Join(join::Join),
    NotIn(join::NotIn),
    Aggregate(aggregate::Aggregate),
    Again(again::Again),
    Top(top::Top),
}

/// Is an operator with its inputs, which stand before it.
#[derive(Debug)]
struct Node {
    operator: Operator,
    inputs: Vec<usize>,
    schema: SchemaRef,
}

/// Says which plan's rows fill one side of an operator's state.
#[derive(Debug)]
struct Feed {
    node: usize,
    side: usize,
    plan: LogicalPlan,
}

/// Names the columns of a table whose changes a plan reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaInput {
    /// Is the table's name.
    pub name: TableName,
    /// Holds the columns, in the table's order.
    pub columns: Vec<String>,
}

/// Computes the change of a table's content from the changes of its inputs.
#[derive(Debug)]
pub struct DeltaPlan {
    nodes: Vec<Node>,
    root: usize,
    inputs: Vec<DeltaInput>,
    feeds: Vec<Feed>,
    notes: Vec<String>,
    layout: String,
    output: SchemaRef,
}

/// Is what one step gives.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Holds the rows that come and go, each once, in the table's user columns.
    pub rows: ChangeBatch,
    /// Is what changes in the state.
    pub state: StateDelta,
    /// Counts the entries read from the state.
    pub rows_read: u64,
}

/// Holds the changes of each input, all between the same two cuts.
pub type InputChanges = BTreeMap<TableName, Vec<ChangeBatch>>;

impl DeltaPlan {
    /// Makes operators of a compiled plan whose rows are stored as `output`, or says why there are
    /// none: each finding's message is the operator's name.
    pub(crate) async fn compile(
        state: &SessionState,
        plan: &LogicalPlan,
        output: SchemaRef,
    ) -> Result<DeltaPlan, Vec<Finding>> {
        let mut lowering = lower::Lowering::new(state);
        let lowered = match rules::run(plan.clone(), state) {
            Ok(plan) => lowering.lower(&plan).await.map(|root| (root, plan)),
            Err(error) => Err(error),
        };
        let (root, plan) = match lowered {
            Ok((Some(root), plan)) => (root, plan),
            Ok((None, _)) => return Err(lowering.findings),
            Err(error) => {
                tracing::debug!(%error, "a plan cannot be computed over changes");
                return Err(vec![Finding::new("UNSUPPORTED_OPERATOR", &[], "SELECT")]);
            }
        };
        let inputs = lowering.inputs.into_iter().map(|(name, columns)| DeltaInput {
            name,
            columns: columns.into_values().collect(),
        });
        lowering.notes.sort_unstable();
        lowering.notes.dedup();
        let text = format!("{LAYOUT_VERSION}\n{}\n{output:?}", plan.display_indent_schema());
        Ok(DeltaPlan {
            layout: format!("{:x}", Sha256::digest(text)),
            nodes: lowering.nodes,
            root,
            inputs: inputs.collect(),
            feeds: lowering.feeds,
            notes: lowering.notes,
            output,
        })
    }

    /// Names the tables and columns whose changes are read.
    pub fn inputs(&self) -> &[DeltaInput] {
        &self.inputs
    }

    /// Gives every column that is read, with its table.
    pub(crate) fn read_fields(&self) -> impl Iterator<Item = (&TableName, &FieldRef)> {
        let inputs = self.nodes.iter().filter_map(|node| match &node.operator {
            Operator::Input(name) => Some((name, &node.schema)),
            _ => None,
        });
        inputs.flat_map(|(name, schema)| schema.fields().iter().map(move |field| (name, field)))
    }

    /// Tells layouts of state apart: state that was made under another one must be built again.
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// Says what costs more than what changed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Says whether steps keep state.
    pub fn keeps_state(&self) -> bool {
        !self.feeds.is_empty()
    }

    /// Computes what changes.
    ///
    /// With `beginning`, the state must be empty and the table without content: what never changes
    /// (constants, an aggregate over nothing) comes with the first rows, too.
    pub(crate) async fn step(
        &self,
        changes: &InputChanges,
        reader: &dyn StateReader,
        task: Arc<TaskContext>,
        beginning: bool,
    ) -> Result<Delta> {
        let mut access = Access::new(reader, task, beginning);
        let mut given: Vec<ChangeBatch> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let inputs: Vec<&ChangeBatch> = node.inputs.iter().map(|input| &given[*input]).collect();
            let quiet = inputs.iter().all(|input| input.weights.is_empty());
            let change = match &node.operator {
                Operator::Input(name) => {
                    let changes = changes.get(name).map_or(&[][..], Vec::as_slice);
                    input(changes, &node.schema, &access)?
                }
                Operator::Constant(rows) if beginning => ChangeBatch::of(rows.clone(), 1),
                // An aggregate over nothing begins with a row.
                Operator::Aggregate(_) if beginning => node.step(&inputs, &mut access).await?,
                _ if quiet => rows::none(&node.schema),
                _ => node.step(&inputs, &mut access).await?,
            };
            access.settle(change.rows.get_array_memory_size())?;
            given.push(change);
        }
        let rows = self.finish(&given[self.root])?;
        let (state, rows_read) = access.finish();
        Ok(Delta { rows, state, rows_read })
    }

    /// Gives the last operator's change in the table's own types, equal rows added up.
    fn finish(&self, change: &ChangeBatch) -> Result<ChangeBatch> {
        let columns = cast_columns(change.rows.columns(), self.output.fields())?;
        let rows = rows::batch(&self.output, columns, change.weights.len())?;
        let weights = change.weights.clone();
        rows::consolidate(&rows::RowCodec::of(&self.output)?, ChangeBatch { rows, weights })
    }
}

/// Gives a table's changes with the columns that are read from it, equal rows added up.
fn input(changes: &[ChangeBatch], schema: &SchemaRef, access: &Access<'_>) -> Result<ChangeBatch> {
    let mut parts = Vec::with_capacity(changes.len());
    for change in changes {
        if change.rows.num_rows() != change.weights.len() {
            return Err(DataFusionError::Internal(
                "a change has rows without weights".to_owned(),
            ));
        }
        parts.push(ChangeBatch {
            rows: conform(&change.rows, schema)?,
            weights: change.weights.clone(),
        });
    }
    if parts.is_empty() {
        return Ok(rows::none(schema));
    }
    let all = rows::concat(schema, &parts)?;
    access.grow(all.rows.get_array_memory_size())?;
    rows::consolidate(&rows::RowCodec::of(schema)?, all)
}

impl Node {
    async fn step(&self, inputs: &[&ChangeBatch], access: &mut Access<'_>) -> Result<ChangeBatch> {
        match (&self.operator, inputs) {
            (Operator::Project(exprs), [input]) => linear::project(exprs, &self.schema, input),
            (Operator::Filter(condition), [input]) => linear::filter(condition, input),
            (Operator::Union, inputs) => linear::union(&self.schema, inputs),
            (Operator::Join(join), [left, right]) => join.step(left, right, access),
            (Operator::NotIn(not_in), [left, right]) => not_in.step(left, right, access),
            (Operator::Aggregate(aggregate), [input]) => aggregate.step(input, access),
            (Operator::Again(again), [input]) => again.step(input, access).await,
            (Operator::Top(top), [input]) => top.step(input, access),
            _ => Ok(rows::none(&self.schema)),
        }
    }
}
