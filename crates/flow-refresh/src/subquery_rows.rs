//! Subqueries of conditions that the engine makes no joins of, or wrong ones, in other words.
//!
//! - The engine makes joins of IN and EXISTS by moving the conditions on outer columns out of the
//!   subquery. An aggregate without keys has a row even where no row meets those conditions, and the
//!   engine loses it: what is asked of that row is asked of a value instead.
//! - It takes NOT IN over such a subquery for a comparison that is never NULL: it becomes NOT EXISTS.
//! - A derived table between the subquery's conditions and its SELECT it cannot pass: the conditions go
//!   into the derived table.
//! - Conditions with a subquery in the ON of an inner join go above the join.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    Distinct, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery, lit,
};

use crate::subquery_values::{given_by, stands_in};

/// Writes such subqueries of conditions in other words.
pub(crate) fn spell_out(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(Filter { predicate, input, .. }) => {
            let outer = input.schema();
            let predicate = predicate.transform_up(|expr| condition(expr, outer))?;
            let changed = predicate.transformed;
            let filter = Filter::try_new(predicate.data, input)?;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), changed))
        }
        LogicalPlan::Join(join) => condition_above(join),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Takes conditions with such subqueries out of an inner join, and puts them above it.
fn condition_above(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let condition = join
        .filter
        .take_if(|filter| join.join_type == JoinType::Inner && stands_in(filter));
    let joined = LogicalPlan::Join(join);
    Ok(match condition {
        Some(condition) => Transformed::yes(LogicalPlanBuilder::from(joined).filter(condition)?.build()?),
        None => Transformed::no(joined),
    })
}

fn condition(expr: Expr, outer: &DFSchema) -> Result<Transformed<Expr>> {
    let not_in = match &expr {
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(inside) if !inside.negated => Some(inside),
            _ => None,
        },
        Expr::InSubquery(inside) if inside.negated => Some(inside),
        _ => None,
    };
    if let Some(inside) = not_in
        && one_row(&inside.subquery.subquery)?.is_none()
        && let Some(excluded) = excluded(inside, outer)?
    {
        return Ok(Transformed::yes(excluded));
    }
    let subquery = match &expr {
        Expr::Exists(exists) => &exists.subquery,
        Expr::InSubquery(inside) => &inside.subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    if subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(expr));
    }
    let with_plan = |plan: LogicalPlan| Subquery {
        subquery: Arc::new(plan),
        ..subquery.clone()
    };
    if let Some(OneRow { plan, having }) = one_row(&subquery.subquery)? {
        let value = Expr::ScalarSubquery(with_plan(plan));
        let there = having.map(|having| Expr::IsTrue(Box::new(Expr::ScalarSubquery(with_plan(having)))));
        let (found, negated) = match &expr {
            Expr::InSubquery(InSubquery { expr, negated, .. }) => {
                let equal = expr.as_ref().clone().eq(value);
                (there.map_or(equal.clone(), |there| there.and(equal)), *negated)
            }
            Expr::Exists(Exists { negated, .. }) => (there.unwrap_or_else(|| lit(true)), *negated),
            _ => return Ok(Transformed::no(expr)),
        };
        return Ok(Transformed::yes(if negated { !found } else { found }));
    }
    match &expr {
        Expr::Exists(exists) => match dissolved(&subquery.subquery)? {
            Some(plan) => {
                let subquery = with_plan(plan);
                let negated = exists.negated;
                Ok(Transformed::yes(Expr::Exists(Exists { subquery, negated })))
            }
            None => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    }
}

/// Is a subquery that has one row, or none where its HAVING is not true.
struct OneRow {
    /// Is the subquery without HAVING.
    plan: LogicalPlan,
    /// Gives what HAVING says of the row.
    having: Option<LogicalPlan>,
}

fn one_row(plan: &LogicalPlan) -> Result<Option<OneRow>> {
    let ungrouped = |plan: &LogicalPlan| match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    };
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) => {
            let Some(below) = one_row(plan.inputs()[0])? else {
                return Ok(None);
            };
            let plan = plan.with_new_exprs(plan.expressions(), vec![below.plan])?;
            Ok(Some(OneRow { plan, ..below }))
        }
        LogicalPlan::Filter(filter) if ungrouped(&filter.input) => {
            let plan = filter.input.as_ref().clone();
            let having = LogicalPlanBuilder::from(plan.clone()).project([filter.predicate.clone()])?;
            let having = Some(having.build()?);
            Ok(Some(OneRow { plan, having }))
        }
        _ if ungrouped(plan) => Ok(Some(OneRow {
            plan: plan.clone(),
            having: None,
        })),
        _ => Ok(None),
    }
}

/// Moves the conditions on a derived table into it, if it uses outer columns; `None` if that is not
/// needed or not possible. What the subquery selects does not matter.
fn dissolved(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Projection(shown) = plan else {
        return Ok(None);
    };
    let LogicalPlan::Filter(filter) = shown.input.as_ref() else {
        return Ok(None);
    };
    match filter.input.all_out_ref_exprs().is_empty() {
        true => Ok(None),
        false => with_condition(&filter.input, filter.predicate.clone()),
    }
}

/// Is NOT IN as NOT EXISTS, if the subquery uses outer columns: no row is equal, or might be.
fn excluded(inside: &InSubquery, outer: &DFSchema) -> Result<Option<Expr>> {
    let rows = &inside.subquery.subquery;
    if inside.subquery.outer_ref_columns.is_empty() || stands_in(&inside.expr) {
        return Ok(None);
    }
    let outside = inside.expr.as_ref().clone().transform_up(|part| {
        Ok(match part {
            Expr::Column(column) => match outer.maybe_index_of_column(&column) {
                Some(at) => Transformed::yes(Expr::OuterReferenceColumn(outer.field(at).clone(), column)),
                None => Transformed::no(Expr::Column(column)),
            },
            other => Transformed::no(other),
        })
    })?;
    let equal = outside.data.eq(Expr::Column(rows.schema().columns().swap_remove(0)));
    let found = with_condition(rows, Expr::IsNotFalse(Box::new(equal)))?;
    Ok(found.map(|plan| {
        let subquery = Subquery {
            outer_ref_columns: plan.all_out_ref_exprs(),
            subquery: Arc::new(plan),
            ..inside.subquery.clone()
        };
        Expr::Exists(Exists {
            subquery,
            negated: true,
        })
    }))
}

/// Puts a condition on a subquery's rows where its own conditions stand; `None` if that is not possible.
fn with_condition(rows: &LogicalPlan, condition: Expr) -> Result<Option<LogicalPlan>> {
    let (mut rows, mut condition) = (rows, condition);
    loop {
        (rows, condition) = match rows {
            LogicalPlan::SubqueryAlias(alias) if !matches!(*alias.input, LogicalPlan::TableScan(_)) => {
                let columns = alias.input.schema().columns();
                let condition = given_by(condition, rows, |at| Expr::Column(columns[at].clone()))?;
                (alias.input.as_ref(), condition)
            }
            LogicalPlan::Projection(projection) => {
                let given = |at: usize| projection.expr[at].clone().unalias_nested().data;
                (projection.input.as_ref(), given_by(condition, rows, given)?)
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (sort.input.as_ref(), condition),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let columns = input.schema().columns();
                let condition = given_by(condition, rows, |at| Expr::Column(columns[at].clone()))?;
                (input.as_ref(), condition)
            }
            _ => break,
        };
    }
    let own = rows.schema();
    // The engine would take an outer column for one of the rows if both had one name.
    let hidden = condition.exists(|part| {
        Ok(match part {
            Expr::OuterReferenceColumn(_, column) => own.has_column(column),
            _ => false,
        })
    })?;
    if hidden {
        return Ok(None);
    }
    // Of two conditions over each other the engine would forget what the lower one needs.
    if let LogicalPlan::Filter(filter) = rows {
        condition = condition.and(filter.predicate.clone());
        rows = &filter.input;
    }
    let plan = LogicalPlanBuilder::from(rows.clone())
        .filter(condition)?
        .project([lit(1i64)])?;
    Ok(Some(plan.build()?))
}
