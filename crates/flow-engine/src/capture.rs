//! Source → journal (steps 1 to 3 of the walk), and the answer to PostgreSQL (step 11).
//!
//! 1. A receiving task owns the replication connection and puts its events on a bounded queue.
//! 2. A journaling thread takes them, stages chunks and commits, and syncs when the queue is empty
//!    or a group is large: one sync for many transactions.
//! 3. A lost connection is made again from the journal's position, with backoff; what was staged of
//!    an unfinished transaction is overwritten by its second sending.
//!
//! # Invariants
//! - IMPORTANT: nothing is acknowledged here. `Shared::acknowledge` reports what publishing (or, in
//!   `journaled` mode, the sync) has proved, never what was received.

use std::sync::Arc;
use std::time::Duration;

use flow_core::{Lsn, Remedial, Remedy};
use flow_source::{CaptureTable, SourceEvent, SourceOptions, Stream};
use flow_store::{Journal, Staged, Store};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::board::{Absence, Dependency};
use crate::error::EngineError;
use crate::failpoint;
use crate::options::AckMode;
use crate::shared::Shared;

/// Is how many events wait between receiving and journaling. A chunk is about half a megabyte, so
/// this bounds the queue at about 32 MiB.
const QUEUE: usize = 64;

/// Is how many staged bytes are synced even if more events wait.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Is how long a staged transaction waits for a sync while events keep coming.
const GROUP_AGE_MAX: Duration = Duration::from_millis(20);

/// Are the first and the longest pause between two connection attempts.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Is how often a paused capture looks at the disk again.
const DISK_LOOK: Duration = Duration::from_secs(1);

/// Captures until cancelled or until the source cannot be continued.
pub(crate) async fn run(
    shared: Arc<Shared>,
    source: SourceOptions,
    tables: Vec<CaptureTable>,
    cancel: CancellationToken,
) -> Result<(), EngineError> {
    let (events, queue) = mpsc::channel(QUEUE);
    let journaling = {
        let shared = shared.clone();
        tokio::task::spawn_blocking(move || journal(&shared, queue))
    };
    let received = receive(&shared, &source, &tables, events, &cancel).await;
    let journaled = journaling
        .await
        .unwrap_or_else(|error| Err(EngineError::Invariant(error.to_string())));
    journaled.and(received)
}

/// Says for how long the source has sent nothing, and shows that it is away.
#[derive(Default)]
struct Down<'a> {
    since: Option<Duration>,
    absence: Option<Absence<'a>>,
}

/// Keeps a connection up and forwards its events. Ends when cancelled, when the journaling thread
/// ended, or with the error that no reconnect can mend.
async fn receive(
    shared: &Shared,
    source: &SourceOptions,
    tables: &[CaptureTable],
    events: mpsc::Sender<SourceEvent>,
    cancel: &CancellationToken,
) -> Result<(), EngineError> {
    let mut backoff = BACKOFF_FIRST;
    let mut down = Down::default();
    loop {
        let outcome = tokio::select! {
            outcome = session(shared, source, tables, &events, &mut down, &mut backoff) => outcome,
            () = cancel.cancelled() => {
                shared.board.write().connected = false;
                return Ok(());
            }
        };
        shared.board.write().connected = false;
        let Err(error) = outcome else { return Ok(()) };
        if error.remedy() != Remedy::Retry {
            return Err(error);
        }
        shared.board.error(&error, "replication");
        down.absence
            .get_or_insert_with(|| shared.board.absence(Dependency::Source));
        shared.counters.reconnects.add(1);
        let now = shared.clock.monotonic();
        let since = *down.since.get_or_insert(now);
        let out_for = now.saturating_sub(since);
        let retry_for = shared.options().retry_for;
        if out_for > retry_for {
            return Err(EngineError::Unavailable {
                what: "PostgreSQL",
                seconds: out_for.as_secs(),
                source: Box::new(error),
            });
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = cancel.cancelled() => return Ok(()),
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Runs one replication connection until it fails. `Ok` means that nobody takes events any more.
async fn session<'a>(
    shared: &'a Shared,
    source: &SourceOptions,
    tables: &[CaptureTable],
    events: &mpsc::Sender<SourceEvent>,
    down: &mut Down<'a>,
    backoff: &mut Duration,
) -> Result<(), EngineError> {
    let position = shared.store.journal().position();
    let mut stream = Stream::connect(source, position, tables.to_vec()).await?;
    shared.acknowledgement.attach(stream.acknowledger());
    shared.board.write().connected = true;
    down.absence = None;
    tracing::info!(%position, "replication connected");
    loop {
        let event = stream.next().await?;
        down.since = None;
        *backoff = BACKOFF_FIRST;
        note_received(shared, &event);
        if events.send(event).await.is_err() {
            return Ok(());
        }
        wait_for_disk(shared).await;
    }
}

fn note_received(shared: &Shared, event: &SourceEvent) {
    match event {
        SourceEvent::Begin { .. } => {}
        SourceEvent::Chunk { bytes, .. } => shared.counters.received_bytes.add(bytes.len() as u64),
        SourceEvent::Commit(meta) => {
            shared.counters.transactions_received.add(1);
            shared.counters.changes_received.add(meta.changes);
            let mut notices = shared.board.write();
            notices.positions.received.raise(meta.end_lsn);
            notices.positions.server.raise(meta.end_lsn);
        }
        SourceEvent::Keepalive { wal_end } => {
            let mut notices = shared.board.write();
            notices.positions.received.raise(*wal_end);
            notices.positions.server.raise(*wal_end);
        }
    }
}

/// Holds receiving back while the disk is nearly full. PostgreSQL keeps its WAL meanwhile.
async fn wait_for_disk(shared: &Shared) {
    while shared.disk_is_low() {
        shared.board.write().storage.capture_paused = true;
        tokio::time::sleep(DISK_LOOK).await;
    }
    let mut notices = shared.board.write();
    if notices.storage.capture_paused {
        notices.storage.capture_paused = false;
        tracing::info!("capture resumed: the disk has room again");
    }
}

/// Is what was staged since the last sync.
#[derive(Default)]
struct Group {
    to: Lsn,
    rows: u64,
    bytes: u64,
    staged_bytes: u64,
    oldest: Option<i64>,
    since: Option<Duration>,
}

/// Takes events and makes them durable in groups. Ends when the receiving side does.
fn journal(shared: &Shared, mut queue: mpsc::Receiver<SourceEvent>) -> Result<(), EngineError> {
    let journal = shared.store.journal();
    let mut group = Group::default();
    loop {
        let event = match queue.try_recv() {
            Ok(event) => event,
            Err(mpsc::error::TryRecvError::Empty) => {
                sync(shared, &mut group)?;
                match queue.blocking_recv() {
                    Some(event) => event,
                    None => return Ok(()),
                }
            }
            Err(mpsc::error::TryRecvError::Disconnected) => return sync(shared, &mut group),
        };
        let now = shared.clock.monotonic();
        stage(&journal, &mut group, event, now)?;
        let old = group
            .since
            .is_some_and(|since| now.saturating_sub(since) >= GROUP_AGE_MAX);
        if group.staged_bytes >= GROUP_BYTES_MAX || old {
            sync(shared, &mut group)?;
        }
    }
}

/// Stages one event.
fn stage(journal: &Journal, group: &mut Group, event: SourceEvent, now: Duration) -> Result<(), EngineError> {
    match event {
        SourceEvent::Begin { .. } => {}
        SourceEvent::Chunk {
            commit_lsn,
            number,
            bytes,
        } => {
            journal.stage_chunk(commit_lsn, number, &bytes)?;
            group.staged_bytes += bytes.len() as u64;
        }
        SourceEvent::Commit(meta) => {
            // One that is sent again may be staged already, and counts once.
            if meta.end_lsn > journal.position() && journal.stage_commit(&meta)? == Staged::Written {
                group.to = group.to.max(meta.end_lsn);
                group.rows += meta.changes;
                group.bytes += meta.bytes;
                if meta.changes > 0 {
                    group.oldest.get_or_insert(meta.commit_time);
                }
                group.since.get_or_insert(now);
            }
        }
        SourceEvent::Keepalive { wal_end } => {
            group.to = group.to.max(wal_end);
            group.since.get_or_insert(now);
            journal.advance(wal_end)?;
        }
    }
    Ok(())
}

/// Makes the group durable, and only then tells the others.
fn sync(shared: &Shared, group: &mut Group) -> Result<(), EngineError> {
    if group.since.is_none() {
        return Ok(());
    }
    let position = shared.store.journal().sync()?;
    failpoint::hit("journal_synced");
    shared.counters.journal_syncs.add(1);
    shared.board.write().positions.journaled.raise(position);
    if shared.options().ack_mode == AckMode::Journaled {
        shared.acknowledge(position);
    }
    let backlog: &Backlog = &shared.backlog;
    backlog.journaled(group.rows, group.bytes, group.oldest, shared.clock.monotonic());
    *group = Group::default();
    Ok(())
}

/// Drops what an interrupted run staged of unfinished transactions.
pub(crate) fn drop_unfinished(store: &Store) -> Result<(), EngineError> {
    store.journal().drop_partial()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use flow_core::transaction::{ChunkBuilder, TransactionMeta};
    use flow_core::{Lsn, TableId};
    use flow_store::StoreOptions;

    use super::*;

    /// A connection lost between staging and sync brings the same transaction again.
    #[test]
    fn a_transaction_sent_again_before_its_sync_counts_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(StoreOptions {
            dir: dir.path().to_owned(),
            memory_bytes: 16 << 20,
        });
        let store = store.expect("a fresh store");
        let mut chunk = ChunkBuilder::new();
        chunk.truncate(TableId(1));
        let bytes = chunk.take();
        let meta = TransactionMeta {
            commit_lsn: Lsn(100),
            end_lsn: Lsn(110),
            commit_time: 7,
            xid: 1,
            chunks: 1,
            changes: 1,
            bytes: bytes.len() as u64,
        };
        let mut group = Group::default();
        let mut take = |event| stage(&store.journal(), &mut group, event, Duration::ZERO).expect("staged");
        for _ in 0..2 {
            take(SourceEvent::Chunk {
                commit_lsn: meta.commit_lsn,
                number: 0,
                bytes: bytes.clone(),
            });
            take(SourceEvent::Commit(meta.clone()));
        }
        assert_eq!((group.rows, group.bytes), (1, meta.bytes));
        assert_eq!(store.journal().sync().expect("synced"), meta.end_lsn);
    }
}
