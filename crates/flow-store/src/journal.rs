//! The journal: every committed source transaction that PostgreSQL may still forget.
//!
//! Owns the families `journal.chunk` and `journal.txn`. Knows nothing of what a chunk says, and
//! nothing of why a transaction is wanted.
//!
//! 1. `stage_chunk` and `stage_commit` write whole transactions, in commit order.
//! 2. `sync` makes the staged group durable, and only then visible to readers.
//! 3. `transactions` and `chunks` yield what is above a position; they never block the writer.
//! 4. `forget` drops what nobody needs any more.
//!
//! # Invariants
//! - `forgotten ≤ synced ≤ staged`, each only ever grows.
//! - An LSN maps to one byte string for ever; a second, different one is corruption.
//! - A transaction is visible whole or not at all: its chunks count once its record is there.

mod entry;
mod read;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow_core::Lsn;
use flow_core::transaction::TransactionMeta;
use rocksdb::WriteBatch;

pub use self::read::{Chunks, Transactions};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::facts;
use crate::layout::{FactKey, Family, chunk_key, transaction_key};
use crate::record;

/// Is how many staged bytes are gathered before they are written: a write costs as much as storing
/// some ten small transactions.
const PENDING_BYTES: usize = 1024 * 1024;
/// Is how many forgotten bytes are gathered before files are dropped: dropping costs a sync, and
/// frees whole files only.
const DROP_BYTES: u64 = 16 * 1024 * 1024;
/// Counts the forgotten transactions that are gathered before files are dropped, however small.
const DROP_TRANSACTIONS: u64 = 100_000;

/// Says what staging did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// It was written.
    Written,
    /// The journal has it, or has forgotten it: nothing was written.
    Known,
}

/// Is a transaction whose chunks arrive.
#[derive(Debug)]
struct Partial {
    commit: Lsn,
    chunks: u32,
    bytes: u64,
}

/// Is what only the writer may look at.
struct Writer {
    staged: Lsn,
    /// Holds what is staged and not yet written: small transactions share one write.
    pending: WriteBatch,
    partial: Option<Partial>,
    /// Counts what was forgotten and still has files.
    undropped_bytes: u64,
    undropped_transactions: u64,
    chunk: Vec<u8>,
}

struct Inner {
    database: Arc<Database>,
    writer: Mutex<Writer>,
    ahead: Mutex<read::Ahead>,
    synced: AtomicU64,
    forgotten: AtomicU64,
    bytes: AtomicU64,
}

/// Writes and reads the journal.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Journal");
        shown
            .field("forgotten", &self.forgotten())
            .field("position", &self.position());
        shown.finish_non_exhaustive()
    }
}

impl Journal {
    /// Finds where the journal stands and removes chunks of a transaction that never ended.
    pub(crate) fn open(database: Arc<Database>) -> Result<Self, StoreError> {
        let fact = |key: FactKey| database.get_json::<Lsn>(Family::Facts, key.bytes());
        let forgotten = fact(FactKey::JournalForgotten)?.unwrap_or_default();
        let advanced = fact(FactKey::JournalPosition)?.unwrap_or_default();
        let last = match database.last_key(Family::JournalTxn, &[])? {
            Some(key) => entry::transaction_lsn(&key)?,
            None => Lsn::ZERO,
        };
        // Whatever is found has survived: opening a database syncs what it reads from its log.
        let position = last.max(advanced).max(forgotten);
        let bytes = read::totals(&database, forgotten, position)?.bytes;
        let journal = Journal {
            inner: Arc::new(Inner {
                database,
                writer: Mutex::new(Writer {
                    staged: position,
                    pending: WriteBatch::default(),
                    partial: None,
                    undropped_bytes: DROP_BYTES,
                    undropped_transactions: 0,
                    chunk: Vec::new(),
                }),
                ahead: Mutex::default(),
                synced: AtomicU64::new(position.0),
                forgotten: AtomicU64::new(forgotten.0),
                bytes: AtomicU64::new(bytes),
            }),
        };
        journal.drop_partial()?;
        Ok(journal)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.inner.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Writes what is staged, unless it is worth waiting for more.
    fn write_pending(&self, writer: &mut Writer, at_least: usize) -> Result<(), StoreError> {
        self.database().refuse_if_poisoned()?;
        if writer.pending.is_empty() || writer.pending.size_in_bytes() < at_least {
            return Ok(());
        }
        let batch = std::mem::take(&mut writer.pending);
        self.database().write(batch, Durability::Logged)
    }

    /// Stages one chunk of the transaction whose commit record starts at `commit_lsn`. Chunks come
    /// in order from 0; 0 starts the transaction again. One transaction arrives at a time.
    ///
    /// # Durability
    /// Durable with the next [`Journal::sync`], and visible once its transaction is.
    ///
    /// # Errors
    /// Crash if the write fails, or the chunk does not follow the one before.
    pub fn stage_chunk(&self, commit_lsn: Lsn, number: u32, chunk: &[u8]) -> Result<Staged, StoreError> {
        let mut writer = self.writer();
        if commit_lsn < writer.staged {
            return Ok(Staged::Known);
        }
        let follows = match &writer.partial {
            Some(partial) if number > 0 => partial.commit == commit_lsn && partial.chunks == number,
            _ => number == 0,
        };
        if !follows {
            return Err(StoreError::OutOfOrder {
                what: "chunk",
                at: commit_lsn,
                stands: writer.partial.as_ref().map_or(writer.staged, |partial| partial.commit),
            });
        }
        let key = chunk_key(commit_lsn, number);
        let staging = &mut *writer;
        record::seal_into(&mut staging.chunk, &key, |out| out.extend_from_slice(chunk));
        staging
            .pending
            .put_cf(self.database().family(Family::JournalChunk), key, &staging.chunk);
        self.write_pending(&mut writer, PENDING_BYTES)?;
        let before = writer.partial.take().filter(|_| number > 0);
        writer.partial = Some(Partial {
            commit: commit_lsn,
            chunks: number + 1,
            bytes: before.map_or(0, |partial| partial.bytes) + chunk.len() as u64,
        });
        Ok(Staged::Written)
    }

    /// Ends a transaction whose chunks are all staged.
    ///
    /// # Durability
    /// Durable, and visible, with the next [`Journal::sync`].
    ///
    /// # Errors
    /// Crash if the write fails, the chunks staged are not those the record counts, the order of
    /// commits is broken, or the journal holds another transaction at the same LSN.
    pub fn stage_commit(&self, transaction: &TransactionMeta) -> Result<Staged, StoreError> {
        let mut writer = self.writer();
        let end = transaction.end_lsn;
        let out_of_order = |what, stands| StoreError::OutOfOrder { what, at: end, stands };
        if end <= writer.staged {
            self.write_pending(&mut writer, 0)?;
            return self.compare_known(transaction, writer.staged);
        }
        if transaction.commit_lsn >= end || transaction.commit_lsn < writer.staged {
            return Err(out_of_order("transaction", writer.staged));
        }
        let partial = writer.partial.take();
        let arrived = partial.map_or((transaction.commit_lsn, 0, 0), |partial| {
            (partial.commit, partial.chunks, partial.bytes)
        });
        if arrived != (transaction.commit_lsn, transaction.chunks, transaction.bytes) {
            return Err(out_of_order("transaction with other chunks", writer.staged));
        }
        let key = transaction_key(end);
        let value = record::seal(&key, &entry::encode(transaction));
        writer
            .pending
            .put_cf(self.database().family(Family::JournalTxn), key, value);
        self.write_pending(&mut writer, PENDING_BYTES)?;
        writer.staged = end;
        self.inner.bytes.fetch_add(transaction.bytes, Ordering::Relaxed);
        Ok(Staged::Written)
    }

    /// Checks a transaction that arrives again against the one that is kept.
    fn compare_known(&self, transaction: &TransactionMeta, staged: Lsn) -> Result<Staged, StoreError> {
        let key = transaction_key(transaction.end_lsn);
        let found = read::transaction(self.database(), transaction.end_lsn)?;
        match found {
            Some(found) if found == *transaction => Ok(Staged::Known),
            Some(_) => {
                let what = "another transaction has the same end LSN";
                Err(StoreError::corrupt(Family::JournalTxn, &key, what))
            }
            None if transaction.end_lsn <= self.forgotten() => Ok(Staged::Known),
            None => Err(StoreError::OutOfOrder {
                what: "transaction",
                at: transaction.end_lsn,
                stands: staged,
            }),
        }
    }

    /// Moves the position on without a transaction: the source says that nothing before `to` is
    /// missing. An earlier position changes nothing.
    ///
    /// # Durability
    /// Durable with the next [`Journal::sync`].
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn advance(&self, to: Lsn) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if to <= writer.staged {
            return Ok(());
        }
        facts::stage(self.database(), &mut writer.pending, FactKey::JournalPosition, &to);
        self.write_pending(&mut writer, PENDING_BYTES)?;
        writer.staged = to;
        Ok(())
    }

    /// Makes everything staged durable and visible; returns the position reached.
    ///
    /// # Durability
    /// Synced (D1): one sync for all transactions staged before the call.
    ///
    /// # Errors
    /// Crash if the sync fails; nothing more is written then.
    pub fn sync(&self) -> Result<Lsn, StoreError> {
        let mut writer = self.writer();
        let staged = writer.staged;
        if staged > self.position() {
            self.write_pending(&mut writer, 0)?;
            drop(writer);
            self.database().sync()?;
            self.inner.synced.fetch_max(staged.0, Ordering::AcqRel);
        }
        Ok(self.position())
    }

    /// Is the position up to which the journal is durable.
    pub fn position(&self) -> Lsn {
        Lsn(self.inner.synced.load(Ordering::Acquire))
    }

    /// Is the position up to which the journal is staged.
    pub fn staged(&self) -> Lsn {
        self.writer().staged
    }

    /// Is the position up to which transactions are gone.
    pub fn forgotten(&self) -> Lsn {
        Lsn(self.inner.forgotten.load(Ordering::Acquire))
    }

    /// Counts the bytes of the changes kept: those of every transaction not forgotten.
    pub fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    /// Yields the durable transactions with `after < end_lsn ≤ up_to`, in commit order.
    pub fn transactions(&self, after: Lsn, up_to: Lsn) -> Transactions {
        let up_to = up_to.min(self.position());
        Transactions::new(self.inner.database.clone(), after.max(self.forgotten()), up_to)
    }

    /// Yields a transaction's chunks in order.
    pub fn chunks(&self, transaction: &TransactionMeta) -> Chunks {
        Chunks::new(self.clone(), transaction)
    }

    /// Drops the transactions with `end_lsn ≤ up_to`. Space comes back file by file, later.
    ///
    /// # Durability
    /// Durable with the next synced write. Files go only after that.
    ///
    /// # Errors
    /// Crash if the write fails, or `up_to` is past the durable position.
    pub fn forget(&self, up_to: Lsn) -> Result<(), StoreError> {
        if up_to > self.position() {
            return Err(StoreError::OutOfOrder {
                what: "forgetting",
                at: up_to,
                stands: self.position(),
            });
        }
        let mut writer = self.writer();
        let from = self.forgotten();
        if up_to <= from {
            return Ok(());
        }
        let gone = read::totals(self.database(), from, up_to)?;
        let mut batch = WriteBatch::default();
        facts::stage(self.database(), &mut batch, FactKey::JournalForgotten, &up_to);
        self.database().write(batch, Durability::Logged)?;
        self.inner.forgotten.fetch_max(up_to.0, Ordering::AcqRel);
        self.inner.bytes.fetch_sub(gone.bytes, Ordering::Relaxed);
        writer.undropped_bytes += gone.bytes;
        writer.undropped_transactions += gone.transactions;
        if writer.undropped_bytes < DROP_BYTES && writer.undropped_transactions < DROP_TRANSACTIONS {
            return Ok(());
        }
        writer.undropped_bytes = 0;
        writer.undropped_transactions = 0;
        drop(writer);
        self.drop_files(up_to)
    }

    /// Unlinks the files that hold nothing above `up_to`.
    ///
    /// IMPORTANT: the sync comes first. A file dropped before the position is durable would leave
    /// transactions in the journal whose chunks are gone.
    fn drop_files(&self, up_to: Lsn) -> Result<(), StoreError> {
        self.database().sync()?;
        // Every chunk of a transaction that ended at or before `up_to` has a commit LSN below it,
        // and no later transaction commits there.
        let ends = [
            (Family::JournalChunk, chunk_key(up_to, 0).to_vec()),
            (Family::JournalTxn, transaction_key(up_to).to_vec()),
        ];
        self.database().guard("drop files of the journal", |db| {
            ends.iter().try_for_each(|(family, end)| {
                db.delete_file_in_range_cf(self.database().family(*family), &[][..], &end[..])
            })
        })
    }

    /// Removes the chunks of a transaction that has not ended. Called when the source connects
    /// again: it will send the transaction from its beginning.
    ///
    /// # Durability
    /// Durable with the next synced write; until then the chunks are unreachable anyway.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn drop_partial(&self) -> Result<(), StoreError> {
        let mut writer = self.writer();
        self.write_pending(&mut writer, 0)?;
        writer.partial = None;
        let from = chunk_key(writer.staged, 0);
        let found = self.database().last_key(Family::JournalChunk, &[])?;
        if found.is_none_or(|last| last[..] < from[..]) {
            return Ok(());
        }
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(self.database().family(Family::JournalChunk), &from[..], &[0xff; 13][..]);
        self.database().write(batch, Durability::Logged)
    }
}
