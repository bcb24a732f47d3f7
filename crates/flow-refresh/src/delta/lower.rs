//! From a plan to operators over changes, or to the reasons why there are none.
//!
//! Parts of a plan that are equal become one operator: a CTE that is read twice changes once.
//!
//! | code | what is computed in full |
//! |---|---|
//! | `WINDOW_WITHOUT_PARTITION` | a window function over all rows |
//! | `AGGREGATE_WITHOUT_GROUP` | an aggregate that takes no rows back, over all rows |
//! | `TOO_MANY_AGGREGATES` | a GROUP BY beyond what state keys can number |
//! | `LIMIT_WITHOUT_ORDER` | a LIMIT whose order stands elsewhere than right under it |
//! | `OFFSET_WITHOUT_LIMIT` | all rows but the first |
//! | `NOT_IN_SHAPE` | a NOT IN that did not become a join by one key |
//! | `JOIN_KEY_TYPES` | a join whose keys have different types |
//! | `DISTINCT_ON`, `UNNEST`, `UNSUPPORTED_OPERATOR` | operators that are not made here |
//! | `UNSUPPORTED_EXPRESSION` | an expression the engine cannot compute over rows alone |

mod aggregates;
mod joins;
mod relations;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use datafusion::common::{DFSchema, DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use flow_core::TableName;

use super::{Feed, Node, Operator};
use crate::determinism::{Finding, Near, first_column};

/// Makes operators of a plan.
pub(super) struct Lowering<'s> {
    state: &'s SessionState,
    pub(super) nodes: Vec<Node>,
    known: HashMap<LogicalPlan, usize>,
    /// Holds what stands against it.
    pub(super) findings: Vec<Finding>,
    /// Says which columns of which tables are read, by their places in the table.
    pub(super) inputs: BTreeMap<TableName, BTreeMap<usize, String>>,
    /// Says what fills the state of which operator.
    pub(super) feeds: Vec<Feed>,
    /// Says what costs more than what changed.
    pub(super) notes: Vec<String>,
}

/// Makes a schema of a plan's columns in which everything may be NULL.
pub(super) fn loose(schema: &DFSchema) -> SchemaRef {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

impl<'s> Lowering<'s> {
    pub(super) fn new(state: &'s SessionState) -> Lowering<'s> {
        Lowering {
            state,
            nodes: Vec::new(),
            known: HashMap::new(),
            findings: Vec::new(),
            inputs: BTreeMap::new(),
            feeds: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Makes a plan's operator; `None` where a finding says why there is none.
    pub(super) async fn lower(&mut self, plan: &LogicalPlan) -> Result<Option<usize>> {
        if let Some(known) = self.known.get(plan) {
            return Ok(Some(*known));
        }
        let before = self.findings.len();
        let node = match Box::pin(self.operator(plan)).await {
            Ok(node) => node,
            // What the engine cannot plan here, a full refresh says better than we can.
            Err(error @ (DataFusionError::NotImplemented(_) | DataFusionError::Plan(_))) => {
                tracing::debug!(%error, "an expression cannot be computed over changes");
                self.refuse("UNSUPPORTED_EXPRESSION", plan.display().to_string(), &[], None);
                None
            }
            Err(error) => return Err(error),
        };
        if let Some(node) = node.filter(|_| self.findings.len() == before) {
            self.known.insert(plan.clone(), node);
            return Ok(Some(node));
        }
        Ok(None)
    }

    async fn operator(&mut self, plan: &LogicalPlan) -> Result<Option<usize>> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::SubqueryAlias(alias) => self.lower(&alias.input).await,
            // Rows have no order but under a LIMIT.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.lower(&sort.input).await,
            LogicalPlan::Projection(projection) => {
                let input = self.lower(&projection.input).await?;
                self.project(plan, &projection.expr, input)
            }
            LogicalPlan::Filter(filter) => {
                let Some(input) = self.lower(&filter.input).await? else {
                    return Ok(None);
                };
                let condition = self.expression(&filter.predicate, filter.input.schema())?;
                Ok(Some(self.push(Operator::Filter(condition), vec![input], plan)))
            }
            LogicalPlan::Union(union) => {
                let mut inputs = Vec::new();
                for input in &union.inputs {
                    inputs.push(self.lower(input).await?);
                }
                let inputs: Option<Vec<usize>> = inputs.into_iter().collect();
                let types = union
                    .inputs
                    .iter()
                    .all(|input| same_types(input.schema(), &union.schema));
                match inputs {
                    Some(inputs) if types => Ok(Some(self.push(Operator::Union, inputs, plan))),
                    Some(_) => self.unsupported(plan),
                    None => Ok(None),
                }
            }
            LogicalPlan::Join(join) => self.join(plan, join).await,
            LogicalPlan::Aggregate(aggregate) => self.aggregate(plan, aggregate).await,
            LogicalPlan::Distinct(distinct) => self.distinct(plan, distinct).await,
            LogicalPlan::Window(window) => self.window(plan, window).await,
            LogicalPlan::Limit(limit) => self.limit(limit).await,
            LogicalPlan::Unnest(_) => Ok(self.refuse("UNNEST", "UNNEST", &["unnest"], None)),
            _ => self.unsupported(plan),
        }
    }

    /// Notes why there is no operator.
    fn refuse(
        &mut self,
        code: &'static str,
        operator: impl Into<String>,
        words: &[&str],
        about: Option<&Expr>,
    ) -> Option<usize> {
        let mut finding = Finding::new(code, words, operator);
        finding.near = about.and_then(first_column).map(Near::Before);
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
        None
    }

    fn unsupported(&mut self, plan: &LogicalPlan) -> Result<Option<usize>> {
        let shown = plan.display().to_string();
        let name = shown.split([':', ' ']).next().unwrap_or_default().to_owned();
        Ok(self.refuse("UNSUPPORTED_OPERATOR", name, &[], None))
    }

    fn push(&mut self, operator: Operator, inputs: Vec<usize>, plan: &LogicalPlan) -> usize {
        self.push_as(operator, inputs, loose(plan.schema()))
    }

    fn push_as(&mut self, operator: Operator, inputs: Vec<usize>, schema: SchemaRef) -> usize {
        self.nodes.push(Node {
            operator,
            inputs,
            schema,
        });
        self.nodes.len() - 1
    }

    /// Is the number that the next operator will have in state keys.
    fn next_number(&self) -> Result<u16> {
        u16::try_from(self.nodes.len())
            .map_err(|_| DataFusionError::Plan("a definition has too many operators".to_owned()))
    }

    fn expression(&self, expr: &Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        create_physical_expr(expr, schema, self.state.execution_props())
    }

    fn expressions(&self, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        exprs.iter().map(|expr| self.expression(expr, schema)).collect()
    }

    fn project(&mut self, plan: &LogicalPlan, exprs: &[Expr], input: Option<usize>) -> Result<Option<usize>> {
        let Some(input) = input else {
            return Ok(None);
        };
        let below = plan.inputs()[0].schema();
        let exprs = self.expressions(exprs, below)?;
        Ok(Some(self.push(Operator::Project(exprs), vec![input], plan)))
    }

    fn feed(&mut self, node: u16, side: usize, plan: &LogicalPlan) {
        self.feeds.push(Feed {
            node: node.into(),
            side,
            plan: plan.clone(),
        });
    }
}

fn same_types(a: &DFSchema, b: &DFSchema) -> bool {
    let types = |schema: &DFSchema| -> Vec<arrow_schema::DataType> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    types(a) == types(b)
}
