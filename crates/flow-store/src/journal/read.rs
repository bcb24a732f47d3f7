//! Reading the journal. Readers own what they need and hold no lock or snapshot between steps:
//! what is durable never changes until it is forgotten.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use flow_core::Lsn;
use flow_core::transaction::TransactionMeta;
use rocksdb::ReadOptions;

use crate::database::Database;
use crate::error::StoreError;
use crate::journal::{Journal, entry};
use crate::layout::{Family, chunk_key, transaction_key};
use crate::record;

/// Counts the transactions read at a time.
const PAGE: usize = 1024;
/// Is how many chunk bytes are read at a time; a single chunk may be longer.
const AHEAD_BYTES: usize = 256 * 1024;
/// Counts the chunks read at a time.
const AHEAD_CHUNKS: usize = 4096;

/// Is the first key after all transactions that ended at or before `up_to`.
fn end_key(up_to: Lsn) -> Option<Vec<u8>> {
    up_to.0.checked_add(1).map(|next| transaction_key(Lsn(next)).to_vec())
}

/// Reads up to `limit` transactions with `after < end_lsn ≤ up_to`.
fn page(database: &Database, after: Lsn, up_to: Lsn, limit: usize) -> Result<Vec<TransactionMeta>, StoreError> {
    let Some(from) = after.0.checked_add(1).filter(|from| *from <= up_to.0) else {
        return Ok(Vec::new());
    };
    database.scan(
        Family::JournalTxn,
        &transaction_key(Lsn(from)),
        end_key(up_to),
        limit,
        entry::open,
    )
}

/// Reads one transaction.
pub(super) fn transaction(database: &Database, end: Lsn) -> Result<Option<TransactionMeta>, StoreError> {
    let key = transaction_key(end);
    let value = database.get(Family::JournalTxn, &key)?;
    value.map(|value| entry::open(&key, &value)).transpose()
}

/// Is a sum over transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) transactions: u64,
    pub(super) bytes: u64,
}

/// Sums the transactions with `after < end_lsn ≤ up_to`.
pub(super) fn totals(database: &Database, after: Lsn, up_to: Lsn) -> Result<Totals, StoreError> {
    let mut totals = Totals::default();
    let mut after = after;
    loop {
        let page = page(database, after, up_to, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(totals);
        };
        after = last.end_lsn;
        totals.transactions += page.len() as u64;
        totals.bytes += page.iter().map(|transaction| transaction.bytes).sum::<u64>();
    }
}

/// Yields transactions in commit order; stops after the first error.
#[derive(Debug)]
pub struct Transactions {
    database: Arc<Database>,
    after: Lsn,
    up_to: Lsn,
    ready: VecDeque<TransactionMeta>,
}

impl Transactions {
    pub(super) fn new(database: Arc<Database>, after: Lsn, up_to: Lsn) -> Self {
        Transactions {
            database,
            after,
            up_to,
            ready: VecDeque::new(),
        }
    }
}

impl Iterator for Transactions {
    type Item = Result<TransactionMeta, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() {
            match page(&self.database, self.after, self.up_to, PAGE) {
                Ok(page) => self.ready = page.into(),
                Err(error) => {
                    self.after = self.up_to;
                    return Some(Err(error));
                }
            }
        }
        let transaction = self.ready.pop_front()?;
        self.after = transaction.end_lsn;
        Some(Ok(transaction))
    }
}

/// Holds chunks that were read ahead of being asked for. Small transactions share blocks on disk:
/// reading each chunk by itself would decompress a block for every one.
#[derive(Default)]
pub(super) struct Ahead {
    /// Sorted by key.
    chunks: Vec<([u8; 12], Bytes)>,
}

impl Ahead {
    fn find(&self, key: &[u8; 12]) -> Option<Bytes> {
        let place = self.chunks.binary_search_by(|(held, _)| held.cmp(key));
        place.ok().map(|place| self.chunks[place].1.clone())
    }
}

/// Yields a transaction's chunks in order; stops after the first error.
#[derive(Debug)]
pub struct Chunks {
    journal: Journal,
    commit: Lsn,
    next: u32,
    end: u32,
}

impl Chunks {
    pub(super) fn new(journal: Journal, transaction: &TransactionMeta) -> Self {
        Chunks {
            journal,
            commit: transaction.commit_lsn,
            next: 0,
            end: transaction.chunks,
        }
    }

    fn chunk(&self, number: u32) -> Result<Bytes, StoreError> {
        let family = Family::JournalChunk;
        let key = chunk_key(self.commit, number);
        let ahead = &self.journal.inner.ahead;
        let held = ahead.lock().unwrap_or_else(PoisonError::into_inner).find(&key);
        let value = match held {
            Some(value) => value,
            None => {
                let chunks = self.read_ahead(&key)?;
                let first = chunks.first().filter(|(found, _)| *found == key);
                let value = first.map(|(_, value)| value.clone());
                let value = value.ok_or_else(|| StoreError::corrupt(family, &key, "chunk is missing"))?;
                *ahead.lock().unwrap_or_else(PoisonError::into_inner) = Ahead { chunks };
                value
            }
        };
        Ok(value.slice_ref(record::open(family, &key, &value)?))
    }

    /// Reads from `key` on what is durable and will therefore never change.
    fn read_ahead(&self, key: &[u8; 12]) -> Result<Vec<([u8; 12], Bytes)>, StoreError> {
        let family = Family::JournalChunk;
        let database = self.journal.database();
        let mut options = ReadOptions::default();
        // A chunk is read once or twice: the cache is for the row index.
        options.fill_cache(false);
        options.set_iterate_upper_bound(chunk_key(self.journal.position(), 0));
        let mut rows = database.raw().raw_iterator_cf_opt(database.family(family), options);
        rows.seek(key);
        let (mut chunks, mut bytes) = (Vec::new(), 0);
        while bytes < AHEAD_BYTES
            && chunks.len() < AHEAD_CHUNKS
            && let Some((key, value)) = rows.item()
        {
            let key = key.try_into();
            let key =
                key.map_err(|_| StoreError::corrupt(family, rows.key().unwrap_or_default(), "key is not a chunk's"))?;
            bytes += value.len();
            chunks.push((key, Bytes::copy_from_slice(value)));
            rows.next();
        }
        rows.status().map_err(|source| StoreError::Read { family, source })?;
        Ok(chunks)
    }
}

impl Iterator for Chunks {
    type Item = Result<Bytes, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let chunk = self.chunk(self.next);
        self.next = if chunk.is_ok() { self.next + 1 } else { self.end };
        Some(chunk)
    }
}
