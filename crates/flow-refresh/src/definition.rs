//! What a `.sql` file declares, before anything is looked up.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use flow_core::TableName;
use serde::Serialize;

/// Is one `.sql` file, read by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Is the path as messages shall show it.
    pub path: PathBuf,
    /// Is the file's text.
    pub text: String,
}

/// Says what is wrong with a definition, and exactly where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Is the file's path, as [`SourceFile::path`] has it.
    pub file: PathBuf,
    /// Is the line, from 1.
    pub line: u64,
    /// Is the column in characters, from 1.
    pub column: u64,
    /// Names the page under `docs/errors/`.
    pub code: &'static str,
    /// Says what is wrong, in lower case.
    pub message: String,
    /// Names the dynamic table, where the problem belongs to one.
    #[serde(serialize_with = "display_option")]
    pub table: Option<TableName>,
}

fn display_option<S: serde::Serializer>(name: &Option<TableName>, serializer: S) -> Result<S::Ok, S::Error> {
    match name {
        Some(name) => serializer.collect_str(name),
        None => serializer.serialize_none(),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            line,
            column,
            code,
            message,
            ..
        } = self;
        write!(f, "{}:{line}:{column}: {code}: {message}", self.file.display())
    }
}

/// Bounds how old a dynamic table may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lag {
    /// No clause: a refresh starts when an input commits.
    None,
    /// `LAG = '5 minutes'`: now minus the commit time of the table's data LSN stays below this.
    Duration(Duration),
    /// `LAG = DOWNSTREAM`: the smallest lag of the tables that read this one.
    Downstream,
}

/// Is what `REFRESH_MODE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RequestedMode {
    /// Each refresh computes only what changed where the SELECT allows it, and the whole table else.
    Auto,
    /// As `AUTO`, and a SELECT that does not allow it is refused.
    Incremental,
    /// Every refresh computes the whole table.
    Full,
}

/// Is one `CREATE DYNAMIC TABLE` statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Is namespace and name.
    pub name: TableName,
    /// Is the file it stands in.
    pub file: PathBuf,
    /// Is the line of the table's name, from 1.
    pub line: u64,
    /// Is the column of the table's name, in characters from 1.
    pub column: u64,
    /// Is the `LAG` clause.
    pub lag: Lag,
    /// Is the `REFRESH_MODE` clause.
    pub mode: RequestedMode,
    /// Is the text after `AS`, as the user wrote it, without the closing semicolon.
    pub sql: String,
    /// Is the line of the first character of `sql`, from 1.
    pub sql_line: u64,
    /// Is the column of the first character of `sql`, in characters from 1.
    pub sql_column: u64,
    /// Is a hash of the parsed SELECT, in hexadecimal: spaces, comments and the case of keywords
    /// do not change it.
    pub query_hash: String,
}

impl Definition {
    /// Turns a place in `sql` (both from 1) into a place in the file.
    pub(crate) fn place(&self, line: u64, column: u64) -> (u64, u64) {
        match line {
            0 => (self.line, self.column),
            1 => (self.sql_line, self.sql_column + column.max(1) - 1),
            _ => (self.sql_line + line - 1, column),
        }
    }

    /// Makes a problem at a place in `sql`; line 0 stands for the table's name.
    pub(crate) fn problem(&self, place: (u64, u64), code: &'static str, message: impl Into<String>) -> Problem {
        let (line, column) = self.place(place.0, place.1);
        Problem {
            file: self.file.clone(),
            line,
            column,
            code,
            message: message.into(),
            table: Some(self.name.clone()),
        }
    }
}
