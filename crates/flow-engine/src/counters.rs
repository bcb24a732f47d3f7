//! Numbers that only grow, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts events since the process started.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Is the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Are the upper bounds of a [`Timing`]'s buckets, in milliseconds.
pub const TIMING_BOUNDS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000];

/// Is a histogram of durations.
#[derive(Debug, Default)]
pub struct Timing {
    buckets: [AtomicU64; TIMING_BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

impl Timing {
    /// Adds one duration.
    pub fn record(&self, duration: Duration) {
        let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let bucket = TIMING_BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(
            u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }

    /// Counts durations up to each bound of [`TIMING_BOUNDS_MS`] (not cumulative); the last is above all.
    pub fn buckets(&self) -> [u64; TIMING_BOUNDS_MS.len() + 1] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// Sums all durations, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum_us.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// Holds every counter of the engine.
#[derive(Debug, Default)]
#[allow(
    missing_docs,
    reason = "each name is its documentation; docs/observability.md explains them"
)]
pub struct Counters {
    pub transactions_received: Counter,
    pub changes_received: Counter,
    pub received_bytes: Counter,
    pub reconnects: Counter,
    pub journal_syncs: Counter,
    pub epochs_published: Counter,
    pub fold_passes: Counter,
    pub rows_inserted: Counter,
    pub rows_deleted: Counter,
    pub rows_copied: Counter,
    pub commits: Counter,
    pub commit_conflicts: Counter,
    pub commit_unknowns: Counter,
    pub refreshes: Counter,
    pub refresh_failures: Counter,
    pub refresh_rows_written: Counter,
    pub fold_time: Timing,
    pub write_time: Timing,
    pub seal_time: Timing,
    pub commit_time: Timing,
    pub apply_time: Timing,
    pub refresh_time: Timing,
}
