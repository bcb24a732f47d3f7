//! The stream of whole transactions from one slot.
//!
//! 1. [`Stream::connect`] checks that the slot can continue from `start`, and starts replication.
//! 2. A reading task turns frames into events and hands them on in batches; it stops reading while
//!    the engine does not take them, so memory stays bounded by [`BATCHES`] and the chunk size.
//! 3. A feedback task tells PostgreSQL what is safe: on progress, when asked, and every heartbeat.
//!
//! An idle database moves on without a write: the heartbeat asks the server how far it has decoded,
//! its keepalive answers with that position, and that becomes the event that lets the engine
//! acknowledge, whatever databases or tables the WAL in between belonged to.

use std::collections::VecDeque;
use std::sync::Arc;

use flow_core::Lsn;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::acknowledge::Acknowledger;
use crate::assemble::Assembler;
use crate::capture::CaptureTable;
use crate::error::SourceError;
use crate::event::{Batch, SourceEvent};
use crate::feedback::{self, Progress};
use crate::options::SourceOptions;
use crate::reader;
use crate::session::{self, Kind, Session};
use crate::slot;

/// Is how many batches of events may wait for the engine; each holds about one chunk's bytes.
const BATCHES: usize = 8;

/// Is a running replication stream. Dropping it ends the session.
#[derive(Debug)]
pub struct Stream {
    batches: mpsc::Receiver<Batch>,
    ready: VecDeque<SourceEvent>,
    acknowledger: Acknowledger,
    tasks: [AbortHandle; 2],
}

impl Drop for Stream {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Stream {
    /// Starts streaming from `start`: the first transaction is the first that ends above it.
    ///
    /// `start` is what is journaled. Nothing is acknowledged before [`Acknowledger::acknowledge`]
    /// is called, beyond what the slot has confirmed already.
    ///
    /// # Errors
    /// Slot missing, invalidated, advanced past `start`, or of another system (resync); held by
    /// another session (retry); connection errors by their kind.
    pub async fn connect(
        options: &SourceOptions,
        start: Lsn,
        tables: Vec<CaptureTable>,
    ) -> Result<Stream, SourceError> {
        let mut session = session::open(options, Kind::Replication).await?;
        let confirmed = slot::check_continues(&mut session, options, start).await?;
        let timeout_ms = sender_timeout_ms(&mut session).await?;
        start_replication(&mut session, options, start).await?;
        let acknowledger = Acknowledger::new(confirmed);
        let (transport, frames) = session.split();
        let (read_half, write_half) = tokio::io::split(transport);
        let (sender, batches) = mpsc::channel(BATCHES);
        let progress = Arc::new(Progress::new(start));
        let feedback = feedback::Feedback {
            writer: write_half,
            acknowledged: acknowledger.watch(),
            progress: progress.clone(),
            interval: feedback::interval(options.heartbeat, timeout_ms),
            server: options.conninfo.clone(),
            errors: sender.clone(),
        };
        let reader = reader::Reader {
            transport: read_half,
            frames,
            assembler: Assembler::new(start, tables),
            progress,
            server: options.conninfo.clone(),
            slot: options.slot.clone(),
            publication: options.publication.clone(),
            silence_max: options.heartbeat.saturating_mul(6).max(reader::SILENCE_MIN),
            batches: sender,
        };
        let tasks = [
            tokio::spawn(reader.run()).abort_handle(),
            tokio::spawn(feedback.run()).abort_handle(),
        ];
        Ok(Stream {
            batches,
            ready: VecDeque::new(),
            acknowledger,
            tasks,
        })
    }

    /// Waits for the next event. Cancel-safe: a dropped future loses nothing.
    ///
    /// # Errors
    /// After an error the stream is spent; connect again from what is journaled.
    pub async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let batch = self.batches.recv().await.ok_or(SourceError::Ended)?;
            self.ready.extend(batch?);
        }
    }

    /// Gives the handle through which progress is reported to PostgreSQL.
    pub fn acknowledger(&self) -> Acknowledger {
        self.acknowledger.clone()
    }
}

async fn sender_timeout_ms(session: &mut Session) -> Result<u64, SourceError> {
    let sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'";
    let rows = session.query("reading wal_sender_timeout", sql).await?;
    let text = rows.into_iter().next().and_then(|row| row.into_iter().next().flatten());
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

async fn start_replication(session: &mut Session, options: &SourceOptions, start: Lsn) -> Result<(), SourceError> {
    let slot = &options.slot;
    let publication = flow_core::schema::quote_identifier(&options.publication).replace('\'', "''");
    let sql = format!(
        "START_REPLICATION SLOT {} LOGICAL {start} (proto_version '1', publication_names '{publication}', binary 'true')",
        flow_core::schema::quote_identifier(slot),
    );
    match session.start_copy_both(&sql).await {
        Ok(()) => Ok(()),
        Err(SourceError::Sql { operation, error }) => Err(match error.sqlstate.as_str() {
            "55006" => SourceError::SlotHeld {
                slot: slot.clone(),
                pid: 0,
            },
            "42704" => SourceError::SlotMissing { slot: slot.clone() },
            "55000" => SourceError::SlotUnusable {
                slot: slot.clone(),
                reason: error.message,
            },
            _ => SourceError::Sql { operation, error },
        }),
        Err(other) => Err(other),
    }
}
