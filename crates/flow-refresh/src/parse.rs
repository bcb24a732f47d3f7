//! From text to definitions: statements, headers, and the SELECT behind each `AS`.
//!
//! 1. [`tokens::read`] splits the file into tokens with exact places; quotes and comments are its business.
//! 2. [`statements`] cuts at semicolons.
//! 3. [`header::read`] reads `CREATE DYNAMIC TABLE … AS`.
//! 4. [`crate::select`] parses what follows.

mod header;
#[cfg(test)]
mod tests;

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use sha2::{Digest, Sha256};

use crate::definition::{Definition, Problem, SourceFile};
use crate::select;
use crate::tokens::{self, Fault, Place, TextIndex};

/// Reads all definitions. A statement with a problem gives no definition; the others still do.
///
/// Problems have code F0401 (syntax), F0402 (clause), F0403 (name) or F0410 (refused); those of a
/// SELECT name its table.
pub fn parse(files: &[SourceFile]) -> (Vec<Definition>, Vec<Problem>) {
    let mut definitions = Vec::new();
    let mut problems = Vec::new();
    for file in files {
        let (tokens, error) = tokens::read(&file.text);
        let index = TextIndex::new(&file.text);
        for statement in statements(&tokens, error.is_some()) {
            match definition(file, &index, statement) {
                Ok(definition) => definitions.push(definition),
                Err(problem) => problems.push(problem),
            }
        }
        if let Some(fault) = error {
            problems.push(fault.at(file));
        }
    }
    (definitions, problems)
}

/// Cuts at semicolons and leaves out empty statements. The last statement of a text that broke off
/// is left out too: its end is not known.
fn statements(tokens: &[TokenWithSpan], broken: bool) -> Vec<&[TokenWithSpan]> {
    let mut parts: Vec<&[TokenWithSpan]> = tokens.split(|token| token.token == Token::SemiColon).collect();
    if broken {
        parts.pop();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn definition(file: &SourceFile, index: &TextIndex<'_>, statement: &[TokenWithSpan]) -> Result<Definition, Problem> {
    let (header, body) = header::read(statement).map_err(|fault| fault.at(file))?;
    let (Some(first), Some(last)) = (body.first(), body.last()) else {
        let end = statement
            .last()
            .map_or(Place::START, |token| Place::from(token.span.end));
        let message = "expected a SELECT after AS, found the end of the statement";
        return Err(Fault::new(end, "F0401", message).at(file));
    };
    let start = Place::from(first.span.start);
    let sql = index.slice(start, Place::from(last.span.end)).to_owned();
    select::parse_tokens(body).map_err(|fault| Problem {
        table: Some(header.name.clone()),
        ..fault.at(file)
    })?;
    Ok(Definition {
        name: header.name,
        file: file.path.clone(),
        line: header.name_place.line,
        column: header.name_place.column,
        lag: header.lag,
        mode: header.mode,
        sql,
        sql_line: start.line,
        sql_column: start.column,
        query_hash: query_hash(body),
    })
}

/// Hashes the tokens as they are understood, so that spaces, comments and the case of what is not
/// quoted do not matter.
fn query_hash(body: &[TokenWithSpan]) -> String {
    let mut hash = Sha256::new();
    for token in body {
        let text = match &token.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
            other => other.to_string(),
        };
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
