//! What every part of the engine holds: the adapters, the options in force, and the places where
//! parts meet.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

use flow_core::clock::Clock;
use flow_core::{Lsn, OperationId, TableId, TableName};
use flow_lake::Lake;
use flow_refresh::Scratch;
use flow_store::{Store, TableRecord, TableState};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::acknowledgement::Acknowledgement;
use crate::backlog::Backlog;
use crate::board::Board;
use crate::compute::Compute;
use crate::counters::Counters;
use crate::error::EngineError;
use crate::failpoint;
use crate::handover::{Changed, Handover, Noting};
use crate::options::EngineOptions;
use crate::reads::Reads;
use crate::status::{Blocked, TableStatus, TableStatusState};

/// Is how often a part that waits for room looks at the disk again.
const DISK_LOOK: Duration = Duration::from_millis(250);

/// Is the part of the memory budget that changes which wait for refreshes may take.
const NOTES_SHARE: usize = 16;

/// Is the part of the free disk, above its floor, that each user of a refresh's scratch files may take.
const SCRATCH_SHARE: u64 = 4;

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
    pub(crate) handover: Handover,
    pub(crate) compute: Compute,
    /// Wakes the refreshes after a commit.
    pub(crate) committed: Notify,
    captured: RwLock<BTreeMap<TableId, TableRecord>>,
    records: tokio::sync::Mutex<()>,
    /// Holds the tables that are set aside and could not be marked so, and from where they are held.
    unmarked: Mutex<BTreeMap<TableId, Lsn>>,
    disk_low: AtomicBool,
    lake_disk_low: AtomicBool,
    /// Is cancelled when the running parts shall end.
    pub(crate) ending: OnceLock<CancellationToken>,
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
            handover: Handover::default(),
            compute,
            committed: Notify::new(),
            captured: RwLock::default(),
            records: tokio::sync::Mutex::default(),
            unmarked: Mutex::default(),
            disk_low: AtomicBool::new(false),
            lake_disk_low: AtomicBool::new(false),
            ending: OnceLock::new(),
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

    /// Begins to note what an operation changes in a table, if a dynamic table reads it.
    pub(crate) fn noting(&self, table: &TableName) -> Noting {
        Noting::new(self.reads.reads(table), self.notes_bytes_max())
    }

    /// Hands what changed in a table over to the refreshes that read it.
    pub(crate) fn hand_over(&self, table: &TableName, interval: (i64, i64), changed: Changed) {
        self.handover.keep(table, interval, changed, self.notes_bytes_max());
    }

    /// Is where a refresh puts what does not fit in memory: it leaves the floor of the disk alone.
    pub(crate) fn scratch(&self) -> Result<Scratch, EngineError> {
        let floor = self.options().limits.min_free_bytes;
        Ok(Scratch {
            folder: self.store.scratch_dir(),
            bytes_max: self.store.free_bytes()?.saturating_sub(floor) / SCRATCH_SHARE,
        })
    }

    fn notes_bytes_max(&self) -> usize {
        self.options().limits.memory_bytes / NOTES_SHARE
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

    /// Keeps others from changing table records. Whoever changes one holds this from reading it until
    /// store and memory have it: otherwise an epoch's end could undo that a table was given up.
    pub(crate) async fn change_records(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.records.lock().await
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

    /// Says whether any disk is nearly full, and whether one of the lake's is.
    pub(crate) fn set_disk_low(&self, any: bool, lake: bool) {
        self.disk_low.store(any, Ordering::Relaxed);
        self.lake_disk_low.store(lake, Ordering::Relaxed);
    }

    /// Waits while the lake's disk is nearly full.
    ///
    /// # Errors
    /// Stopped if the parts shall end meanwhile.
    pub(crate) async fn room_in_lake(&self) -> Result<(), EngineError> {
        while self.lake_disk_low.load(Ordering::Relaxed) {
            self.pause(DISK_LOOK).await?;
        }
        Ok(())
    }

    /// Pauses, unless the parts shall end.
    ///
    /// # Errors
    /// Stopped if they shall.
    pub(crate) async fn pause(&self, time: Duration) -> Result<(), EngineError> {
        let ending = async {
            match self.ending.get() {
                Some(ending) => ending.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = ending => Err(EngineError::Stopped),
        }
    }

    fn unmarked(&self) -> MutexGuard<'_, BTreeMap<TableId, Lsn>> {
        self.unmarked.lock().expect("a thread that held the marks panicked")
    }

    /// Lists the tables that are set aside while the catalog cannot say so.
    pub(crate) fn unmarked_tables(&self) -> Vec<TableId> {
        self.unmarked().keys().copied().collect()
    }

    /// Notes that the catalog says of a table that it is set aside, or cannot: then PostgreSQL keeps
    /// what the table lacks (law 6).
    pub(crate) fn note_mark(&self, id: TableId, missing_above: Option<Lsn>) {
        match missing_above {
            Some(hold) => self.unmarked().insert(id, hold),
            None => self.unmarked().remove(&id),
        };
    }

    /// Tells PostgreSQL that everything up to `lsn` is safe, as far as it is.
    pub(crate) fn acknowledge(&self, lsn: Lsn) {
        let lsn = self.unmarked().values().copied().fold(lsn, Lsn::min);
        self.acknowledgement.raise(lsn);
        self.board.write().positions.acknowledged.raise(lsn);
        failpoint::hit("acknowledged");
    }
}

/// Names an operation from what makes it unique within the state directory's `uid`.
pub(crate) fn operation_id(uid: &str, what: &str) -> OperationId {
    OperationId::new(format!("{uid}-{what}"))
}
