//! The notice board: what every part of the engine last said of itself, as one status document.
//!
//! Parts write to it; `/status`, the status file and the readiness probe read it. Nothing decides
//! by it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use flow_core::clock::{Clock, UnixMicros};
use flow_core::monotonic::Monotonic;
use flow_core::{Lsn, Remedial, TableId};
use tokio::sync::watch;

use crate::status::{
    DynamicTableStatus, LastError, ServiceState, SourceStatus, Status, StorageStatus, TableStatus, TableStatusState,
};

/// Holds the positions of the one way data flows. Each only grows.
#[derive(Debug)]
pub(crate) struct Positions {
    pub(crate) server: Monotonic<Lsn>,
    pub(crate) received: Monotonic<Lsn>,
    pub(crate) journaled: Monotonic<Lsn>,
    pub(crate) published: Monotonic<Lsn>,
    pub(crate) acknowledged: Monotonic<Lsn>,
}

impl Default for Positions {
    fn default() -> Self {
        let zero = || Monotonic::new(Lsn::ZERO);
        Positions {
            server: zero(),
            received: zero(),
            journaled: zero(),
            published: zero(),
            acknowledged: zero(),
        }
    }
}

/// Is what the board holds.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) state: ServiceState,
    pub(crate) source_id: String,
    pub(crate) slot: String,
    pub(crate) connected: bool,
    pub(crate) catalog_reachable: bool,
    pub(crate) positions: Positions,
    pub(crate) published_epoch: u64,
    /// Is the commit time of the oldest journaled transaction that is not published.
    pub(crate) oldest_waiting: Option<UnixMicros>,
    pub(crate) tables: BTreeMap<TableId, TableStatus>,
    pub(crate) dynamic_tables: Vec<DynamicTableStatus>,
    pub(crate) storage: StorageStatus,
    pub(crate) last_error: Option<LastError>,
}

/// Shares the notices.
#[derive(Debug)]
pub(crate) struct Board {
    notices: Mutex<Notices>,
    publish: watch::Sender<Arc<Status>>,
    clock: Arc<dyn Clock>,
    http: Arc<std::sync::OnceLock<String>>,
}

impl Board {
    pub(crate) fn new(clock: Arc<dyn Clock>, http: Arc<std::sync::OnceLock<String>>) -> Self {
        let (publish, _) = watch::channel(Arc::new(Status::default()));
        Board {
            notices: Mutex::default(),
            publish,
            clock,
            http,
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Status>> {
        self.publish.subscribe()
    }

    /// Changes notices. Readers see it with the next [`Board::post`].
    pub(crate) fn write(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().expect("a thread that held the board panicked")
    }

    /// Records an error an operator should see, and logs its whole chain once.
    pub(crate) fn error(&self, error: &dyn Remedial, what: &str) {
        let message = format!("{what}: {}", chain(error));
        let code = error.code().map(str::to_owned);
        tracing::warn!(code = code.as_deref().unwrap_or("-"), remedy = ?error.remedy(), "{message}");
        self.write().last_error = Some(LastError {
            at: self.clock.now_us(),
            code,
            message,
        });
    }

    /// Makes the status document and hands it to all who watch.
    pub(crate) fn post(&self) -> Arc<Status> {
        let now = self.clock.now_us();
        let notices = self.write();
        let status = Arc::new(notices.document(now, self.http.get().cloned()));
        drop(notices);
        self.publish.send_replace(status.clone());
        status
    }
}

/// Writes an error with all its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Notices {
    fn document(&self, now: UnixMicros, http: Option<String>) -> Status {
        let copying = self
            .tables
            .values()
            .any(|table| table.state == TableStatusState::Copying);
        let running = matches!(self.state, ServiceState::Streaming);
        let published = self.positions.published.get();
        let received = self.positions.received.get();
        let lag_seconds = self.oldest_waiting.map_or(0.0, |at| (now - at).max(0) as f64 / 1e6);
        let tables = self.tables.values().cloned().map(|mut table| {
            if table.state == TableStatusState::Streaming {
                table.published_lsn = table.published_lsn.max(published);
                table.lag_seconds = lag_seconds;
            }
            table.lag_bytes = received.bytes_since(table.published_lsn);
            table
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: self.state,
            ready: running && self.connected && self.catalog_reachable && !copying,
            pid: std::process::id(),
            http,
            at: now,
            source: SourceStatus {
                id: self.source_id.clone(),
                slot: self.slot.clone(),
                server_lsn: self.positions.server.get(),
                received_lsn: received,
                journaled_lsn: self.positions.journaled.get(),
                published_lsn: published,
                published_epoch: self.published_epoch,
                acknowledged_lsn: self.positions.acknowledged.get(),
                connected: self.connected,
            },
            tables: tables.collect(),
            dynamic_tables: self.dynamic_tables.clone(),
            storage: self.storage.clone(),
            last_error: self.last_error.clone(),
        }
    }
}
