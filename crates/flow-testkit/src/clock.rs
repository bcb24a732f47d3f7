//! A clock that stands until a test moves it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use flow_core::clock::{Clock, UnixMicros};

/// Is a clock that tests set.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Makes a clock that stands at `now`.
    pub fn at(now: UnixMicros) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Moves the clock on.
    pub fn advance(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> UnixMicros {
        self.0.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst).max(0).unsigned_abs())
    }
}
