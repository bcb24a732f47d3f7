//! Why a refresh or a query gave no result.

use arrow_schema::ArrowError;
use datafusion::common::DataFusionError;
use flow_core::lake::LakeReadError;
use flow_core::state::StateError;
use flow_core::{Remedial, Remedy};

use crate::delta::{DamagedState, NegativeWeight};
use crate::exactness::Inexact;
use crate::session::cause;

/// Says why a refresh or a query gave no result. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// An input, or the stored table, could not be read.
    #[error("cannot read an input of {table}")]
    Read {
        /// Names the dynamic table, or `the query`.
        table: String,
        /// Is the cause.
        #[source]
        source: LakeReadError,
    },
    /// A value cannot be computed exactly: overflow, division by zero, a cast that does not fit.
    #[error("cannot compute {table}: {message}")]
    Compute {
        /// Names the dynamic table, or `the query`.
        table: String,
        /// Names the operation and the types; never a row's value.
        message: String,
    },
    /// The computation needs more memory than it may use.
    #[error("cannot compute {table} within {limit_bytes} bytes of memory")]
    Memory {
        /// Names the dynamic table, or `the query`.
        table: String,
        /// Is the limit in bytes.
        limit_bytes: usize,
    },
    /// The folder for what does not fit in memory cannot be used: a full disk, say.
    #[error("cannot compute {table}: its scratch files cannot be used: {reason}")]
    Scratch {
        /// Names the dynamic table.
        table: String,
        /// Is what the system says.
        reason: String,
    },
    /// A row went more often than it came, or state holds bytes nobody wrote there.
    #[error("{table} cannot be refreshed by its changes: {message}")]
    State {
        /// Names the dynamic table.
        table: String,
        /// Says which of the two; never a row's value.
        message: String,
    },
    /// The state of the table could not be read or written.
    #[error("cannot use the state of {table}")]
    Store {
        /// Names the dynamic table.
        table: String,
        /// Is the cause.
        #[source]
        source: StateError,
    },
    /// The stored table no longer has the columns of the definition.
    #[error("{table} has other columns than its definition: {difference}")]
    Schema {
        /// Names the dynamic table.
        table: String,
        /// Shows both sides.
        difference: String,
    },
    /// An input table is gone or no longer has the columns that the definition was planned with.
    #[error("{table} cannot be planned any more: {message}")]
    Plan {
        /// Names the dynamic table.
        table: String,
        /// Says what changed.
        message: String,
    },
    /// A column that the definition reads is gone from an input, or has another type.
    #[error(
        "{table} cannot be refreshed: {message}, and its SELECT reads it; nothing was written, and the table keeps its \
         content; give the column back as it was, or change the SELECT"
    )]
    Columns {
        /// Names the dynamic table.
        table: String,
        /// Names input and column, and says what became of it.
        message: String,
    },
    /// The SQL is not allowed, or not understood.
    #[error("query is refused at line {line}, column {column}: {message}")]
    Refused {
        /// Is the line, from 1.
        line: u64,
        /// Is the column in characters, from 1.
        column: u64,
        /// Says what is wrong.
        message: String,
    },
}

impl Remedial for RefreshError {
    fn remedy(&self) -> Remedy {
        match self {
            RefreshError::Read { source, .. } => source.remedy,
            RefreshError::Store { source, .. } => source.remedy,
            RefreshError::Scratch { .. } => Remedy::Retry,
            RefreshError::Compute { .. }
            | RefreshError::State { .. }
            | RefreshError::Memory { .. }
            | RefreshError::Schema { .. }
            | RefreshError::Columns { .. }
            | RefreshError::Plan { .. } => Remedy::BlockTable,
            RefreshError::Refused { .. } => Remedy::Reconfigure,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            RefreshError::Read { .. } | RefreshError::Store { .. } | RefreshError::Scratch { .. } => None,
            RefreshError::Compute { .. } => Some("F0420"),
            RefreshError::Memory { .. } => Some("F0421"),
            RefreshError::Schema { .. } => Some("F0422"),
            RefreshError::Plan { .. } => Some("F0423"),
            RefreshError::Refused { .. } => Some("F0424"),
            RefreshError::State { .. } => Some("F0425"),
            RefreshError::Columns { .. } => Some("F0427"),
        }
    }
}

impl RefreshError {
    /// Tells what an engine's error means, without the row values its text may hold.
    pub(crate) fn from_engine(table: &str, limit_bytes: usize, error: &DataFusionError) -> RefreshError {
        let table = table.to_owned();
        if let Some(read) = cause::<LakeReadError>(error) {
            let source = LakeReadError {
                action: read.action,
                table: read.table.clone(),
                remedy: read.remedy,
                source: read.source.to_string().into(),
            };
            return RefreshError::Read { table, source };
        }
        if let Some(store) = cause::<StateError>(error) {
            let source = StateError {
                action: store.action,
                remedy: store.remedy,
                source: store.source.to_string().into(),
            };
            return RefreshError::Store { table, source };
        }
        let negative = cause::<NegativeWeight>(error).map(ToString::to_string);
        let damaged = cause::<DamagedState>(error).map(ToString::to_string);
        if let Some(message) = negative.or(damaged) {
            return RefreshError::State { table, message };
        }
        if let Some(reason) = cause::<std::io::Error>(error).map(ToString::to_string) {
            return RefreshError::Scratch { table, reason };
        }
        if let DataFusionError::ResourcesExhausted(_) = error.find_root() {
            tracing::debug!(%error, "too little memory");
            return RefreshError::Memory { table, limit_bytes };
        }
        let message = match (cause::<Inexact>(error), cause::<ArrowError>(error)) {
            (Some(Inexact(message)), _) => message.clone(),
            (None, Some(error)) => arrow_message(error),
            (None, None) => without_values(&error.find_root().strip_backtrace()),
        };
        RefreshError::Compute { table, message }
    }
}

fn arrow_message(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero".to_owned(),
        ArrowError::ArithmeticOverflow(_) => "integer or decimal overflow".to_owned(),
        ArrowError::CastError(message) | ArrowError::ParseError(message) => {
            let target = [" to type ", " to value of ", " of type "]
                .iter()
                .find_map(|before| message.rsplit_once(before));
            match target.and_then(|(_, target)| target.split_whitespace().next()) {
                Some(target) => format!("a value does not fit the type it is cast to, {target}"),
                None => "a value does not fit the type it is cast to".to_owned(),
            }
        }
        other => without_values(&other.to_string()),
    }
}

/// Takes numbers and quoted texts out of a message: they may be values of rows.
fn without_values(message: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in message.lines().next().unwrap_or_default().chars() {
        match c {
            '\'' | '"' => {
                quoted = !quoted;
                if quoted {
                    out.push('…');
                }
            }
            _ if quoted => {}
            '0'..='9' => {
                if !out.ends_with('…') {
                    out.push('…');
                }
            }
            _ => out.push(c),
        }
    }
    out
}
