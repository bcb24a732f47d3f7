//! The task that reads the replication session: frames to events, in batches.

use std::sync::Arc;
use std::time::Duration;

use flow_core::Lsn;
use flow_core::transaction::CHUNK_BYTES;
use tokio::io::ReadHalf;
use tokio::sync::mpsc;

use crate::assemble::Assembler;
use crate::conninfo::ConnInfo;
use crate::error::SourceError;
use crate::event::{Batch, SourceEvent};
use crate::feedback::Progress;
use crate::session::{Frames, server_error};
use crate::transport::{self, Transport};

/// Is the shortest silence of the server that counts as a dead connection. The heartbeat asks for
/// an answer far more often, but a server that skips a huge transaction may be long in answering.
pub(crate) const SILENCE_MIN: Duration = Duration::from_secs(120);

/// Is how many events are handed on at once at most: transactions are often small.
const EVENTS_MAX: usize = 4096;

/// Is the reading task.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) transport: ReadHalf<Transport>,
    pub(crate) frames: Frames,
    pub(crate) assembler: Assembler,
    pub(crate) progress: Arc<Progress>,
    pub(crate) server: ConnInfo,
    pub(crate) slot: String,
    pub(crate) publication: String,
    pub(crate) silence_max: Duration,
    pub(crate) batches: mpsc::Sender<Batch>,
}

impl Reader {
    /// Runs until the stream is dropped or something fails, which is the last thing handed on.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.read().await {
            // A closed channel means that the engine is gone.
            let _ = self.batches.send(Err(error)).await;
        }
    }

    async fn read(&mut self) -> Result<(), SourceError> {
        let mut events = Vec::new();
        let mut bytes = 0;
        loop {
            while let Some((tag, payload)) = self.frames.next()? {
                let before = events.len();
                match tag {
                    b'd' => copy_data(payload, &mut self.assembler, &self.progress, &mut events)?,
                    b'E' => return Err(stream_error(server_error(payload), &self.slot, &self.publication)),
                    b'c' | b'C' | b'Z' => return Err(SourceError::Ended),
                    b'N' | b'S' => {}
                    _ => return Err(SourceError::Protocol("message in the stream".to_owned())),
                }
                for event in &events[before..] {
                    if let SourceEvent::Chunk { bytes: chunk, .. } = event {
                        bytes += chunk.len();
                    }
                }
                if bytes >= CHUNK_BYTES || events.len() >= EVENTS_MAX {
                    bytes = 0;
                    if !self.hand_on(&mut events).await {
                        return Ok(());
                    }
                }
            }
            bytes = 0;
            if !events.is_empty() && !self.hand_on(&mut events).await {
                return Ok(());
            }
            let filled = tokio::time::timeout(self.silence_max, self.frames.fill(&mut self.transport)).await;
            filled
                .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
                .map_err(|error| transport::unreachable(&self.server, error))?;
        }
    }

    /// Gives the events to the engine, waiting for room; says whether it is still there.
    async fn hand_on(&mut self, events: &mut Vec<SourceEvent>) -> bool {
        self.progress.receive(self.assembler.position());
        self.batches.send(Ok(std::mem::take(events))).await.is_ok()
    }
}

/// Takes the payload of one CopyData message.
fn copy_data(
    payload: &[u8],
    assembler: &mut Assembler,
    progress: &Progress,
    events: &mut Vec<SourceEvent>,
) -> Result<(), SourceError> {
    let bad = || SourceError::Protocol("replication message".to_owned());
    match payload.split_first() {
        // XLogData: start and end of the WAL, the server's clock, then the plugin's message.
        Some((b'w', rest)) => assembler.message(rest.get(24..).ok_or_else(bad)?, events),
        Some((b'k', rest)) => {
            let (wal_end, rest) = rest.split_first_chunk::<8>().ok_or_else(bad)?;
            assembler.keepalive(Lsn(u64::from_be_bytes(*wal_end)), events);
            if rest.get(8).ok_or_else(bad)? == &1 {
                progress.ask();
            }
            Ok(())
        }
        _ => Err(bad()),
    }
}

/// Sorts an error the server ends the stream with.
fn stream_error(error: crate::error::ServerError, slot: &str, publication: &str) -> SourceError {
    match error.sqlstate.as_str() {
        // undefined_file: the WAL the slot needs is gone.
        "58P01" | "55000" => SourceError::SlotUnusable {
            slot: slot.to_owned(),
            reason: error.message,
        },
        "42704" if error.message.contains("publication") => SourceError::PublicationGone {
            publication: publication.to_owned(),
        },
        _ => SourceError::Sql {
            operation: "streaming",
            error,
        },
    }
}
