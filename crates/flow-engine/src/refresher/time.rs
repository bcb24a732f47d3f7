//! Tables whose conditions name the refresh's time: time alone makes them due.

use std::time::Duration;

use super::{Refresher, last_run};

/// Is how old the time of a table without a LAG may become: often enough for conditions on days and hours,
/// and seldom enough for a full refresh.
const TIME_PACE: Duration = Duration::from_secs(60);

impl Refresher {
    /// Is after how long a table is due because time has passed; `None` if it never is.
    ///
    /// With a LAG the time that it reflects is at most that old when the next refresh ends.
    pub(super) fn due_by_time(&self, index: usize) -> Option<Duration> {
        let table = &self.tables[index];
        let at = table.record.as_ref().and_then(|record| record.at_us);
        let at = at.filter(|_| table.planned.time_bound)?;
        let pace = match self.lag(index)? {
            Duration::ZERO => TIME_PACE,
            lag => lag.saturating_sub(last_run(table) * 2),
        };
        let age = Duration::from_micros((self.shared.clock.now_us() - at).max(0) as u64);
        Some(pace.saturating_sub(age))
    }
}
