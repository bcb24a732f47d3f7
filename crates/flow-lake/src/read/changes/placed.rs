//! Changes by place: the rows that came, with where they stand, and where the rows stood that went.
//!
//! What went is not read. Who keeps copies of a table's rows finds them by place: a data file never
//! changes, so a copy is either the row or is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flow_core::TableName;
use flow_core::lake::{LakeReadError, LocatedBatch, LocatedStream};
use futures::{Stream, StreamExt, TryStreamExt};

use super::tasks::{Part, Task};
use super::{Plan, Work, plan};
use crate::blocking;
use crate::error::LakeError;
use crate::lake::{Lake, Shared};
use crate::read::channel::{self, Sender};
use crate::read::positions::{LivePositions, Wanted};
use crate::read::rows::RowReader;
use crate::read::{failed, is_ours, native};

/// Is places of rows in one data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Is the data file's full path.
    pub file: Arc<str>,
    /// Holds positions in it, ascending.
    pub positions: Vec<u64>,
}

/// Is the difference of two snapshots of a table, told by place.
pub struct PlacedChanges {
    /// Counts the rows that came.
    pub inserted: u64,
    /// Counts the rows that went.
    pub deleted: u64,
    /// Holds where the rows stood that went.
    pub went: Vec<Places>,
    /// Holds the rows that came. Read only when polled.
    pub came: LocatedStream,
}

impl std::fmt::Debug for PlacedChanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlacedChanges")
            .field("inserted", &self.inserted)
            .field("deleted", &self.deleted)
            .finish_non_exhaustive()
    }
}

impl Lake {
    /// Tells what changed between two snapshots by place; `None` where that cannot be told so, but
    /// perhaps by [`flow_core::lake::SnapshotReader::changes`].
    ///
    /// `projection` holds indexes into the columns of `to`; `None` reads all.
    ///
    /// # Errors
    /// Those of [`flow_core::lake::SnapshotReader::changes`].
    pub async fn changes_by_place(
        &self,
        name: &TableName,
        from: i64,
        to: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<Option<PlacedChanges>, LakeReadError> {
        let (shared, table) = (self.shared.clone(), name.clone());
        let planned = blocking::run(move || {
            let table = shared.require(&table)?;
            let Ok(Plan {
                rows,
                work: Work::Differences(differences),
                inserted,
                deleted,
            }) = plan(&shared, &table, from, to, projection.as_deref())?
            else {
                return Ok(None);
            };
            // What came in one step may go in the next.
            let tasks = match &differences[..] {
                [] => Vec::new(),
                [one] => super::tasks::resolve(one)?,
                _ => return Ok(None),
            };
            Ok(by_place(tasks).map(|(came, went)| (rows, came, went, inserted, deleted)))
        });
        let failed = failed("read the changes of", name);
        let planned = planned.await.map_err(&failed)?;
        Ok(planned.map(|(rows, came, went, inserted, deleted)| PlacedChanges {
            inserted,
            deleted,
            went,
            came: Box::pin(start(self.shared.clone(), rows, came).map_err(failed)),
        }))
    }

    /// Reads rows of a snapshot's columns by their places.
    ///
    /// # Errors
    /// Those of [`flow_core::lake::SnapshotReader::scan`].
    pub async fn rows_at(
        &self,
        name: &TableName,
        snapshot_id: i64,
        places: Vec<Places>,
        projection: Option<Vec<usize>>,
    ) -> Result<LocatedStream, LakeReadError> {
        let (shared, table) = (self.shared.clone(), name.clone());
        let rows = blocking::run(move || {
            let table = shared.require(&table)?;
            RowReader::new(&table, snapshot_id, projection.as_deref())
        });
        let failed = failed("read rows of", name);
        let rows = rows.await.map_err(&failed)?;
        let parts = places
            .into_iter()
            .map(|places| Part::only(places.file, places.positions));
        let read = start(self.shared.clone(), rows, parts.collect());
        Ok(Box::pin(read.map_err(failed)))
    }

    /// Reads a snapshot's live rows with their places; `None` if its rows have none.
    ///
    /// # Errors
    /// Those of [`flow_core::lake::SnapshotReader::scan`].
    pub async fn scan_by_place(
        &self,
        name: &TableName,
        snapshot_id: i64,
        projection: Option<Vec<usize>>,
    ) -> Result<Option<LocatedStream>, LakeReadError> {
        let failed = failed("scan", name);
        let (table, plan) = self.plan(name, snapshot_id).await.map_err(&failed)?;
        if !(is_ours(&table) && plan.is_plain()) {
            return Ok(None);
        }
        let stream = native::read(&table, snapshot_id, plan, projection)
            .await
            .map_err(&failed)?;
        Ok(Some(Box::pin(stream.map(move |item| item.map_err(&failed)))))
    }
}

/// Parts tasks into rows that came and places of those that went; `None` if files were rewritten.
fn by_place(tasks: Vec<Task>) -> Option<(Vec<Part>, Vec<Places>)> {
    let (mut came, mut went) = (Vec::new(), Vec::new());
    for task in tasks {
        match task {
            Task::Rows(part, 1) => came.push(part),
            Task::Rows(part, _) => went.push(part.into_places()?),
            Task::Rewrite { .. } => return None,
        }
    }
    Some((came, went))
}

/// Is what the readers of one read share.
struct Reading {
    shared: Arc<Shared>,
    rows: RowReader,
    parts: Vec<Part>,
    next: AtomicUsize,
}

/// Begins to read parts when it is polled.
fn start(
    shared: Arc<Shared>,
    rows: RowReader,
    parts: Vec<Part>,
) -> impl Stream<Item = Result<LocatedBatch, LakeError>> + Send + 'static {
    let begin = async move {
        let next = AtomicUsize::new(0);
        let reading = Arc::new(Reading {
            shared,
            rows,
            parts,
            next,
        });
        let (senders, stream) = channel::channel(native::readers(reading.parts.len()));
        for sender in senders {
            let reading = reading.clone();
            tokio::task::spawn_blocking(move || {
                let result = reading.run(&sender);
                sender.finish(result);
            });
        }
        Ok(stream)
    };
    futures::stream::once(begin).try_flatten()
}

impl Reading {
    fn run(&self, sender: &Sender<LocatedBatch>) -> Result<(), LakeError> {
        while let Some(part) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut places = PartPlaces::of(part);
            for batch in self.rows.open(&part.file, part.wanted())? {
                let batch = batch?;
                let rows = batch.num_rows();
                self.shared.change_rows_read.fetch_add(rows as u64, Ordering::Relaxed);
                let located = LocatedBatch {
                    file: part.file.clone(),
                    positions: places.take(rows),
                    batch,
                };
                if !sender.send(located) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Counts through the places of a part's rows.
enum PartPlaces<'a> {
    Live(LivePositions<'a>),
    Only(std::iter::Copied<std::slice::Iter<'a, u64>>),
}

impl<'a> PartPlaces<'a> {
    fn of(part: &'a Part) -> Self {
        match part.wanted() {
            Wanted::Except(deleted) => PartPlaces::Live(LivePositions::new(deleted)),
            Wanted::Only(positions) => PartPlaces::Only(positions.iter().copied()),
        }
    }

    fn take(&mut self, rows: usize) -> Vec<u64> {
        match self {
            PartPlaces::Live(live) => live.take(rows),
            PartPlaces::Only(positions) => positions.by_ref().take(rows).collect(),
        }
    }
}
