//! PostgreSQL types: which can be captured, how their bytes arrive, what they become.
//!
//! | wire | default target |
//! |---|---|
//! | `boolean` | boolean |
//! | `smallint`, `integer` | int |
//! | `bigint` | long |
//! | `real`, `double precision` | float, double |
//! | `numeric(p, s)` with p ≤ 38, 0 ≤ s ≤ p | decimal(p, s) |
//! | every other `numeric` | string, the exact number |
//! | text kinds, `json`, `jsonb`, enums, `time` | string |
//! | `bytea` | binary |
//! | `date`, `timestamp`, `timestamptz`, `uuid` | the same |
//! | arrays | list |
//! | domains | what their base becomes |

use std::fmt;

use flow_core::ColumnType;
use serde::{Deserialize, Serialize};

/// Is the form of a value's bytes, as the type's send function makes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// One byte.
    Bool,
    /// Two bytes, big-endian.
    Int2,
    /// Four bytes, big-endian.
    Int4,
    /// Eight bytes, big-endian.
    Int8,
    /// IEEE single, big-endian.
    Float4,
    /// IEEE double, big-endian.
    Float8,
    /// Base-10000 digits.
    Numeric,
    /// UTF-8: text, varchar, name, json, enum labels.
    Text,
    /// UTF-8 of `character(n)`: padded with blanks.
    Bpchar,
    /// A version byte and UTF-8.
    Jsonb,
    /// The bytes.
    Bytea,
    /// Days since 2000-01-01.
    Date,
    /// Microseconds since midnight.
    Time,
    /// Microseconds since 2000-01-01 00:00:00.
    Timestamp,
    /// Microseconds since 2000-01-01 00:00:00 UTC.
    Timestamptz,
    /// Sixteen bytes.
    Uuid,
    /// Dimensions, then elements.
    Array(Box<Wire>),
}

/// Is what a column's values are decoded to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The type's own mapping; see the table above.
    Native,
    /// PostgreSQL's text form of the value: dates ISO, zone UTC.
    Text,
}

/// Says why a column cannot be captured and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Says why.
    pub reason: String,
    /// Says what the user can do.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason, self.remedy)
    }
}

/// Is what is known of a type once domains, arrays and enums are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Is the form on the wire.
    pub wire: Wire,
    /// Is the default mapping.
    pub column_type: ColumnType,
}

/// Is a scalar built-in type, by its oid in `pg_catalog`.
pub(crate) fn scalar(oid: u32) -> Option<Wire> {
    Some(match oid {
        16 => Wire::Bool,
        17 => Wire::Bytea,
        // "char" (18) is left out: its one byte need not be a character.
        19 | 25 | 114 | 1043 => Wire::Text,
        20 => Wire::Int8,
        21 => Wire::Int2,
        23 => Wire::Int4,
        700 => Wire::Float4,
        701 => Wire::Float8,
        1042 => Wire::Bpchar,
        1082 => Wire::Date,
        1083 => Wire::Time,
        1114 => Wire::Timestamp,
        1184 => Wire::Timestamptz,
        1700 => Wire::Numeric,
        2950 => Wire::Uuid,
        3802 => Wire::Jsonb,
        _ => return None,
    })
}

/// Reads precision and scale out of a numeric's type modifier; `None` if it has no modifier.
pub(crate) fn numeric_modifier(type_mod: i32) -> Option<(i32, i32)> {
    (type_mod >= 4).then(|| {
        let packed = type_mod - 4;
        let scale = packed & 0x7ff;
        // Eleven bits, sign-extended: scales may be negative from PostgreSQL 15.
        ((packed >> 16) & 0xffff, (scale ^ 1024) - 1024)
    })
}

/// Is the default mapping of a wire form.
pub(crate) fn default_type(wire: &Wire, type_mod: i32) -> ColumnType {
    match wire {
        Wire::Bool => ColumnType::Boolean,
        Wire::Int2 | Wire::Int4 => ColumnType::Int,
        Wire::Int8 => ColumnType::Long,
        Wire::Float4 => ColumnType::Float,
        Wire::Float8 => ColumnType::Double,
        Wire::Numeric => match numeric_modifier(type_mod) {
            Some((precision @ 1..=38, scale)) if (0..=precision).contains(&scale) => ColumnType::Decimal {
                precision: precision as u8,
                scale: scale as u8,
            },
            _ => ColumnType::String,
        },
        Wire::Text | Wire::Bpchar | Wire::Jsonb | Wire::Time => ColumnType::String,
        Wire::Bytea => ColumnType::Binary,
        Wire::Date => ColumnType::Date,
        Wire::Timestamp => ColumnType::Timestamp,
        Wire::Timestamptz => ColumnType::Timestamptz,
        Wire::Uuid => ColumnType::Uuid,
        Wire::Array(element) => ColumnType::List(Box::new(default_type(element, type_mod))),
    }
}

/// Applies a user's choice from `types = {…}` to a wire form.
///
/// # Errors
/// A sentence that says why the choice does not fit.
pub fn choose(wire: &Wire, choice: &str) -> Result<(ColumnType, Target), String> {
    let plain: String = choice.chars().filter(|c| !c.is_whitespace()).collect();
    if plain == "string" {
        return Ok((ColumnType::String, Target::Text));
    }
    if plain == "time" {
        return match wire {
            Wire::Time => Ok((ColumnType::Time, Target::Native)),
            _ => Err("'time' can be chosen for a time column only".to_owned()),
        };
    }
    let numbers = plain
        .strip_prefix("decimal(")
        .and_then(|rest| rest.strip_suffix(')'))
        .and_then(|rest| rest.split_once(','))
        .and_then(|(p, s)| Some((p.parse::<u8>().ok()?, s.parse::<u8>().ok()?)));
    match (numbers, wire) {
        (Some((precision @ 1..=38, scale)), Wire::Numeric) if scale <= precision => {
            Ok((ColumnType::Decimal { precision, scale }, Target::Native))
        }
        (Some(_), Wire::Numeric) => {
            Err("a decimal has 1 to 38 digits, of which at most all after the point".to_owned())
        }
        (Some(_), _) => Err("'decimal' can be chosen for a numeric column only".to_owned()),
        (None, _) => Err("the choice is none of 'string', 'decimal(p,s)', 'time'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_modifiers_follow_postgresql() {
        let of = |precision: i32, scale: i32| Some(((precision << 16) | (scale & 0x7ff)) + 4);
        for (modifier, expected) in [
            (of(12, 2), "decimal(12,2)"),
            (of(38, 38), "decimal(38,38)"),
            (of(39, 0), "string"),
            (of(5, -2), "string"),
            (of(3, 5), "string"),
            (None, "string"),
        ] {
            let got = default_type(&Wire::Numeric, modifier.unwrap_or(-1));
            assert_eq!(got.to_string(), expected, "{modifier:?}");
        }
        assert_eq!(numeric_modifier(((5 << 16) | (-2 & 0x7ff)) + 4), Some((5, -2)));
    }

    #[test]
    fn choices_fit_or_are_refused() {
        let check = |wire: &Wire, choice: &str, expected: Option<&str>| {
            let got = choose(wire, choice)
                .ok()
                .map(|(column_type, _)| column_type.to_string());
            assert_eq!(got.as_deref(), expected, "{choice} for {wire:?}");
        };
        check(&Wire::Numeric, "decimal(38, 9)", Some("decimal(38,9)"));
        check(&Wire::Numeric, "decimal(39,9)", None);
        check(&Wire::Numeric, "decimal(3,4)", None);
        check(&Wire::Int4, "decimal(3,1)", None);
        check(&Wire::Time, "time", Some("time"));
        check(&Wire::Timestamp, "time", None);
        check(&Wire::Array(Box::new(Wire::Int4)), "string", Some("string"));
        check(&Wire::Int4, "long", None);
    }
}
