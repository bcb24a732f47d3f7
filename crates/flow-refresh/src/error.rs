//! Why a refresh or a query gave no result.

use flow_core::lake::LakeReadError;
use flow_core::{Remedial, Remedy};

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
            RefreshError::Compute { .. }
            | RefreshError::Memory { .. }
            | RefreshError::Schema { .. }
            | RefreshError::Plan { .. } => Remedy::BlockTable,
            RefreshError::Refused { .. } => Remedy::Reconfigure,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            RefreshError::Read { .. } => None,
            RefreshError::Compute { .. } => Some("F0420"),
            RefreshError::Memory { .. } => Some("F0421"),
            RefreshError::Schema { .. } => Some("F0422"),
            RefreshError::Plan { .. } => Some("F0423"),
            RefreshError::Refused { .. } => Some("F0424"),
        }
    }
}
