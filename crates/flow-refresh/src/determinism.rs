//! Whether a SELECT has one result, and what is added so that it has.
//!
//! 1. [`check`] walks a plan whose types are resolved and names what it refuses.
//! 2. [`order::complete`] appends the sort columns that a total order misses, and says so.
//!
//! A finding holds the words to look for in the SQL, and the place of the first column it is about:
//! plans keep the places of columns and of nothing else.

pub(crate) mod order;

use crate::tokens::Place;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::{merge_schema, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, FetchType, JoinType, LogicalPlan, ScalarUDF, Subquery, Volatility,
    WindowFunctionDefinition,
};

/// Is something that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Is a stable code in capitals.
    pub(crate) code: &'static str,
    /// Says what and why, and what to write instead.
    pub(crate) message: String,
    /// Holds words of the SQL that it may stand at.
    pub(crate) words: Vec<String>,
    /// Is the place of a column that it is about.
    pub(crate) near: Option<Near>,
}

/// Is the place of a column, before or behind which a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// The word stands before the column, as a function's name does.
    Before(Place),
    /// The word stands behind it, as `IN` does.
    Behind(Place),
}

impl Finding {
    pub(crate) fn new(code: &'static str, words: &[&str], message: impl Into<String>) -> Finding {
        Finding {
            code,
            message: message.into(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            near: None,
        }
    }

    /// Says that it is about an expression.
    pub(crate) fn about(mut self, expr: &Expr) -> Finding {
        self.near = first_column(expr).map(Near::Before);
        self
    }
}

/// Is the place of the first column of an expression, subqueries left out.
pub(crate) fn first_column(expr: &Expr) -> Option<Place> {
    let mut places = Vec::new();
    let visited = expr.apply(|part| {
        if let Expr::Column(column) | Expr::OuterReferenceColumn(_, column) = part {
            places.extend(column.spans().first().map(|span| Place {
                line: span.start.line,
                column: span.start.column,
            }));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.ok()?;
    places.into_iter().filter(|place| place.line > 0).min()
}

/// Are the aggregates whose result does not depend on order, beside those of [`crate::aggregates`].
pub(crate) const UNORDERED_AGGREGATES: [&str; 9] = [
    "count", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor", "grouping",
];

/// Are the aggregates that depend on order, and are given a total one.
pub(crate) const ORDERED_AGGREGATES: [&str; 5] = ["array_agg", "string_agg", "first_value", "last_value", "nth_value"];

const WINDOW_FUNCTIONS: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// Names everything in a plan whose types are resolved that has no one result, or that the engine
/// is known to compute wrongly.
pub(crate) fn check(plan: &LogicalPlan) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    plan.apply_with_subqueries(|node| {
        check_node(node, &mut findings)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    findings.dedup();
    Ok(findings)
}

fn check_node(node: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    match node {
        LogicalPlan::Projection(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::TableScan(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Distinct(_) => {}
        LogicalPlan::Filter(filter) => {
            for part in split_conjunction(&filter.predicate) {
                check_filter_part(part, node, findings)?;
            }
            return Ok(());
        }
        other => findings.push(Finding::new(
            "OPERATOR_NOT_SUPPORTED",
            &[],
            format!("operator {} is refused in a definition", other.display()),
        )),
    }
    node.apply_expressions(|expr| {
        check_expression(expr, node, findings)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Looks at one condition of a WHERE, where subqueries become joins.
fn check_filter_part(part: &Expr, node: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    let (subquery, negated) = match part {
        Expr::InSubquery(subquery) => (subquery, subquery.negated),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(subquery) => (subquery, !subquery.negated),
            _ => return check_expression(part, node, findings),
        },
        _ => return check_expression(part, node, findings),
    };
    let behind = first_column(&subquery.expr).map(Near::Behind);
    if negated && !subquery.subquery.outer_ref_columns.is_empty() {
        let mut finding = Finding::new(
            "CORRELATED_NOT_IN",
            &["NOT", "IN"],
            "NOT IN over a subquery that uses columns of the outer query is refused, because the engine gets its NULLs \
             wrong: write NOT EXISTS",
        );
        finding.near = behind;
        findings.push(finding);
    }
    check_correlated(&subquery.subquery, findings);
    check_expression(&subquery.expr, node, findings)
}

/// Refuses what the engine pulls out of a correlated subquery wrongly.
fn check_correlated(subquery: &Subquery, findings: &mut Vec<Finding>) {
    if subquery.outer_ref_columns.is_empty() {
        return;
    }
    let limited = subquery
        .subquery
        .exists(|node| {
            let stops = match node {
                LogicalPlan::Limit(_) | LogicalPlan::Window(_) | LogicalPlan::Union(_) => true,
                // They become a union.
                LogicalPlan::Aggregate(aggregate) => matches!(aggregate.group_expr[..], [Expr::GroupingSet(_)]),
                _ => false,
            };
            Ok(stops && !node.all_out_ref_exprs().is_empty())
        })
        .unwrap_or(true);
    if !conditions_move_out(&subquery.subquery) {
        findings.push(Finding::new(
            "CORRELATED_SUBQUERY",
            &["LEFT", "RIGHT", "FULL", "FROM"],
            "columns of the outer query below a derived table or an outer join of a subquery are refused: use them in the \
             subquery's own WHERE, or join instead",
        ));
    }
    if limited {
        findings.push(Finding::new(
            "CORRELATED_SUBQUERY",
            &["LIMIT", "OVER", "UNION", "ROLLUP", "CUBE", "GROUPING"],
            "LIMIT, window functions, UNION, GROUPING SETS, ROLLUP and CUBE in a subquery that uses columns of the outer \
             query are refused: join instead",
        ));
    }
}

/// Says whether conditions on outer columns stand where the engine can move them out of a subquery:
/// below no derived table and no outer join.
fn conditions_move_out(plan: &LogicalPlan) -> bool {
    // What is computed of one row's aggregates is computed outside.
    let mut rows = plan;
    loop {
        rows = match rows {
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_)
                if gives_one_row(rows) =>
            {
                rows.inputs()[0]
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => break,
            _ => {
                rows = plan;
                break;
            }
        };
    }
    let stays = rows.exists(|node| {
        let hides = match node {
            LogicalPlan::SubqueryAlias(_) => true,
            LogicalPlan::Join(join) => join.join_type != JoinType::Inner,
            _ => false,
        };
        Ok(hides && !node.all_out_ref_exprs().is_empty())
    });
    !stays.unwrap_or(true)
}

fn check_expression(expr: &Expr, node: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    expr.apply(|expr| {
        match expr {
            Expr::ScalarFunction(function) if function.func.signature().volatility != Volatility::Immutable => {
                findings.push(undecided(&function.func));
            }
            Expr::AggregateFunction(function) => check_aggregate(function.func.name(), expr, node, findings)?,
            Expr::WindowFunction(window) => match &window.fun {
                WindowFunctionDefinition::AggregateUDF(function) => {
                    check_aggregate(function.name(), expr, node, findings)?;
                }
                WindowFunctionDefinition::WindowUDF(function) if !WINDOW_FUNCTIONS.contains(&function.name()) => {
                    let message = format!("window function {} is refused: its result may depend on order", function.name());
                    findings.push(Finding::new("NON_DETERMINISTIC_WINDOW", &[function.name()], message));
                }
                WindowFunctionDefinition::WindowUDF(_) => {}
            },
            Expr::InSubquery(subquery) => {
                findings.push(Finding::new(
                    "IN_SUBQUERY_POSITION",
                    &["IN"],
                    "IN over a subquery is refused here, because the engine gets its NULLs wrong outside a condition \
                     of WHERE that stands alone or in AND: write EXISTS, or join",
                ));
                check_correlated(&subquery.subquery, findings);
            }
            Expr::Exists(exists) => {
                check_correlated(&exists.subquery, findings);
                if !matches!(node, LogicalPlan::Filter(_)) {
                    findings.push(Finding::new(
                        "EXISTS_POSITION",
                        &["EXISTS"],
                        "EXISTS is refused outside WHERE, because the engine cannot compute it there: join instead",
                    ));
                }
            }
            Expr::ScalarSubquery(subquery) => {
                check_correlated(subquery, findings);
                if !gives_one_row(&subquery.subquery) {
                    findings.push(Finding::new(
                        "SCALAR_SUBQUERY_MANY_ROWS",
                        &["SELECT"],
                        "a subquery that stands for one value must be an aggregate without GROUP BY and HAVING, or have LIMIT 1",
                    ));
                }
            }
            Expr::SetComparison(_) => findings.push(Finding::new(
                "SET_COMPARISON",
                &["ANY", "ALL", "SOME"],
                "ANY and ALL over a subquery are refused: use IN, EXISTS or MIN and MAX",
            )),
            Expr::Placeholder(_) | Expr::ScalarVariable(_, _) => findings.push(Finding::new(
                "PARAMETER",
                &[],
                "parameters and variables have no value in a definition",
            )),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn undecided(function: &ScalarUDF) -> Finding {
    let name = function.name();
    let mut message = format!("function {name}() is refused: its value is not a function of the input rows");
    if name == "now" || name == "current_date" {
        message.push_str("; it may stand in WHERE and HAVING, in a condition that compares a column with it");
    }
    let mut finding = Finding::new("NON_DETERMINISTIC_FUNCTION", &[name], message);
    finding.words.extend(function.aliases().iter().cloned());
    finding
}

fn check_aggregate(name: &str, expr: &Expr, node: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    if UNORDERED_AGGREGATES.contains(&name) || ORDERED_AGGREGATES.contains(&name) {
        return check_moving(name, expr, node, findings);
    }
    let arguments = match expr {
        Expr::AggregateFunction(function) => &function.params.args,
        Expr::WindowFunction(window) => &window.params.args,
        _ => return Ok(()),
    };
    let schema = merge_schema(&node.inputs());
    if let [argument] = &arguments[..] {
        let (argument, result) = (argument.get_type(&schema)?, expr.get_type(&schema)?);
        if crate::aggregates::replacement(name, &argument, &result, false).is_some() {
            return Ok(());
        }
    }
    let message = format!("aggregate {name} is refused: its result may depend on the order of rows or overflow unseen");
    findings.push(Finding::new("AGGREGATE_NOT_EXACT", &[name], message).about(expr));
    Ok(())
}

/// Refuses MIN and MAX over a frame that moves where the engine's own must be used.
fn check_moving(name: &str, expr: &Expr, node: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    let Expr::WindowFunction(window) = expr else {
        return Ok(());
    };
    if !matches!(name, "min" | "max") || !crate::checked::moves(&window.params.window_frame) {
        return Ok(());
    }
    let schema = merge_schema(&node.inputs());
    for argument in &window.params.args {
        let argument = argument.get_type(&schema)?;
        if crate::aggregates::replacement(name, &argument, &argument, true).is_none() {
            let message = format!(
                "{name} of {argument} over a frame that does not start at UNBOUNDED PRECEDING is refused, because the \
                 engine gets its NULLs wrong"
            );
            findings.push(Finding::new("MOVING_FRAME", &[name], message).about(expr));
        }
    }
    Ok(())
}

/// Says whether a subquery surely gives at most one row.
fn gives_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => gives_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => gives_one_row(&alias.input),
        LogicalPlan::Sort(sort) => gives_one_row(&sort.input),
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => group_expr.is_empty(),
        LogicalPlan::Limit(limit) => matches!(limit.get_fetch_type(), Ok(FetchType::Literal(Some(0 | 1)))),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        _ => false,
    }
}
