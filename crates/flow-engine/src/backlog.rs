//! What waits in the journal for the next epoch, as capture and publishing share it.

use std::sync::Mutex;
use std::time::Duration;

use flow_core::clock::UnixMicros;
use flow_core::schedule::Waiting;
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct State {
    rows: u64,
    bytes: u64,
    /// Is when, on the monotonic clock, the oldest waiting transaction was journaled.
    since: Option<Duration>,
    /// Is the commit time of the oldest waiting transaction.
    oldest_commit: Option<UnixMicros>,
}

/// Shares what waits.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
    changed: Notify,
}

/// Is one look at the backlog.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Is what waits; `age` counts from when it was journaled.
    pub(crate) waiting: Waiting,
    /// Says whether any transaction waits.
    pub(crate) any: bool,
    /// Is the commit time of the oldest waiting transaction.
    pub(crate) oldest_commit: Option<UnixMicros>,
}

impl Backlog {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("a thread that held the backlog panicked")
    }

    /// Adds transactions that became durable; `rows` is zero if only the position moved.
    pub(crate) fn journaled(&self, rows: u64, bytes: u64, oldest: Option<UnixMicros>, now: Duration) {
        let mut state = self.lock();
        state.rows += rows;
        state.bytes += bytes;
        if rows > 0 {
            state.since.get_or_insert(now);
            state.oldest_commit = state.oldest_commit.or(oldest);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes out what an epoch admitted. What is left counts as waiting since `now`.
    pub(crate) fn admitted(&self, rows: u64, bytes: u64, next_commit: Option<UnixMicros>, now: Duration) {
        let mut state = self.lock();
        state.rows = state.rows.saturating_sub(rows);
        state.bytes = state.bytes.saturating_sub(bytes);
        state.since = (state.rows > 0).then_some(now);
        state.oldest_commit = if state.rows > 0 { next_commit } else { None };
    }

    /// Looks at what waits.
    pub(crate) fn look(&self, now: Duration) -> Look {
        let state = self.lock();
        Look {
            waiting: Waiting {
                rows: state.rows,
                bytes: state.bytes,
                age: state.since.map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            },
            any: state.rows > 0,
            oldest_commit: state.oldest_commit,
        }
    }

    /// Waits until something was added.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
