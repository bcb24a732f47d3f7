//! The one place that reads the machine's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flow_core::clock::{Clock, UnixMicros};

/// Tells the machine's time.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "everything else takes the time from here")]
    pub(crate) fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "everything else takes the time from here")]
    fn now_us(&self) -> UnixMicros {
        let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
