//! What is asked of one refresh: its inputs at their snapshots, and what it goes on from.

use std::sync::Arc;

use flow_core::Lsn;
use flow_core::clock::UnixMicros;
use flow_core::frontier::Frontier;
use flow_refresh::{PlannedTable, RefreshInput};
use flow_store::RefreshRecord;

/// Is the part of the memory budget that one refresh may hold.
pub(crate) const MEMORY_SHARE: usize = 3;

/// Asks for one refresh.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) planned: Arc<PlannedTable>,
    pub(crate) record: Option<RefreshRecord>,
    pub(crate) frontier: Frontier,
    pub(crate) inputs: Vec<RefreshInput>,
    pub(crate) data_lsn: Lsn,
    pub(crate) epoch: u64,
    /// Is the time that `now()` gives, in microseconds since 1970; `None` for a query that does not ask.
    pub(crate) at_us: Option<UnixMicros>,
    /// Is when the source committed the newest change that is read, in microseconds since 1970.
    pub(crate) commit_time_us: Option<UnixMicros>,
    pub(crate) reason: String,
    /// Makes a refresh that the user forces differ from the one it repeats.
    pub(crate) nonce: Option<String>,
}
