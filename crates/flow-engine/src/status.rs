//! The status document: what `/status` and `status --json` show (ARCHITECTURE.md, "Status").
//!
//! Plain data, filled by the engine, serialised by others. LSNs are in PostgreSQL's text form;
//! times are microseconds since 1970 unless the name says otherwise.

use std::collections::BTreeMap;

use flow_core::Lsn;
use serde::{Deserialize, Serialize};

/// Says what the service is doing as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Opening the store and the catalog.
    #[default]
    Starting,
    /// Finishing what an earlier run left open.
    Recovering,
    /// Copying tables for the first time.
    Copying,
    /// Capturing and publishing.
    Streaming,
    /// Source or catalog cannot be reached; retrying what it did before. Never stored: the board
    /// shows it in the place of the state that the service goes back to.
    Degraded,
    /// Ending in order.
    Stopping,
    /// Not running.
    Stopped,
}

/// Is the source's part of the status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Is the source's name in metadata.
    pub id: String,
    /// Is the replication slot.
    pub slot: String,
    /// Is the newest WAL end the server told.
    pub server_lsn: Lsn,
    /// Is the newest position received.
    pub received_lsn: Lsn,
    /// Is the newest position that is durable in the journal.
    pub journaled_lsn: Lsn,
    /// Is the position up to which every unblocked table is in the catalog.
    pub published_lsn: Lsn,
    /// Is the last published epoch.
    pub published_epoch: u64,
    /// Is the position last reported to PostgreSQL as flushed.
    pub acknowledged_lsn: Lsn,
    /// Says whether a replication connection is up.
    pub connected: bool,
}

/// Says where one captured table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableStatusState {
    /// Existing rows are being copied.
    Copying,
    /// Following the source.
    Streaming,
    /// Set aside with a reason; its changes wait in the journal.
    Blocked,
    /// Not captured at present. No version sets it yet; the store's format knows it.
    Paused,
    /// A foreign commit is being taken in.
    Reconciling,
    /// Only a fresh copy can continue it.
    ResyncRequired,
}

/// Says why something is blocked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// Names the page under `docs/errors/`.
    pub code: String,
    /// Says what happened, without row values.
    pub reason: String,
    /// Is when it was blocked, in microseconds since 1970.
    pub since: i64,
}

/// Is one captured table's part of the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    /// Is the table in PostgreSQL, `schema.table`.
    pub source: String,
    /// Is the table in the lake.
    pub target: String,
    /// Is where it stands.
    pub state: TableStatusState,
    /// Is the last epoch that wrote a snapshot of it.
    pub epoch: u64,
    /// Is the position the table reflects.
    pub published_lsn: Lsn,
    /// Is its newest snapshot of ours.
    #[serde(with = "text_option")]
    pub snapshot_id: Option<i64>,
    /// Is the age of the oldest change not yet published, in seconds.
    pub lag_seconds: f64,
    /// Counts the WAL bytes from `published_lsn` to the newest position received.
    pub lag_bytes: u64,
    /// Counts the rows copied by the first copy so far.
    pub copied_rows: u64,
    /// Says why it is blocked.
    pub blocked: Option<Blocked>,
}

/// Says where one dynamic table stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DynamicTableState {
    /// Never refreshed yet.
    Initialising,
    /// Reflects everything it should.
    Fresh,
    /// A refresh is running.
    Refreshing,
    /// Has newer input; waits for its turn, its LAG or a parent.
    Waiting,
    /// Cannot refresh; see `blocked`.
    Blocked,
    /// Suspended by the user.
    Suspended,
    /// Declared by no definition that can be read: its content stays as it is.
    Detached,
}

/// Is the outcome of one refresh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefreshStatus {
    /// Is the run, as in `flow.run-id` and the lineage columns.
    pub run_id: String,
    /// Is `NO_DATA`, `INCREMENTAL` or `FULL`.
    pub mode: String,
    /// Says why it ran, and why in this mode.
    pub reason: String,
    /// Is how long it took, in milliseconds.
    pub duration_ms: u64,
    /// Counts rows and entries read: of inputs, of the table's state and of its content.
    #[serde(default)]
    pub rows_read: u64,
    /// Counts rows written.
    pub rows_inserted: u64,
    /// Counts rows deleted.
    pub rows_deleted: u64,
}

/// Is one refresh in a table's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Is the run, as in `flow.run-id` and the lineage columns.
    pub run_id: String,
    /// Is `NO_DATA`, `INCREMENTAL` or `FULL`.
    pub mode: String,
    /// Says why it ran, and why in this mode.
    pub reason: String,
    /// Counts the refreshes that this entry stands for: those of `NO_DATA` that follow each other are one,
    /// with the first one's name and beginning and the newest one's position.
    pub runs: u64,
    /// Maps each input to the snapshot that was read, as text.
    pub frontier: BTreeMap<String, Option<String>>,
    /// Is the position its content reflects.
    pub data_lsn: Lsn,
    /// Is the time that `now()` gave in it, UTC; `None` for a query that does not ask.
    pub time: Option<String>,
    /// Is when it began, UTC.
    pub started_at: String,
    /// Is how long it was expected to take, in milliseconds, from earlier runs; `None` without any.
    pub predicted_ms: Option<u64>,
    /// Is how long it took to compute, in milliseconds.
    pub duration_ms: u64,
    /// Counts the rows that changed in its inputs; `None` if it read them whole.
    pub rows_changed: Option<u64>,
    /// Counts the rows it read: of the lake, and entries of its state.
    pub rows_read: u64,
    /// Counts rows written.
    pub rows_inserted: u64,
    /// Counts rows deleted.
    pub rows_deleted: u64,
}

/// Is one dynamic table's part of the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DynamicTableStatus {
    /// Is the table's name in the lake.
    pub name: String,
    /// Is `FULL` or `INCREMENTAL`.
    pub mode: String,
    /// Is where it stands.
    pub state: DynamicTableState,
    /// Is the position its content reflects.
    pub data_lsn: Lsn,
    /// Maps each input to the snapshot the content was computed from, as text.
    pub frontier: BTreeMap<String, Option<String>>,
    /// Is the age of `data_lsn`'s commit if newer input exists, in seconds.
    pub lag_seconds: f64,
    /// Is the last refresh.
    pub last_refresh: Option<RefreshStatus>,
    /// Says why it is blocked.
    pub blocked: Option<Blocked>,
    /// Names the parent that holds its other inputs at an older cut.
    pub held_by: Option<String>,
    /// Says which columns its inputs were given since it was declared, which its `*` does not take up.
    #[serde(default)]
    pub drift: Vec<String>,
    /// Is about how many bytes on disk the state takes that its incremental refreshes keep.
    pub state_bytes: u64,
}

/// Is a problem of a transformation that belongs to no table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProblemStatus {
    /// Names the page under `docs/errors/`.
    pub code: String,
    /// Is the file.
    pub file: String,
    /// Is the line, from 1.
    pub line: u64,
    /// Is the column in characters, from 1.
    pub column: u64,
    /// Says what is wrong.
    pub message: String,
}

/// Is the last error an operator should see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastError {
    /// Is when, in microseconds since 1970.
    pub at: i64,
    /// Names the page under `docs/errors/`, if there is one.
    pub code: Option<String>,
    /// Is the whole chain, without secrets or row values.
    pub message: String,
}

/// Is the local disk's part of the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageStatus {
    /// Counts free bytes on the fullest file system of `state_dir`, warehouse and catalog.
    pub free_bytes: u64,
    /// Counts the journal's bytes, roughly.
    pub journal_bytes: u64,
    /// Counts the row index's bytes, hot rows included, roughly.
    pub index_bytes: u64,
    /// Says that capture waits for free disk.
    pub capture_paused: bool,
}

/// Is the whole status document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Is the program's version.
    pub version: String,
    /// Is what the service is doing.
    pub state: ServiceState,
    /// Says whether it is recovered, reaches source and catalog, and has no table in its first copy.
    pub ready: bool,
    /// Is the process id of the service; 0 when stopped.
    pub pid: u32,
    /// Is the address HTTP listens on, once it does.
    pub http: Option<String>,
    /// Is when this document was made, in microseconds since 1970.
    pub at: i64,
    /// Is the source's part.
    pub source: SourceStatus,
    /// Holds the captured tables, by target.
    pub tables: Vec<TableStatus>,
    /// Holds the dynamic tables in refresh order.
    pub dynamic_tables: Vec<DynamicTableStatus>,
    /// Is the local disk's part.
    pub storage: StorageStatus,
    /// Holds what is wrong with the transformations and belongs to no table: a statement that cannot
    /// be read has no name.
    #[serde(default)]
    pub problems: Vec<ProblemStatus>,
    /// Is the last error.
    pub last_error: Option<LastError>,
}

/// Writes an optional 64-bit id as text: JSON numbers do not hold it exactly.
mod text_option {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.serialize_some(&value.to_string()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom))
            .transpose()
    }
}
