//! Status updates to PostgreSQL while a stream runs.
//!
//! IMPORTANT: the flushed and applied positions are what the engine acknowledged and nothing else
//! (law 1), whatever the occasion of the message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow_core::Lsn;
use tokio::io::WriteHalf;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::conninfo::ConnInfo;
use crate::error::SourceError;
use crate::event::Batch;
use crate::session::send_copy_data;
use crate::transport::{self, Transport};

/// Is the least time between two updates that nobody asked for.
const PAUSE: Duration = Duration::from_millis(20);

/// Is how many requests in quick succession, none of them met by progress, mean that the server
/// shuts down and waits for us: at [`ASKED_PAUSE`] each, about three seconds for the engine to catch up.
const ASKED_MAX: u32 = 30;

/// Is the pause before answering a request that was just answered with the same position.
const ASKED_PAUSE: Duration = Duration::from_millis(100);

/// Is what the reading task tells the feedback task.
#[derive(Debug)]
pub(crate) struct Progress {
    received: AtomicU64,
    asked: Notify,
}

impl Progress {
    pub(crate) fn new(start: Lsn) -> Self {
        Progress {
            received: AtomicU64::new(start.0),
            asked: Notify::new(),
        }
    }

    /// Raises the received position.
    pub(crate) fn receive(&self, lsn: Lsn) {
        self.received.fetch_max(lsn.0, Ordering::Relaxed);
    }

    pub(crate) fn received(&self) -> Lsn {
        Lsn(self.received.load(Ordering::Relaxed))
    }

    /// Says that the server wants an update now.
    pub(crate) fn ask(&self) {
        self.asked.notify_one();
    }
}

/// Chooses how often to report: every heartbeat, and often enough for the server's patience.
pub(crate) fn interval(heartbeat: Duration, sender_timeout_ms: u64) -> Duration {
    let patience = match sender_timeout_ms {
        0 => heartbeat,
        ms => Duration::from_millis(ms / 3),
    };
    heartbeat.min(patience).max(Duration::from_millis(100))
}

/// Is the task that writes status updates.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) writer: WriteHalf<Transport>,
    pub(crate) acknowledged: watch::Receiver<Lsn>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) interval: Duration,
    pub(crate) server: ConnInfo,
    pub(crate) errors: mpsc::Sender<Batch>,
}

/// Is why an update is sent.
enum Occasion {
    Heartbeat,
    Progress,
    Asked,
}

impl Feedback {
    /// Runs until the stream is dropped or the connection breaks.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.serve().await {
            // A closed channel means that the engine is gone, and with it who would care.
            let _ = self.errors.send(Err(error)).await;
        }
    }

    async fn serve(&mut self) -> Result<(), SourceError> {
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked = Asked::default();
        loop {
            let occasion = tokio::select! {
                _ = ticks.tick() => Occasion::Heartbeat,
                () = self.progress.asked.notified() => Occasion::Asked,
                changed = self.acknowledged.changed() => match changed {
                    Ok(()) => Occasion::Progress,
                    // The stream and every acknowledger are gone.
                    Err(_) => return Ok(()),
                },
            };
            let position = *self.acknowledged.borrow_and_update();
            match occasion {
                Occasion::Asked => match asked.count(position, Instant::now()) {
                    ASKED_MAX.. => {
                        return Err(SourceError::ShuttingDown {
                            received: self.progress.received(),
                        });
                    }
                    3.. => tokio::time::sleep(ASKED_PAUSE).await,
                    _ => {}
                },
                Occasion::Progress => tokio::time::sleep(PAUSE).await,
                Occasion::Heartbeat => {}
            }
            let position = *self.acknowledged.borrow_and_update();
            let update = status_update(
                self.progress.received(),
                position,
                matches!(occasion, Occasion::Heartbeat),
            );
            let sent = send_copy_data(&mut self.writer, &update).await;
            sent.map_err(|error| transport::unreachable(&self.server, error))?;
        }
    }
}

/// Counts requests that came in quick succession and met the same position.
#[derive(Default)]
struct Asked {
    position: Lsn,
    last: Option<Instant>,
    count: u32,
}

impl Asked {
    fn count(&mut self, position: Lsn, now: Instant) -> u32 {
        // The server's ordinary requests are half its timeout apart; when it shuts down it asks
        // again as soon as it is answered.
        let quick = self.last.is_some_and(|last| now.duration_since(last) < ASKED_PAUSE * 5);
        self.count = match quick && position == self.position {
            true => self.count + 1,
            false => 1,
        };
        self.position = position;
        self.last = Some(now);
        self.count
    }
}

/// Writes a standby status update. The time is left zero: the server only displays it.
fn status_update(received: Lsn, acknowledged: Lsn, ask: bool) -> [u8; 34] {
    let mut out = [0; 34];
    out[0] = b'r';
    out[1..9].copy_from_slice(&received.max(acknowledged).0.to_be_bytes());
    out[9..17].copy_from_slice(&acknowledged.0.to_be_bytes());
    out[17..25].copy_from_slice(&acknowledged.0.to_be_bytes());
    out[33] = u8::from(ask);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flushed_position_is_the_acknowledged_one() {
        let update = status_update(Lsn(900), Lsn(300), true);
        let word = |at: usize| u64::from_be_bytes(update[at..at + 8].try_into().expect("eight bytes"));
        assert_eq!(
            (update[0], word(1), word(9), word(17), update[33]),
            (b'r', 900, 300, 300, 1)
        );
    }

    #[test]
    fn only_quick_requests_without_progress_add_up() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut asked = Asked::default();
        assert_eq!(asked.count(Lsn(1), at(0)), 1);
        assert_eq!(asked.count(Lsn(1), at(100)), 2);
        assert_eq!(asked.count(Lsn(2), at(200)), 1, "progress");
        assert_eq!(asked.count(Lsn(2), at(300)), 2);
        assert_eq!(asked.count(Lsn(2), at(1300)), 1, "patience");
    }

    #[test]
    fn updates_come_often_enough_for_the_server() {
        let seconds = Duration::from_secs;
        assert_eq!(interval(seconds(10), 60_000), seconds(10));
        assert_eq!(interval(seconds(10), 0), seconds(10));
        assert_eq!(interval(seconds(10), 3_000), seconds(1));
    }
}
