//! Subqueries that stand for one value, as joins.
//!
//! A subquery without columns of the outer query is joined as it is: it has one row at most.
//! One that uses outer columns is an aggregate without keys, which gives a row for each outer row,
//! even over no rows. The engine's own rule finds what it gives over no rows by computing its
//! expressions over an untyped NULL, which loses types, and it tells columns by bare names. Here:
//!
//! 1. What is computed of the aggregates is taken out of the subquery and computed behind the join.
//! 2. The aggregates are grouped by the columns of the subquery that must equal outer ones. Where the
//!    condition is no such equality, they are grouped by the different values of the outer columns,
//!    joined with the rows of the subquery under that condition.
//! 3. A left join finds the group of each outer row. Where there is none, COUNT is 0 and every other
//!    aggregate NULL, and both are of the type they have elsewhere.
//!
//! What cannot be joined stays a subquery, which is refused later.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery, lit, when,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// Is the engine's rule that this one stands for.
pub(crate) const NAME: &str = "scalar_subquery_to_join";

/// Makes joins of subqueries that stand for one value.
#[derive(Debug, Default)]
pub(crate) struct SubqueryValues;

impl OptimizerRule for SubqueryValues {
    fn name(&self) -> &str {
        NAME
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let inside = match &plan {
            LogicalPlan::Filter(filter) => stands_in(&filter.predicate),
            LogicalPlan::Projection(projection) => projection.expr.iter().any(stands_in),
            LogicalPlan::Aggregate(aggregate) => {
                let grouped = aggregate
                    .group_expr
                    .iter()
                    .all(|key| !matches!(key, Expr::GroupingSet(_)));
                grouped && aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(stands_in)
            }
            _ => false,
        };
        if !inside {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        let saved: Vec<_> = plan.expressions().iter().map(|expr| names.save(expr)).collect();
        let mut joins = Joins {
            input: plan.inputs()[0].clone(),
            known: Vec::new(),
            aliases: config.alias_generator(),
        };
        let Some(exprs) = joins.replace(plan.expressions())? else {
            return Ok(Transformed::no(plan));
        };
        let exprs: Vec<Expr> = exprs
            .into_iter()
            .zip(saved)
            .map(|(expr, name)| name.restore(expr))
            .collect();
        let columns = plan.schema().columns();
        let above = plan.with_new_exprs(exprs, vec![joins.input])?;
        let above = match &above {
            // What was joined to its input must not show.
            LogicalPlan::Filter(_) => {
                let columns = columns.into_iter().map(Expr::Column);
                LogicalPlanBuilder::from(above).project(columns)?.build()?
            }
            _ => above,
        };
        Ok(Transformed::yes(above))
    }
}

fn is_value(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarSubquery(_))
}

/// Says whether a subquery that stands for one value is in an expression.
pub(crate) fn stands_in(expr: &Expr) -> bool {
    expr.exists(|part| Ok(is_value(part))).unwrap_or(false)
}

/// Is the input of a node, with what was joined to it.
struct Joins<'a> {
    input: LogicalPlan,
    /// Holds the subqueries that are joined already, and what stands for their values.
    known: Vec<(Arc<LogicalPlan>, Expr)>,
    aliases: &'a Arc<AliasGenerator>,
}

impl Joins<'_> {
    /// Joins what the subqueries in some expressions need, and puts their values in their places;
    /// `None` if one of them cannot be joined.
    fn replace(&mut self, mut exprs: Vec<Expr>) -> Result<Option<Vec<Expr>>> {
        // A value may hold subqueries of its own.
        while exprs.iter().any(stands_in) {
            let mut failed = false;
            let replaced = exprs.into_iter().map(|expr| {
                let replaced = expr.transform_down(|part| match part {
                    Expr::ScalarSubquery(subquery) => Ok(match self.value(&subquery)? {
                        Some(value) => Transformed::new(value, true, TreeNodeRecursion::Jump),
                        None => {
                            failed = true;
                            Transformed::no(Expr::ScalarSubquery(subquery))
                        }
                    }),
                    other => Ok(Transformed::no(other)),
                });
                replaced.data()
            });
            exprs = replaced.collect::<Result<_>>()?;
            if failed {
                return Ok(None);
            }
        }
        Ok(Some(exprs))
    }

    /// Is the expression over the input that gives a subquery's value.
    fn value(&mut self, subquery: &Subquery) -> Result<Option<Expr>> {
        if let Some((_, value)) = self.known.iter().find(|(plan, _)| *plan == subquery.subquery) {
            return Ok(Some(value.clone()));
        }
        let value = match subquery.subquery.all_out_ref_exprs().is_empty() {
            true => Some(self.join_one_row(&subquery.subquery)?),
            false => self.join_groups(&subquery.subquery)?,
        };
        self.known
            .extend(value.clone().map(|value| (subquery.subquery.clone(), value)));
        Ok(value)
    }

    fn join_one_row(&mut self, plan: &Arc<LogicalPlan>) -> Result<Expr> {
        let alias = self.aliases.next("__scalar_sq");
        let column = Expr::Column(plan.schema().columns().swap_remove(0)).alias(value_name(0));
        let one = LogicalPlanBuilder::from(plan.clone())
            .project([column])?
            .alias(&alias)?
            .build()?;
        self.join(one, vec![lit(true)])?;
        Ok(Expr::Column(Column::new(Some(alias), value_name(0))))
    }

    fn join_groups(&mut self, plan: &LogicalPlan) -> Result<Option<Expr>> {
        let first = Expr::Column(plan.schema().columns().swap_remove(0));
        let Some((value, aggregate)) = inlined(plan, first)? else {
            return Ok(None);
        };
        let alias = self.aliases.next("__scalar_sq");
        let joined = match equal_keys(aggregate, &alias)? {
            Some(groups) => Some(groups),
            None => self.groups_by_outer(aggregate, &alias)?,
        };
        let Some(Groups { plan, on, values }) = joined else {
            return Ok(None);
        };
        let known = self.input.schema().join(plan.schema())?;
        let value = outer_as_columns(value)?;
        let mut given = on.iter().flat_map(Expr::column_refs);
        if given.any(|column| !known.has_column(column)) {
            return Ok(None);
        }
        let value = value.transform_up(|part| match &part {
            Expr::Column(column) => Ok(match aggregate.schema.maybe_index_of_column(column) {
                Some(at) => Transformed::yes(values[at].clone()),
                None => Transformed::no(part),
            }),
            _ => Ok(Transformed::no(part)),
        });
        let value = value.data()?;
        if value.column_refs().into_iter().any(|column| !known.has_column(column)) {
            return Ok(None);
        }
        self.join(plan, on)?;
        Ok(Some(value))
    }

    fn join(&mut self, right: LogicalPlan, on: Vec<Expr>) -> Result<()> {
        let left = std::mem::take(&mut self.input);
        self.input = LogicalPlanBuilder::from(left)
            .join_on(right, JoinType::Left, on)?
            .build()?;
        Ok(())
    }

    /// Groups the rows of a subquery by the different values of the outer columns that it uses.
    fn groups_by_outer(&self, aggregate: &Aggregate, alias: &str) -> Result<Option<Groups>> {
        if !is_plain(&aggregate.input) {
            return Ok(None);
        }
        let outer = self.outer_columns(aggregate);
        let schema = self.input.schema();
        let joins = |column: &Column| {
            let at = schema.maybe_index_of_column(column);
            let data_type = at.map(|at| schema.field(at).data_type());
            data_type.is_some_and(|data_type| !data_type.is_nested())
        };
        if outer.is_empty() || !outer.iter().all(joins) {
            return Ok(None);
        }
        let mut pull = PullUpCorrelatedExpr::new();
        let rows = aggregate.input.as_ref().clone().rewrite(&mut pull).data()?;
        if !pull.can_pull_up {
            return Ok(None);
        }
        let each = format!("{alias}_outer");
        let keys = outer.iter().enumerate();
        let keys = keys.map(|(at, column)| Expr::Column(column.clone()).alias(key_name(at)));
        let different = LogicalPlanBuilder::from(self.input.clone())
            .project(keys)?
            .distinct()?
            .alias(&each)?;
        let renamed = |column: &Column| {
            let at = outer.iter().position(|known| known == column)?;
            Some(Column::new(Some(each.clone()), key_name(at)))
        };
        let condition = pull
            .join_filters
            .into_iter()
            .map(|filter| with_columns(filter, &renamed));
        let condition = condition.collect::<Result<Vec<_>>>()?;
        let met = different.join_on(rows, JoinType::Inner, condition)?;
        let functions = aggregate.aggr_expr.iter().enumerate().map(|(at, function)| {
            let function = outer_as_columns(function.clone().unalias_nested().data)?;
            Ok(with_columns(function, &renamed)?.alias(value_name(at)))
        });
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let keys: Vec<Expr> = (0..outer.len())
            .map(|at| Expr::Column(Column::new(Some(each.clone()), key_name(at))))
            .collect();
        let plan = met.aggregate(keys, functions)?.build()?;
        let on = outer.iter().enumerate().map(|(at, column)| {
            let key = Expr::Column(Column::new(Some(alias), key_name(at)));
            Expr::BinaryExpr(BinaryExpr::new(
                Box::new(Expr::Column(column.clone())),
                Operator::IsNotDistinctFrom,
                Box::new(key),
            ))
        });
        let on = on.collect();
        let plan = LogicalPlanBuilder::from(plan).alias(alias)?.build()?;
        let values = values(aggregate, alias)?;
        Ok(Some(Groups { plan, on, values }))
    }

    /// Lists the outer columns that an aggregate and its rows use, each once.
    fn outer_columns(&self, aggregate: &Aggregate) -> Vec<Column> {
        let plan = LogicalPlan::Aggregate(aggregate.clone());
        let columns = plan.all_out_ref_exprs().into_iter().filter_map(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) => Some(column),
            _ => None,
        });
        let columns: BTreeSet<Column> = columns.collect();
        columns.into_iter().collect()
    }
}

/// Is an aggregate by groups, made from one without keys.
struct Groups {
    plan: LogicalPlan,
    /// Says which group belongs to an outer row.
    on: Vec<Expr>,
    /// Are the aggregates, as they are behind the join.
    values: Vec<Expr>,
}

fn value_name(at: usize) -> String {
    format!("__value_{at}")
}

fn key_name(at: usize) -> String {
    format!("__key_{at}")
}

/// Says whether outer columns are used below nothing but projections, conditions and inner joins: their
/// conditions can be moved above those.
fn is_plain(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().into_iter().all(is_plain)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => plan.inputs().into_iter().all(is_plain),
        other => other.all_out_ref_exprs().is_empty(),
    }
}

/// Takes an expression over a subquery's rows down to the aggregate that gives them; `None` if
/// something else gives them.
fn inlined(plan: &LogicalPlan, expr: Expr) -> Result<Option<(Expr, &Aggregate)>> {
    let (below, expr) = match plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => return Ok(Some((expr, aggregate))),
        LogicalPlan::Projection(projection) => {
            let given = |at: usize| projection.expr[at].clone().unalias_nested().data;
            (&projection.input, given_by(expr, plan, given)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let columns = alias.input.schema().columns();
            (
                &alias.input,
                given_by(expr, plan, |at| Expr::Column(columns[at].clone()))?,
            )
        }
        LogicalPlan::Sort(sort) => (&sort.input, expr),
        _ => return Ok(None),
    };
    inlined(below, expr)
}

/// Puts what gives a plan's columns in their places.
pub(crate) fn given_by(expr: Expr, plan: &LogicalPlan, given: impl Fn(usize) -> Expr) -> Result<Expr> {
    let replaced = expr.transform_up(|part| match &part {
        Expr::Column(column) => Ok(match plan.schema().maybe_index_of_column(column) {
            Some(at) => Transformed::yes(given(at)),
            None => Transformed::no(part),
        }),
        _ => Ok(Transformed::no(part)),
    });
    replaced.data()
}

fn outer_as_columns(expr: Expr) -> Result<Expr> {
    let replaced = expr.transform_up(|part| {
        Ok(match part {
            Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
            other => Transformed::no(other),
        })
    });
    replaced.data()
}

fn with_columns(expr: Expr, renamed: &impl Fn(&Column) -> Option<Column>) -> Result<Expr> {
    let replaced = expr.transform_up(|part| {
        Ok(match &part {
            Expr::Column(column) => match renamed(column) {
                Some(column) => Transformed::yes(Expr::Column(column)),
                None => Transformed::no(part),
            },
            _ => Transformed::no(part),
        })
    });
    replaced.data()
}

/// Groups the rows of a subquery by its own columns that must equal outer ones; `None` if outer columns
/// are used otherwise.
fn equal_keys(aggregate: &Aggregate, alias: &str) -> Result<Option<Groups>> {
    let mut pull = PullUpCorrelatedExpr::new();
    let grouped = LogicalPlan::Aggregate(aggregate.clone()).rewrite(&mut pull).data()?;
    let LogicalPlan::Aggregate(with_keys) = &grouped else {
        return Ok(None);
    };
    if !pull.can_pull_up || pull.join_filters.is_empty() {
        return Ok(None);
    }
    let correlated: BTreeSet<&Column> = pull.correlated_subquery_cols_map.values().flatten().collect();
    let count = with_keys.group_expr.len();
    let columns = with_keys.schema.columns();
    let (keys, functions) = columns.split_at(count);
    // Within the conditions a key may go by the name of a table below.
    let place = |column: &Column| {
        let mut found = (0..count).filter(|at| keys[*at].name == column.name);
        found.next().filter(|_| found.next().is_none())
    };
    let used = pull.join_filters.iter().flat_map(Expr::column_refs);
    let mut own = used.filter(|column| correlated.contains(column));
    if !own.all(|column| place(column).is_some()) {
        return Ok(None);
    }
    let renamed = |column: &Column| {
        let at = correlated.contains(column).then(|| place(column)).flatten()?;
        Some(Column::new(Some(alias), key_name(at)))
    };
    let on = pull
        .join_filters
        .iter()
        .cloned()
        .map(|filter| with_columns(filter, &renamed));
    let on = on.collect::<Result<Vec<_>>>()?;
    let named = |columns: &[Column], name: fn(usize) -> String| {
        let named = columns.iter().cloned().enumerate();
        let named = named.map(move |(at, column)| Expr::Column(column).alias(name(at)));
        named.collect::<Vec<Expr>>()
    };
    let shown = [named(keys, key_name), named(functions, value_name)].concat();
    let plan = LogicalPlanBuilder::from(grouped.clone())
        .project(shown)?
        .alias(alias)?
        .build()?;
    let values = values(aggregate, alias)?;
    Ok(Some(Groups { plan, on, values }))
}

/// Are the aggregates as they are behind a join that finds no group for some rows.
fn values(aggregate: &Aggregate, alias: &str) -> Result<Vec<Expr>> {
    let values = aggregate.aggr_expr.iter().enumerate().map(|(at, function)| {
        let column = Expr::Column(Column::new(Some(alias), value_name(at)));
        match function.clone().unalias_nested().data {
            Expr::AggregateFunction(function) if function.func.name() == "count" => {
                when(column.clone().is_null(), lit(0i64)).otherwise(column)
            }
            _ => Ok(column),
        }
    });
    values.collect()
}
