//! The functions that were judged against PostgreSQL, with the arguments they were judged with.

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, Volatility};

use super::kind_of;
use crate::determinism::Finding;
use crate::kind::Kind;

/// Are the functions with the arguments they take, one letter each: `i` integer, `d` decimal,
/// `f` float, `t` text, `y` date, `s` timestamp, `z` timestamptz, `v` interval, `T` a text that is
/// written there and is not empty, `N` an integer that is written there and is not zero,
/// `R` an integer that is written there.
const FUNCTIONS: [(&str, &[&str]); 32] = [
    ("abs", &["i", "d", "f"]),
    ("ascii", &["t"]),
    ("bit_length", &["t"]),
    ("btrim", &["t", "tt"]),
    ("ceil", &["d", "f"]),
    ("character_length", &["t"]),
    ("coalesce", &[]),
    ("concat", &[]),
    ("concat_ws", &[]),
    ("date_part", &["Ty", "Ts", "Tz", "Tv"]),
    ("date_trunc", &["Ty", "Ts", "Tz"]),
    ("floor", &["d", "f"]),
    ("greatest", &[]),
    ("least", &[]),
    ("left", &["ti"]),
    ("lower", &["t"]),
    ("lpad", &["ti", "tit"]),
    ("ltrim", &["t", "tt"]),
    ("md5", &["t"]),
    ("nullif", &[]),
    ("octet_length", &["t"]),
    ("repeat", &["ti"]),
    ("replace", &["tTt"]),
    ("reverse", &["t"]),
    ("right", &["ti"]),
    ("round", &["d", "f", "dR"]),
    ("rpad", &["ti", "tit"]),
    ("rtrim", &["t", "tt"]),
    ("split_part", &["tTN"]),
    ("sqrt", &["f"]),
    ("starts_with", &["tt"]),
    ("trunc", &["f"]),
];

/// Are more of them, apart only because they are spelled in several ways.
const SPELLED: [(&str, &[&str], &[&str]); 4] = [
    ("strpos", &["tt"], &["position"]),
    ("substr", &["ti", "tii"], &["substring"]),
    ("translate", &["ttt"], &[]),
    ("upper", &["t"], &[]),
];

const TRUNCATED_TO: [&str; 8] = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];

const PARTS: [&str; 10] = [
    "year", "quarter", "month", "week", "day", "hour", "minute", "dow", "doy", "epoch",
];

/// Says why a call is refused.
pub(super) fn scalar(function: &ScalarFunction, expr: &Expr, schema: &DFSchema) -> Option<Finding> {
    // The check of determinism names those.
    if function.func.signature().volatility != Volatility::Immutable {
        return None;
    }
    let name = function.name();
    let kinds: Vec<Kind> = function.args.iter().map(|argument| kind_of(argument, schema)).collect();
    let spelled = SPELLED.iter().find(|(known, _, _)| *known == name);
    let forms = match (FUNCTIONS.iter().find(|(known, _)| *known == name), spelled) {
        (Some((_, forms)), _) | (None, Some((_, forms, _))) => *forms,
        (None, None) => return Some(refused(function, expr, &format!("function {name}()"))),
    };
    let taken = match name {
        "coalesce" | "nullif" | "greatest" | "least" => !kinds.contains(&Kind::Interval),
        "concat" | "concat_ws" => kinds.iter().all(|kind| {
            matches!(
                kind,
                Kind::Text | Kind::Integer | Kind::Decimal | Kind::Date | Kind::Unknown
            )
        }),
        _ => forms.iter().any(|form| takes(form, &function.args, &kinds)),
    };
    if !taken {
        let shown: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let call = format!("function {name}({})", shown.join(", "));
        return Some(refused(function, expr, &call));
    }
    part_refused(function, &kinds).map(|call| refused(function, expr, &call))
}

fn takes(form: &str, arguments: &[Expr], kinds: &[Kind]) -> bool {
    let text = |expr: &Expr| {
        expr.as_literal()
            .and_then(ScalarValue::try_as_str)
            .flatten()
            .map(str::to_owned)
    };
    let whole = |expr: &Expr| match expr {
        Expr::Negative(inner) => number(inner).map(|value| -value),
        other => number(other),
    };
    let one = |((letter, argument), kind): ((char, &Expr), &Kind)| match letter {
        'T' => text(argument).is_some_and(|text| !text.is_empty()),
        'N' => whole(argument).is_some_and(|value| value != 0),
        'R' => whole(argument).is_some_and(|value| (-38..=38).contains(&value)),
        _ if *kind == Kind::Unknown => true,
        'i' => *kind == Kind::Integer,
        'd' => *kind == Kind::Decimal,
        'f' => *kind == Kind::Float,
        't' => *kind == Kind::Text,
        'y' => *kind == Kind::Date,
        's' => *kind == Kind::Timestamp,
        'z' => *kind == Kind::Timestamptz,
        'v' => *kind == Kind::Interval,
        _ => false,
    };
    form.len() == arguments.len() && form.chars().zip(arguments).zip(kinds).all(one)
}

fn number(expr: &Expr) -> Option<i64> {
    match expr.as_literal()? {
        ScalarValue::Int64(value) => *value,
        ScalarValue::Int32(value) => value.map(i64::from),
        _ => None,
    }
}

/// Says which part of a moment is not one of those judged.
fn part_refused(function: &ScalarFunction, kinds: &[Kind]) -> Option<String> {
    let name = function.name();
    let part = function
        .args
        .first()
        .and_then(Expr::as_literal)
        .and_then(ScalarValue::try_as_str);
    let part = part.flatten().unwrap_or_default().to_lowercase();
    match name {
        "date_trunc" if !TRUNCATED_TO.contains(&part.as_str()) => Some(format!("date_trunc('{part}', …)")),
        "date_part" => {
            let judged = match kinds.get(1) {
                Some(Kind::Interval) => part == "epoch",
                Some(Kind::Date) => !matches!(part.as_str(), "hour" | "minute") && PARTS.contains(&part.as_str()),
                _ => PARTS.contains(&part.as_str()),
            };
            (!judged).then(|| format!("extract({part} FROM {})", kinds.get(1).map_or("…", |kind| kind.name())))
        }
        _ => None,
    }
}

fn refused(function: &ScalarFunction, expr: &Expr, call: &str) -> Finding {
    let name = function.name();
    let instead = match name {
        _ if name.starts_with("regexp") => ": use LIKE",
        "round" | "trunc" => ": CAST to numeric(p, s), which rounds",
        "date_part" | "date_trunc" => {
            ": year, quarter, month, week, day, hour, minute are, and dow, doy, epoch for extract"
        }
        _ => "",
    };
    let message = format!("{call} is refused: it is not known to give PostgreSQL's answer{instead}");
    let also = SPELLED.iter().find(|(known, _, _)| *known == name);
    let also: &[&str] = match name {
        "date_part" => &["extract"],
        "btrim" => &["trim"],
        _ => also.map_or(&[], |(_, _, words)| words),
    };
    let mut finding = Finding::new("FUNCTION_NOT_JUDGED", also, message).about(expr);
    finding.words.push(name.to_owned());
    finding.words.extend(function.func.aliases().iter().cloned());
    finding
}

/// Says why an aggregate's arguments are refused; which aggregates there are is determinism's.
pub(super) fn aggregate(name: &str, expr: &Expr, schema: &DFSchema) -> Option<Finding> {
    let Expr::AggregateFunction(function) = expr else {
        return None;
    };
    let first = kind_of(function.params.args.first()?, schema);
    let judged = match name {
        "string_agg" => matches!(first, Kind::Text | Kind::Unknown),
        "min" | "max" => !matches!(first, Kind::Interval | Kind::Array | Kind::Other),
        "bit_and" | "bit_or" | "bit_xor" => matches!(first, Kind::Integer | Kind::Unknown),
        _ => true,
    };
    (!judged).then(|| {
        let message = format!(
            "aggregate {name}({}) is refused: it is not known to give PostgreSQL's answer",
            first.name()
        );
        Finding::new("FUNCTION_NOT_JUDGED", &[name], message).about(expr)
    })
}
