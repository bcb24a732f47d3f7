//! Why a request is not done, in the words of the protocol.

use flow_core::{Remedial, Remedy};

use crate::error::LakeError;

/// Is the kind of a refusal. All but the last three mean: nothing was changed, and the same request
/// will be refused again while things are as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request cannot be understood, or asks for what cannot be.
    BadRequest,
    /// What it wants is not permitted to it.
    Forbidden,
    /// There is no such warehouse.
    NoWarehouse,
    /// There is no such namespace.
    NoNamespace,
    /// There is no such table.
    NoTable,
    /// The name is taken.
    Exists,
    /// The namespace has content.
    NotEmpty,
    /// A requirement of the commit is not met, or others kept committing.
    Conflict,
    /// It contradicts itself, or another request had its idempotency key.
    Unprocessable,
    /// The catalog is busy; nothing was changed.
    Busy,
    /// Whether the change took effect is not known.
    Unknown,
    /// Something broke, and nothing was changed.
    Broken,
}

/// Pairs each lasting refusal with its name in the catalog file, which never changes.
const LASTING: [(Refusal, &str); 9] = [
    (Refusal::BadRequest, "bad-request"),
    (Refusal::Forbidden, "forbidden"),
    (Refusal::NoWarehouse, "no-warehouse"),
    (Refusal::NoNamespace, "no-namespace"),
    (Refusal::NoTable, "no-table"),
    (Refusal::Exists, "exists"),
    (Refusal::NotEmpty, "not-empty"),
    (Refusal::Conflict, "conflict"),
    (Refusal::Unprocessable, "unprocessable"),
];

impl Refusal {
    /// Is its name in the catalog file; `None` if the same request may have another outcome.
    pub(crate) fn recorded(self) -> Option<&'static str> {
        LASTING
            .iter()
            .find(|(refusal, _)| *refusal == self)
            .map(|(_, name)| *name)
    }

    pub(crate) fn from_recorded(name: &str) -> Option<Refusal> {
        LASTING
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(refusal, _)| *refusal)
    }
}

/// Says why a request is not done.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ServeError {
    /// Is the kind.
    pub refusal: Refusal,
    /// Says for the client's user what is wrong and where.
    pub message: String,
    /// Is the cause, where it lies in catalog or files.
    #[source]
    pub source: Option<Box<LakeError>>,
}

impl ServeError {
    pub(crate) fn new(refusal: Refusal, message: impl Into<String>) -> Self {
        ServeError {
            refusal,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        ServeError::new(Refusal::BadRequest, message)
    }

    pub(crate) fn no_table(table: impl std::fmt::Display) -> Self {
        ServeError::new(Refusal::NoTable, format!("table {table} does not exist"))
    }

    pub(crate) fn no_namespace(namespace: &str) -> Self {
        ServeError::new(Refusal::NoNamespace, format!("namespace {namespace} does not exist"))
    }

    pub(crate) fn exists(what: &str, name: impl std::fmt::Display) -> Self {
        ServeError::new(Refusal::Exists, format!("{what} {name} exists already"))
    }

    /// Says that COMMIT was sent and its outcome is not known.
    pub(crate) fn unknown(source: LakeError) -> Self {
        ServeError {
            refusal: Refusal::Unknown,
            message: "the catalog gave no answer to the commit: it may have taken effect or not".to_owned(),
            source: Some(Box::new(source)),
        }
    }
}

/// Whatever fails before COMMIT is sent has changed nothing.
impl From<LakeError> for ServeError {
    fn from(source: LakeError) -> Self {
        let refusal = match source.remedy() {
            Remedy::Retry => Refusal::Busy,
            _ => Refusal::Broken,
        };
        ServeError {
            refusal,
            message: format!("{source}; nothing was changed"),
            source: Some(Box::new(source)),
        }
    }
}
