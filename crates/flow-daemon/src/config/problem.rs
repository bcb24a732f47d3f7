//! What is wrong with a configuration, all of it at once, with line and column.
//!
//! A problem names a key and what to do. It never repeats a value that may be a secret: values are
//! quoted only by the readers of options that cannot hold one.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flow_core::{Remedial, Remedy};

/// Is one thing the user must change in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Is where it stands, line and column from 1, columns counted in characters; `None` if the
    /// problem is about the file as a whole or its surroundings.
    pub place: Option<(usize, usize)>,
    /// Names the option, such as `publish.interval`; empty for a syntax error.
    pub key: String,
    /// Says what is wrong and what to write instead.
    pub message: String,
}

/// Collects problems while a configuration is read.
#[derive(Debug)]
pub struct Collector<'a> {
    text: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Collector<'a> {
    /// Starts with none; `text` is the file, for lines and columns.
    pub fn new(text: &'a str) -> Self {
        Collector {
            text,
            problems: Vec::new(),
        }
    }

    /// Adds a problem at a byte range of the file, or at none.
    pub fn add(&mut self, span: Option<&Range<usize>>, key: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            place: span.map(|span| place(self.text, span.start)),
            key: key.into(),
            message: message.into(),
        });
    }

    /// Is the line of a byte range of the file, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        place(self.text, span.start).0
    }

    /// Says whether nothing has been found.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Ends the collection, in the order of the file; problems without a place come last.
    pub fn into_problems(mut self) -> Vec<Problem> {
        self.problems
            .sort_by_key(|problem| problem.place.unwrap_or((usize::MAX, usize::MAX)));
        self.problems
    }
}

/// Turns a byte offset into line and column, both from 1, the column in characters.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

/// Says that a configuration cannot be used, with every reason. The remedy is to reconfigure.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// Is the configuration file as it was named.
    pub file: PathBuf,
    /// Holds the problems in file order; at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Is an error with one problem about the whole file.
    pub fn whole(file: &Path, message: impl Into<String>) -> Self {
        let problem = Problem {
            place: None,
            key: String::new(),
            message: message.into(),
        };
        ConfigError {
            file: file.to_path_buf(),
            problems: vec![problem],
        }
    }
}

impl Remedial for ConfigError {
    fn remedy(&self) -> Remedy {
        Remedy::Reconfigure
    }

    fn code(&self) -> Option<&'static str> {
        Some("F0501")
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}", self.file.display())?;
            if let Some((line, column)) = problem.place {
                write!(f, ":{line}:{column}")?;
            }
            match problem.key.as_str() {
                "" => write!(f, ": {}", problem.message)?,
                key => write!(f, ": {key}: {}", problem.message)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let text = "a = 1\nbüß = 2\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 6), (2, 1));
        assert_eq!(place(text, text.find('=').expect("has one")), (1, 3));
        assert_eq!(place(text, text.rfind('=').expect("has one")), (2, 5));
        assert_eq!(place(text, 10_000), (3, 1));
    }

    #[test]
    fn problems_come_in_file_order() {
        let mut collector = Collector::new("a\nb\nc");
        collector.add(None, "x", "last");
        collector.add(Some(&(4..5)), "c", "third");
        collector.add(Some(&(0..1)), "a", "first");
        let keys: Vec<_> = collector.into_problems().into_iter().map(|p| p.key).collect();
        assert_eq!(keys, ["a", "c", "x"]);
    }
}
