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

use crate::error::EngineError;
use crate::status::{
    DynamicTableStatus, LastError, ProblemStatus, ServiceState, SourceStatus, Status, StorageStatus, TableStatus,
    TableStatusState,
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
    /// Counts those who wait for the source and those who wait for the catalog.
    away: [u32; 2],
    pub(crate) positions: Positions,
    pub(crate) published_epoch: u64,
    /// Is the commit time of the oldest journaled transaction that is not published.
    pub(crate) oldest_waiting: Option<UnixMicros>,
    pub(crate) tables: BTreeMap<TableId, TableStatus>,
    pub(crate) dynamic_tables: Vec<DynamicTableStatus>,
    pub(crate) storage: StorageStatus,
    /// Holds problems of transformations that belong to no table.
    pub(crate) problems: Vec<ProblemStatus>,
    pub(crate) last_error: Option<LastError>,
}

/// Is what the service cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependency {
    Source,
    Catalog,
}

impl Dependency {
    /// Is the dependency that an error says is away; `None` if the error is about something else.
    pub(crate) fn missed_by(error: &EngineError) -> Option<Dependency> {
        match error {
            EngineError::Source(_) => Some(Dependency::Source),
            EngineError::Lake(_) => Some(Dependency::Catalog),
            EngineError::Unavailable { source, .. } => Dependency::missed_by(source),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Dependency::Source => "PostgreSQL",
            Dependency::Catalog => "the catalog",
        }
    }
}

/// Shows a dependency as away until it is dropped.
#[derive(Debug)]
pub(crate) struct Absence<'a> {
    board: &'a Board,
    of: Dependency,
}

impl Absence<'_> {
    pub(crate) fn of(&self) -> Dependency {
        self.of
    }
}

impl Drop for Absence<'_> {
    fn drop(&mut self) {
        self.board.write().away[self.of as usize] -= 1;
    }
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

    /// Shows that somebody waits for a dependency.
    pub(crate) fn absence(&self, of: Dependency) -> Absence<'_> {
        self.write().away[of as usize] += 1;
        Absence { board: self, of }
    }

    #[cfg(test)]
    pub(crate) fn away(&self) -> [bool; 2] {
        self.write().away.map(|waiting| waiting > 0)
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
    fn is_away(&self, what: Dependency) -> bool {
        self.away[what as usize] > 0
    }

    /// Is the state as an operator sees it: what waits for source or catalog is degraded.
    fn state(&self) -> ServiceState {
        let away = self.is_away(Dependency::Source) || self.is_away(Dependency::Catalog);
        match self.state {
            ServiceState::Recovering | ServiceState::Copying | ServiceState::Streaming if away => {
                ServiceState::Degraded
            }
            state => state,
        }
    }

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
            state: self.state(),
            ready: running && self.connected && !self.is_away(Dependency::Catalog) && !copying,
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
            problems: self.problems.clone(),
            last_error: self.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_source_or_catalog_is_degraded() {
        let board = Board::new(Arc::new(flow_testkit::clock::ManualClock::at(0)), Arc::default());
        let shown = || {
            let status = board.post();
            (status.state, status.ready)
        };
        for state in [ServiceState::Recovering, ServiceState::Copying, ServiceState::Streaming] {
            board.write().state = state;
            board.write().connected = state == ServiceState::Streaming;
            let ready = state == ServiceState::Streaming;
            assert_eq!(shown(), (state, ready));
            let source = board.absence(Dependency::Source);
            assert_eq!(shown().0, ServiceState::Degraded, "{state:?}");
            let catalog = [board.absence(Dependency::Catalog), board.absence(Dependency::Catalog)];
            drop(source);
            let [first, second] = catalog;
            drop(first);
            assert_eq!(shown(), (ServiceState::Degraded, false), "one still waits: {state:?}");
            drop(second);
            assert_eq!(shown(), (state, ready));
        }
        for state in [ServiceState::Starting, ServiceState::Stopping, ServiceState::Stopped] {
            board.write().state = state;
            let _away = board.absence(Dependency::Source);
            assert_eq!(shown(), (state, false), "an end and a beginning are said as they are");
        }
    }
}
