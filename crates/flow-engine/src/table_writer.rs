//! Writes one table's part of an attempt: rows into data files, deletes into delete files, and what
//! both mean for the row index into staged blocks.
//!
//! Rows are gathered into batches; a batch's places are known once the lake has taken it, and only
//! then do its keys enter the index delta.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use flow_core::arrow::BatchBuilder;
use flow_core::collapse::Key;
use flow_core::{Attempt, FileId};
use flow_lake::{DataWriter, Table, WrittenFile};
use flow_store::{FileRecord, HotChange, IndexDelta, Location, OperationRecord, TableRecord};

use crate::error::EngineError;
use crate::handover::{Changed, Noting};
use crate::publish::{Draft, blocking};
use crate::resolve::{NewRow, Resolved, hot_copy};
use crate::shared::Shared;

/// Is how many rows make a batch: enough that per-batch costs vanish, few enough to stay in cache.
const BATCH_ROWS: usize = 8192;

/// Is how many row bytes make a batch, for tables with large rows.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Is what a table's attempt wrote.
#[derive(Debug)]
pub(crate) struct TableWriter {
    shared: Arc<Shared>,
    record: TableRecord,
    table: Table,
    operation: OperationRecord,
    share: usize,
    attempt: Attempt,
    writer: DataWriter,
    batch: BatchBuilder,
    /// Holds what the row index gets of the rows in `batch`, in order.
    waiting: Vec<Waiting>,
    /// Numbers the writer's files.
    files: Vec<FileId>,
    delta: IndexDelta,
    blocks: u64,
    deletes: Vec<Location>,
    delete_files: Vec<WrittenFile>,
    noting: Noting,
    rows: u64,
    deleted: u64,
}

/// Is what the row index gets of a row, but for its place.
#[derive(Debug)]
struct Waiting {
    key: Key,
    /// Is the copy to keep.
    hot: Option<Bytes>,
    replaces_hot: bool,
}

impl Waiting {
    fn hot_change(&self) -> HotChange<'_> {
        match &self.hot {
            Some(row) => HotChange::Keep(row),
            None if self.replaces_hot => HotChange::Drop,
            None => HotChange::None,
        }
    }
}

impl TableWriter {
    /// Begins a table's part of an attempt.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        record: TableRecord,
        table: Table,
        operation: &OperationRecord,
        share: usize,
        attempt: Attempt,
    ) -> Result<Self, EngineError> {
        let writer = shared.lake.data_writer(&table, operation.id(), attempt, 0)?;
        Ok(TableWriter {
            noting: shared.noting(&record.target),
            shared: shared.clone(),
            batch: BatchBuilder::new(Arc::new(record.schema.clone())),
            record,
            table,
            operation: operation.clone(),
            share,
            attempt,
            writer,
            waiting: Vec::new(),
            files: Vec::new(),
            delta: IndexDelta::new(),
            blocks: 0,
            deletes: Vec::new(),
            delete_files: Vec::new(),
            rows: 0,
            deleted: 0,
        })
    }

    /// Writes what one pass changes.
    pub(crate) async fn write(&mut self, resolved: Resolved) -> Result<(), EngineError> {
        for new in resolved.rows {
            let NewRow {
                key,
                row,
                replaces_hot,
                unsent,
            } = new;
            self.batch
                .append(&row)
                .map_err(|error| EngineError::Invariant(format!("row of {}: {error}", self.record.source)))?;
            let hot = hot_copy(&self.record, &row, unsent)?;
            self.waiting.push(Waiting { key, hot, replaces_hot });
            if self.batch.rows() >= BATCH_ROWS || self.batch.bytes() >= BATCH_BYTES {
                self.flush().await?;
            }
        }
        self.flush().await?;
        for (key, hot) in &resolved.gone {
            self.delta.remove(key, *hot);
            self.stage_full()?;
        }
        self.deleted += resolved.deletes.len() as u64;
        self.deletes.extend(resolved.deletes);
        self.write_deletes().await
    }

    /// Hands the batch to the lake and enters its places into the delta.
    async fn flush(&mut self) -> Result<(), EngineError> {
        if self.batch.rows() == 0 {
            return Ok(());
        }
        let batch = self.batch.finish().map_err(|error| {
            EngineError::Invariant(format!(
                "batch of {}: {}",
                self.record.source,
                crate::board::chain(&error)
            ))
        })?;
        let place = self.writer.write(&batch).await?;
        self.noting.came(place, &batch);
        while self.files.len() <= place.file {
            self.files.push(self.shared.store.files().next_id()?);
        }
        let file = self.files[place.file];
        self.rows += self.waiting.len() as u64;
        let waiting = std::mem::take(&mut self.waiting);
        if self.record.schema.has_key() {
            for (offset, row) in waiting.iter().enumerate() {
                let location = Location {
                    file,
                    position: place.position + offset as u64,
                };
                self.delta.put(&row.key, location, row.hot_change());
                self.stage_full()?;
            }
        }
        Ok(())
    }

    fn stage_full(&mut self) -> Result<(), EngineError> {
        if self.delta.is_full() { self.stage() } else { Ok(()) }
    }

    fn stage(&mut self) -> Result<(), EngineError> {
        self.shared
            .store
            .operations()
            .stage_block(self.operation.seq(), self.share, self.blocks, &self.delta)?;
        self.blocks += 1;
        self.delta.clear();
        Ok(())
    }

    /// Writes the pass's deletes, sorted by file and position, as the specification asks.
    async fn write_deletes(&mut self) -> Result<(), EngineError> {
        if self.deletes.is_empty() {
            return Ok(());
        }
        let locations = std::mem::take(&mut self.deletes);
        let source = self.record.source.clone();
        let deletes = blocking(&self.shared, move |shared| {
            let mut paths: BTreeMap<FileId, Arc<str>> = BTreeMap::new();
            let mut deletes = Vec::with_capacity(locations.len());
            for location in locations {
                let path = match paths.get(&location.file) {
                    Some(path) => path.clone(),
                    None => {
                        let path = shared.store.files().path(location.file)?.ok_or_else(|| {
                            EngineError::Invariant(format!("file {} of {source} is not registered", location.file))
                        })?;
                        paths.insert(location.file, path.clone());
                        path
                    }
                };
                deletes.push((path, location.position));
            }
            deletes.sort_unstable();
            Ok(deletes)
        })
        .await?;
        self.noting.went(&deletes);
        let first = u32::try_from(self.delete_files.len())
            .map_err(|_| EngineError::Invariant("more delete files than numbers".to_owned()))?;
        let written = self
            .shared
            .lake
            .write_deletes(&self.table, self.operation.id(), self.attempt, first, deletes)
            .await?;
        self.delete_files.extend(written);
        Ok(())
    }

    /// Closes the files and gives the draft, with what is noted of the change; `None` if nothing changed.
    pub(crate) async fn finish(
        mut self,
        summary: BTreeMap<String, String>,
    ) -> Result<Option<(Draft, Option<Changed>)>, EngineError> {
        if !self.delta.is_empty() {
            self.stage()?;
        }
        let added = self.writer.finish().await?;
        let register = self.files.iter().zip(&added).map(|(file, written)| {
            let record = FileRecord {
                path: written.path.clone(),
                table: Some(self.record.id),
                generation: self.record.generation,
                rows: written.rows,
                bytes: written.bytes,
            };
            (*file, record)
        });
        let register: Vec<_> = register.collect();
        self.shared.store.files().register(&register)?;
        if added.is_empty() && self.delete_files.is_empty() {
            return Ok(None);
        }
        let properties = ["flow.epoch", "flow.lsn"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), summary.get(*name)?.clone())))
            .collect();
        let changed = self.noting.finish(&added);
        let draft = Draft {
            table: self.table,
            added,
            deletes: self.delete_files,
            summary,
            properties,
            blocks: self.blocks,
            state: None,
            note: serde_json::json!({ "rows": self.rows, "deleted": self.deleted }),
        };
        Ok(Some((draft, changed)))
    }
}
