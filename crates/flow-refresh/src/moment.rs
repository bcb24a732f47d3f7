//! The time of a refresh: what `now()` and its like are in a condition that compares a column with it.
//!
//! A definition's result is a function of its inputs and of that time, which is kept with the frontier
//! (law 7). Everywhere else the functions stay what they are, and are refused.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{Expr, LogicalPlan, Operator};
use datafusion::scalar::ScalarValue;
use flow_core::arrow::UTC;
use flow_core::clock::UnixMicros;

use crate::determinism::Finding;

const DAY_US: i64 = 86_400_000_000;

/// Is a plan without the time's functions where they may stand.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) plan: LogicalPlan,
    /// Names the functions that were found; none for a plan that time does not change.
    pub(crate) found: Vec<Finding>,
}

/// Gives `now()`, `current_timestamp` and `current_date` the values of a moment in the conditions of WHERE
/// and HAVING, subqueries' included, that compare a column with them.
pub(crate) fn bind(plan: LogicalPlan, at_us: UnixMicros) -> Result<Bound> {
    let mut found = Vec::new();
    let plan = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::Filter(mut filter) = node else {
            return Ok(Transformed::no(node));
        };
        let bound = filter
            .predicate
            .transform_down(|expr| match is_comparison(&expr) && reads_column(&expr)? {
                true => in_comparison(expr, at_us, &mut found),
                false => Ok(Transformed::no(expr)),
            })?;
        filter.predicate = bound.data;
        let node = LogicalPlan::Filter(filter);
        Ok(Transformed::new_transformed(node, bound.transformed))
    })?;
    Ok(Bound { plan: plan.data, found })
}

fn is_comparison(expr: &Expr) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    match expr {
        Expr::BinaryExpr(binary) => matches!(
            binary.op,
            Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom
        ),
        Expr::Between(_) => true,
        _ => false,
    }
}

fn reads_column(expr: &Expr) -> Result<bool> {
    expr.exists(|part| Ok(matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(_, _))))
}

fn in_comparison(expr: Expr, at_us: UnixMicros, found: &mut Vec<Finding>) -> Result<Transformed<Expr>> {
    expr.transform_down(|part| {
        let Expr::ScalarFunction(function) = &part else {
            return Ok(Transformed::no(part));
        };
        let value = match function.name() {
            "now" => ScalarValue::TimestampMicrosecond(Some(at_us), Some(UTC.into())),
            "current_date" => {
                let day = i32::try_from(at_us.div_euclid(DAY_US));
                ScalarValue::Date32(Some(day.unwrap_or(i32::MAX)))
            }
            _ => return Ok(Transformed::no(part)),
        };
        let mut words = vec![function.name()];
        words.extend(function.func.aliases().iter().map(String::as_str));
        let message = format!("{}()", function.name());
        found.push(Finding::new("TIME_BOUND_FILTER", &words, message));
        Ok(Transformed::yes(Expr::Literal(value, None)))
    })
}
