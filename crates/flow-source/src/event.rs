//! What the stream tells, step by step.

use bytes::Bytes;
use flow_core::Lsn;
use flow_core::transaction::TransactionMeta;

use crate::error::SourceError;

/// Is one step of the stream, in commit order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A committed transaction begins.
    Begin {
        /// Is the start of its commit record.
        commit_lsn: Lsn,
        /// Is PostgreSQL's transaction id.
        xid: u32,
        /// Is when it committed.
        commit_time: flow_core::clock::UnixMicros,
    },
    /// Some of its changes.
    Chunk {
        /// Is the transaction's `commit_lsn`.
        commit_lsn: Lsn,
        /// Numbers the chunk, from 0.
        number: u32,
        /// Is a chunk as [`flow_core::transaction::ChunkReader`] reads it.
        bytes: Bytes,
    },
    /// The transaction is whole. One that changed no captured table comes with no chunks.
    Commit(TransactionMeta),
    /// Nothing is pending below this position.
    Keepalive {
        /// Is the position: every transaction that ends at or below it was delivered.
        wal_end: Lsn,
    },
}

/// Is what the tasks hand to the engine.
pub(crate) type Batch = Result<Vec<SourceEvent>, SourceError>;
