//! How long something that asks for patience has been away, and when patience ends.

use std::time::Duration;

use flow_core::clock::Clock;

use crate::error::EngineError;

/// Are the first and the longest pause between two tries.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Measures one outage. It counts from its first failure: what worked before is no part of it.
#[derive(Debug)]
pub(crate) struct Outage {
    since: Option<Duration>,
    pause: Duration,
}

impl Default for Outage {
    fn default() -> Self {
        Outage {
            since: None,
            pause: PAUSE_FIRST,
        }
    }
}

impl Outage {
    /// Waits before another try, longer each time.
    ///
    /// # Errors
    /// `Unavailable` when the outage has lasted for `retry_for`. One that was waited for already is
    /// handed back as it is.
    pub(crate) async fn wait(
        &mut self,
        clock: &dyn Clock,
        retry_for: Duration,
        what: &'static str,
        error: EngineError,
    ) -> Result<(), EngineError> {
        if matches!(error, EngineError::Unavailable { .. }) {
            return Err(error);
        }
        let now = clock.monotonic();
        let out_for = now.saturating_sub(*self.since.get_or_insert(now));
        if out_for >= retry_for {
            return Err(EngineError::Unavailable {
                what,
                seconds: out_for.as_secs(),
                source: Box::new(error),
            });
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}
