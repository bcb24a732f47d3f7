//! How others talk to a running engine: commands in, status and counters out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow_core::TableName;
use flow_core::clock::Clock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::Counters;
use crate::error::EngineError;
use crate::options::EngineOptions;
use crate::status::{RefreshStatus, RunStatus, Status};
use crate::verify::Verification;

/// Is how many commands may wait for the engine.
pub(crate) const COMMAND_QUEUE: usize = 16;

/// Asks the engine to change something.
#[derive(Debug)]
pub enum Command {
    /// Refreshes every dynamic table once, in order.
    Apply,
    /// Refreshes one dynamic table now; `full` recomputes even if no input changed.
    Refresh {
        /// The table.
        name: TableName,
        /// Recompute in any case.
        full: bool,
    },
    /// Stops refreshing a table until it is resumed.
    Suspend {
        /// The table.
        name: TableName,
    },
    /// Ends a suspension, or a block whose cause is gone.
    Resume {
        /// The table.
        name: TableName,
    },
    /// Removes a dynamic table that no definition declares: from the catalog, with its state and history.
    Drop {
        /// The table.
        name: TableName,
    },
    /// Recomputes a table at the cut it reflects and compares; writes nothing.
    Verify {
        /// The table.
        name: TableName,
    },
    /// Gives a table's refreshes, newest first.
    History {
        /// The table.
        name: TableName,
    },
    /// Takes a changed configuration and changed transformations.
    Reload(Box<EngineOptions>),
}

/// Is the engine's answer to a command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// Holds each refreshed table's run, in order.
    Refreshed(Vec<(TableName, RefreshStatus)>),
    /// Is what a comparison found.
    Verified(Box<Verification>),
    /// Holds a table's refreshes, newest first.
    History(Vec<RunStatus>),
}

pub(crate) type Answer = oneshot::Sender<Result<Reply, EngineError>>;

/// Talks to a running engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    pub(crate) commands: mpsc::Sender<(Command, Answer)>,
    pub(crate) status: watch::Receiver<Arc<Status>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) beat_ms: Arc<AtomicU64>,
    pub(crate) http: Arc<std::sync::OnceLock<String>>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl EngineHandle {
    /// Is the newest status; at most about a second old.
    pub fn status(&self) -> Arc<Status> {
        self.status.borrow().clone()
    }

    /// Are the counters behind `/metrics`.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Is the time since the main loop last turned.
    pub fn main_loop_age(&self) -> Duration {
        let beat = Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        self.clock.monotonic().saturating_sub(beat)
    }

    /// Tells the address HTTP listens on, for the status document.
    pub fn set_http_address(&self, address: String) {
        // A second address would be a second server: the first one stands.
        let _ = self.http.set(address);
    }

    /// Sends a command and waits for its end.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] if the engine ended first; else what the command met.
    pub async fn command(&self, command: Command) -> Result<Reply, EngineError> {
        let (answer, reply) = oneshot::channel();
        self.commands
            .send((command, answer))
            .await
            .map_err(|_| EngineError::Stopped)?;
        reply.await.map_err(|_| EngineError::Stopped)?
    }
}
