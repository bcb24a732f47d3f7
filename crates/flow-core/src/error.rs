//! Errors that cross crates.

use crate::remedy::Remedy;

/// Says why a lake read failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {table}")]
pub struct LakeReadError {
    /// Says what was tried: `load`, `scan`.
    pub action: &'static str,
    /// Names the table.
    pub table: String,
    /// Says what the caller should do.
    pub remedy: Remedy,
    /// Is the cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
