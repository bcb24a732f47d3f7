//! Tokens with places.

use crate::definition::{Problem, SourceFile};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// Is a problem that does not know its file yet.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(place: Place, code: &'static str, message: impl Into<String>) -> Fault {
        let message = message.into();
        Fault { place, code, message }
    }

    /// Names the file.
    pub(crate) fn at(self, file: &SourceFile) -> Problem {
        Problem {
            file: file.path.clone(),
            line: self.place.line,
            column: self.place.column,
            code: self.code,
            message: self.message,
            table: None,
        }
    }
}

/// Is a place in a text: line and column in characters, both from 1; 0 is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl Place {
    pub(crate) const START: Place = Place { line: 1, column: 1 };
}

impl From<Location> for Place {
    fn from(location: Location) -> Place {
        Place {
            line: location.line,
            column: location.column,
        }
    }
}

/// Finds bytes by line and column.
pub(crate) struct TextIndex<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

impl<'a> TextIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        TextIndex {
            text,
            line_starts: std::iter::once(0).chain(after_breaks).collect(),
        }
    }

    fn offset(&self, place: Place) -> usize {
        let line = usize::try_from(place.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(start) = self.line_starts.get(line) else {
            return self.text.len();
        };
        let column = usize::try_from(place.column.saturating_sub(1)).unwrap_or(usize::MAX);
        let rest = &self.text[*start..];
        rest.char_indices()
            .nth(column)
            .map_or(self.text.len(), |(at, _)| start + at)
    }

    /// Is the text from one place to before another.
    pub(crate) fn slice(&self, from: Place, to: Place) -> &'a str {
        let from = self.offset(from);
        &self.text[from..self.offset(to).max(from)]
    }
}

/// Reads all tokens but space and comments; gives those before an error together with the error.
pub(crate) fn read(text: &str) -> (Vec<TokenWithSpan>, Option<Fault>) {
    let mut tokens = Vec::new();
    let result = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location_into_buf(&mut tokens);
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF));
    let fault = result.err().map(|error| {
        let message = error.message.trim().to_lowercase();
        Fault::new(Place::from(error.location), "F0401", message)
    });
    (tokens, fault)
}

fn names(token: &Token, names: &[&str]) -> bool {
    match token {
        Token::Word(word) if word.quote_style.is_some() => names.contains(&word.value.as_str()),
        Token::Word(word) => names.iter().any(|name| name.eq_ignore_ascii_case(&word.value)),
        Token::Number(digits, _) => names.contains(&digits.as_str()),
        _ => false,
    }
}

/// Finds the first unquoted or quoted word, or number, that is one of `words`.
pub(crate) fn find_word(tokens: &[TokenWithSpan], words: &[&str]) -> Option<Place> {
    find_first(tokens, words, Place::default())
}

/// Finds the first such word at or after a place.
pub(crate) fn find_first(tokens: &[TokenWithSpan], words: &[&str], from: Place) -> Option<Place> {
    let mut places = tokens
        .iter()
        .filter(|token| names(&token.token, words))
        .map(|token| Place::from(token.span.start));
    places.find(|place| *place >= from)
}

/// Finds the last such word at or before a place.
pub(crate) fn find_last(tokens: &[TokenWithSpan], words: &[&str], until: Place) -> Option<Place> {
    let mut places = tokens
        .iter()
        .filter(|token| names(&token.token, words))
        .map(|token| Place::from(token.span.start));
    places.rfind(|place| *place <= until)
}

/// Finds the first such word that an opening parenthesis follows.
pub(crate) fn find_call(tokens: &[TokenWithSpan], words: &[&str]) -> Option<Place> {
    let mut pairs = tokens.windows(2);
    let call = pairs.find(|pair| names(&pair[0].token, words) && pair[1].token == Token::LParen)?;
    Some(Place::from(call[0].span.start))
}
