//! Time, handed in so that tests can hold it still.

use std::time::Duration;

/// Is a moment in microseconds since 1970-01-01 UTC.
pub type UnixMicros = i64;

/// Tells the time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Is the wall-clock time, for people and metadata. It may jump.
    fn now_us(&self) -> UnixMicros;

    /// Is the time since some fixed moment; it never goes back. For intervals.
    fn monotonic(&self) -> Duration;
}

/// Is microseconds from the Unix epoch to PostgreSQL's (2000-01-01).
pub const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;
/// Is days from the Unix epoch to PostgreSQL's (2000-01-01).
pub const POSTGRES_EPOCH_DAYS: i32 = 10_957;
