//! Turns a status document and the engine's counters into Prometheus text.
//!
//! Every scrape is computed from what is in memory: nothing is counted here. Names are
//! `flow_<noun>_<unit>[_total]`; each is declared once in [`CATALOGUE`], and `docs/observability.md`
//! explains it (a test compares).

mod family;

use flow_engine::counters::{Counters, Timing};
use flow_engine::status::{DynamicTableState, ServiceState, Status, TableStatusState};
use prometheus::{Encoder, TextEncoder};

use crate::observed::Observed;
use family::Families;

/// Is the content type of the text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Is the kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// May go up and down.
    Gauge,
    /// Only grows while the process lives.
    Counter,
    /// Holds durations in buckets.
    Histogram,
}

/// Declares a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Is the name.
    pub name: &'static str,
    /// Is the kind.
    pub kind: Kind,
    /// Names the labels.
    pub labels: &'static [&'static str],
    /// Says what it tells.
    pub help: &'static str,
}

macro_rules! catalogue {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(const $constant: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// Declares every metric, in the order of the documentation.
        pub const CATALOGUE: &[Metric] = &[$($constant),*];
    };
}

catalogue! {
    BUILD_INFO = Gauge "flow_build_info" ["version"] "Is 1; the label holds the program's version.";
    SERVICE_READY = Gauge "flow_service_ready" [] "Is 1 if the service is ready, else 0.";
    SERVICE_STATE = Gauge "flow_service_state" ["state"] "Is 1 for the state the service is in.";
    MAIN_LOOP = Gauge "flow_main_loop_age_seconds" [] "Time since the main loop last turned.";
    ERROR_TIME = Gauge "flow_last_error_timestamp_seconds" ["code"] "When the last error happened, since 1970.";
    CONNECTED = Gauge "flow_source_connected" [] "Is 1 while the replication connection is up, else 0.";
    SOURCE_LSN = Gauge "flow_source_lsn_bytes" ["position"] "WAL positions: server, received, journaled, published, acknowledged.";
    SOURCE_EPOCH = Gauge "flow_source_published_epoch" [] "The last published epoch.";
    RECONNECTS = Counter "flow_source_reconnects_total" [] "Connections to the source made again.";
    RECEIVED_TRANSACTIONS = Counter "flow_received_transactions_total" [] "Transactions received.";
    RECEIVED_CHANGES = Counter "flow_received_changes_total" [] "Row changes received.";
    RECEIVED_BYTES = Counter "flow_received_bytes_total" [] "Bytes of changes received.";
    JOURNAL_SYNCS = Counter "flow_journal_syncs_total" [] "Journal groups made durable.";
    EPOCHS = Counter "flow_published_epochs_total" [] "Epochs published.";
    FOLD_PASSES = Counter "flow_fold_passes_total" [] "Walks over the journal that folding epochs took; a transaction over the memory budget takes several.";
    INSERTED_ROWS = Counter "flow_inserted_rows_total" [] "Rows written to bronze tables.";
    DELETED_ROWS = Counter "flow_deleted_rows_total" [] "Rows deleted from bronze tables.";
    COPIED_ROWS = Counter "flow_copied_rows_total" [] "Rows copied by initial copies.";
    COMMITS = Counter "flow_catalog_commits_total" [] "Commits that the catalog took.";
    CONFLICTS = Counter "flow_catalog_conflicts_total" [] "Commits refused because the base had moved.";
    UNKNOWNS = Counter "flow_catalog_unknowns_total" [] "Commits whose outcome had to be looked for.";
    PUBLISH_SECONDS = Histogram "flow_publish_seconds" ["stage"] "Time of each stage of the publish path: fold, write, seal, commit, apply.";
    TABLE_STATE = Gauge "flow_table_state" ["table", "state"] "Is 1 for the state the captured table is in.";
    TABLE_LAG_SECONDS = Gauge "flow_table_lag_seconds" ["table"] "Age of the table's oldest change not yet published.";
    TABLE_LAG_BYTES = Gauge "flow_table_lag_bytes" ["table"] "WAL from the table's position to the newest received.";
    TABLE_EPOCH = Gauge "flow_table_epoch" ["table"] "The last epoch that wrote a snapshot of the table.";
    DYNAMIC_STATE = Gauge "flow_dynamic_table_state" ["table", "state"] "Is 1 for the state the dynamic table is in.";
    DYNAMIC_LAG = Gauge "flow_dynamic_table_lag_seconds" ["table"] "Age of the dynamic table's data if newer input exists.";
    REFRESHES = Counter "flow_refresh_runs_total" [] "Refreshes that ended well.";
    REFRESH_FAILURES = Counter "flow_refresh_failures_total" [] "Refreshes that failed.";
    REFRESH_ROWS = Counter "flow_refresh_rows_total" [] "Rows that refreshes inserted or deleted.";
    REFRESH_SECONDS = Histogram "flow_refresh_seconds" [] "Time of a refresh.";
    FREE_BYTES = Gauge "flow_storage_free_bytes" [] "Free disk on the fullest file system of state_dir, warehouse and catalog.";
    JOURNAL_BYTES = Gauge "flow_storage_journal_bytes" [] "Size of the journal.";
    INDEX_BYTES = Gauge "flow_storage_index_bytes" [] "Size of the row index with its hot rows.";
    CAPTURE_PAUSED = Gauge "flow_storage_capture_paused" [] "Is 1 while capture waits for free disk, else 0.";
    RESIDENT = Gauge "flow_process_resident_bytes" [] "Memory of the process.";
    RESIDENT_PEAK = Gauge "flow_process_resident_peak_bytes" [] "Largest memory of the process so far.";
}

/// Writes the metrics of the moment.
pub fn render(observed: &dyn Observed) -> String {
    let mut families = Families::default();
    let status = observed.status();
    families.gauge(MAIN_LOOP, &[], observed.main_loop_age().as_secs_f64());
    service(&mut families, &status);
    source(&mut families, &status);
    counters(&mut families, observed.counters());
    tables(&mut families, &status);
    storage(&mut families, &status);
    process(&mut families);
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&families.in_order(CATALOGUE), &mut text)
        .expect("families have names and samples, and memory takes the text");
    String::from_utf8(text).expect("the text format is UTF-8")
}

fn service(families: &mut Families, status: &Status) {
    families.gauge(BUILD_INFO, &[&status.version], 1.0);
    families.flag(SERVICE_READY, status.ready);
    families.gauge(SERVICE_STATE, &[state_name(&status.state)], 1.0);
    if let Some(error) = &status.last_error {
        let code = error.code.as_deref().unwrap_or("none");
        families.gauge(ERROR_TIME, &[code], error.at as f64 / 1e6);
    }
}

fn source(families: &mut Families, status: &Status) {
    let source = &status.source;
    families.flag(CONNECTED, source.connected);
    for (position, lsn) in [
        ("server", source.server_lsn),
        ("received", source.received_lsn),
        ("journaled", source.journaled_lsn),
        ("published", source.published_lsn),
        ("acknowledged", source.acknowledged_lsn),
    ] {
        families.gauge(SOURCE_LSN, &[position], lsn.0 as f64);
    }
    families.gauge(SOURCE_EPOCH, &[], source.published_epoch as f64);
}

fn counters(families: &mut Families, counters: &Counters) {
    for (metric, counter) in [
        (RECONNECTS, &counters.reconnects),
        (RECEIVED_TRANSACTIONS, &counters.transactions_received),
        (RECEIVED_CHANGES, &counters.changes_received),
        (RECEIVED_BYTES, &counters.received_bytes),
        (JOURNAL_SYNCS, &counters.journal_syncs),
        (EPOCHS, &counters.epochs_published),
        (FOLD_PASSES, &counters.fold_passes),
        (INSERTED_ROWS, &counters.rows_inserted),
        (DELETED_ROWS, &counters.rows_deleted),
        (COPIED_ROWS, &counters.rows_copied),
        (COMMITS, &counters.commits),
        (CONFLICTS, &counters.commit_conflicts),
        (UNKNOWNS, &counters.commit_unknowns),
        (REFRESHES, &counters.refreshes),
        (REFRESH_FAILURES, &counters.refresh_failures),
        (REFRESH_ROWS, &counters.refresh_rows_written),
    ] {
        families.counter(metric, counter.get());
    }
    let stages: [(&str, &Timing); 5] = [
        ("fold", &counters.fold_time),
        ("write", &counters.write_time),
        ("seal", &counters.seal_time),
        ("commit", &counters.commit_time),
        ("apply", &counters.apply_time),
    ];
    for (stage, timing) in stages {
        families.histogram(PUBLISH_SECONDS, &[stage], timing);
    }
    families.histogram(REFRESH_SECONDS, &[], &counters.refresh_time);
}

fn tables(families: &mut Families, status: &Status) {
    for table in &status.tables {
        let name = table.target.as_str();
        families.gauge(TABLE_STATE, &[name, table_state_name(&table.state)], 1.0);
        families.gauge(TABLE_LAG_SECONDS, &[name], table.lag_seconds);
        families.gauge(TABLE_LAG_BYTES, &[name], table.lag_bytes as f64);
        families.gauge(TABLE_EPOCH, &[name], table.epoch as f64);
    }
    for table in &status.dynamic_tables {
        let name = table.name.as_str();
        families.gauge(DYNAMIC_STATE, &[name, dynamic_state_name(&table.state)], 1.0);
        families.gauge(DYNAMIC_LAG, &[name], table.lag_seconds);
    }
}

fn storage(families: &mut Families, status: &Status) {
    let storage = &status.storage;
    families.gauge(FREE_BYTES, &[], storage.free_bytes as f64);
    families.gauge(JOURNAL_BYTES, &[], storage.journal_bytes as f64);
    families.gauge(INDEX_BYTES, &[], storage.index_bytes as f64);
    families.flag(CAPTURE_PAUSED, storage.capture_paused);
}

/// Adds the process's memory where the system tells it (Linux, proc(5)).
fn process(families: &mut Families) {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else {
        return;
    };
    for (metric, key) in [(RESIDENT, "VmRSS:"), (RESIDENT_PEAK, "VmHWM:")] {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        let kilobytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        if let Some(kilobytes) = kilobytes {
            families.gauge(metric, &[], (kilobytes * 1024) as f64);
        }
    }
}

/// Names a service state as the status document does.
pub fn state_name(state: &ServiceState) -> &'static str {
    match state {
        ServiceState::Starting => "starting",
        ServiceState::Recovering => "recovering",
        ServiceState::Copying => "copying",
        ServiceState::Streaming => "streaming",
        ServiceState::Degraded => "degraded",
        ServiceState::Stopping => "stopping",
        ServiceState::Stopped => "stopped",
    }
}

/// Names a captured table's state as the status document does.
pub fn table_state_name(state: &TableStatusState) -> &'static str {
    match state {
        TableStatusState::Copying => "copying",
        TableStatusState::Streaming => "streaming",
        TableStatusState::Blocked => "blocked",
        TableStatusState::Paused => "paused",
        TableStatusState::Reconciling => "reconciling",
        TableStatusState::ResyncRequired => "resync_required",
    }
}

/// Names a dynamic table's state as the status document does.
pub fn dynamic_state_name(state: &DynamicTableState) -> &'static str {
    match state {
        DynamicTableState::Initialising => "initialising",
        DynamicTableState::Fresh => "fresh",
        DynamicTableState::Refreshing => "refreshing",
        DynamicTableState::Waiting => "waiting",
        DynamicTableState::Blocked => "blocked",
        DynamicTableState::Suspended => "suspended",
        DynamicTableState::Detached => "detached",
    }
}
