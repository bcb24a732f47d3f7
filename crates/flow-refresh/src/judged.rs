//! What is known to give PostgreSQL's answer: functions, operators and casts that its tests have
//! judged against PostgreSQL. Everything else is refused by name.
//!
//! 1. [`check`] walks a plan whose types are those written: what the engine would add to make types
//!    fit is not there yet.
//! 2. [`check_numbers`] looks for numbers that no decimal holds, where types have met.
//! 3. [`check_coerced`] looks at the casts the engine has added.
//!
//! [`functions`] lists the functions, [`quotients`] follows values that are PostgreSQL's only as far
//! as a column of the result holds them.

mod functions;
mod quotients;

use arrow_schema::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Values};

use crate::determinism::Finding;
use crate::kind::{Kind, wide_number};

/// Names what a plan holds that is not known to give PostgreSQL's answer.
pub(crate) fn check(plan: &LogicalPlan) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                findings.extend(expression(expr, &schema));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        if let LogicalPlan::Values(values) = node {
            findings.extend(values_of_two_types(values));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if findings.is_empty() {
        quotients::check(plan, &mut findings)?;
    }
    findings.dedup();
    Ok(findings)
}

/// Names the numbers beyond 38 digits that are left when types have met: PostgreSQL computes with all of
/// their digits.
pub(crate) fn check_numbers(plan: &LogicalPlan) -> Result<Vec<Finding>> {
    find(plan, |expr, _| wide_number(expr).map(too_wide))
}

/// Asks each part of each expression of a plan, subqueries included, with the columns that it reads.
fn find(plan: &LogicalPlan, ask: impl Fn(&Expr, &DFSchema) -> Option<Finding>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                findings.extend(ask(expr, &schema));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    findings.dedup();
    Ok(findings)
}

/// Refuses a number beyond 38 digits.
pub(crate) fn too_wide(digits: &str) -> Finding {
    let message = format!(
        "the number {digits} is refused here: no column holds more than 38 digits; it may meet a double precision or be \
         cast to one"
    );
    Finding::new("NUMBER_TOO_WIDE", &[digits], message)
}

/// Names casts to and from text that nobody wrote and that give another text than PostgreSQL's.
pub(crate) fn check_coerced(plan: &LogicalPlan) -> Result<Vec<Finding>> {
    find(plan, |expr, schema| {
        let Expr::Cast(cast) = expr else { return None };
        let (from, to) = (kind_of(&cast.expr, schema), Kind::of(&cast.data_type));
        let text = from == Kind::Text || to == Kind::Text;
        text.then(|| cast_refused(expr, from, to)).flatten()
    })
}

/// A type that cannot be told yet is unknown; the engine says later what is wrong with it.
fn kind_of(expr: &Expr, schema: &DFSchema) -> Kind {
    expr.get_type(schema)
        .map_or(Kind::Unknown, |data_type| Kind::of(&data_type))
}

fn expression(expr: &Expr, schema: &DFSchema) -> Option<Finding> {
    match expr {
        Expr::ScalarFunction(function) => functions::scalar(function, expr, schema),
        Expr::AggregateFunction(function) => functions::aggregate(function.func.name(), expr, schema),
        Expr::Cast(cast) => cast_refused(expr, kind_of(&cast.expr, schema), Kind::of(&cast.data_type)),
        Expr::TryCast(_) => {
            let message = "TRY_CAST is refused: PostgreSQL does not have it, write CASE and CAST";
            Some(Finding::new("CAST_NOT_EXACT", &["TRY_CAST"], message).about(expr))
        }
        Expr::BinaryExpr(binary) => {
            let kinds = [kind_of(&binary.left, schema), kind_of(&binary.right, schema)];
            operator(binary.op, kinds).map(|message| Finding::new("OPERATOR_NOT_JUDGED", &[], message).about(expr))
        }
        Expr::Between(between) if kind_of(&between.expr, schema) == Kind::Interval => {
            Some(Finding::new("OPERATOR_NOT_JUDGED", &["BETWEEN"], INTERVALS).about(expr))
        }
        _ => None,
    }
}

const INTERVALS: &str = "intervals are not compared, because the engine holds a day and 24 hours for different: compare \
                         timestamps, t > u + INTERVAL '1 day' say, or extract(epoch FROM t - u)";

/// Says why an operator between two families of types is refused.
fn operator(op: Operator, kinds: [Kind; 2]) -> Option<String> {
    use Kind::{Date, Float, Interval, Timestamp, Timestamptz};
    let [left, right] = kinds;
    let judged = match op {
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom => match kinds.contains(&Interval) {
            true => return Some(INTERVALS.to_owned()),
            false => true,
        },
        Operator::And | Operator::Or | Operator::StringConcat => true,
        Operator::LikeMatch | Operator::ILikeMatch | Operator::NotLikeMatch | Operator::NotILikeMatch => true,
        Operator::BitwiseAnd | Operator::BitwiseOr => kinds == [Kind::Integer; 2],
        Operator::Modulo => !kinds.contains(&Float),
        Operator::Multiply | Operator::Divide => !kinds.contains(&Interval),
        Operator::Plus | Operator::Minus => {
            let moment = |kind| matches!(kind, Date | Timestamp | Timestamptz);
            match (left, right) {
                (one, other) if !moment(one) && !moment(other) => true,
                (one, Interval) => moment(one),
                (Interval, other) => moment(other) && op == Operator::Plus,
                (Date, Kind::Integer) => true,
                (Kind::Integer, Date) => op == Operator::Plus,
                (Date, Date) | (Timestamp, Timestamp) | (Timestamptz, Timestamptz) => op == Operator::Minus,
                (Kind::Unknown, _) | (_, Kind::Unknown) => true,
                _ => false,
            }
        }
        _ => false,
    };
    (!judged).then(|| {
        let (left, right) = (left.name(), right.name());
        format!("operator {op} between {left} and {right} is refused: it is not known to give PostgreSQL's answer")
    })
}

fn cast_refused(expr: &Expr, from: Kind, to: Kind) -> Option<Finding> {
    use Kind::{Array, Boolean, Date, Decimal, Float, Integer, Interval, Text, Time, Timestamp, Timestamptz, Uuid};
    let exact = match from {
        Kind::Unknown => true,
        _ if from == to => from != Array,
        Boolean => matches!(to, Integer | Text),
        Integer => matches!(to, Decimal | Float | Text | Boolean),
        Decimal => matches!(to, Integer | Float | Text),
        Float => matches!(to, Integer | Decimal),
        Text => {
            matches!(
                to,
                Integer | Decimal | Float | Boolean | Date | Time | Timestamp | Timestamptz | Uuid
            ) || (to == Interval && matches!(expr, Expr::Cast(cast) if cast.expr.as_literal().is_some()))
        }
        Date => matches!(to, Timestamp | Timestamptz | Text),
        Timestamp => matches!(to, Date | Time | Timestamptz | Text),
        Timestamptz => matches!(to, Date | Time | Timestamp | Text),
        Time | Uuid => to == Text,
        _ => false,
    };
    if exact {
        return None;
    }
    let instead = match (from, to) {
        (Float, Text) => ": CAST to numeric(p, s) first",
        (Interval, _) => ": take extract(epoch FROM …)",
        _ => "",
    };
    let (from, to) = (from.name(), to.name());
    let message = format!("CAST of {from} to {to} is refused: it does not give PostgreSQL's value{instead}");
    Some(Finding::new("CAST_NOT_EXACT", &["CAST"], message).about(expr))
}

/// Refuses a column of VALUES whose literals the engine has made texts of.
fn values_of_two_types(values: &Values) -> Option<Finding> {
    let made_text = |expr: &Expr| match expr {
        Expr::Cast(cast) if Kind::of(&cast.data_type) == Kind::Text => {
            !matches!(kind_of(&cast.expr, &values.schema), Kind::Text | Kind::Unknown)
        }
        _ => false,
    };
    let text = |column: usize| matches!(values.schema.field(column).data_type(), DataType::Utf8);
    let mut cells = values.values.iter().flat_map(|row| row.iter().enumerate());
    let mixed = cells.any(|(column, expr)| text(column) && made_text(expr));
    mixed.then(|| {
        let message = "VALUES with texts and other values in one column is refused: CAST the texts";
        Finding::new("CAST_NOT_EXACT", &["VALUES"], message)
    })
}
