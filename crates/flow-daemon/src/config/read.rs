//! Reads sections of a TOML document into typed fields, and describes them for the documentation.
//!
//! One [`section!`](super::sections) declaration is at once the type, its reader and its row in
//! `docs/configuration.md`, so that the three cannot differ. Reading never stops at the first
//! problem: a bad value leaves its field empty and adds a [`Problem`](super::Problem).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Collector;
use super::units::{Size, clip, parse_duration, parse_size};

/// Is where a value stands in the file, in bytes.
pub type Span = Range<usize>;

/// Is a value that an option can have.
pub trait Value: Sized {
    /// Says for the documentation what may be written.
    fn kind() -> String;

    /// Reads it.
    ///
    /// # Errors
    /// A sentence for the user.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;

    /// Says whether the value lies within `min ..= max`, both TOML texts of the same kind.
    fn within(&self, _min: &Self, _max: &Self) -> bool {
        true
    }
}

/// Is an option as it was read: its value, if it has one, and its place, if it was written.
#[derive(Clone, Debug)]
pub struct Field<T> {
    /// Is the value written, or the default; `None` if there is neither or the value was bad.
    pub value: Option<T>,
    /// Is where it was written.
    pub span: Option<Span>,
}

/// Describes an option for the documentation.
#[derive(Clone, Debug)]
pub struct FieldDoc {
    /// Is the key.
    pub key: &'static str,
    /// Says what may be written.
    pub kind: String,
    /// Is the default as TOML, if there is one.
    pub default: Option<&'static str>,
    /// Is the smallest and largest value as TOML, if bounded.
    pub range: Option<(&'static str, &'static str)>,
    /// Says what it is for.
    pub text: &'static str,
}

/// Is a group of options read from one TOML table.
pub trait Section: Sized {
    /// Says what the section is for.
    const TEXT: &'static str;

    /// Reads it, unknown keys aside; `at` is the section's own place, `name` its name for messages.
    fn read(name: &str, at: Option<&Span>, table: Option<&DeTable<'_>>, problems: &mut Collector<'_>) -> Self;

    /// Describes its options in order.
    fn fields() -> Vec<FieldDoc>;
}

/// Reads one option of a section. Adds a problem if it is bad.
pub fn read_field<T: Value>(
    section: &str,
    doc: &FieldDoc,
    table: Option<&DeTable<'_>>,
    problems: &mut Collector<'_>,
) -> Field<T> {
    let key = join_key(section, doc.key);
    let found = table.and_then(|table| table.get(doc.key));
    let Some(found) = found else {
        let value = doc.default.map(|text| read_literal(text));
        return Field { value, span: None };
    };
    let span = Some(found.span());
    let value = match T::read(found.get_ref()) {
        Err(message) => {
            problems.add(span.as_ref(), key, message);
            None
        }
        Ok(value) => match doc.range {
            Some((min, max)) if !value.within(&read_literal(min), &read_literal(max)) => {
                problems.add(span.as_ref(), key, format!("must be between {min} and {max}"));
                None
            }
            _ => Some(value),
        },
    };
    Field { value, span }
}

/// Reads a default or bound from its own declaration.
fn read_literal<T: Value>(text: &str) -> T {
    let value = DeValue::parse(text).expect("defaults and bounds are TOML values");
    T::read(value.get_ref()).expect("defaults and bounds are values of their option")
}

/// Reports every key of `table` that is not among `known`.
pub fn refuse_unknown(section: &str, known: &[&'static str], table: &DeTable<'_>, problems: &mut Collector<'_>) {
    for key in table.keys() {
        let name: &str = key.get_ref();
        if known.contains(&name) {
            continue;
        }
        let near = known.iter().copied().min_by_key(|known| distance(known, name));
        let mut message = String::from("unknown key");
        if let Some(near) = near.filter(|near| distance(near, name) <= 2) {
            message += &format!("; did you mean '{near}'?");
        }
        problems.add(Some(&key.span()), join_key(section, &clip(name)), message);
    }
}

/// Joins a section's name and a key.
pub fn join_key(section: &str, key: &str) -> String {
    match section {
        "" => key.to_string(),
        _ => format!("{section}.{key}"),
    }
}

/// Counts the single-character edits between two words (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(l != *r);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
}

/// Gets a table out of a value, or reports that it is none.
pub fn expect_table<'a, 'i>(
    key: &str,
    value: &'a Spanned<DeValue<'i>>,
    problems: &mut Collector<'_>,
) -> Option<&'a DeTable<'i>> {
    let table = value.get_ref().as_table();
    if table.is_none() {
        problems.add(Some(&value.span()), key, format!("must be a section: write [{key}]"));
    }
    table
}

fn wrong(value: &DeValue<'_>, wanted: &str) -> String {
    format!("must be {wanted}, not {}", value.type_str())
}

impl Value for String {
    fn kind() -> String {
        "string".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| wrong(value, "a string"))?;
        match text {
            "" => Err("must not be empty".into()),
            _ if text.contains('\0') => Err("must not have a zero character".into()),
            _ => Ok(text.to_string()),
        }
    }
}

impl Value for bool {
    fn kind() -> String {
        "`true` or `false`".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| wrong(value, "true or false"))
    }
}

impl Value for u64 {
    fn kind() -> String {
        "whole number".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let number = value.as_integer().ok_or_else(|| wrong(value, "a whole number"))?;
        u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| "must be a whole number from 0".into())
    }

    fn within(&self, min: &Self, max: &Self) -> bool {
        (min..=max).contains(&self)
    }
}

impl Value for Duration {
    fn kind() -> String {
        "duration".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value
            .as_str()
            .ok_or_else(|| wrong(value, "a duration in quotes, such as \"10s\""))?;
        parse_duration(text)
    }

    fn within(&self, min: &Self, max: &Self) -> bool {
        (min..=max).contains(&self)
    }
}

impl Value for Size {
    fn kind() -> String {
        "size".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value
            .as_str()
            .ok_or_else(|| wrong(value, "a size in quotes, such as \"64MiB\""))?;
        parse_size(text)
    }

    fn within(&self, min: &Self, max: &Self) -> bool {
        (min..=max).contains(&self)
    }
}

impl Value for Vec<String> {
    fn kind() -> String {
        "list of strings".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let array = value.as_array().ok_or_else(|| wrong(value, "a list of strings"))?;
        let texts: Vec<String> = array
            .iter()
            .map(|item| String::read(item.get_ref()).map_err(|message| format!("each entry {message}")))
            .collect::<Result<_, _>>()?;
        match texts.iter().enumerate().find(|(at, text)| texts[..*at].contains(text)) {
            Some((_, twice)) => Err(format!("names '{}' twice", clip(twice))),
            None => Ok(texts),
        }
    }
}

impl Value for BTreeMap<String, String> {
    fn kind() -> String {
        "table of strings".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let table = value.as_table().ok_or_else(|| wrong(value, "a table of strings"))?;
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            let text = String::read(value.get_ref()).map_err(|message| format!("'{}' {message}", clip(name)))?;
            Ok((name.to_string(), text))
        };
        table.iter().map(entry).collect()
    }
}

/// Declares sections: each one type, one reader, one table in the documentation.
macro_rules! sections {
    ($(
        $(#[doc = $section_text:literal])+
        $name:ident {
            $(
                $(#[doc = $text:literal])+
                $field:ident: $kind:ty $(, default $default:literal)? $(, range $min:literal, $max:literal)?;
            )*
        }
    )*) => {$(
        $(#[doc = $section_text])+
        #[derive(Clone, Debug)]
        pub struct $name {
            /// Is where the section begins.
            pub at: Option<$crate::config::read::Span>,
            $($(#[doc = $text])+ pub $field: $crate::config::read::Field<$kind>,)*
        }

        impl $crate::config::read::Section for $name {
            const TEXT: &'static str = concat!($($section_text),+);

            fn read(
                name: &str,
                at: Option<&$crate::config::read::Span>,
                table: Option<&toml::de::DeTable<'_>>,
                problems: &mut $crate::config::problem::Collector<'_>,
            ) -> Self {
                let docs = Self::fields();
                let mut docs = docs.iter();
                $name {
                    at: at.cloned(),
                    $($field: $crate::config::read::read_field(
                        name,
                        docs.next().expect("one description for each field"),
                        table,
                        problems,
                    ),)*
                }
            }

            fn fields() -> Vec<$crate::config::read::FieldDoc> {
                vec![$($crate::config::read::FieldDoc {
                    key: stringify!($field).trim_start_matches("r#"),
                    kind: <$kind as $crate::config::read::Value>::kind(),
                    default: [$($default,)?].first().copied(),
                    range: [$(($min, $max),)?].first().copied(),
                    text: concat!($($text),+),
                }),*]
            }
        }
    )*};
}

/// Declares options that are one of a few words.
macro_rules! choices {
    ($(
        #[doc = $text:literal]
        $name:ident { $(#[doc = $word_text:literal] $word:ident = $spelling:literal,)* }
    )*) => {$(
        #[doc = $text]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $(#[doc = $word_text] $word,)* }

        impl $crate::config::read::Value for $name {
            fn kind() -> String {
                [$(concat!("`\"", $spelling, "\"`")),*].join(" or ")
            }

            fn read(value: &toml::de::DeValue<'_>) -> Result<Self, String> {
                match value.as_str() {
                    $(Some($spelling) => Ok($name::$word),)*
                    _ => Err(format!("must be {}", [$(concat!("\"", $spelling, "\"")),*].join(" or "))),
                }
            }
        }
    )*};
}

pub(super) use {choices, sections};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let check = |left: &str, right: &str, expect: usize| assert_eq!(distance(left, right), expect);
        check("interval", "interval", 0);
        check("interval", "intervall", 1);
        check("slot", "slto", 2);
        check("", "abc", 3);
        check("abc", "", 3);
    }
}
