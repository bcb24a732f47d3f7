//! Names of things that outlive a process.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// Identifies a captured table for the life of a state directory. Never reused.
    TableId(u32)
}
number_id! {
    /// Counts the contents a table has had: a fresh copy starts the next one. Row index keys carry it.
    Generation(u32)
}
number_id! {
    /// Identifies a data file in the file register. Never reused.
    FileId(u64)
}
number_id! {
    /// Numbers source-wide LSN ranges that are published together, from 1 without gaps.
    Epoch(u64)
}
number_id! {
    /// Counts the physical tries of one operation, from 1.
    Attempt(u32)
}

impl Epoch {
    /// Is the epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Identifies the durable intention to publish something; file names and markers begin with it.
///
/// Made of `[a-z0-9-]` only, so that it is a safe part of any path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(String);

impl OperationId {
    /// Takes a text made of `[a-z0-9-]`.
    ///
    /// # Panics
    /// If the text has another character or is empty: ids are made by this program, never by users.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        assert!(!text.is_empty(), "an operation id has at least one character");
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(
            text.bytes().all(plain),
            "operation id '{text}' has a character outside [a-z0-9-]"
        );
        OperationId(text)
    }

    /// Is the text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Names one sealed attempt: `<operation>-<attempt>`, the value of `flow.operation-id`.
    pub fn attempt_id(&self, attempt: Attempt) -> String {
        format!("{}-{attempt}", self.0)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
