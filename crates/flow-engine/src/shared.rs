//! What every part of the engine holds: the adapters, the options in force, and the places where
//! parts meet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};

use flow_core::clock::Clock;
use flow_core::{Lsn, OperationId, TableId};
use flow_lake::Lake;
use flow_store::{Store, TableRecord, TableState};
use tokio::sync::Notify;

use crate::acknowledgement::Acknowledgement;
use crate::backlog::Backlog;
use crate::board::Board;
use crate::compute::Compute;
use crate::counters::Counters;
use crate::failpoint;
use crate::options::EngineOptions;
use crate::reads::Reads;
use crate::status::{Blocked, TableStatus, TableStatusState};

/// Is shared by all parts of one engine.
#[derive(Debug)]
pub(crate) struct Shared {
    options: RwLock<Arc<EngineOptions>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Store,
    pub(crate) lake: Lake,
    pub(crate) counters: Arc<Counters>,
    pub(crate) board: Board,
    pub(crate) backlog: Backlog,
    pub(crate) acknowledgement: Acknowledgement,
    pub(crate) reads: Reads,
    pub(crate) compute: Compute,
    /// Wakes the refreshes after a commit.
    pub(crate) committed: Notify,
    captured: RwLock<BTreeMap<TableId, TableRecord>>,
    disk_low: AtomicBool,
    /// Is the source's name in metadata.
    pub(crate) source_id: String,
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "built once, by field")]
    pub(crate) fn new(
        options: EngineOptions,
        clock: Arc<dyn Clock>,
        store: Store,
        lake: Lake,
        counters: Arc<Counters>,
        board: Board,
        compute: Compute,
        source_id: String,
    ) -> Self {
        Shared {
            options: RwLock::new(Arc::new(options)),
            clock,
            store,
            lake,
            counters,
            board,
            backlog: Backlog::default(),
            acknowledgement: Acknowledgement::default(),
            reads: Reads::default(),
            compute,
            committed: Notify::new(),
            captured: RwLock::default(),
            disk_low: AtomicBool::new(false),
            source_id,
        }
    }

    pub(crate) fn options(&self) -> Arc<EngineOptions> {
        self.options
            .read()
            .expect("a thread that held the options panicked")
            .clone()
    }

    pub(crate) fn set_options(&self, options: EngineOptions) {
        *self.options.write().expect("a thread that held the options panicked") = Arc::new(options);
    }

    /// Is every captured table as the store has it.
    pub(crate) fn tables(&self) -> BTreeMap<TableId, TableRecord> {
        self.captured
            .read()
            .expect("a thread that held the tables panicked")
            .clone()
    }

    pub(crate) fn table(&self, id: TableId) -> Option<TableRecord> {
        self.captured
            .read()
            .expect("a thread that held the tables panicked")
            .get(&id)
            .cloned()
    }

    /// Takes a table's new record, after the store has it.
    pub(crate) fn note_table(&self, record: TableRecord) {
        self.captured
            .write()
            .expect("a thread that held the tables panicked")
            .insert(record.id, record);
    }

    /// Shows a table on the board as its record has it.
    pub(crate) fn show_table(&self, record: &TableRecord) {
        let (state, blocked) = match &record.state {
            TableState::Copying => (TableStatusState::Copying, None),
            TableState::Streaming => (TableStatusState::Streaming, None),
            TableState::Blocked {
                code, reason, since_us, ..
            } => (
                TableStatusState::Blocked,
                Some(Blocked {
                    code: code.clone(),
                    reason: reason.clone(),
                    since: *since_us,
                }),
            ),
            TableState::ResyncRequired { code, reason, since_us } => (
                TableStatusState::ResyncRequired,
                Some(Blocked {
                    code: code.clone(),
                    reason: reason.clone(),
                    since: *since_us,
                }),
            ),
            TableState::Paused { .. } => (TableStatusState::Paused, None),
        };
        let mut notices = self.board.write();
        let copied_rows = notices.tables.get(&record.id).map_or(0, |status| status.copied_rows);
        let status = TableStatus {
            source: record.source.to_string(),
            target: record.target.to_string(),
            state,
            epoch: record.published_epoch.0,
            published_lsn: record.published_lsn,
            snapshot_id: record.snapshot_id,
            lag_seconds: 0.0,
            lag_bytes: 0,
            copied_rows,
            blocked,
        };
        notices.tables.insert(record.id, status);
    }

    pub(crate) fn disk_is_low(&self) -> bool {
        self.disk_low.load(Ordering::Relaxed)
    }

    pub(crate) fn set_disk_low(&self, low: bool) {
        self.disk_low.store(low, Ordering::Relaxed);
    }

    /// Tells PostgreSQL that everything up to `lsn` is safe.
    pub(crate) fn acknowledge(&self, lsn: Lsn) {
        self.acknowledgement.raise(lsn);
        self.board.write().positions.acknowledged.raise(lsn);
        failpoint::hit("acknowledged");
    }
}

/// Names an operation from what makes it unique within the state directory's `uid`.
pub(crate) fn operation_id(uid: &str, what: &str) -> OperationId {
    OperationId::new(format!("{uid}-{what}"))
}
