//! When to close an epoch, and when a dynamic table may refresh again.

use std::time::Duration;

/// Limits one epoch; whichever is reached first closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochLimits {
    /// Is the longest wait from the first transaction to the close.
    pub interval: Duration,
    /// Is how many changes close an epoch. One transaction may exceed it: it stays whole.
    pub max_rows: u64,
    /// Is how many chunk bytes close an epoch. One transaction may exceed it.
    pub max_bytes: u64,
}

/// Is what waits in the journal for the next epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Counts changes.
    pub rows: u64,
    /// Counts chunk bytes.
    pub bytes: u64,
    /// Is how long the oldest transaction has waited.
    pub age: Duration,
}

impl EpochLimits {
    /// Says whether the next epoch should close.
    pub fn closes(&self, waiting: &Waiting) -> bool {
        waiting.rows >= self.max_rows || waiting.bytes >= self.max_bytes || waiting.age >= self.interval
    }
}

/// Is the least pause between two full refreshes of one table.
pub const FULL_REFRESH_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Says when a full refresh may start after the last one ended: after a pause as long as that run
/// took, and at least [`FULL_REFRESH_PAUSE_MIN`]; so full refreshes never take more than half of a
/// worker.
pub fn full_refresh_not_before(last_end: Duration, last_run: Duration) -> Duration {
    last_end + last_run.max(FULL_REFRESH_PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_limit_closes() {
        let limits = EpochLimits {
            interval: Duration::from_millis(500),
            max_rows: 10,
            max_bytes: 100,
        };
        let check = |rows, bytes, age_ms, closes| {
            let waiting = Waiting {
                rows,
                bytes,
                age: Duration::from_millis(age_ms),
            };
            assert_eq!(limits.closes(&waiting), closes, "{waiting:?}");
        };
        check(1, 1, 0, false);
        check(9, 99, 499, false);
        check(10, 1, 0, true);
        check(1, 100, 0, true);
        check(1, 1, 500, true);
    }

    #[test]
    fn pause_is_the_last_run_and_at_least_a_second() {
        let s = Duration::from_secs;
        assert_eq!(full_refresh_not_before(s(10), Duration::from_millis(3)), s(11));
        assert_eq!(full_refresh_not_before(s(10), s(7)), s(17));
    }
}
