//! Reading our own files: exact types, and each row's place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flow_core::lake::LocatedBatch;
use futures::Stream;

use super::channel::{self, Sender};
use super::plan::ScanPlan;
use super::positions::{self, DeletedPositions, LivePositions, Wanted};
use super::rows::RowReader;
use crate::blocking;
use crate::error::LakeError;
use crate::table::Table;

/// Counts the files that one read decodes at a time.
const READERS_MAX: usize = 4;

/// Is what the readers of one scan share.
struct Scan {
    rows: RowReader,
    plan: ScanPlan,
    deleted: DeletedPositions,
    next_file: AtomicUsize,
}

/// Chooses how many files are decoded at a time.
pub(super) fn readers(files: usize) -> usize {
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    parallel.min(READERS_MAX).min(files)
}

/// Streams a snapshot's live rows.
pub(super) async fn read(
    table: &Table,
    snapshot_id: i64,
    plan: ScanPlan,
    projection: Option<Vec<usize>>,
) -> Result<impl Stream<Item = Result<LocatedBatch, LakeError>> + Send + 'static, LakeError> {
    let table = table.clone();
    let scan = blocking::run(move || {
        Ok(Scan {
            rows: RowReader::new(&table, snapshot_id, projection.as_deref())?,
            deleted: positions::load(&plan)?,
            plan,
            next_file: AtomicUsize::new(0),
        })
    })
    .await?;
    let scan = Arc::new(scan);
    let (senders, stream) = channel::channel(readers(scan.plan.data.len()));
    for sender in senders {
        let scan = scan.clone();
        tokio::task::spawn_blocking(move || {
            let result = scan.run(&sender);
            sender.finish(result);
        });
    }
    Ok(stream)
}

impl Scan {
    /// Reads files until none is left.
    fn run(&self, sender: &Sender<LocatedBatch>) -> Result<(), LakeError> {
        loop {
            let index = self.next_file.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.plan.data.get(index) else {
                return Ok(());
            };
            if !self.read_file(&file.path, sender)? {
                return Ok(());
            }
        }
    }

    /// Reads one file; `false` if nobody listens any more.
    fn read_file(&self, location: &str, sender: &Sender<LocatedBatch>) -> Result<bool, LakeError> {
        let no_deletes = Vec::new();
        let deleted = self.deleted.get(location).unwrap_or(&no_deletes);
        let file: Arc<str> = location.into();
        let mut live = LivePositions::new(deleted);
        for batch in self.rows.open(location, Wanted::Except(deleted))? {
            let batch = batch?;
            let located = LocatedBatch {
                file: file.clone(),
                positions: live.take(batch.num_rows()),
                batch,
            };
            if !sender.send(located) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
