//! Constructs that are refused by how they are written: what writes, what has no one result, and
//! what the engine computes otherwise than PostgreSQL.
//!
//! The tree holds places of names and values, not of keywords. A keyword is looked for from the end
//! of the part before it, or back from the start of the part behind it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, FunctionArguments, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, Query,
    Select, SelectItem, SetExpr, SetOperator, SetQuantifier, Spanned, TableFactor, Value, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::{Location, TokenWithSpan};

use super::without_parentheses;
use crate::tokens::{Fault, Place, find_first, find_last};

/// Refuses what writes or locks, for a query that need not have one result.
pub(crate) fn writes(query: &Query, body: &[TokenWithSpan]) -> Result<(), Fault> {
    visit(query, body, true)
}

/// Refuses what no definition may hold.
pub(super) fn in_definitions(query: &Query, body: &[TokenWithSpan]) -> Result<(), Fault> {
    visit(query, body, false)
}

fn visit(query: &Query, body: &[TokenWithSpan], writes_only: bool) -> Result<(), Fault> {
    let mut refuser = Refuser {
        body,
        writes_only,
        in_conditions: Vec::new(),
        exists_conditions: Vec::new(),
    };
    match Visit::visit(query, &mut refuser) {
        ControlFlow::Break(fault) => Err(fault),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Refuser<'a> {
    body: &'a [TokenWithSpan],
    writes_only: bool,
    /// Are the places of the subqueries of IN that are a condition of their own.
    in_conditions: Vec<Location>,
    /// Are the places of the subqueries of EXISTS within conditions.
    exists_conditions: Vec<Location>,
}

/// Is one refusal: found at a place.
type Refusal = ControlFlow<Fault>;

impl Refuser<'_> {
    fn at(place: Option<Place>, message: &str) -> Refusal {
        ControlFlow::Break(Fault::new(place.unwrap_or_default(), "F0410", message))
    }

    /// Points at the first such keyword from where something starts or ends.
    fn from(&self, keyword: &str, from: Location, message: &str) -> Refusal {
        Self::at(find_first(self.body, &[keyword], Place::from(from)), message)
    }

    /// Points at the last such keyword before something.
    fn before(&self, keyword: &str, until: Location, message: &str) -> Refusal {
        let until = Place::from(until);
        let place = match until == Place::default() {
            true => find_first(self.body, &[keyword], until),
            false => find_last(self.body, &[keyword], until),
        };
        Self::at(place, message)
    }

    fn set_expression(&mut self, body: &SetExpr) -> Refusal {
        match body {
            SetExpr::Select(select) => self.select(select),
            SetExpr::Query(_) | SetExpr::Values(_) => ControlFlow::Continue(()),
            SetExpr::SetOperation {
                op,
                set_quantifier,
                left,
                right,
            } => {
                let all = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
                if all && matches!(op, SetOperator::Except | SetOperator::Minus | SetOperator::Intersect) {
                    let message = format!(
                        "{op} ALL is refused: the engine loses count of equal rows; number them with ROW_NUMBER and use {op}"
                    );
                    return self.from(&op.to_string(), left.span().end, &message);
                }
                self.set_expression(left)?;
                self.set_expression(right)
            }
            other => {
                let text = other.to_string();
                let word = text.split_whitespace().next().unwrap_or_default();
                self.from(word, other.span().start, "only SELECT, WITH and VALUES can be computed")
            }
        }
    }

    fn select(&mut self, select: &Select) -> Refusal {
        let start = select.span().start;
        if let Some(Distinct::On(_)) = select.distinct
            && !self.writes_only
        {
            let message = "DISTINCT ON is refused: use ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) = 1";
            return self.from("DISTINCT", start, message);
        }
        if let Some(into) = &select.into {
            return self.before("INTO", into.span().start, "INTO is refused: a definition only reads");
        }
        if select.top.is_some() {
            return self.from("TOP", start, "TOP is refused: use LIMIT");
        }
        let conditions = [&select.selection, &select.having, &select.qualify];
        for condition in conditions.into_iter().flatten() {
            self.condition(condition);
            let mut exists = ExistsPlaces(&mut self.exists_conditions);
            let _ = Visit::visit(condition, &mut exists);
        }
        if self.writes_only {
            return ControlFlow::Continue(());
        }
        for join in select.from.iter().flat_map(|table| &table.joins) {
            self.join(&join.join_operator, join.relation.span().end)?;
        }
        ControlFlow::Continue(())
    }

    /// Notes the subqueries of IN that stand alone or in AND.
    fn condition(&mut self, condition: &Expr) {
        match condition {
            Expr::BinaryOp {
                op: BinaryOperator::And,
                left,
                right,
            } => {
                self.condition(left);
                self.condition(right);
            }
            Expr::Nested(inner) => self.condition(inner),
            Expr::UnaryOp { expr, .. } => {
                if let Expr::InSubquery { .. } = without_parentheses(expr) {
                    self.condition(expr);
                }
            }
            Expr::InSubquery { subquery, .. } => self.in_conditions.push(subquery.span().start),
            _ => {}
        }
    }

    fn join(&self, operator: &JoinOperator, relation_end: Location) -> Refusal {
        let (side, constraint) = match operator {
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => ("RIGHT", constraint),
            JoinOperator::FullOuter(constraint) => ("FULL", constraint),
            _ => return ControlFlow::Continue(()),
        };
        let (word, how) = match constraint {
            JoinConstraint::Using(_) => ("USING", format!("{side} JOIN … USING")),
            JoinConstraint::Natural => ("NATURAL", format!("NATURAL {side} JOIN")),
            _ => return ControlFlow::Continue(()),
        };
        let message = format!(
            "{how} is refused: the engine gives the left table's column where PostgreSQL gives the one that is there; \
             write ON a.k = b.k, and COALESCE(a.k, b.k) for the column"
        );
        match word {
            "USING" => self.from(word, relation_end, &message),
            _ => self.before(word, relation_end, &message),
        }
    }

    fn subquery_of_many_rows(&self, query: &Query) -> Refusal {
        if self.writes_only || may_be_one_row(query) {
            return ControlFlow::Continue(());
        }
        let message = "a subquery that stands for one value must be an aggregate without GROUP BY and HAVING, or have LIMIT 1 \
                       (SCALAR_SUBQUERY_MANY_ROWS)";
        self.from("SELECT", query.span().start, message)
    }

    fn expression(&self, expr: &Expr) -> Refusal {
        match expr {
            Expr::SimilarTo { expr: left, .. } => {
                let message = "SIMILAR TO is refused: the engine takes the pattern for a regular expression; use LIKE";
                self.from("SIMILAR", left.span().end, message)
            }
            Expr::RLike { expr: left, .. } => {
                self.from("RLIKE", left.span().end, "RLIKE and REGEXP are refused: use LIKE")
            }
            Expr::BinaryOp {
                left,
                op:
                    op @ (BinaryOperator::PGRegexMatch
                    | BinaryOperator::PGRegexIMatch
                    | BinaryOperator::PGRegexNotMatch
                    | BinaryOperator::PGRegexNotIMatch),
                ..
            } => {
                let place = Some(Place::from(left.span().start)).filter(|place| place.line > 0);
                let message = format!(
                    "operator {op} is refused: the engine's regular expressions are not PostgreSQL's; use LIKE"
                );
                Self::at(place, &message)
            }
            Expr::AtTimeZone { timestamp, .. } => {
                let message = "AT TIME ZONE is refused: the engine does not change the type; the zone is UTC, so CAST to \
                               timestamp or timestamptz";
                self.from("AT", timestamp.span().end, message)
            }
            Expr::Function(function) if is_named(function, &["date_part", "datepart"]) => {
                let message = "date_part() is refused: PostgreSQL's gives a double; write extract(… FROM …)";
                Self::at(Some(Place::from(function.name.span().start)), message)
            }
            Expr::InSubquery {
                expr: left, subquery, ..
            } if !self.in_conditions.contains(&subquery.span().start) => {
                let message = "IN over a subquery is refused here, because the engine gets its NULLs wrong outside a \
                               condition of WHERE that stands alone or in AND: write EXISTS, or join \
                               (IN_SUBQUERY_POSITION)";
                self.from("IN", left.span().end, message)
            }
            Expr::Exists { subquery, .. } if !self.exists_conditions.contains(&subquery.span().start) => {
                let message = "EXISTS is refused outside WHERE, because the engine cannot compute it there: join instead \
                               (EXISTS_POSITION)";
                self.before("EXISTS", subquery.span().start, message)
            }
            Expr::Subquery(query) => self.subquery_of_many_rows(query),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_named(function: &datafusion::sql::sqlparser::ast::Function, names: &[&str]) -> bool {
    let called = function.name.to_string();
    names.iter().any(|name| name.eq_ignore_ascii_case(&called))
}

/// Says whether a subquery may give one row only; which function is an aggregate is told by name.
fn may_be_one_row(query: &Query) -> bool {
    let one = |expr: &Expr| match expr {
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits == "1" || digits == "0"),
        _ => false,
    };
    let limited = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit: Some(limit), .. }) => one(limit),
        _ => false,
    };
    if limited || query.fetch.is_some() {
        return true;
    }
    match query.body.as_ref() {
        SetExpr::Query(inner) => may_be_one_row(inner),
        SetExpr::Select(select) => {
            let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
            let derived = matches!(
                &select.from[..],
                [table] if !matches!(table.relation, TableFactor::Table { .. })
            );
            let common = query.with.is_some() || select.from.is_empty() || derived;
            let aggregated = select.projection.iter().any(|item| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => has_aggregate(expr),
                _ => false,
            });
            !grouped && (common || aggregated || unqualified(select))
        }
        _ => true,
    }
}

/// Says whether a FROM names something without a namespace: a WITH whose rows are not known here.
fn unqualified(select: &Select) -> bool {
    let name = |factor: &TableFactor| matches!(factor, TableFactor::Table { name, .. } if name.0.len() == 1);
    select.from.iter().any(|table| name(&table.relation))
}

fn has_aggregate(expr: &Expr) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_call = |function: &datafusion::sql::sqlparser::ast::Function| {
                function.over.is_none() && !matches!(function.args, FunctionArguments::Subquery(_))
            };
            match expr {
                Expr::Function(function) if is_call(function) && is_aggregate(&function.name.to_string()) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    Visit::visit(expr, &mut Finder).is_break()
}

fn is_aggregate(name: &str) -> bool {
    use crate::determinism::{ORDERED_AGGREGATES, UNORDERED_AGGREGATES};
    let name = name.to_lowercase();
    let exact = ["sum", "avg", "mean", "var", "stddev"];
    UNORDERED_AGGREGATES.contains(&name.as_str())
        || ORDERED_AGGREGATES.contains(&name.as_str())
        || exact.iter().any(|start| name.starts_with(start))
}

/// Collects where the subqueries of EXISTS start.
struct ExistsPlaces<'a>(&'a mut Vec<Location>);

impl Visitor for ExistsPlaces<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Exists { subquery, .. } = expr {
            self.0.push(subquery.span().start);
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Refuser<'_> {
    type Break = Fault;

    fn pre_visit_query(&mut self, query: &Query) -> Refusal {
        let end = query.span().end;
        if let Some(with) = query.with.as_ref().filter(|with| with.recursive)
            && !self.writes_only
        {
            let message = "WITH RECURSIVE is refused: its end cannot be foreseen";
            return self.from("RECURSIVE", with.span().start, message);
        }
        if !query.locks.is_empty() {
            let message = "FOR UPDATE and FOR SHARE are refused: a definition only reads";
            return self.from("FOR", end, message);
        }
        if query
            .fetch
            .as_ref()
            .is_some_and(|fetch| fetch.with_ties || fetch.percent)
        {
            let message = "FETCH … WITH TIES and PERCENT are refused: use RANK() and a filter";
            let fetch = find_first(self.body, &["FETCH"], Place::from(query.body.span().end)).unwrap_or_default();
            return Self::at(find_first(self.body, &["WITH", "PERCENT"], fetch), message);
        }
        self.set_expression(&query.body)
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Refusal {
        let (sample, version) = match factor {
            TableFactor::Table { sample, version, .. } => (sample.is_some(), version.is_some()),
            TableFactor::Derived { sample, .. } => (sample.is_some(), false),
            _ => (false, false),
        };
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor
            && !self.writes_only
        {
            for join in &table_with_joins.joins {
                self.join(&join.join_operator, join.relation.span().end)?;
            }
        }
        let start = factor.span().start;
        if sample {
            return self.from("TABLESAMPLE", start, "TABLESAMPLE is refused: its result is chance");
        }
        if version {
            let message = "reading a table as of another time is refused: all inputs are read at one cut";
            return self.from("FOR", start, message);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Refusal {
        match expr {
            Expr::AnyOp { left, is_some, .. } => {
                let word = if *is_some { "SOME" } else { "ANY" };
                let message = format!("{word} (…) is refused: use IN, EXISTS or a comparison with MIN or MAX");
                return self.from(word, left.span().end, &message);
            }
            Expr::AllOp { left, .. } => {
                let message = "ALL (…) is refused: use IN, EXISTS or a comparison with MIN or MAX";
                return self.from("ALL", left.span().end, message);
            }
            Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => {
                if let Expr::BinaryOp {
                    op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor,
                    ..
                } = right.as_ref()
                {
                    let message = "IS DISTINCT FROM before AND or OR needs parentheses around itself: the parser takes too much behind it";
                    return self.from("DISTINCT", left.span().end, message);
                }
            }
            _ => {}
        }
        match self.writes_only {
            true => ControlFlow::Continue(()),
            false => self.expression(expr),
        }
    }
}
