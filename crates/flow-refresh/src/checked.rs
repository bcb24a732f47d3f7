//! Expressions that give the right value or an error: the rewrite of a resolved plan.
//!
//! The engine's `+`, `-` and `*` over integers wrap, its casts from fractions cut, its decimal
//! division cuts, its comparison of floats tells 0.0 from -0.0 and one NaN from another, and its
//! float aggregates depend on order. After types are resolved and before anything is optimised,
//! each of those is replaced by a function of ours ([`functions`]) or an aggregate of ours
//! ([`crate::aggregates`]); names and types of columns stay what they are.

mod functions;

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{AggregateFunction, Cast, InList, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Operator, WindowFrame,
    WindowFrameBound, WindowFunctionDefinition,
};

use crate::aggregates;
use crate::exactness::{divide_rounded, float_key, inexact};
use functions::Checked;

/// Makes types meet as PostgreSQL does, in a plan whose types are not resolved. Decimals that meet
/// floats become floats, where the engine makes decimals of the floats; a date that meets an
/// interval becomes a timestamp, where the engine drops the hours.
pub(crate) fn meet_as_postgres(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| {
        if matches!(
            node,
            LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_)
        ) {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| Ok(Transformed::yes(meet(expr, &schema))))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        Ok(Transformed::yes(node.data.recompute_schema()?))
    })?;
    Ok(changed.data)
}

fn meet(mut expr: Expr, schema: &DFSchema) -> Expr {
    let mut together: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(binary) => vec![&mut binary.left, &mut binary.right],
        Expr::Between(between) => vec![&mut between.expr, &mut between.low, &mut between.high],
        Expr::InList(list) => std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect(),
        Expr::ScalarFunction(function) => function.args.iter_mut().collect(),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            results.chain(case.else_expr.as_deref_mut()).collect()
        }
        _ => return expr,
    };
    // A type that cannot be told yet is neither; the engine says later what is wrong with it.
    let types: Vec<DataType> = together
        .iter()
        .map(|e| e.get_type(schema).unwrap_or(DataType::Null))
        .collect();
    if types.iter().any(DataType::is_floating) {
        for (expr, data_type) in together.iter_mut().zip(&types) {
            if matches!(data_type, DataType::Decimal128(_, _) | DataType::Decimal256(_, _)) {
                let decimal = std::mem::take(*expr);
                **expr = Expr::Cast(Cast::new(Box::new(decimal), DataType::Float64));
            }
        }
    }
    let interval = types.iter().any(|data_type| matches!(data_type, DataType::Interval(_)));
    if let (Expr::BinaryExpr(_), true) = (&expr, interval) {
        return date_to_timestamp(expr, &types);
    }
    expr
}

fn date_to_timestamp(mut expr: Expr, types: &[DataType]) -> Expr {
    if let Expr::BinaryExpr(binary) = &mut expr {
        for (side, data_type) in [&mut binary.left, &mut binary.right].into_iter().zip(types) {
            if *data_type == DataType::Date32 {
                let date = std::mem::take(side);
                **side = Expr::Cast(Cast::new(date, DataType::Timestamp(TimeUnit::Microsecond, None)));
            }
        }
    }
    expr
}

/// Replaces what could wrap, cut or depend on order, in a plan whose types are resolved.
pub(crate) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_)) {
            return Ok(Transformed::no(node));
        }
        let schema = match &node {
            LogicalPlan::Values(values) => values.schema.as_ref().clone(),
            other => merge_schema(&other.inputs()),
        };
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| expression(expr, &schema))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        let node = node.data.recompute_schema()?;
        let node = match node {
            LogicalPlan::Aggregate(aggregate) => group_keys(aggregate)?,
            LogicalPlan::Distinct(Distinct::All(input)) => distinct_rows(input.as_ref().clone())?,
            LogicalPlan::Join(join) => join_keys(join)?,
            other => other,
        };
        Ok(Transformed::yes(node))
    })?;
    Ok(rewritten.data)
}

fn is_float(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(schema)?.is_floating())
}

/// Wraps a float so that what PostgreSQL holds for equal is equal; leaves everything else alone.
pub(crate) fn comparable(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match &expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), metadata) => {
            let value = ScalarValue::Float64(Some(float_key(*value)));
            Ok(Expr::Literal(value, metadata.clone()))
        }
        Expr::Literal(_, _) => Ok(expr),
        _ if is_float(&expr, schema)? => Ok(Checked::FloatKey.call(vec![expr])),
        _ => Ok(expr),
    }
}

/// Replaces one expression whose arguments are done already.
fn expression(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let expr = match expr {
        Expr::BinaryExpr(binary) => return binary_expression(binary, schema),
        Expr::Negative(inner) if inner.get_type(schema)?.is_integer() => Checked::Negate.call(vec![*inner]),
        Expr::Cast(cast) => return cast_expression(cast, schema),
        Expr::Between(mut between) if is_float(&between.expr, schema)? => {
            for side in [&mut between.expr, &mut between.low, &mut between.high] {
                **side = comparable(std::mem::take(side.as_mut()), schema)?;
            }
            Expr::Between(between)
        }
        Expr::InList(InList { expr, list, negated }) if is_float(&expr, schema)? => Expr::InList(InList {
            expr: Box::new(comparable(*expr, schema)?),
            list: list
                .into_iter()
                .map(|item| comparable(item, schema))
                .collect::<Result<_>>()?,
            negated,
        }),
        Expr::AggregateFunction(function) => return aggregate_expression(function, schema),
        Expr::WindowFunction(window) => return window_expression(*window, schema),
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::yes(expr))
}

fn binary_expression(binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = binary;
    let (left_type, right_type) = (left.get_type(schema)?, right.get_type(schema)?);
    let integers = left_type.is_integer() && right_type.is_integer();
    let decimals = matches!(
        (&left_type, &right_type),
        (DataType::Decimal128(_, _), DataType::Decimal128(_, _))
    );
    let checked = match op {
        Operator::Plus if integers || decimals => Checked::Add,
        Operator::Minus if integers || decimals => Checked::Subtract,
        Operator::Multiply if integers || decimals => Checked::Multiply,
        Operator::Divide if decimals => {
            let whole = Expr::BinaryExpr(BinaryExpr::new(left.clone(), op, right.clone()));
            Checked::DivideDecimals(whole.get_type(schema)?)
        }
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom
            if left_type.is_floating() || right_type.is_floating() =>
        {
            let left = Box::new(comparable(*left, schema)?);
            let right = Box::new(comparable(*right, schema)?);
            return Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left, op, right))));
        }
        _ => return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr::new(left, op, right)))),
    };
    Ok(Transformed::yes(checked.call(vec![*left, *right])))
}

/// Replaces casts that cut, and those that the optimiser moves across a comparison as if they did
/// not lose anything.
fn cast_expression(cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let from = cast.expr.get_type(schema)?;
    let to = &cast.data_type;
    let special = match (&from, to) {
        (from, to) if from.is_floating() && to.is_integer() => true,
        (DataType::Decimal128(_, _), to) if to.is_integer() => true,
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
        (DataType::Timestamp(_, _), DataType::Date32 | DataType::Time64(_)) => true,
        (DataType::FixedSizeBinary(16), DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) => true,
        (DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8, DataType::FixedSizeBinary(16)) => true,
        _ => false,
    };
    if !special {
        return Ok(Transformed::no(Expr::Cast(cast)));
    }
    let checked = Checked::Cast(to.clone());
    Ok(Transformed::yes(checked.call(vec![*cast.expr])))
}

fn aggregate_expression(mut function: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let result = Expr::AggregateFunction(function.clone()).get_type(schema)?;
    whole_mean(function.func.name(), &mut function.params.args, schema)?;
    if let [argument] = &function.params.args[..] {
        let argument = argument.get_type(schema)?;
        if let Some(exact) = aggregates::replacement(function.func.name(), &argument, &result, false) {
            function.func = exact;
        } else if function.params.distinct && argument.is_floating() {
            let argument = function.params.args.remove(0);
            function.params.args.push(comparable(argument, schema)?);
        }
    }
    Ok(Transformed::yes(Expr::AggregateFunction(function)))
}

/// Says whether rows leave a frame as it goes on.
pub(crate) fn moves(frame: &WindowFrame) -> bool {
    !matches!(&frame.start_bound, WindowFrameBound::Preceding(rows) if rows.is_null())
}

/// Takes integers as they are for a mean: the engine makes floats of them first, which cuts.
fn whole_mean(name: &str, arguments: &mut [Expr], schema: &DFSchema) -> Result<()> {
    if name == "avg"
        && let [argument] = arguments
        && let Expr::Cast(cast) = &argument
        && cast.data_type == DataType::Float64
        && cast.expr.get_type(schema)?.is_integer()
    {
        *argument = cast.expr.as_ref().clone();
    }
    Ok(())
}

fn window_expression(mut window: WindowFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let result = Expr::WindowFunction(Box::new(window.clone())).get_type(schema)?;
    whole_mean(window.fun.name(), &mut window.params.args, schema)?;
    let moving = moves(&window.params.window_frame);
    if let (WindowFunctionDefinition::AggregateUDF(function), [argument]) = (&window.fun, &window.params.args[..]) {
        let argument = argument.get_type(schema)?;
        if let Some(exact) = aggregates::replacement(function.name(), &argument, &result, moving) {
            window.fun = WindowFunctionDefinition::AggregateUDF(exact);
        }
    }
    for key in &mut window.params.partition_by {
        *key = comparable(std::mem::take(key), schema)?;
    }
    Ok(Transformed::yes(Expr::WindowFunction(Box::new(window))))
}

/// Groups floats that are equal for PostgreSQL together.
fn group_keys(aggregate: Aggregate) -> Result<LogicalPlan> {
    let Aggregate {
        input,
        group_expr,
        aggr_expr,
        ..
    } = aggregate;
    let schema = input.schema().as_ref().clone();
    let keyed = group_expr.into_iter().map(|expr| {
        if matches!(expr, Expr::GroupingSet(_)) || !is_float(&expr, &schema)? {
            return Ok(expr);
        }
        let (relation, name) = expr.qualified_name();
        Ok(Checked::FloatKey
            .call(vec![expr.unalias()])
            .alias_qualified(relation, name))
    });
    let keyed = keyed.collect::<Result<Vec<_>>>()?;
    Ok(LogicalPlan::Aggregate(Aggregate::try_new(input, keyed, aggr_expr)?))
}

fn distinct_rows(input: LogicalPlan) -> Result<LogicalPlan> {
    let schema = input.schema().clone();
    if !schema.fields().iter().any(|field| field.data_type().is_floating()) {
        return Ok(LogicalPlan::Distinct(Distinct::All(input.into())));
    }
    let columns = schema.iter().map(|(relation, field)| {
        let column = Expr::from((relation, field));
        match field.data_type().is_floating() {
            true => Checked::FloatKey
                .call(vec![column])
                .alias_qualified(relation.cloned(), field.name()),
            false => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(input).project(columns)?.distinct()?.build()
}

fn join_keys(mut join: Join) -> Result<LogicalPlan> {
    let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
    for (l, r) in &mut join.on {
        *l = comparable(std::mem::take(l), &left)?;
        *r = comparable(std::mem::take(r), &right)?;
    }
    Ok(LogicalPlan::Join(join))
}
