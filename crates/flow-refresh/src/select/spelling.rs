//! What the engine does not read as PostgreSQL does, written in words that it reads so.
//!
//! - Rows that are compared: `(a, b) = (c, d)`, `(a, b) IN (…)` and `(a, b) IN (SELECT …)` become
//!   conditions column by column, with the same answer where a value is NULL.
//! - `FETCH FIRST`, `mod()`, `every()` and `COLLATE "C"` have other words, named windows are written
//!   out ([`windows`]).
//! - Numbers with an exponent, and those beyond 38 digits, which the engine reads with fewer digits
//!   than none or not at all.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    LimitClause, ObjectName, Query, SetExpr, Spanned, TableFactor, UnaryOperator, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use crate::checked::Written;
use crate::kind::WIDE_NUMBER;

use super::{windows, without_parentheses};
use crate::tokens::{Fault, Place};

/// Names the rows of a subquery that another row is compared with.
const ROWS: &str = "__rows";

/// Writes a query in the engine's words.
pub(crate) fn spell_out(query: &mut Query) -> Result<(), Fault> {
    match VisitMut::visit(query, &mut Speller) {
        ControlFlow::Break(fault) => Err(fault),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Speller;

impl VisitorMut for Speller {
    type Break = Fault;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Fault> {
        fetch_as_limit(query);
        windows::write_out(query)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Fault> {
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
            Expr::Function(function) => same_function(function),
            // Texts are compared by their bytes.
            Expr::Collate { expr, collation } if matches!(collation.to_string().as_str(), "\"C\"" | "\"POSIX\"") => {
                Some(nested(expr.as_ref().clone()))
            }
            Expr::Collate { expr, collation } => {
                let message =
                    format!("COLLATE {collation} is refused: texts are compared by their bytes, as with \"C\"");
                let place = Place::from(expr.span().start);
                return ControlFlow::Break(Fault::new(place, "F0410", message));
            }
            _ => None,
        };
        if let Some(spelled) = spelled {
            *expr = spelled;
        }
        ControlFlow::Continue(())
    }
}

/// Writes FETCH FIRST as LIMIT.
fn fetch_as_limit(query: &mut Query) {
    if query
        .fetch
        .as_ref()
        .is_none_or(|fetch| fetch.with_ties || fetch.percent)
    {
        return;
    }
    let one = || Expr::value(Value::Number("1".to_owned(), false));
    let rows = query
        .fetch
        .as_ref()
        .map(|fetch| fetch.quantity.clone().unwrap_or_else(one));
    match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: rows,
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Some(LimitClause::LimitOffset { limit, .. }) if limit.is_none() => *limit = rows,
        Some(_) => return,
    }
    query.fetch = None;
}

/// Is a call of a function that the engine knows by another name only.
fn same_function(function: &Function) -> Option<Expr> {
    let name = function.name.to_string().to_lowercase();
    match (name.as_str(), &function.args) {
        ("every", _) => {
            let mut function = function.clone();
            function.name = ObjectName::from(vec![Ident::new("bool_and")]);
            Some(Expr::Function(function))
        }
        ("mod", FunctionArguments::List(list)) => match &list.args[..] {
            [
                FunctionArg::Unnamed(FunctionArgExpr::Expr(l)),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(r)),
            ] => {
                let rest = binary(nested(l.clone()), BinaryOperator::Modulo, nested(r.clone()));
                Some(nested(rest))
            }
            _ => None,
        },
        _ => None,
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
