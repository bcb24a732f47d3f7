//! Refreshes that find by their inputs' snapshot ids that there is nothing to do.

use std::time::Duration;

use flow_store::{NO_DATA, RefreshRun};
use sha2::{Digest, Sha256};

use super::{Refresher, run_status};
use crate::error::EngineError;
use crate::inputs::Inputs;
use crate::status::RefreshStatus;

impl Refresher {
    /// Takes a position up to which a table's inputs did not change, and notes that in its history. No row
    /// was read for it, and nothing is synced for it: a note that a crash takes away is only a note.
    pub(super) fn no_data(
        &mut self,
        index: usize,
        inputs: &Inputs,
        reason: &str,
        began: Duration,
    ) -> Result<RefreshStatus, EngineError> {
        let table = &mut self.tables[index];
        if inputs.data_lsn > table.data_lsn {
            table.data_lsn = inputs.data_lsn;
            table.epoch = table.epoch.max(inputs.epoch);
            table.steady_from = table.steady_from.max(inputs.steady_from);
        }
        let name = table.planned.name.to_string();
        let digest = Sha256::digest(format!("{name}\n{:?}\n{}", inputs.frontier, table.data_lsn));
        let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let took = self.shared.clock.monotonic().saturating_sub(began);
        let run = RefreshRun {
            run_id: format!("n{digest}"),
            mode: NO_DATA.to_owned(),
            reason: reason.to_owned(),
            started_us: self.shared.clock.now_us(),
            predicted_ms: Some(0),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            rows_changed: Some(0),
            rows_read: 0,
            rows_inserted: 0,
            rows_deleted: 0,
            frontier: inputs.frontier.clone(),
            data_lsn: table.data_lsn,
            at_us: table.record.as_ref().and_then(|record| record.at_us),
            runs: 1,
        };
        tracing::debug!(table = name, took_us = took.as_micros() as u64, "no data");
        self.shared.store.refreshes().push_run(&name, &run)?;
        Ok(run_status(&run))
    }
}
