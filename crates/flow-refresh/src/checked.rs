//! Expressions that give the right value or an error: the rewrite of a resolved plan.
//!
//! The engine's `+`, `-` and `*` over integers wrap, its casts from fractions cut, its decimal
//! division cuts, its comparison of floats tells 0.0 from -0.0 and one NaN from another, and its
//! float aggregates depend on order; its rounding of floats, its upper case and its texts of moments
//! are not PostgreSQL's. After types are resolved and before anything is optimised,
//! each of those is replaced by a function of ours ([`functions`]) or an aggregate of ours
//! ([`crate::aggregates`]), and grouping sets by a union ([`sets`]); names and types of columns stay
//! what they are.

mod functions;
mod sets;
mod text;

use arrow_array::{ArrayRef, StringArray};
use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{
    AggregateFunction, Case, Cast, InList, InSubquery, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Operator, WindowFrame,
    WindowFrameBound, WindowFunctionDefinition, when,
};

use crate::aggregates;
use crate::exactness::{divide_rounded, float_key, inexact};
use crate::kind::Kind;
use functions::Checked;
pub(crate) use text::Written;

/// Reads a text as a value of a type, as a cast does.
pub(crate) fn read_text(text: &str, to: &DataType) -> Result<ScalarValue> {
    let texts: ArrayRef = std::sync::Arc::new(StringArray::from(vec![text]));
    ScalarValue::try_from_array(&functions::cast(&texts, to)?, 0)
}

/// Replaces what could wrap, cut or depend on order, in a plan whose types are resolved.
pub(crate) fn rewrite(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        Ok(match plan {
            LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_) => Transformed::no(plan),
            LogicalPlan::Aggregate(aggregate) => Transformed::yes(sets::apart(aggregate, node)?),
            other => Transformed::yes(node(other)?),
        })
    })?;
    Ok(rewritten.data)
}

/// Rewrites one node whose inputs are done already.
fn node(node: LogicalPlan) -> Result<LogicalPlan> {
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
    match node.data.recompute_schema()? {
        LogicalPlan::Aggregate(aggregate) => group_keys(aggregate),
        LogicalPlan::Distinct(Distinct::All(input)) => distinct_rows(input.as_ref().clone()),
        LogicalPlan::Join(join) => join_keys(join),
        other => Ok(other),
    }
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
        Expr::InSubquery(found) if is_float(&found.expr, schema)? => in_subquery(found, schema)?,
        Expr::ScalarFunction(function) => return scalar_function(function, schema),
        Expr::Case(case) => simple_case(case, schema)?,
        Expr::IsTrue(condition) => is_true(*condition),
        Expr::IsNotTrue(condition) => !is_true(*condition),
        Expr::IsFalse(condition) => is_true(!*condition),
        Expr::IsNotFalse(condition) => !is_true(!*condition),
        Expr::IsUnknown(condition) => Expr::IsNull(condition),
        Expr::IsNotUnknown(condition) => Expr::IsNotNull(condition),
        Expr::AggregateFunction(function) => return aggregate_expression(function, schema),
        Expr::WindowFunction(window) => return window_expression(*window, schema),
        other => return Ok(Transformed::no(other)),
    };
    Ok(Transformed::yes(expr))
}

/// Makes IN over a subquery find floats that PostgreSQL holds for equal.
fn in_subquery(mut found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    *found.expr = comparable(std::mem::take(found.expr.as_mut()), schema)?;
    let values = found.subquery.subquery.as_ref().clone();
    let (relation, field) = values.schema().qualified_field(0);
    let key = comparable(Expr::from((relation, field)), values.schema())?.alias(field.name());
    let values = LogicalPlanBuilder::from(values.clone()).project([key])?.build()?;
    found.subquery.subquery = std::sync::Arc::new(values);
    Ok(Expr::InSubquery(found))
}

/// Replaces functions that round, compare or spell otherwise than PostgreSQL.
fn scalar_function(mut function: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let float = match function.args.first() {
        Some(first) => is_float(first, schema)?,
        None => false,
    };
    let checked = match (function.name(), function.args.len()) {
        ("round", 1) if float => Checked::RoundEven,
        ("sqrt", 1) if float => Checked::SquareRoot,
        ("upper", 1) => Checked::Upper,
        ("lower", 1) => Checked::Lower,
        ("nullif", 2) if float => {
            let value = function.args[0].clone();
            let compared = function.args.into_iter().map(|argument| comparable(argument, schema));
            let compared = compared.collect::<Result<Vec<_>>>()?;
            let [left, right] = <[Expr; 2]>::try_from(compared).expect("nullif has two arguments here");
            let null = Expr::Literal(ScalarValue::try_from(&value.get_type(schema)?)?, None);
            return Ok(Transformed::yes(when(left.eq(right), null).otherwise(value)?));
        }
        ("greatest" | "least", _) if float => {
            let arguments = function.args.into_iter().map(|argument| comparable(argument, schema));
            function.args = arguments.collect::<Result<_>>()?;
            return Ok(Transformed::yes(Expr::ScalarFunction(function)));
        }
        _ => return Ok(Transformed::no(Expr::ScalarFunction(function))),
    };
    Ok(Transformed::yes(checked.call(function.args)))
}

/// Makes `CASE x WHEN y` find what PostgreSQL holds for equal.
fn simple_case(mut case: Case, schema: &DFSchema) -> Result<Expr> {
    if let Some(operand) = &mut case.expr
        && is_float(operand, schema)?
    {
        **operand = comparable(std::mem::take(operand.as_mut()), schema)?;
        for (value, _) in &mut case.when_then_expr {
            **value = comparable(std::mem::take(value.as_mut()), schema)?;
        }
    }
    Ok(Expr::Case(case))
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
    let mut inner = *cast.expr;
    if matches!(to, DataType::Decimal128(_, _)) {
        inner = match Checked::quotient_as(inner, to) {
            Ok(quotient) => return Ok(Transformed::yes(quotient)),
            Err(inner) => inner,
        };
    }
    let moment = |kind| matches!(kind, Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz);
    let special = match (Kind::of(&from), Kind::of(to)) {
        (Kind::Float | Kind::Decimal, Kind::Integer) => true,
        (Kind::Float, Kind::Decimal) | (Kind::Decimal, Kind::Float) => true,
        (Kind::Float, Kind::Float) => (&from, to) == (&DataType::Float64, &DataType::Float32),
        (Kind::Decimal, Kind::Decimal) => match (&from, to) {
            (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
            _ => false,
        },
        (Kind::Timestamp | Kind::Timestamptz, Kind::Date | Kind::Time) => true,
        (kind, Kind::Text) => kind == Kind::Uuid || moment(kind),
        (Kind::Text, kind) => moment(kind) || matches!(kind, Kind::Uuid | Kind::Decimal | Kind::Float),
        _ => false,
    };
    if !special {
        let cast = Cast::new(Box::new(inner), cast.data_type);
        return Ok(Transformed::no(Expr::Cast(cast)));
    }
    if Kind::of(&from) == Kind::Decimal && to.is_integer() {
        // A quotient that is cast to an integer at once is rounded once, too.
        inner = Checked::quotient_as(inner, &DataType::Decimal128(38, 0)).unwrap_or_else(|inner| inner);
    }
    let checked = Checked::Cast(to.clone());
    Ok(Transformed::yes(checked.call(vec![inner])))
}

fn aggregate_expression(mut function: AggregateFunction, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let result = Expr::AggregateFunction(function.clone()).get_type(schema)?;
    whole_mean(function.func.name(), &mut function.params.args, schema)?;
    function.params.filter = function.params.filter.map(|filter| Box::new(is_true(*filter)));
    let distinct = function.params.distinct;
    if let [argument] = &mut function.params.args[..] {
        let argument_type = argument.get_type(schema)?;
        if distinct && argument_type.is_floating() {
            // The engine may turn DISTINCT into groups, which tell what is equal here apart.
            *argument = comparable(std::mem::take(argument), schema)?;
        }
        if let Some(exact) = aggregates::replacement(function.func.name(), &argument_type, &result, false) {
            function.func = exact;
        }
    }
    Ok(Transformed::yes(Expr::AggregateFunction(function)))
}

/// Says whether a condition is true; so a FILTER is never NULL, whose bit the engine's COUNT would take
/// for its value. The engine's own operator is never NULL in one of its plans and
/// may be in the other, which stops it where the condition becomes a column.
fn is_true(condition: Expr) -> Expr {
    Checked::IsTrue.call(vec![condition])
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
    window.params.filter = window.params.filter.map(|filter| Box::new(is_true(*filter)));
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
        if !is_float(&expr, &schema)? {
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
