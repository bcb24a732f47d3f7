//! A table's first content as an operation: COPY → rows → data files, and the row index beside them.
//!
//! 1. A reading thread decodes COPY's rows and gathers them into batches with their keys.
//! 2. A writing thread hands the batches to the lake and enters keys and places into the row index,
//!    under a generation that is not current until the operation completes. So nothing large is
//!    written twice, and an interrupted copy leaves only a generation to drop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use arrow_array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use flow_core::arrow::BatchBuilder;
use flow_core::clock::iso_utc;
use flow_core::key::KeyBuilder;
use flow_core::operation::Phase;
use flow_core::row::{RowBuilder, encoded_bytes, state_bytes};
use flow_core::{Attempt, Epoch, Generation, Lsn, TableId};
use flow_lake::{DataWriter, Progress, WrittenFile};
use flow_source::{CaptureTable, CopiedRow, CopySession, SourceError};
use flow_store::{CompletionWrites, FileRecord, Kind, Location, OperationRecord, TableRecord, TableState};

use crate::error::EngineError;
use crate::publish::{Draft, SharePlan, Work, blocking, publish, retrying};
use crate::resolve::{hot_copy, keeps_copy};
use crate::shared::Shared;

/// Is how many rows and row bytes make a batch.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Is how many batches wait between reading and writing.
const QUEUE: usize = 4;

/// Is a batch with what the row index needs of its rows.
struct Batch {
    rows: RecordBatch,
    keys: Keys,
}

/// Holds the keys of a batch's rows, one behind the other, and the copies that are kept of rows.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    hot: Vec<Option<Bytes>>,
}

impl Keys {
    fn push(&mut self, key: &[u8], hot: Option<Bytes>) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.hot.push(hot);
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let keys = starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end]);
        keys.zip(self.hot.iter().map(Option::as_deref))
    }
}

/// Is a copy being published.
pub(crate) struct CopyWork {
    table: TableId,
    lsn: Lsn,
    /// Is taken by the only attempt; a copy that must be written again begins as a new operation.
    session: Option<(CopySession, CaptureTable)>,
}

impl CopyWork {
    pub(crate) fn new(table: TableId, lsn: Lsn, session: CopySession, capture: CaptureTable) -> Self {
        CopyWork {
            table,
            lsn,
            session: Some((session, capture)),
        }
    }

    /// Takes up a copy that was sealed when an earlier run ended.
    pub(crate) fn resumed(table: TableId, lsn: Lsn) -> Self {
        CopyWork {
            table,
            lsn,
            session: None,
        }
    }

    fn record(&self, shared: &Shared) -> Result<TableRecord, EngineError> {
        shared
            .table(self.table)
            .ok_or_else(|| EngineError::Invariant(format!("table {} is unknown", self.table)))
    }

    fn summary(&self, shared: &Shared) -> BTreeMap<String, String> {
        let pairs = [
            ("flow.source-id", shared.source_id.clone()),
            ("flow.epoch", "0".to_owned()),
            ("flow.lsn", self.lsn.to_string()),
            ("flow.commit-time", iso_utc(shared.clock.now_us())),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

/// Reads the table and sends batches until the copy or the other side ends.
async fn read(
    record: TableRecord,
    mut session: CopySession,
    capture: CaptureTable,
    batches: SyncSender<Batch>,
) -> Result<u64, EngineError> {
    let mut builder = BatchBuilder::new(Arc::new(record.schema.clone()));
    let mut keys = Keys::default();
    let mut key = KeyBuilder::new(&record.schema);
    let mut whole = RowBuilder::new();
    let broken = |error: &dyn std::error::Error| {
        EngineError::Invariant(format!(
            "copied row of {}: {}",
            record.source,
            crate::board::chain(error)
        ))
    };
    let keyed = record.schema.has_key();
    let send = |builder: &mut BatchBuilder, keys: &mut Keys| {
        let rows = builder.finish().map_err(|error| broken(&error))?;
        // The writing side ended early: its own error says why.
        let _ = batches.send(Batch {
            rows,
            keys: std::mem::take(keys),
        });
        Ok::<(), EngineError>(())
    };
    let count = session
        .copy(&capture, |mut row: CopiedRow<'_>| {
            let mut bytes = state_bytes(record.schema.columns.len());
            row.values(|column, value| {
                bytes += value.as_ref().map_or(0, encoded_bytes);
                if keyed {
                    let taken = key.value(&record.schema, column, value.as_ref());
                    taken.map_err(|error| broken(&error))?;
                }
                builder.append_value(column, value).map_err(|error| broken(&error))
            })?;
            builder.end_row(bytes);
            if keyed {
                let hot = match keeps_copy(&record, bytes, false) {
                    true => {
                        row.encode(&mut whole)?;
                        hot_copy(&record, &Bytes::copy_from_slice(whole.finish()), false)?
                    }
                    false => None,
                };
                keys.push(key.finish(), hot);
            }
            if builder.rows() >= BATCH_ROWS || builder.bytes() >= BATCH_BYTES {
                send(&mut builder, &mut keys)?;
            }
            Ok::<(), EngineError>(())
        })
        .await?;
    if builder.rows() > 0 {
        send(&mut builder, &mut keys)?;
    }
    Ok(count)
}

/// Writes batches into data files and their keys into the row index.
fn write(
    shared: &Shared,
    record: &TableRecord,
    mut writer: DataWriter,
    batches: Receiver<Batch>,
    runtime: &tokio::runtime::Handle,
) -> Result<Vec<WrittenFile>, EngineError> {
    let mut bulk = shared.store.index().bulk(record.id, record.generation);
    let mut files = Vec::new();
    let mut rows = 0;
    for batch in batches {
        runtime.block_on(shared.room_in_lake())?;
        let place = runtime.block_on(writer.write(&batch.rows))?;
        while files.len() <= place.file {
            files.push(shared.store.files().next_id()?);
        }
        for (offset, (key, hot)) in batch.keys.iter().enumerate() {
            let location = Location {
                file: files[place.file],
                position: place.position + offset as u64,
            };
            bulk.put(key, location, hot)?;
        }
        rows += batch.rows.num_rows() as u64;
        shared.counters.rows_copied.add(batch.rows.num_rows() as u64);
        if let Some(status) = shared.board.write().tables.get_mut(&record.id) {
            status.copied_rows = rows;
        }
    }
    let written = runtime.block_on(writer.finish())?;
    bulk.finish()?;
    let register = files.iter().zip(&written).map(|(file, written)| {
        let entry = FileRecord {
            path: written.path.clone(),
            table: Some(record.id),
            generation: record.generation,
            rows: written.rows,
            bytes: written.bytes,
        };
        (*file, entry)
    });
    shared.store.files().register(&register.collect::<Vec<_>>())?;
    Ok(written)
}

#[async_trait]
impl Work for CopyWork {
    async fn write(
        &mut self,
        shared: &Arc<Shared>,
        operation: &OperationRecord,
        attempt: Attempt,
    ) -> Result<Vec<Option<Draft>>, EngineError> {
        let record = self.record(shared)?;
        let Some((session, capture)) = self.session.take() else {
            // The snapshot is gone with the run that imported it: this copy begins anew.
            return Ok(vec![None]);
        };
        let table = retrying(shared, "the catalog", || shared.lake.load(&record.target)).await?;
        let Some(table) = table else {
            return Err(EngineError::Reconfigure {
                code: "F0006",
                message: format!(
                    "table {} vanished from the catalog while it was copied; run init again",
                    record.target
                ),
            });
        };
        let writer = shared.lake.data_writer(&table, operation.id(), attempt, 0)?;
        let (batches, queue) = sync_channel(QUEUE);
        let runtime = tokio::runtime::Handle::current();
        let writing = {
            let (shared, record, runtime) = (shared.clone(), record.clone(), runtime.clone());
            tokio::task::spawn_blocking(move || write(&shared, &record, writer, queue, &runtime))
        };
        let reading = {
            let record = record.clone();
            tokio::task::spawn_blocking(move || runtime.block_on(read(record, session, capture, batches)))
        };
        let ended = |error: tokio::task::JoinError| EngineError::Invariant(format!("a copy thread ended: {error}"));
        let copied = reading.await.map_err(ended)?;
        let written = writing.await.map_err(ended)?;
        let (written, rows) = (written?, copied?);
        tracing::info!(table = %record.source, rows, lsn = %self.lsn, "copied");
        let summary = self.summary(shared);
        let properties = ["flow.epoch", "flow.lsn"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), summary.get(*name)?.clone())))
            .collect();
        Ok(vec![Some(Draft {
            table,
            added: written,
            deletes: Vec::new(),
            summary,
            properties,
            blocks: 0,
            state: None,
            note: serde_json::json!({ "rows": rows }),
        })])
    }

    fn progress(&self, shared: &Shared, operation: &OperationRecord) -> Progress {
        Progress {
            operation_id: operation.id().clone(),
            source_id: shared.source_id.clone(),
            kind: "copy".to_owned(),
            epoch: Epoch(0),
            from_lsn: Lsn::ZERO,
            to_lsn: self.lsn,
            advance: None,
        }
    }

    fn completion(
        &mut self,
        shared: &Shared,
        operation: &OperationRecord,
        plans: &[Option<SharePlan>],
    ) -> Result<CompletionWrites, EngineError> {
        let mut record = self.record(shared)?;
        let Some(plan) = plans.first().and_then(Option::as_ref) else {
            return Ok(CompletionWrites::default());
        };
        debug_assert!(matches!(operation.shares[0].phase(), Phase::Committed { .. }));
        record.snapshot_id = Some(plan.sealed.snapshot_id);
        record.start_lsn = Some(self.lsn);
        record.published_lsn = self.lsn;
        record.state = TableState::Streaming;
        Ok(CompletionWrites {
            tables: vec![record],
            ledger: None,
            refresh: None,
        })
    }
}

/// Ends the copies that an interrupted run or try left open: a sealed one is published, another
/// abandoned.
pub(crate) async fn recover(shared: &Arc<Shared>) -> Result<(), EngineError> {
    let open = blocking(shared, |shared| Ok(shared.store.operations().open_operations()?)).await?;
    for record in open {
        recover_one(shared, record).await?;
    }
    Ok(())
}

/// Ends a copy that failed, from what the store holds of it (law 5): it may have gone further than
/// whoever began it knows.
pub(crate) async fn recover_failed(shared: &Arc<Shared>, seq: u64) -> Result<(), EngineError> {
    let open = blocking(shared, |shared| Ok(shared.store.operations().open_operations()?)).await?;
    match open.into_iter().find(|record| record.seq() == seq) {
        Some(record) => recover_one(shared, record).await,
        None => Ok(()),
    }
}

async fn recover_one(shared: &Arc<Shared>, record: OperationRecord) -> Result<(), EngineError> {
    let Kind::Copy { table, lsn } = *record.kind() else {
        return Ok(());
    };
    publish(shared, record, &mut CopyWork::resumed(table, lsn)).await?;
    if let Some(record) = shared.table(table) {
        shared.show_table(&record);
    }
    Ok(())
}

/// Gives a table that is to be copied a generation that nothing was ever written under.
pub(crate) async fn fresh_generation(shared: &Arc<Shared>, mut table: TableRecord) -> Result<TableRecord, EngineError> {
    blocking(shared, move |shared| {
        shared.store.index().drop_generation(table.id, table.generation)?;
        table.generation = Generation(table.generation.0 + 1);
        shared.store.tables().put(&table)?;
        shared.note_table(table.clone());
        Ok(table)
    })
    .await
}

/// Says whether a failed copy blocks its own table only.
pub(crate) fn blocks_table(error: &EngineError) -> Option<(String, String)> {
    match error {
        EngineError::Source(error @ SourceError::Value { .. }) => {
            let code = flow_core::Remedial::code(error).unwrap_or("F0130");
            Some((code.to_owned(), error.to_string()))
        }
        _ => None,
    }
}
