//! `CREATE DYNAMIC TABLE name [clauses] AS`.

use std::time::Duration;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use flow_core::TableName;

use crate::definition::{Lag, RequestedMode};
use crate::tokens::{Fault, Place};

/// Is what stands before `AS`.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: TableName,
    pub(super) name_place: Place,
    pub(super) lag: Lag,
    pub(super) mode: RequestedMode,
}

/// Are the clauses of the language that this version does not build. They are refused by name,
/// because a table without them would be another table.
const NOT_BUILT: [&str; 7] = [
    "PARTITION",
    "PARTITION_WINDOW",
    "PARTITION_FRESHNESS",
    "PRECONDITIONS",
    "DQ_RULES",
    "ON_DQ_FAIL",
    "TAGS",
];

struct Cursor<'a> {
    tokens: &'a [TokenWithSpan],
    next: usize,
}

/// Reads a header; gives what follows `AS` beside it.
pub(super) fn read(statement: &[TokenWithSpan]) -> Result<(Header, &[TokenWithSpan]), Fault> {
    let mut cursor = Cursor {
        tokens: statement,
        next: 0,
    };
    cursor.keyword("CREATE")?;
    cursor.keyword("DYNAMIC")?;
    cursor.keyword("TABLE")?;
    if cursor.takes("IF") {
        cursor.keyword("NOT")?;
        cursor.keyword("EXISTS")?;
    }
    let name_place = cursor.place();
    let name = cursor.table_name()?;
    let mut lag = None;
    let mut mode = None;
    loop {
        let place = cursor.place();
        if cursor.takes("AS") {
            break;
        } else if cursor.takes("LAG") || cursor.takes("TARGET_LAG") {
            once(&lag, place, "LAG")?;
            cursor.equals()?;
            lag = Some(cursor.lag()?);
        } else if cursor.takes("REFRESH_MODE") {
            once(&mode, place, "REFRESH_MODE")?;
            cursor.equals()?;
            mode = Some(cursor.mode()?);
        } else {
            return Err(cursor.unknown_clause());
        }
    }
    let header = Header {
        name,
        name_place,
        lag: lag.unwrap_or(Lag::None),
        mode: mode.unwrap_or(RequestedMode::Auto),
    };
    Ok((header, &statement[cursor.next..]))
}

fn once<T>(found: &Option<T>, place: Place, clause: &str) -> Result<(), Fault> {
    match found {
        Some(_) => Err(Fault::new(place, "F0402", format!("clause {clause} stands twice"))),
        None => Ok(()),
    }
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.next).map(|token| &token.token)
    }

    /// Is where the next token starts, or where the statement ends.
    fn place(&self) -> Place {
        match (self.tokens.get(self.next), self.tokens.last()) {
            (Some(token), _) => Place::from(token.span.start),
            (None, Some(last)) => Place::from(last.span.end),
            (None, None) => Place::START,
        }
    }

    fn found(&self) -> String {
        self.peek()
            .map_or("the end of the statement".to_owned(), |token| format!("'{token}'"))
    }

    fn expected(&self, what: &str) -> Fault {
        Fault::new(
            self.place(),
            "F0401",
            format!("expected {what}, found {}", self.found()),
        )
    }

    fn word(&self) -> Option<&'a Word> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn is(&self, keyword: &str) -> bool {
        self.word()
            .is_some_and(|word| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(keyword))
    }

    fn takes(&mut self, keyword: &str) -> bool {
        let is = self.is(keyword);
        self.next += usize::from(is);
        is
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), Fault> {
        if self.takes(keyword) {
            return Ok(());
        }
        Err(match keyword {
            "CREATE" | "DYNAMIC" | "TABLE" => self.expected("CREATE DYNAMIC TABLE"),
            _ => self.expected(keyword),
        })
    }

    fn equals(&mut self) -> Result<(), Fault> {
        if self.peek() != Some(&Token::Eq) {
            return Err(self.expected("'='"));
        }
        self.next += 1;
        Ok(())
    }

    fn identifier(&mut self) -> Result<String, Fault> {
        let word = self.word().ok_or_else(|| self.expected("a name"))?;
        self.next += 1;
        Ok(match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_lowercase(),
        })
    }

    fn table_name(&mut self) -> Result<TableName, Fault> {
        let start = self.place();
        let mut parts = Vec::new();
        loop {
            let place = self.place();
            let part = self.identifier()?;
            if part.to_lowercase().starts_with("_flow_") {
                let message = format!("'{part}': names that begin with _flow_ are reserved");
                return Err(Fault::new(place, "F0403", message));
            }
            parts.push(part);
            if self.peek() != Some(&Token::Period) {
                break;
            }
            self.next += 1;
        }
        let name = parts.pop().unwrap_or_default();
        if parts.is_empty() {
            let message = format!("table '{name}' needs a namespace: write namespace.{name}");
            return Err(Fault::new(start, "F0403", message));
        }
        if parts.iter().any(|part| part.is_empty() || part.contains('.')) || name.is_empty() {
            let message = "a namespace must not hold an empty level or a level with a dot in it";
            return Err(Fault::new(start, "F0403", message));
        }
        Ok(TableName::new(parts.join("."), name))
    }

    fn lag(&mut self) -> Result<Lag, Fault> {
        if self.takes("DOWNSTREAM") {
            return Ok(Lag::Downstream);
        }
        self.takes("INTERVAL");
        let place = self.place();
        let Some(Token::SingleQuotedString(text)) = self.peek() else {
            return Err(self.expected("a duration such as '5 minutes', or DOWNSTREAM"));
        };
        self.next += 1;
        match duration(text) {
            Some(duration) => Ok(Lag::Duration(duration)),
            None => {
                let message = format!("'{text}' is not a duration: write '5 minutes', '1 hour 30 minutes', '90s'");
                Err(Fault::new(place, "F0402", message))
            }
        }
    }

    fn mode(&mut self) -> Result<RequestedMode, Fault> {
        let place = self.place();
        let word = self.identifier()?.to_uppercase();
        match word.as_str() {
            "AUTO" => Ok(RequestedMode::Auto),
            "FULL" => Ok(RequestedMode::Full),
            "INCREMENTAL" => Ok(RequestedMode::Incremental),
            "TRIGGERED" | "SCHEDULED" => {
                let message =
                    format!("REFRESH_MODE = {word} is not built yet: leave it out, or write INCREMENTAL or FULL");
                Err(Fault::new(place, "F0402", message))
            }
            _ => {
                let message = format!("'{word}' is no refresh mode: write AUTO, INCREMENTAL or FULL");
                Err(Fault::new(place, "F0402", message))
            }
        }
    }

    fn unknown_clause(&self) -> Fault {
        let not_built = NOT_BUILT.iter().find(|clause| self.is(clause));
        match (not_built, self.word()) {
            (Some(&"PARTITION"), _) => Fault::new(
                self.place(),
                "F0402",
                "clause PARTITION BY is not built yet: leave it out",
            ),
            (Some(clause), _) => Fault::new(
                self.place(),
                "F0402",
                format!("clause {clause} is not built yet: leave it out"),
            ),
            (None, Some(word)) if !word.value.eq_ignore_ascii_case("SELECT") => Fault::new(
                self.place(),
                "F0402",
                format!("unknown clause {}: known are LAG, REFRESH_MODE and AS", word.value),
            ),
            _ => self.expected("a clause or AS"),
        }
    }
}

/// Reads `'5 minutes'`, `'1 hour 30 minutes'`, `'90s'`; zero is no duration.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total_ms: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit_ms = match rest[..letters].to_ascii_lowercase().as_str() {
            "ms" | "millisecond" | "milliseconds" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            _ => return None,
        };
        total_ms = total_ms.checked_add(number.checked_mul(unit_ms)?)?;
        rest = rest[letters..].trim_start();
    }
    (total_ms > 0).then(|| Duration::from_millis(total_ms))
}
