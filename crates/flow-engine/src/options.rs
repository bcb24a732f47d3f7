//! What the engine is told: the configuration with names resolved and units gone.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use flow_core::TableName;
use flow_core::schedule::EpochLimits;

/// Says how far PostgreSQL is told that changes are safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// Up to what the catalog has: a lost state directory can be rebuilt.
    Materialized,
    /// Up to what the journal has: PostgreSQL can forget sooner.
    Journaled,
}

/// Says which columns of each row the row index keeps beside the location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotRows {
    /// The columns that PostgreSQL may leave out of an update.
    Auto,
    /// All columns.
    All,
    /// None.
    None,
}

/// Names captured tables: one, or all of a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcePattern {
    /// One table.
    Table(TableName),
    /// Every published table of the schema.
    Schema(String),
}

/// Is one `[[tables]]` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Names the table or tables.
    pub source: SourcePattern,
    /// Is the table's name in the lake; `None` takes the source's. Only for [`SourcePattern::Table`].
    pub target: Option<TableName>,
    /// Overrides the key's columns.
    pub primary_key: Option<Vec<String>>,
    /// Narrows the columns; `None` takes all that the publication sends.
    pub columns: Option<Vec<String>>,
    /// Accepts inserts only; needs no key.
    pub append_only: bool,
    /// Is what the row index keeps.
    pub hot_rows: HotRows,
    /// Overrides column types, by column name, as written in the configuration.
    pub types: BTreeMap<String, String>,
}

/// Bounds what the process takes from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Is the memory budget in bytes, for buffers and caches together.
    pub memory_bytes: usize,
    /// Is the free disk, in bytes, below which capture pauses.
    pub min_free_bytes: u64,
    /// Is how much journal, in bytes, blocked tables may hold.
    pub blocked_journal_max_bytes: u64,
}

/// Is everything the engine is told.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Holds the store, the control socket and the status file.
    pub state_dir: PathBuf,
    /// Is the source's name in metadata; `None` takes the database's name.
    pub source_id: Option<String>,
    /// Is the PostgreSQL connection string. Secret.
    pub connection: flow_source::ConnInfo,
    /// Is the replication slot's name.
    pub slot: String,
    /// Is the publication's name.
    pub publication: String,
    /// Says how far PostgreSQL is told that changes are safe.
    pub ack_mode: AckMode,
    /// Is how often an idle source is looked at.
    pub heartbeat: Duration,
    /// Is how long an unavailable dependency is retried before the process ends with 75.
    pub retry_for: Duration,
    /// Is how many tables are copied at once.
    pub copy_sessions: usize,
    /// Is the warehouse directory.
    pub warehouse: PathBuf,
    /// Is the catalog's SQLite file.
    pub catalog_path: PathBuf,
    /// Closes epochs.
    pub publish: EpochLimits,
    /// Is how long snapshots beyond `keep_snapshots` stay, one a minute.
    pub keep_for: Duration,
    /// Is how many of the newest snapshots stay.
    pub keep_snapshots: usize,
    /// Bounds memory and disk.
    pub limits: Limits,
    /// Holds the captured tables.
    pub tables: Vec<TableOptions>,
    /// Holds the dynamic tables' SQL files; may be missing on disk.
    pub transformations: PathBuf,
}

/// Is what it takes to look at the catalog and at local files: nothing secret.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Is the warehouse directory.
    pub warehouse: PathBuf,
    /// Is the catalog's SQLite file.
    pub catalog_path: PathBuf,
    /// Is the memory budget of a query in bytes.
    pub memory_bytes: usize,
    /// Holds the captured tables.
    pub tables: Vec<TableOptions>,
    /// Holds the dynamic tables' SQL files; may be missing on disk.
    pub transformations: PathBuf,
}
