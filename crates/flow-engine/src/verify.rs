//! Recomputes a dynamic table at the cut it reflects and compares: nothing is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use flow_refresh::{PlannedTable, RefreshContext, RefreshError, refresh_full};
use flow_store::RefreshRecord;
use futures::StreamExt;

use crate::error::EngineError;
use crate::incremental::inputs_of;
use crate::publish::retrying;
use crate::refresh_request::MEMORY_SHARE;
use crate::shared::Shared;

/// Is how many differing rows are shown of each kind.
const ROWS_SHOWN: usize = 20;

/// Is what a comparison found.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// Is the table.
    pub name: TableName,
    /// Is the position at which it was recomputed.
    pub data_lsn: flow_core::Lsn,
    /// Holds rows that the query gives and the table lacks.
    pub missing: Differing,
    /// Holds rows that the table has and the query does not give.
    pub unexpected: Differing,
}

impl Verification {
    /// Says whether the table is what its query gives.
    pub fn equal(&self) -> bool {
        self.missing.count == 0 && self.unexpected.count == 0
    }
}

/// Is rows of one side only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Differing {
    /// Counts them.
    pub count: u64,
    /// Holds the first of them, a row a batch, without lineage columns.
    pub rows: Vec<RecordBatch>,
}

impl Differing {
    /// Shows a row, if there is room.
    fn show(&mut self, batch: &RecordBatch, row: usize) -> Result<(), EngineError> {
        if self.rows.len() < ROWS_SHOWN {
            let schema = batch.schema();
            let user = (0..schema.fields().len()).filter(|at| !schema.field(*at).name().starts_with("_flow_"));
            let user: Vec<usize> = user.collect();
            let row = batch.slice(row, 1).project(&user);
            let row = row.map_err(|error| EngineError::Invariant(format!("row of a dynamic table: {error}")))?;
            self.rows.push(row);
        }
        Ok(())
    }
}

/// Compares a table with its recomputation at the cut it reflects.
///
/// # Errors
/// Reconfigure: it has no content of this definition yet, or was changed by another program. Those
/// of a full refresh.
pub(crate) async fn verify(
    shared: &Arc<Shared>,
    planned: &PlannedTable,
    record: Option<&RefreshRecord>,
) -> Result<Verification, EngineError> {
    let name = &planned.name;
    let refused = |what: &str| EngineError::Reconfigure {
        code: "F0016",
        message: format!("table {name} cannot be verified: {what}; nothing was changed"),
    };
    let record = record.filter(|record| record.last.is_some());
    let record = record.ok_or_else(|| refused("it was never refreshed"))?;
    if record.query_hash != planned.query_hash {
        return Err(refused("its content is that of another SELECT until its next refresh"));
    }
    let table = retrying(shared, "the catalog", || shared.lake.load(name)).await?;
    let stored = table.and_then(|table| table.current_snapshot_id());
    if stored != record.snapshot_id {
        return Err(refused("its newest snapshot is not the one its last refresh wrote"));
    }
    let context = RefreshContext {
        run_id: String::new(),
        processed_at_us: 0,
        at_us: record.at_us.unwrap_or(0),
        memory_bytes: shared.options().limits.memory_bytes / MEMORY_SHARE,
        partitions: 0,
        scratch: shared.scratch()?,
    };
    let reader: Arc<dyn SnapshotReader> = Arc::new(shared.lake.clone());
    let inputs = inputs_of(planned, record);
    let output = refresh_full(planned, &inputs, stored, reader.clone(), &context).await?;
    let mut missing = Differing {
        count: output.inserted.rows(),
        rows: Vec::new(),
    };
    for batch in output.inserted.batches()? {
        let batch = batch?;
        (0..batch.num_rows()).try_for_each(|row| missing.show(&batch, row))?;
    }
    Ok(Verification {
        name: name.clone(),
        data_lsn: record.data_lsn,
        missing,
        unexpected: unexpected(planned, stored, output.deleted, reader.as_ref()).await?,
    })
}

/// Reads the rows that only the table has.
async fn unexpected(
    planned: &PlannedTable,
    stored: Option<i64>,
    places: Vec<(Arc<str>, u64)>,
    reader: &dyn SnapshotReader,
) -> Result<Differing, EngineError> {
    let mut found = Differing {
        count: places.len() as u64,
        rows: Vec::new(),
    };
    let (Some(snapshot), false) = (stored, places.is_empty()) else {
        return Ok(found);
    };
    let read = |source| RefreshError::Read {
        table: planned.name.to_string(),
        source,
    };
    let wanted: BTreeSet<(Arc<str>, u64)> = places.into_iter().collect();
    let mut batches = reader.scan_located(&planned.name, snapshot).await.map_err(read)?;
    while let Some(located) = batches.next().await {
        let located = located.map_err(read)?;
        for (row, position) in located.positions.iter().enumerate() {
            if wanted.contains(&(located.file.clone(), *position)) {
                found.show(&located.batch, row)?;
            }
        }
    }
    Ok(found)
}
