//! What an error asks of the one who called.

use serde::{Deserialize, Serialize};

/// Says what to do about a failure. The engine and the exit code follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// The same request may succeed later: an unreachable host, a busy server. Exit 75 past `retry_for`.
    Retry,
    /// The base moved: plan the same range again.
    Replan,
    /// One table cannot go on; the others can.
    BlockTable,
    /// The user must change something: configuration, password, publication, disk. Exit 78.
    Reconfigure,
    /// What is stored no longer continues the source. Exit 79.
    Resync,
    /// A broken invariant or failed sync: stop before harm. Exit 70.
    Crash,
}

/// An error that knows its remedy and, where an operator sees it, its code.
pub trait Remedial: std::error::Error {
    /// Says what the caller should do.
    fn remedy(&self) -> Remedy;

    /// Names the page under `docs/errors/`, such as `F0007`.
    fn code(&self) -> Option<&'static str> {
        None
    }
}
