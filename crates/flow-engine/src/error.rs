//! What can go wrong in the engine, by what the caller should do.

use flow_core::{Remedial, Remedy};

/// Says why the engine or one of its commands failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The source failed.
    #[error("source failed")]
    Source(#[from] flow_source::SourceError),
    /// The store failed.
    #[error("local store failed")]
    Store(#[from] flow_store::StoreError),
    /// The lake failed.
    #[error("lake failed")]
    Lake(#[from] flow_lake::LakeError),
    /// A dynamic table's state could not be read or written.
    #[error("state of a dynamic table failed")]
    State(#[from] flow_core::state::StateError),
    /// A refresh failed.
    #[error("refresh failed")]
    Refresh(#[from] flow_refresh::RefreshError),
    /// The user must change something.
    #[error("{message}")]
    Reconfigure {
        /// Names the page under `docs/errors/`.
        code: &'static str,
        /// Says what is wrong, what was not changed and what to do.
        message: String,
    },
    /// What is stored does not continue the source.
    #[error("{message}")]
    Resync {
        /// Names the page under `docs/errors/`.
        code: &'static str,
        /// Says what is wrong, what was not changed and what to do.
        message: String,
    },
    /// A dependency stayed away past `retry_for`.
    #[error("{what} stayed unavailable for {seconds} s")]
    Unavailable {
        /// Names the dependency.
        what: &'static str,
        /// Is how long it was retried, in seconds.
        seconds: u64,
        /// Is the last failure.
        #[source]
        source: Box<EngineError>,
    },
    /// A broken invariant.
    #[error("broken invariant: {0}")]
    Invariant(String),
    /// The engine ended before it could answer.
    #[error("the service has stopped")]
    Stopped,
}

impl Remedial for EngineError {
    fn remedy(&self) -> Remedy {
        match self {
            EngineError::Source(error) => error.remedy(),
            EngineError::Store(error) => error.remedy(),
            EngineError::Lake(error) => error.remedy(),
            EngineError::State(error) => error.remedy,
            EngineError::Refresh(error) => error.remedy(),
            EngineError::Reconfigure { .. } => Remedy::Reconfigure,
            EngineError::Resync { .. } => Remedy::Resync,
            EngineError::Unavailable { .. } => Remedy::Retry,
            EngineError::Invariant(_) => Remedy::Crash,
            EngineError::Stopped => Remedy::Retry,
        }
    }

    fn code(&self) -> Option<&'static str> {
        match self {
            EngineError::Source(error) => error.code(),
            EngineError::Store(error) => error.code(),
            EngineError::Lake(error) => error.code(),
            EngineError::Refresh(error) => error.code(),
            EngineError::Reconfigure { code, .. } | EngineError::Resync { code, .. } => Some(code),
            EngineError::Unavailable { source, .. } => source.code(),
            EngineError::State(_) | EngineError::Invariant(_) | EngineError::Stopped => None,
        }
    }
}
