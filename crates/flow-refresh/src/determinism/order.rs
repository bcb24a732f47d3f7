//! Total orders: the sort columns that LIMIT, window functions and ordered aggregates miss.
//!
//! After the user's own sort keys, every column of the rows at hand is appended. Rows that are
//! still equal then are equal in everything, so which of them comes first cannot show.

use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, Limit, LogicalPlan, LogicalPlanBuilder, Sort, Window, WindowFrameBound, WindowFrameUnits,
    WindowFunctionDefinition,
};

use super::{Finding, ORDERED_AGGREGATES};
use crate::checked::comparable;

/// Collects what was appended and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    /// Says for each place what was appended.
    pub(crate) notes: Vec<String>,
    /// Holds what has no total order.
    pub(crate) findings: Vec<Finding>,
}

/// Appends the sort columns that are missing.
pub(crate) fn complete(plan: LogicalPlan, completion: &mut Completion) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Limit(limit) => Ok(Transformed::yes(order_limit(limit, completion)?)),
        LogicalPlan::Aggregate(_) => {
            let shared = shared_order(&node)?;
            expressions(node, completion, |expr, schema, completion| {
                aggregate(expr, &shared, schema, completion)
            })
        }
        LogicalPlan::Window(_) => expressions(node, completion, window)?.map_data(by_order),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

fn expressions(
    node: LogicalPlan,
    completion: &mut Completion,
    change: impl Fn(Expr, &DFSchema, &mut Completion) -> Result<Expr>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let names = NamePreserver::new(&node);
    let node = node.map_expressions(|expr| {
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| Ok(Transformed::yes(change(expr, &schema, completion)?)))?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    Ok(Transformed::yes(node.data.recompute_schema()?))
}

/// Parts window functions whose orders have become different: the engine sorts once for a node.
fn by_order(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Window(node) = node else {
        return Ok(node);
    };
    let mut groups: Vec<(Option<Ordered>, Vec<Expr>)> = Vec::new();
    for expr in node.window_expr {
        let key = ordered(&expr);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(expr),
            None => groups.push((key, vec![expr])),
        }
    }
    let mut plan = node.input;
    for (_, group) in groups {
        plan = Arc::new(LogicalPlan::Window(Window::try_new(group, plan)?));
    }
    Ok(Arc::unwrap_or_clone(plan))
}

/// Is the partition and order of a window function.
type Ordered = (Vec<Expr>, Vec<SortKey>);

fn ordered(expr: &Expr) -> Option<Ordered> {
    match expr {
        Expr::Alias(alias) => ordered(&alias.expr),
        Expr::WindowFunction(window) => {
            let params = &window.params;
            Some((params.partition_by.clone(), params.order_by.clone()))
        }
        _ => None,
    }
}

/// Sorts ascending with NULL last, as PostgreSQL does by default.
fn ascending(expr: Expr) -> SortKey {
    SortKey::new(expr, true, false)
}

/// Says whether values of a type can be sorted.
fn sortable(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Null | DataType::Interval(_))
}

/// Appends the columns of `schema` to sort keys; gives the names of those appended.
///
/// A float column is appended even where it is a key, because a key holds 0.0 and -0.0 for equal.
fn append_columns(keys: &mut Vec<SortKey>, schema: &DFSchema, what: &str, completion: &mut Completion) -> Result<()> {
    let mut appended = Vec::new();
    for key in keys.iter_mut() {
        key.expr = comparable(std::mem::take(&mut key.expr), schema)?;
    }
    for (relation, field) in schema.iter() {
        let column = Expr::from((relation, field));
        if keys.iter().any(|key| key.expr == column) {
            continue;
        }
        if !sortable(field.data_type()) {
            completion.findings.push(Finding {
                code: "NO_TOTAL_ORDER",
                message: format!(
                    "{what} needs a total order, and column {} has none to append",
                    field.name()
                ),
                words: vec![what.to_owned()],
                near: None,
            });
            return Ok(());
        }
        appended.push(field.name().clone());
        keys.push(ascending(column));
    }
    if !appended.is_empty() {
        let note = format!("{what}: rows are ordered further by {}", appended.join(", "));
        if !completion.notes.contains(&note) {
            completion.notes.push(note);
        }
    }
    Ok(())
}

fn order_limit(limit: Limit, completion: &mut Completion) -> Result<LogicalPlan> {
    let input = limit.input.as_ref().clone();
    let input = match order_below(input, completion)? {
        Ok(ordered) => ordered,
        Err(unordered) => {
            let mut keys = Vec::new();
            append_columns(&mut keys, unordered.schema(), "LIMIT", completion)?;
            match keys.is_empty() {
                true => unordered,
                false => LogicalPlanBuilder::from(unordered).sort(keys)?.build()?,
            }
        }
    };
    let input = Arc::new(input);
    Ok(LogicalPlan::Limit(Limit { input, ..limit }))
}

/// Completes the sort that decides which rows a LIMIT keeps; gives the plan back if there is none.
fn order_below(plan: LogicalPlan, completion: &mut Completion) -> Result<Result<LogicalPlan, LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(Sort {
            mut expr,
            input,
            fetch: None,
        }) => {
            append_columns(&mut expr, input.schema(), "LIMIT", completion)?;
            Ok(Ok(LogicalPlan::Sort(Sort {
                expr,
                input,
                fetch: None,
            })))
        }
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let child = plan.inputs()[0].clone();
            match order_below(child, completion)? {
                Ok(child) => Ok(Ok(plan.with_new_exprs(plan.expressions(), vec![child])?)),
                Err(_) => Ok(Err(plan)),
            }
        }
        other => Ok(Err(other)),
    }
}

/// Is one order for all ordered aggregates of a node, since the engine sorts their input once: the
/// longest one asked for, if all others begin it, and then the arguments of all.
fn shared_order(node: &LogicalPlan) -> Result<Vec<SortKey>> {
    let mut functions = Vec::new();
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                Expr::AggregateFunction(function)
                    if ORDERED_AGGREGATES.contains(&function.func.name()) && !function.params.distinct =>
                {
                    functions.push(function.params.clone());
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    let longest = functions.iter().max_by_key(|params| params.order_by.len());
    let mut order = longest.map(|params| params.order_by.clone()).unwrap_or_default();
    if functions.iter().any(|params| !order.starts_with(&params.order_by)) {
        return Ok(Vec::new());
    }
    for argument in functions.into_iter().flat_map(|params| params.args) {
        if !matches!(argument, Expr::Literal(_, _)) && !order.iter().any(|key| key.expr == argument) {
            order.push(ascending(argument));
        }
    }
    Ok(order)
}

/// Completes an ordered aggregate's order with its own argument: values that are still equal are
/// the same value.
fn aggregate(expr: Expr, shared: &[SortKey], schema: &DFSchema, completion: &mut Completion) -> Result<Expr> {
    let Expr::AggregateFunction(mut function) = expr else {
        return Ok(expr);
    };
    let name = function.func.name().to_owned();
    if !ORDERED_AGGREGATES.contains(&name.as_str()) {
        return Ok(Expr::AggregateFunction(function));
    }
    let asked = function.params.order_by.len();
    if !function.params.distinct && shared.starts_with(&function.params.order_by) {
        function.params.order_by = shared.to_vec();
    }
    for argument in function.params.args.clone() {
        let known = function.params.order_by.iter().any(|key| key.expr == argument);
        if !known && !matches!(argument, Expr::Literal(_, _)) {
            function.params.order_by.push(ascending(argument));
        }
    }
    let appended = &function.params.order_by[asked..];
    for key in appended {
        if !sortable(&key.expr.get_type(schema)?) {
            completion.findings.push(Finding {
                code: "NO_TOTAL_ORDER",
                message: format!("{name} needs a total order, and {} has none", key.expr.schema_name()),
                words: vec![name],
                near: super::first_column(&key.expr).map(super::Near::Before),
            });
            return Ok(Expr::AggregateFunction(function));
        }
    }
    if !appended.is_empty() {
        let columns: Vec<String> = appended.iter().map(|key| key.expr.schema_name().to_string()).collect();
        let note = format!("{name}: rows are ordered further by {}", columns.join(", "));
        if !completion.notes.contains(&note) {
            completion.notes.push(note);
        }
    }
    Ok(Expr::AggregateFunction(function))
}

/// Says what order a window function needs.
enum Need {
    /// Ties give the same result for all of them.
    Peers,
    /// Ties must be broken.
    Total,
    /// Breaking ties would change what the frame means.
    Impossible,
}

fn need(window: &WindowFunction) -> Need {
    let frame = &window.params.window_frame;
    let whole = matches!(frame.start_bound, WindowFrameBound::Preceding(ref v) if v.is_null())
        && matches!(frame.end_bound, WindowFrameBound::Following(ref v) if v.is_null());
    let offsets = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) => !value.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    let offsets = offsets(&frame.start_bound) || offsets(&frame.end_bound);
    match &window.fun {
        WindowFunctionDefinition::WindowUDF(function) => match function.name() {
            "rank" | "dense_rank" | "percent_rank" | "cume_dist" => Need::Peers,
            "row_number" | "ntile" | "lag" | "lead" => Need::Total,
            _ if frame.units != WindowFrameUnits::Rows && offsets => Need::Impossible,
            _ => Need::Total,
        },
        WindowFunctionDefinition::AggregateUDF(function) => {
            if ORDERED_AGGREGATES.contains(&function.name()) {
                if whole { Need::Total } else { Need::Impossible }
            } else if frame.units == WindowFrameUnits::Rows && !whole {
                Need::Total
            } else {
                Need::Peers
            }
        }
    }
}

fn window(expr: Expr, schema: &DFSchema, completion: &mut Completion) -> Result<Expr> {
    let Expr::WindowFunction(mut window) = expr else {
        return Ok(expr);
    };
    let name = window.fun.name().to_owned();
    match need(&window) {
        Need::Peers => {
            for key in &mut window.params.order_by {
                key.expr = comparable(std::mem::take(&mut key.expr), schema)?;
            }
        }
        Need::Total => append_columns(&mut window.params.order_by, schema, &name, completion)?,
        Need::Impossible => completion.findings.push(Finding {
            code: "NO_TOTAL_ORDER",
            message: format!(
                "{name} over this frame has no one result among equal rows: use the whole partition, or a ROWS frame of FIRST_VALUE and the like"
            ),
            words: vec![name],
            near: window.params.args.first().and_then(super::first_column).map(super::Near::Before),
        }),
    }
    Ok(Expr::WindowFunction(window))
}
