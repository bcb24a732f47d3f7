//! How types meet, as PostgreSQL has it, in a plan whose types are not resolved.
//!
//! - A text literal takes the type of what it meets, or is an error where it cannot be read so.
//! - Types that PostgreSQL does not compare or combine are refused, where the engine makes texts of
//!   both.
//! - Decimals that meet floats become floats, where the engine makes decimals of the floats.
//! - A date that meets an interval becomes a timestamp, where the engine drops the hours; dates
//!   taken from each other give days, and days are added to dates.
//! - The epoch of a moment is a decimal.

use arrow_schema::{DataType, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Diagnostic, Result, ScalarValue, Span, plan_datafusion_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, Union};

use crate::checked::{Written, read_text};
use crate::determinism::first_column;
use crate::kind::{Kind, wide_number};

/// Makes types meet as PostgreSQL does.
pub(crate) fn meet_as_postgres(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|node| {
        if matches!(node, LogicalPlan::TableScan(_) | LogicalPlan::EmptyRelation(_)) {
            return Ok(Transformed::no(node));
        }
        if let LogicalPlan::Union(union) = &node {
            check_union(union)?;
        }
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        let node = node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| Ok(Transformed::yes(meet(expr, &schema)?)))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })?;
        let node = match node.data {
            LogicalPlan::Join(join) => LogicalPlan::Join(join_keys(join)?),
            values @ LogicalPlan::Values(_) => return Ok(Transformed::yes(values)),
            other => other,
        };
        Ok(Transformed::yes(node.recompute_schema()?))
    })?;
    Ok(changed.data)
}

fn join_keys(mut join: Join) -> Result<Join> {
    let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
    for (l, r) in &mut join.on {
        let types = [type_of(l, &left), type_of(r, &right)];
        agree(vec![l, r], &types, "=")?;
    }
    Ok(join)
}

/// Refuses sets whose columns PostgreSQL would not unite, or only after a literal took another type.
fn check_union(union: &Union) -> Result<()> {
    let columns = union.inputs.iter().map(|input| input.schema().fields().len()).min();
    for column in 0..columns.unwrap_or(0) {
        let kinds = union
            .inputs
            .iter()
            .map(|input| Kind::of(input.schema().field(column).data_type()));
        let kinds: Vec<Kind> = kinds.collect();
        if let Some(other) = kinds.iter().find(|kind| !kind.meets(kinds[0])) {
            return Err(plan_datafusion_err!(
                "types {} and {} do not meet in UNION, column {}, as in PostgreSQL: CAST one of them",
                kinds[0].name(),
                other.name(),
                column + 1
            ));
        }
    }
    Ok(())
}

/// A type that cannot be told yet meets everything; the engine says later what is wrong with it.
fn type_of(expr: &Expr, schema: &DFSchema) -> DataType {
    expr.get_type(schema).unwrap_or(DataType::Null)
}

fn refused(expr: &Expr, message: String) -> DataFusionError {
    let error = plan_datafusion_err!("{message}");
    let place = first_column(expr);
    let span = place.map(|place| {
        let location = datafusion::common::Location {
            line: place.line,
            column: place.column,
        };
        Span::new(location, location)
    });
    error.with_diagnostic(Diagnostic::new_error(message, span))
}

fn meet(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let (together, what): (Vec<&mut Expr>, String) = match &mut expr {
        Expr::BinaryExpr(_) => return binary(expr, schema),
        Expr::ScalarFunction(_) => return function(expr, schema),
        Expr::Between(between) => (
            vec![&mut between.expr, &mut between.low, &mut between.high],
            "BETWEEN".into(),
        ),
        Expr::InList(list) => (
            std::iter::once(list.expr.as_mut()).chain(&mut list.list).collect(),
            "IN".into(),
        ),
        Expr::InSubquery(inside) => {
            let wanted = inside.subquery.subquery.schema().field(0).data_type().clone();
            let given = type_of(&inside.expr, schema);
            if !Kind::of(&given).meets(Kind::of(&wanted)) {
                return Err(mismatch(&inside.expr, Kind::of(&given), "IN", Kind::of(&wanted)));
            }
            return Ok(expr);
        }
        Expr::Like(like) => {
            for side in [&like.expr, &like.pattern] {
                let kind = Kind::of(&type_of(side, schema));
                if !kind.meets(Kind::Text) {
                    return Err(mismatch(side, kind, "LIKE", Kind::Text));
                }
            }
            return Ok(expr);
        }
        Expr::Case(case) => {
            if let Some(operand) = &mut case.expr {
                let values = case.when_then_expr.iter_mut().map(|(value, _)| value.as_mut());
                let compared: Vec<&mut Expr> = std::iter::once(operand.as_mut()).chain(values).collect();
                let types: Vec<DataType> = compared.iter().map(|e| type_of(e, schema)).collect();
                agree(compared, &types, "=")?;
            }
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            (results.chain(case.else_expr.as_deref_mut()).collect(), "CASE".into())
        }
        Expr::Cast(Cast { expr: inner, data_type }) if data_type.is_floating() => {
            return Ok(to_float(std::mem::take(inner.as_mut()), data_type.clone()));
        }
        _ => return Ok(expr),
    };
    let types: Vec<DataType> = together.iter().map(|e| type_of(e, schema)).collect();
    agree(together, &types, &what)?;
    Ok(expr)
}

fn mismatch(expr: &Expr, left: Kind, what: &str, right: Kind) -> DataFusionError {
    let (left, right) = (left.name(), right.name());
    refused(
        expr,
        format!("types {left} and {right} do not meet in {what}, as in PostgreSQL: CAST one to the type of the other"),
    )
}

/// Gives expressions that stand for one type, or are compared, types that PostgreSQL has in common.
fn agree(mut together: Vec<&mut Expr>, types: &[DataType], what: &str) -> Result<()> {
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if value.try_as_str().flatten().is_some());
    let typed = (0..types.len()).filter(|at| !is_literal(together[*at]) && Kind::of(&types[*at]) != Kind::Unknown);
    let typed: Vec<usize> = typed.collect();
    let Some(first) = typed.first().copied() else {
        return Ok(());
    };
    for at in &typed {
        let (one, other) = (Kind::of(&types[first]), Kind::of(&types[*at]));
        if !one.meets(other) {
            return Err(mismatch(together[first], one, what, other));
        }
    }
    // The widest of the numbers is what PostgreSQL reads a literal as.
    let rank = |at: &&usize| match Kind::of(&types[**at]) {
        Kind::Float | Kind::Timestamptz => 3,
        Kind::Decimal | Kind::Timestamp => 2,
        _ => 1,
    };
    let widest = typed.iter().max_by_key(rank).map_or(first, |at| *at);
    let target = &types[widest];
    let about = together[first].clone();
    for expr in &mut together {
        let text = match &**expr {
            Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_owned),
            _ => None,
        };
        if let Some(text) = text.filter(|_| Kind::of(target) != Kind::Text) {
            **expr = read_literal(&text, target).map_err(|message| refused(&about, message))?;
        }
    }
    // A real meets other numbers as a double, but for what is one value of several.
    let one_value = matches!(what, "CASE" | "coalesce" | "greatest" | "least");
    let other = |at: &usize| matches!(Kind::of(&types[*at]), Kind::Integer | Kind::Decimal);
    if !one_value && typed.iter().any(other) {
        for (expr, data_type) in together.iter_mut().zip(types) {
            if *data_type == DataType::Float32 {
                let real = std::mem::take(*expr);
                **expr = cast(real, DataType::Float64);
            }
        }
    }
    if typed.iter().any(|at| types[*at].is_floating()) {
        for (expr, data_type) in together.iter_mut().zip(types) {
            if Kind::of(data_type) == Kind::Decimal {
                let decimal = std::mem::take(*expr);
                **expr = to_float(decimal, DataType::Float64);
            }
        }
    }
    Ok(())
}

/// Reads a text literal as a value of the type it meets, or says what is wrong with it.
fn read_literal(text: &str, target: &DataType) -> std::result::Result<Expr, String> {
    let kind = Kind::of(target);
    let failed = || {
        format!(
            "the text '{text}' stands where {} is needed, and is not read as one",
            kind.name()
        )
    };
    if kind == Kind::Decimal {
        let written = Written::read(text.trim()).ok_or_else(failed)?;
        let scale = i8::try_from(written.scale()).map_err(|_| failed())?;
        let value = written.scaled(scale).filter(|_| scale <= 38).ok_or_else(failed)?;
        let digits = value.unsigned_abs().checked_ilog10().map_or(1, |last| last as u8 + 1);
        let precision = digits.max(scale.unsigned_abs());
        return match precision <= 38 {
            true => Ok(Expr::Literal(
                ScalarValue::Decimal128(Some(value), precision, scale),
                None,
            )),
            false => Err(failed()),
        };
    }
    if matches!(kind, Kind::Interval | Kind::Binary | Kind::Array | Kind::Other) {
        return Err(format!(
            "the text '{text}' stands where {} is needed: use CAST",
            kind.name()
        ));
    }
    let value = read_text(text.trim(), target).map_err(|_| failed())?;
    Ok(Expr::Literal(value, None))
}

/// Casts to a float; a number that no decimal holds, or its negative, is read as one.
fn to_float(expr: Expr, to: DataType) -> Expr {
    let text = match &expr {
        Expr::Negative(inner) => wide_number(inner).map(|digits| format!("-{digits}")),
        other => wide_number(other).map(str::to_owned),
    };
    match text.and_then(|text| read_text(&text, &to).ok()) {
        Some(value) => Expr::Literal(value, None),
        None => cast(expr, to),
    }
}

fn cast(expr: Expr, to: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), to))
}

fn binary(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else {
        return Ok(expr);
    };
    let (mut left, mut right) = (*left, *right);
    let types = [type_of(&left, schema), type_of(&right, schema)];
    let kinds = [Kind::of(&types[0]), Kind::of(&types[1])];
    let operator = op.to_string();
    match op {
        Operator::And | Operator::Or => {}
        Operator::StringConcat => {
            let joins = |kind| {
                !matches!(
                    kind,
                    Kind::Float | Kind::Interval | Kind::Uuid | Kind::Binary | Kind::Array | Kind::Other
                )
            };
            let text = kinds.contains(&Kind::Text) || kinds == [Kind::Unknown; 2];
            if !text || !kinds.iter().all(|kind| joins(*kind)) {
                return Err(mismatch(&left, kinds[0], &operator, kinds[1]));
            }
        }
        Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo => {
            return arithmetic(left, op, right, &types);
        }
        Operator::LikeMatch | Operator::ILikeMatch | Operator::NotLikeMatch | Operator::NotILikeMatch => {
            if let Some(kind) = kinds.iter().find(|kind| !kind.meets(Kind::Text)) {
                return Err(mismatch(&left, *kind, "LIKE", Kind::Text));
            }
        }
        _ => agree(vec![&mut left, &mut right], &types, &operator)?,
    }
    Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
}

fn arithmetic(mut left: Expr, op: Operator, mut right: Expr, types: &[DataType; 2]) -> Result<Expr> {
    let kinds = [Kind::of(&types[0]), Kind::of(&types[1])];
    let numbers = kinds.iter().any(|kind| kind.is_number());
    if numbers && !kinds.contains(&Kind::Interval) && !kinds.contains(&Kind::Date) {
        let operator = op.to_string();
        agree(vec![&mut left, &mut right], types, &operator)?;
    } else if kinds.contains(&Kind::Text) {
        return Err(mismatch(&left, kinds[0], &op.to_string(), kinds[1]));
    }
    match kinds {
        [Kind::Date, Kind::Date] if op == Operator::Minus => {
            left = cast(left, DataType::Int32);
            right = cast(right, DataType::Int32);
        }
        [Kind::Date, Kind::Integer] if matches!(op, Operator::Plus | Operator::Minus) => {
            return Ok(days(left, op, right));
        }
        [Kind::Integer, Kind::Date] if op == Operator::Plus => return Ok(days(right, op, left)),
        [Kind::Date, Kind::Interval] => left = cast(left, DataType::Timestamp(TimeUnit::Microsecond, None)),
        [Kind::Interval, Kind::Date] => right = cast(right, DataType::Timestamp(TimeUnit::Microsecond, None)),
        _ => {}
    }
    Ok(Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))))
}

/// Moves a date by days.
fn days(date: Expr, op: Operator, count: Expr) -> Expr {
    let (number, count) = (cast(date, DataType::Int32), cast(count, DataType::Int32));
    let moved = Expr::BinaryExpr(BinaryExpr::new(Box::new(number), op, Box::new(count)));
    cast(moved, DataType::Date32)
}

fn function(mut expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let Expr::ScalarFunction(function) = &mut expr else {
        return Ok(expr);
    };
    let types: Vec<DataType> = function.args.iter().map(|e| type_of(e, schema)).collect();
    let name = function.name().to_owned();
    match (name.as_str(), &types[..]) {
        ("coalesce" | "nullif" | "greatest" | "least", _) => {
            agree(function.args.iter_mut().collect(), &types, &name)?;
        }
        // PostgreSQL takes a date for the timestamptz of its midnight.
        ("date_trunc", [_, DataType::Date32]) => {
            let date = std::mem::take(&mut function.args[1]);
            function.args[1] = cast(date, DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())));
        }
        ("date_part", [_, moment]) if is_epoch(function) => {
            let mut argument = std::mem::take(&mut function.args[1]);
            if *moment == DataType::Date32 {
                argument = cast(argument, DataType::Timestamp(TimeUnit::Microsecond, None));
            }
            let micros = cast(cast(argument, DataType::Int64), DataType::Decimal128(19, 0));
            let millionth = Expr::Literal(ScalarValue::Decimal128(Some(1), 7, 6), None);
            return Ok(micros * millionth);
        }
        ("round", [_, _]) => {
            if let Some(to) = rounded_quotient(function, schema) {
                return Ok(cast(std::mem::take(&mut function.args[0]), to));
            }
        }
        _ => {}
    }
    Ok(expr)
}

/// Is the type of `round(a / b, n)`, which is computed as a cast of the quotient so that it is
/// rounded once.
pub(crate) fn rounded_quotient(function: &ScalarFunction, schema: &DFSchema) -> Option<DataType> {
    let [value, Expr::Literal(ScalarValue::Int64(Some(digits)), _)] = &function.args[..] else {
        return None;
    };
    let is_division = matches!(value, Expr::BinaryExpr(binary) if binary.op == Operator::Divide);
    match value.get_type(schema) {
        Ok(DataType::Decimal128(precision, scale)) if is_division => {
            let digits = i8::try_from(*digits)
                .ok()
                .filter(|digits| (0..=scale).contains(digits))?;
            let whole = i16::from(precision) - i16::from(scale);
            let precision = (whole + i16::from(digits) + 1).clamp(1, 38);
            Some(DataType::Decimal128(u8::try_from(precision).ok()?, digits))
        }
        _ => None,
    }
}

/// Says whether `extract` asks for the seconds since 1970.
pub(crate) fn is_epoch(function: &ScalarFunction) -> bool {
    let part = function
        .args
        .first()
        .and_then(Expr::as_literal)
        .and_then(ScalarValue::try_as_str);
    part.flatten().is_some_and(|part| part.eq_ignore_ascii_case("epoch"))
}
