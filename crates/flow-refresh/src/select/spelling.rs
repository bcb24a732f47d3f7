//! What the engine does not read as PostgreSQL does, written in words that it reads so.
//!
//! - Rows that are compared: `(a, b) = (c, d)`, `(a, b) IN (…)` and `(a, b) IN (SELECT …)` become
//!   conditions column by column, with the same answer where a value is NULL.
//! - Numbers with an exponent, and those beyond 38 digits, which the engine reads with fewer digits
//!   than none or not at all.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Ident, ObjectName, Query, SetExpr, TableFactor, UnaryOperator, Value,
    ValueWithSpan, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::checked::Written;
use crate::kind::WIDE_NUMBER;

use super::without_parentheses;
use crate::tokens::Place;

/// Names the rows of a subquery that another row is compared with.
const ROWS: &str = "__rows";

/// Writes a query in the engine's words.
pub(crate) fn spell_out(query: &mut Query) {
    let ControlFlow::Continue(()) = VisitMut::visit(query, &mut Speller);
}

struct Speller;

impl VisitorMut for Speller {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let spelled = match expr {
            Expr::Value(ValueWithSpan {
                value: Value::Number(digits, false),
                span,
            }) => number(digits).map(|number| with_span(number, *span)),
            Expr::UnaryOp {
                op: UnaryOperator::Not,
                expr: inner,
            } => match without_parentheses(inner) {
                // NOT of what is true or not is not the answer where a value is NULL.
                Expr::InSubquery {
                    expr,
                    subquery,
                    negated,
                } => in_rows(expr, subquery, !negated),
                _ => None,
            },
            Expr::InSubquery {
                expr,
                subquery,
                negated,
            } => in_rows(expr, subquery, *negated),
            Expr::InList { expr, list, negated } => in_list(expr, list, *negated),
            Expr::BinaryOp { left, op, right } => compared(left, op, right),
            _ => None,
        };
        if let Some(spelled) = spelled {
            *expr = spelled;
        }
        ControlFlow::Continue(())
    }
}

fn row(expr: &Expr) -> Option<&[Expr]> {
    match without_parentheses(expr) {
        Expr::Tuple(columns) => Some(columns),
        _ => None,
    }
}

fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

fn joined(parts: impl Iterator<Item = Expr>, op: &BinaryOperator) -> Option<Expr> {
    let whole = parts.reduce(|left, right| binary(left, op.clone(), right));
    whole.map(nested)
}

fn not(expr: Expr) -> Expr {
    nested(Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    })
}

/// Compares two rows column by column.
fn compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let (left, right) = (row(left)?, row(right)?);
    if left.len() != right.len() {
        return None;
    }
    let pairs = || left.iter().cloned().zip(right.iter().cloned());
    let strict = match op {
        BinaryOperator::Eq => {
            let equal = pairs().map(|(l, r)| binary(nested(l), BinaryOperator::Eq, nested(r)));
            return joined(equal, &BinaryOperator::And);
        }
        BinaryOperator::NotEq => {
            let other = pairs().map(|(l, r)| binary(nested(l), BinaryOperator::NotEq, nested(r)));
            return joined(other, &BinaryOperator::Or);
        }
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        _ => return None,
    };
    // The last columns decide as the operator says, all before them strictly or by being equal.
    let mut pairs = pairs().rev();
    let (l, r) = pairs.next()?;
    let last = binary(nested(l), op.clone(), nested(r));
    Some(nested(pairs.fold(last, |behind, (l, r)| {
        let decides = binary(nested(l.clone()), strict.clone(), nested(r.clone()));
        let equal = binary(nested(l), BinaryOperator::Eq, nested(r));
        let goes_on = binary(equal, BinaryOperator::And, nested(behind));
        binary(decides, BinaryOperator::Or, nested(goes_on))
    })))
}

fn in_list(expr: &Expr, list: &[Expr], negated: bool) -> Option<Expr> {
    row(expr)?;
    let equal: Option<Vec<Expr>> = list
        .iter()
        .map(|item| compared(expr, &BinaryOperator::Eq, item))
        .collect();
    let found = joined(equal?.into_iter(), &BinaryOperator::Or)?;
    Some(if negated { not(found) } else { found })
}

/// Says whether a row is among those of a subquery, as a condition of WHERE: NOT IN is true where no
/// row of the subquery is equal or might be.
fn in_rows(expr: &Expr, subquery: &Query, negated: bool) -> Option<Expr> {
    let columns = row(expr)?;
    let names: Vec<String> = (0..columns.len()).map(|at| format!("__{at}")).collect();
    let pairs = columns.iter().zip(&names).map(|(column, name)| {
        let theirs = Expr::CompoundIdentifier(vec![Ident::new(ROWS), Ident::new(name)]);
        binary(nested(column.clone()), BinaryOperator::Eq, theirs)
    });
    let equal = joined(pairs, &BinaryOperator::And)?;
    let condition = match negated {
        true => Expr::IsNotFalse(Box::new(equal)),
        false => equal,
    };
    let text = format!("SELECT 1 FROM (SELECT 1) AS {ROWS} ({}) WHERE true", names.join(", "));
    let mut found = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&text)
        .ok()?
        .parse_query()
        .ok()?;
    let SetExpr::Select(select) = found.body.as_mut() else {
        return None;
    };
    let TableFactor::Derived { subquery: rows, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **rows = subquery.clone();
    select.selection = Some(condition);
    Some(Expr::Exists {
        subquery: found,
        negated,
    })
}

/// Is a number in other words; `None` where the engine reads it as PostgreSQL does.
fn number(text: &str) -> Option<Expr> {
    let exponent = text.contains(['e', 'E']);
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    if !exponent && digits <= 38 {
        return None;
    }
    let written = Written::read(text)?;
    let scale = i8::try_from(written.scale()).ok().filter(|scale| *scale <= 38);
    let value = scale.and_then(|scale| Some((scale, written.scaled(scale)?)));
    let plain = value.map(|(scale, value)| {
        let scale = usize::try_from(scale).unwrap_or(0);
        let digits = format!("{value:0>width$}", width = scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        // With a point it stays a numeric, as it is with an exponent.
        format!("{whole}.{fraction}")
    });
    let digits = |text: &str| {
        text.trim_start_matches(['0', '.'])
            .bytes()
            .filter(u8::is_ascii_digit)
            .count()
    };
    match plain.filter(|plain| digits(plain) <= 38) {
        Some(plain) => Some(Expr::value(Value::Number(plain, false))),
        None => Some(Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::value(Value::SingleQuotedString(text.to_owned()))),
            data_type: DataType::Custom(ObjectName::from(vec![Ident::new(WIDE_NUMBER)]), Vec::new()),
            array: false,
            format: None,
        }),
    }
}

/// Is the place and the text of the first number that no decimal holds.
pub(crate) fn first_wide_number(tokens: &[TokenWithSpan]) -> Option<(Place, &str)> {
    tokens.iter().find_map(|token| match &token.token {
        Token::Number(digits, _) => match number(digits) {
            Some(Expr::Cast { .. }) => Some((Place::from(token.span.start), digits.as_str())),
            _ => None,
        },
        _ => None,
    })
}

fn with_span(mut expr: Expr, span: Span) -> Expr {
    if let Expr::Value(value) = &mut expr {
        value.span = span;
    }
    expr
}
