//! The SELECT of a definition or a query, as a syntax tree: what it reads, and what is refused
//! before any table is looked up.
//!
//! Places are relative to the tokens' own text. Nothing here knows columns or types. [`refuse`] says
//! what is refused, [`spelling`] what is written in other words.

mod refuse;
mod spelling;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableFactor,
    VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};
use flow_core::TableName;

use crate::tokens::{Fault, Place};
pub(crate) use refuse::writes as refuse_writes;
pub(crate) use spelling::{first_wide_number, spell_out};

/// Bounds the nesting of a SELECT: deeper ones are refused rather than overflow a stack.
const NESTING_MAX: usize = 50;

/// Parses a definition's SELECT and refuses what no definition may hold.
pub(crate) fn parse_tokens(body: &[TokenWithSpan]) -> Result<Box<Query>, Fault> {
    for token in body {
        let place = Place::from(token.span.start);
        match &token.token {
            Token::Word(word) if word.value.to_lowercase().starts_with("_flow_") => {
                let message = format!("'{}': names that begin with _flow_ are reserved", word.value);
                return Err(Fault::new(place, "F0403", message));
            }
            Token::Placeholder(name) => {
                let message = format!("parameter {name} has no value in a definition");
                return Err(Fault::new(place, "F0410", message));
            }
            _ => {}
        }
    }
    let mut query = parse_query(body)?;
    refuse::in_definitions(&query, body)?;
    spell_out(&mut query)?;
    Ok(query)
}

/// Parses tokens as one query with nothing behind it.
pub(crate) fn parse_query(body: &[TokenWithSpan]) -> Result<Box<Query>, Fault> {
    let start = body.first().map_or(Place::START, |token| Place::from(token.span.start));
    let opens = |words: &[&str]| {
        body.iter()
            .find(|token| token.token != Token::LParen)
            .is_some_and(|first| match &first.token {
                Token::Word(word) => words.iter().any(|w| w.eq_ignore_ascii_case(&word.value)),
                _ => false,
            })
    };
    if !opens(&["SELECT", "WITH", "VALUES"]) {
        let found = body.first().map_or("nothing".to_owned(), |token| token.to_string());
        return Err(Fault::new(
            start,
            "F0401",
            format!("expected SELECT, WITH or VALUES, found '{found}'"),
        ));
    }
    let end = body.last().map_or(Place::START, |token| Place::from(token.span.end));
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(NESTING_MAX)
        .with_tokens_with_locations(body.to_vec());
    let query = parser.parse_query().map_err(|error| syntax(error, body, end))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        let message = format!("expected the end of the statement, found '{}'", next.token);
        return Err(Fault::new(Place::from(next.span.start), "F0401", message));
    }
    Ok(query)
}

/// Takes line and column out of a parser's message, where it puts them.
fn syntax(error: ParserError, body: &[TokenWithSpan], end: Place) -> Fault {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => format!("the statement nests deeper than {NESTING_MAX} levels"),
    };
    let (text, place) = match message.rsplit_once(" at Line: ") {
        Some((text, place)) => (text.to_owned(), place.split_once(", Column: ")),
        None => (message.clone(), None),
    };
    let place = place.and_then(|(line, column)| {
        Some(Place {
            line: line.parse().ok()?,
            column: column.parse().ok()?,
        })
    });
    let mut place = place.filter(|place| place.line > 0).unwrap_or(end);
    // The parser sometimes names one token and gives the place of the next.
    if let Some((_, found)) = text.rsplit_once("found: ") {
        let until = body.iter().take_while(|token| Place::from(token.span.start) <= place);
        if let Some(token) = until.filter(|token| token.token.to_string() == found).last() {
            place = Place::from(token.span.start);
        }
    }
    let text = text
        .replacen("Expected: ", "expected ", 1)
        .replacen("Expected ", "expected ", 1);
    let text = text.replacen("found: EOF", "found the end of the statement", 1);
    Fault::new(place, "F0401", text)
}

/// Is a table that a SELECT names, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) name: TableName,
    pub(crate) place: Place,
}

/// Finds the tables a SELECT reads, in FROM order and each once, and rewrites their names to two
/// parts, namespace and name, so that namespaces with several levels are found.
pub(crate) fn resolve(query: &mut Query) -> Result<Vec<Reference>, Fault> {
    let mut resolver = Resolver::default();
    match VisitMut::visit(query, &mut resolver) {
        ControlFlow::Break(fault) => Err(fault),
        ControlFlow::Continue(()) => Ok(resolver.references),
    }
}

#[derive(Default)]
struct Resolver {
    common: BTreeSet<String>,
    functions: BTreeSet<String>,
    references: Vec<Reference>,
}

/// Spells an identifier as the system does: in lower case unless quoted.
pub(crate) fn spelled(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

impl VisitorMut for Resolver {
    type Break = Fault;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Fault> {
        if let Some(with) = &query.with {
            self.common
                .extend(with.cte_tables.iter().map(|cte| spelled(&cte.alias.name)));
        }
        whole_names(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Fault> {
        if let TableFactor::Table {
            name, args: Some(_), ..
        } = factor
        {
            self.functions.insert(name.to_string());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Fault> {
        let place = Place::from(relation.span().start);
        let Some(mut parts) = parts(relation) else {
            return ControlFlow::Break(Fault::new(place, "F0401", "expected a table name"));
        };
        let Some(name) = parts.pop() else {
            return ControlFlow::Continue(());
        };
        if parts.is_empty() {
            if self.common.contains(&name) || self.functions.contains(&relation.to_string()) {
                return ControlFlow::Continue(());
            }
            let message = format!("unknown table '{name}': write namespace.{name}");
            return ControlFlow::Break(Fault::new(place, "F0404", message));
        }
        let name = TableName::new(parts.join("."), name);
        if name.schema == "information_schema" || name.schema == "pg_catalog" {
            let message = format!("{} is not readable: only tables of the catalog are", name.schema);
            return ControlFlow::Break(Fault::new(place, "F0410", message));
        }
        let span = relation.span();
        *relation = ObjectName::from(vec![quoted(&name.schema, span), quoted(&name.name, span)]);
        if !self.references.iter().any(|reference| reference.name == name) {
            self.references.push(Reference { name, place });
        }
        ControlFlow::Continue(())
    }
}

fn without_parentheses(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_parentheses(inner),
        other => other,
    }
}

/// Names tables whole in `t.*`, where FROM names one `ns.t`: the engine finds it by its whole name only.
fn whole_names(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { left, right, .. } => {
            whole_names(left);
            return whole_names(right);
        }
        _ => return,
    };
    let factors = select.from.iter().flat_map(|table| {
        let joined = table.joins.iter().map(|join| &join.relation);
        std::iter::once(&table.relation).chain(joined)
    });
    let mut whole = BTreeMap::new();
    for factor in factors {
        if let TableFactor::Table { name, alias: None, .. } = factor
            && let Some(mut parts) = parts(name)
            && let Some(last) = parts.pop().filter(|_| !parts.is_empty())
        {
            let span = name.span();
            let name = vec![quoted(&parts.join("."), span), quoted(&last, span)];
            whole.insert(last, ObjectName::from(name));
        }
    }
    for item in &mut select.projection {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
            && let Some([one]) = parts(name).as_deref()
            && let Some(known) = whole.get(one)
        {
            *name = known.clone();
        }
    }
}

/// Splits a name as the system spells it; `None` if a part of it is no identifier.
fn parts(name: &ObjectName) -> Option<Vec<String>> {
    name.0.iter().map(|part| part.as_ident().map(spelled)).collect()
}

fn quoted(name: &str, span: Span) -> Ident {
    let mut ident = Ident::with_quote('"', name);
    ident.span = span;
    ident
}
