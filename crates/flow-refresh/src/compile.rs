//! From a syntax tree to a plan that gives one exact result.
//!
//! 1. The engine resolves names; [`crate::subquery_rows`] writes some subqueries in other words, and
//!    [`crate::moment`] gives the refresh's time to conditions that name it.
//! 2. [`crate::judged::check`] names what is not known to give PostgreSQL's answer.
//! 3. The engine resolves types, after [`crate::meeting`] has made them meet as PostgreSQL does, and
//!    numbers that no decimal holds are named where they meet no float.
//! 4. [`crate::determinism::check`] names what has no one result.
//! 5. [`crate::determinism::order`] completes orders.
//! 6. [`crate::checked::rewrite`] replaces inexact expressions.

use datafusion::common::{DataFusionError, Result, SchemaError, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::Query;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use flow_core::clock::UnixMicros;

use crate::checked;
use crate::determinism::order::{self, Completion};
use crate::determinism::{self, Finding, Near};
use crate::judged;
use crate::kind::WIDE_NUMBER_TYPE;
use crate::meeting;
use crate::moment;
use crate::select;
use crate::session;
use crate::subquery_rows;
use crate::tokens::Fault;
use crate::tokens::{Place, find_call, find_first, find_last, find_word};

/// Is a plan ready to be optimised and run.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) plan: LogicalPlan,
    /// Says what was appended.
    pub(crate) notes: Vec<String>,
    /// Holds what is refused; the plan must not run if there is any.
    pub(crate) findings: Vec<Finding>,
    /// Names what makes the result depend on the refresh's time.
    pub(crate) times: Vec<Finding>,
}

/// Compiles a definition's SELECT for a refresh at a time.
pub(crate) async fn definition(state: &SessionState, query: Query, at_us: UnixMicros) -> Result<Compiled> {
    let plan = subquery_rows::spell_out(session::names(state, query).await?)?;
    let moment::Bound { plan, found: times } = moment::bind(plan, at_us)?;
    let refused = |plan, findings| Compiled {
        plan,
        notes: Vec::new(),
        findings,
        times: Vec::new(),
    };
    let findings = judged::check(&plan)?;
    if !findings.is_empty() {
        return Ok(refused(plan, findings));
    }
    let plan = meeting::meet_as_postgres(plan)?;
    let mut findings = judged::check_numbers(&plan)?;
    if !findings.is_empty() {
        return Ok(refused(plan, findings));
    }
    let plan = session::types(state, plan)?;
    findings.append(&mut determinism::check(&plan)?);
    findings.append(&mut judged::check_coerced(&plan)?);
    let mut completion = Completion::default();
    let plan = order::complete(plan, &mut completion)?;
    findings.append(&mut completion.findings);
    let plan = if findings.is_empty() {
        checked::rewrite(plan)?
    } else {
        plan
    };
    Ok(Compiled {
        plan,
        notes: completion.notes,
        findings,
        times,
    })
}

/// Compiles a user's query, whose result need not be the same twice.
pub(crate) async fn query(state: &SessionState, query: Query) -> Result<LogicalPlan> {
    let plan = subquery_rows::spell_out(session::names(state, query).await?)?;
    let plan = meeting::meet_as_postgres(plan)?;
    if let Some(finding) = judged::check_numbers(&plan)?.first() {
        return plan_err!("{} ({})", finding.message, finding.code);
    }
    checked::rewrite(session::types(state, plan)?)
}

/// Says where in the SQL an engine's error belongs, as well as it can be told.
pub(crate) fn locate(error: &DataFusionError, tokens: &[TokenWithSpan]) -> Option<Place> {
    let span = error.diagnostic().and_then(|diagnostic| diagnostic.span);
    if let Some(span) = span.filter(|span| span.start.line > 0) {
        return Some(Place {
            line: span.start.line,
            column: span.start.column,
        });
    }
    if let Some(SchemaError::FieldNotFound { field, .. } | SchemaError::AmbiguousReference { field }) =
        session::cause::<SchemaError>(error)
    {
        return find_word(tokens, &[&field.name]);
    }
    let message = error.strip_backtrace();
    let quoted = message.split('\'').skip(1).step_by(2);
    let mut bare = quoted.filter_map(|name| find_word(tokens, &[name]));
    bare.next()
}

/// Are parts of what the engine says of what it cannot compute, and what it is called here.
const NAMED: [(&str, &str); 9] = [
    (
        "Physical plan does not support logical expression ScalarSubquery",
        SUBQUERY_LEFT,
    ),
    (
        "Physical plan does not support logical expression Exists",
        SUBQUERY_LEFT,
    ),
    (
        "Physical plan does not support logical expression InSubquery",
        SUBQUERY_LEFT,
    ),
    (
        "Physical plan does not support logical expression OuterReferenceColumn",
        SUBQUERY_LEFT,
    ),
    ("orrelated scalar subquery can only be used in", SUBQUERY_LEFT),
    ("orrelated scalar subquery in the GROUP BY clause must", SUBQUERY_LEFT),
    ("Unsupported binary operator", OPERATOR_UNKNOWN),
    ("Unsupported SQL unary operator", OPERATOR_UNKNOWN),
    ("Cannot get result type for temporal operation", INTERVAL_TIMES),
];
const SUBQUERY_LEFT: &str = "a subquery stands where it cannot be computed: join instead (CORRELATED_SUBQUERY)";
const OPERATOR_UNKNOWN: &str =
    "an operator is refused: it is not known to give PostgreSQL's answer (OPERATOR_NOT_JUDGED)";
const INTERVAL_TIMES: &str = "an operator between an interval and a number, or two moments, is refused: it is not known to give PostgreSQL's \
     answer (OPERATOR_NOT_JUDGED)";

/// Turns an engine's error about the SQL into a problem with a place.
pub(crate) fn fault(error: &DataFusionError, code: &'static str, tokens: &[TokenWithSpan]) -> Fault {
    let place = locate(error, tokens).unwrap_or_else(|| start(tokens));
    let text = error.find_root().strip_backtrace();
    if let Some(message) = NAMED
        .iter()
        .find_map(|(known, message)| text.contains(known).then_some(*message))
    {
        return Fault::new(place, "F0410", message);
    }
    if let Some((_, rest)) = text.split_once("Invalid function '")
        && let Some((name, _)) = rest.split_once('\'')
    {
        let message =
            format!("function {name}() is refused: it is not known to give PostgreSQL's answer (FUNCTION_NOT_JUDGED)");
        return Fault::new(find_call(tokens, &[name]).unwrap_or(place), "F0410", message);
    }
    if text.contains(&WIDE_NUMBER_TYPE.to_string())
        && let Some((place, digits)) = select::first_wide_number(tokens)
    {
        let finding = judged::too_wide(digits);
        return Fault::new(place, "F0410", format!("{} ({})", finding.message, finding.code));
    }
    let message = match session::cause::<SchemaError>(error) {
        Some(SchemaError::FieldNotFound { field, .. }) => format!("unknown column '{}'", field.flat_name()),
        Some(SchemaError::AmbiguousReference { field }) => {
            format!(
                "column '{}' is ambiguous: write its table before it, or name it with AS",
                field.name
            )
        }
        _ => first_line(error),
    };
    Fault::new(place, code, message)
}

fn first_line(error: &DataFusionError) -> String {
    let message = error.find_root().strip_backtrace();
    let message = message.lines().next().unwrap_or_default();
    let known = [
        "Error during planning: ",
        "This feature is not implemented: ",
        "Execution error: ",
        "Schema error: ",
        "SQL error: ",
        "External error: ",
        "Arrow error: ",
    ];
    let message = known
        .iter()
        .fold(message, |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    if message.contains("require unique expression names") {
        return "two columns have the same name: give one of them another with AS".to_owned();
    }
    let mut chars = message.chars();
    match chars.next() {
        Some(first) => first.to_lowercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Says where a finding stands: at its word nearest to the column it is about, at that column if
/// none stands there, and at the first of its words if there is no column.
pub(crate) fn place(finding: &Finding, tokens: &[TokenWithSpan]) -> Place {
    let words: Vec<&str> = finding.words.iter().map(String::as_str).collect();
    let found = match finding.near {
        Some(Near::Before(near)) => find_last(tokens, &words, near).or(Some(near)),
        Some(Near::Behind(near)) => find_first(tokens, &words, near).or(Some(near)),
        None => find_call(tokens, &words).or_else(|| words.iter().find_map(|word| find_word(tokens, &[word]))),
    };
    found.unwrap_or_else(|| start(tokens))
}

fn start(tokens: &[TokenWithSpan]) -> Place {
    let first = tokens.iter().find(|token| token.token != Token::EOF);
    first.map_or(Place::START, |token| Place::from(token.span.start))
}
