//! Qualified names in configuration and commands: the one parser for them.
//!
//! A part is plain (`orders`) or in double quotes (`"Mixed.Case"`, inner quotes doubled). PostgreSQL
//! folds plain parts to lower case; to guess whether `Orders` means that would be wrong half of the
//! time, so an upper-case letter outside quotes is refused for source names.

use flow_core::TableName;

use super::units::clip;

/// Is what the `source` of a table block names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// One table.
    Table(TableName),
    /// Every table of a schema that the publication has: `public.*`.
    Schema(String),
}

/// Is what the `target` of a table block names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// One Iceberg table.
    Table(TableName),
    /// A namespace that takes the tables of a whole schema: `bronze.*`.
    Namespace(String),
}

/// Is one part of a dotted name.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    text: String,
    quoted: bool,
}

/// Reads a source table: `public.orders`, `public."Mixed.Case"`, `public.*`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_source(text: &str) -> Result<Selector, String> {
    let parts = parts(text)?;
    let [schema, name] = parts.as_slice() else {
        return Err(format!("'{}' is not schema.table", clip(text)));
    };
    let star = |part: &Part| !part.quoted && part.text == "*";
    if star(schema) {
        return Err("a schema cannot be '*'; write one [[tables]] block for each schema".into());
    }
    for part in [schema, name] {
        if !part.quoted && part.text.chars().any(char::is_uppercase) {
            return Err(format!(
                "'{}' has upper-case letters outside quotes, which PostgreSQL folds; write '{}' or '\"{}\"'",
                clip(&part.text),
                clip(&part.text.to_lowercase()),
                clip(&part.text)
            ));
        }
        if part.text.len() > POSTGRES_NAME_BYTES_MAX {
            return Err(format!("'{}' is longer than PostgreSQL's 63 bytes", clip(&part.text)));
        }
    }
    Ok(match star(name) {
        true => Selector::Schema(schema.text.clone()),
        false => Selector::Table(TableName::new(&schema.text, &name.text)),
    })
}

/// PostgreSQL's NAMEDATALEN less its terminator.
const POSTGRES_NAME_BYTES_MAX: usize = 63;

/// Reads a target: `bronze.orders`, `lake.bronze.orders` (a nested namespace), `bronze.*`.
///
/// # Errors
/// A sentence for the user.
pub fn parse_target(text: &str) -> Result<Target, String> {
    let mut parts = parts(text)?;
    let last = parts.pop().expect("a dotted name has at least one part");
    if parts.is_empty() {
        return Err(format!("'{}' is not namespace.table", clip(text)));
    }
    for level in &parts {
        check_target_part(&level.text)?;
        if level.text.contains('.') {
            return Err(format!("namespace level '{}' must not have a dot", clip(&level.text)));
        }
    }
    let levels: Vec<_> = parts.into_iter().map(|part| part.text).collect();
    let namespace = levels.join(".");
    if !last.quoted && last.text == "*" {
        return Ok(Target::Namespace(namespace));
    }
    check_target_part(&last.text)?;
    Ok(Target::Table(TableName::new(namespace, last.text)))
}

/// Refuses what could leave a table's folder or confuse a catalog.
///
/// # Errors
/// A sentence for the user.
pub fn check_target_part(part: &str) -> Result<(), String> {
    let bad = |c: char| matches!(c, '/' | '\\' | '*' | '"') || c.is_control();
    match part {
        "." | ".." => Err(format!("'{part}' cannot name a table or namespace")),
        _ if part.len() > TARGET_PART_BYTES_MAX => Err(format!("'{}' is too long", clip(part))),
        _ if part.chars().any(bad) => Err(format!(
            "'{}' has a character that a table's folder cannot have",
            clip(part)
        )),
        _ => Ok(()),
    }
}

/// File systems take 255 bytes for a folder's name; percent-encoding may treble a part.
const TARGET_PART_BYTES_MAX: usize = 85;

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        let mut part = Part {
            text: String::new(),
            quoted: chars.peek() == Some(&'"'),
        };
        if part.quoted {
            chars.next();
            loop {
                match chars.next() {
                    None => return Err(format!("'{}' has a quote that does not end", clip(text))),
                    Some('"') if chars.peek() == Some(&'"') => {
                        chars.next();
                        part.text.push('"');
                    }
                    Some('"') => break,
                    Some(c) => part.text.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.') {
                if c == '"' || c.is_whitespace() || c.is_control() {
                    return Err(format!(
                        "'{}' has a part that must be wholly in double quotes",
                        clip(text)
                    ));
                }
                part.text.push(c);
            }
        }
        if part.text.is_empty() || part.text.contains('\0') {
            return Err(format!("'{}' has an empty part", clip(text)));
        }
        parts.push(part);
        match chars.next() {
            None => return Ok(parts),
            Some('.') => {}
            Some(_) => return Err(format!("'{}' has text after a closing quote", clip(text))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_names() {
        let table = |schema: &str, name: &str| Some(Selector::Table(TableName::new(schema, name)));
        let check = |text: &str, expect: Option<Selector>| assert_eq!(parse_source(text).ok(), expect, "{text}");
        check("public.orders", table("public", "orders"));
        check(r#"public."Mixed.Case""#, table("public", "Mixed.Case"));
        check(r#""My ""S""".t"#, table("My \"S\"", "t"));
        check("public.größe", table("public", "größe"));
        check("public.*", Some(Selector::Schema("public".into())));
        check(r#"public."*""#, table("public", "*"));
        check(r#""Sales".*"#, Some(Selector::Schema("Sales".into())));
        for bad in [
            "",
            "orders",
            "a.b.c",
            "public.Orders",
            "public.",
            ".x",
            "*.x",
            "*.*",
            "a b.c",
            r#"public."x"#,
            r#"public."x"y"#,
            r#"public.x"y""#,
            r#""".x"#,
        ] {
            check(bad, None);
        }
        check(&format!("public.{}", "x".repeat(63)), table("public", &"x".repeat(63)));
        check(&format!("public.{}", "x".repeat(64)), None);
    }

    #[test]
    fn target_names() {
        let table = |namespace: &str, name: &str| Some(Target::Table(TableName::new(namespace, name)));
        let check = |text: &str, expect: Option<Target>| assert_eq!(parse_target(text).ok(), expect, "{text}");
        check("bronze.orders", table("bronze", "orders"));
        check("lake.bronze.Orders", table("lake.bronze", "Orders"));
        check(r#"bronze."a.b""#, table("bronze", "a.b"));
        check("bronze.*", Some(Target::Namespace("bronze".into())));
        for bad in [
            "orders",
            r#""..".x"#,
            r#"b."..""#,
            "b.a/b",
            r#""a.b".c"#,
            "b.",
            "*.x",
            r#"b."*""#,
            "b.x\u{7}",
        ] {
            check(bad, None);
        }
    }
}
