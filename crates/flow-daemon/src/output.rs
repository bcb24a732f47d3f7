//! Writes results to stdout and failures to stderr.

use std::io::{self, Write};

use anyhow::Context;

use crate::exit::{Exit, Failure};

/// Writes a result. A reader that went away, as `head` does, is no failure.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Failure, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a result as one JSON document.
pub(crate) fn json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).context("cannot write JSON")?;
    result(&format!("{text}\n"))
}

/// Tells a person something that is no result.
pub(crate) fn note(text: &str) {
    // Nothing can be done about a stderr that is gone.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Tells why a command ends badly.
pub(crate) fn failure(failure: &Failure) {
    let code = failure.code.as_ref().map_or(String::new(), |code| format!("[{code}]"));
    note(&format!("error{code}: {}", failure.message));
}

/// Lays out rows in columns, the first row being the head.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "bcd".into()],
            vec!["größe".into(), "x".into()],
            vec!["y".into()],
        ];
        assert_eq!(columns(&rows), "a      bcd\ngröße  x\ny\n");
        assert_eq!(columns(&[]), "");
    }
}
