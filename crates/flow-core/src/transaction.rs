//! What the source delivers and the journal keeps: whole transactions, in commit order.
//!
//! A transaction's changes travel as *chunks*: byte strings of at most about [`CHUNK_BYTES`] that
//! hold whole changes, so that a transaction of any size passes in bounded memory. The chunks
//! become visible only with the transaction's [`TransactionMeta`].
//!
//! Record layout in a chunk: kind (1 byte), table (varint), then by kind:
//! insert: new row · update: old tag (1), old row if any, new row · delete: old tag, old row ·
//! truncate: nothing · block: code, reason. Rows and texts are length-prefixed.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::codec::{Malformed, Reader, put_prefixed, put_varint};
use crate::ids::TableId;
use crate::lsn::Lsn;

/// Is the size at which a chunk is closed, in bytes: large enough that per-chunk costs vanish,
/// small enough that several tables' chunks fit any memory budget.
pub const CHUNK_BYTES: usize = 512 * 1024;

/// Describes one committed transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionMeta {
    /// Is the start of the commit record (`final_lsn` of Begin): the transaction's place in commit order.
    pub commit_lsn: Lsn,
    /// Is the end of the commit record: the LSN by which the transaction is known.
    pub end_lsn: Lsn,
    /// Is when PostgreSQL committed it.
    pub commit_time: UnixMicros,
    /// Is PostgreSQL's transaction id.
    pub xid: u32,
    /// Counts the chunks, numbered from 0.
    pub chunks: u32,
    /// Counts the changes in all chunks.
    pub changes: u64,
    /// Counts the chunks' bytes.
    pub bytes: u64,
}

/// Is the row a change found, as far as PostgreSQL sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Old {
    /// Nothing: the key did not change (`REPLICA IDENTITY DEFAULT`).
    None,
    /// The key columns only; the others are absent.
    Key(Bytes),
    /// The whole row (`REPLICA IDENTITY FULL`).
    Full(Bytes),
}

/// Is one change of one captured table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row appeared.
    Insert {
        /// The table.
        table: TableId,
        /// The row.
        new: Bytes,
    },
    /// A row was replaced; its key may have changed if `old` is given.
    Update {
        /// The table.
        table: TableId,
        /// What was there.
        old: Old,
        /// The row, perhaps with unchanged columns.
        new: Bytes,
    },
    /// A row went.
    Delete {
        /// The table.
        table: TableId,
        /// What was there; never [`Old::None`].
        old: Old,
    },
    /// All rows went.
    Truncate {
        /// The table.
        table: TableId,
    },
    /// The table cannot be followed from here on: a value its column cannot hold, a changed
    /// definition. The engine blocks it at this transaction.
    Block {
        /// The table.
        table: TableId,
        /// Names the page under `docs/errors/`.
        code: String,
        /// Says what happened, for an operator; holds no row values.
        reason: String,
    },
}

impl Change {
    /// Is the table the change belongs to.
    pub fn table(&self) -> TableId {
        match self {
            Change::Insert { table, .. }
            | Change::Update { table, .. }
            | Change::Delete { table, .. }
            | Change::Truncate { table }
            | Change::Block { table, .. } => *table,
        }
    }
}

const INSERT: u8 = 1;
const UPDATE: u8 = 2;
const DELETE: u8 = 3;
const TRUNCATE: u8 = 4;
const BLOCK: u8 = 5;

const OLD_NONE: u8 = 0;
const OLD_KEY: u8 = 1;
const OLD_FULL: u8 = 2;

/// Gathers changes into one chunk.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    bytes: Vec<u8>,
    changes: u64,
}

impl ChunkBuilder {
    /// Starts an empty chunk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the bytes gathered.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Says whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Counts the changes gathered.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Says whether the chunk should be handed on before another change is added.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK_BYTES
    }

    /// Adds an insert.
    pub fn insert(&mut self, table: TableId, new: &[u8]) {
        self.head(INSERT, table);
        put_prefixed(&mut self.bytes, new);
    }

    /// Adds an update; the flag says whether `old` is the full row or the key only.
    pub fn update(&mut self, table: TableId, old: Option<(&[u8], bool)>, new: &[u8]) {
        self.head(UPDATE, table);
        self.old(old);
        put_prefixed(&mut self.bytes, new);
    }

    /// Adds a delete; the flag says whether `old` is the full row or the key only.
    pub fn delete(&mut self, table: TableId, old: &[u8], full: bool) {
        self.head(DELETE, table);
        self.old(Some((old, full)));
    }

    /// Adds a truncate.
    pub fn truncate(&mut self, table: TableId) {
        self.head(TRUNCATE, table);
    }

    /// Adds the end of a table's stream.
    pub fn block(&mut self, table: TableId, code: &str, reason: &str) {
        self.head(BLOCK, table);
        put_prefixed(&mut self.bytes, code.as_bytes());
        put_prefixed(&mut self.bytes, reason.as_bytes());
    }

    /// Takes the chunk and starts the next.
    pub fn take(&mut self) -> Bytes {
        self.changes = 0;
        Bytes::from(std::mem::take(&mut self.bytes))
    }

    fn head(&mut self, kind: u8, table: TableId) {
        self.bytes.push(kind);
        put_varint(&mut self.bytes, u64::from(table.0));
        self.changes += 1;
    }

    fn old(&mut self, old: Option<(&[u8], bool)>) {
        match old {
            None => self.bytes.push(OLD_NONE),
            Some((row, full)) => {
                self.bytes.push(if full { OLD_FULL } else { OLD_KEY });
                put_prefixed(&mut self.bytes, row);
            }
        }
    }
}

/// Reads the changes of one chunk in order, sharing its memory.
#[derive(Debug)]
pub struct ChunkReader<'a> {
    chunk: &'a Bytes,
    reader: Reader<'a>,
}

impl<'a> ChunkReader<'a> {
    /// Starts before the first change.
    pub fn new(chunk: &'a Bytes) -> Self {
        ChunkReader {
            chunk,
            reader: Reader::new(chunk),
        }
    }

    fn row(&mut self) -> Result<Bytes, Malformed> {
        Ok(self.chunk.slice_ref(self.reader.prefixed("row")?))
    }

    fn old(&mut self) -> Result<Old, Malformed> {
        match self.reader.u8("old tag")? {
            OLD_NONE => Ok(Old::None),
            OLD_KEY => Ok(Old::Key(self.row()?)),
            OLD_FULL => Ok(Old::Full(self.row()?)),
            _ => Err(self.reader.malformed("old tag")),
        }
    }

    fn change(&mut self) -> Result<Change, Malformed> {
        let kind = self.reader.u8("change kind")?;
        let table = self.reader.varint("table id")?;
        let table = TableId(u32::try_from(table).map_err(|_| self.reader.malformed("table id"))?);
        Ok(match kind {
            INSERT => Change::Insert {
                table,
                new: self.row()?,
            },
            UPDATE => Change::Update {
                table,
                old: self.old()?,
                new: self.row()?,
            },
            DELETE => Change::Delete {
                table,
                old: self.old()?,
            },
            TRUNCATE => Change::Truncate { table },
            BLOCK => Change::Block {
                table,
                code: self.reader.text("block code")?.to_owned(),
                reason: self.reader.text("block reason")?.to_owned(),
            },
            _ => return Err(self.reader.malformed("change kind")),
        })
    }
}

impl Iterator for ChunkReader<'_> {
    type Item = Result<Change, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.reader.is_empty()).then(|| {
            let change = self.change();
            if change.is_err() {
                self.reader.rest();
            }
            change
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_return_in_order_and_any_cut_is_an_error_not_a_panic() {
        let mut builder = ChunkBuilder::new();
        builder.insert(TableId(1), b"new");
        builder.update(TableId(300), Some((b"old", true)), b"new");
        builder.update(TableId(2), None, b"");
        builder.delete(TableId(2), b"key", false);
        builder.truncate(TableId(9));
        builder.block(TableId(9), "F0001", "why");
        assert_eq!(builder.changes(), 6);
        let chunk = builder.take();
        let all: Vec<_> = ChunkReader::new(&chunk).collect::<Result<_, _>>().expect("own chunk");
        let expected = vec![
            Change::Insert {
                table: TableId(1),
                new: Bytes::from_static(b"new"),
            },
            Change::Update {
                table: TableId(300),
                old: Old::Full(Bytes::from_static(b"old")),
                new: Bytes::from_static(b"new"),
            },
            Change::Update {
                table: TableId(2),
                old: Old::None,
                new: Bytes::new(),
            },
            Change::Delete {
                table: TableId(2),
                old: Old::Key(Bytes::from_static(b"key")),
            },
            Change::Truncate { table: TableId(9) },
            Change::Block {
                table: TableId(9),
                code: "F0001".into(),
                reason: "why".into(),
            },
        ];
        assert_eq!(all, expected);
        for cut in 0..chunk.len() {
            let part = chunk.slice(..cut);
            let good = ChunkReader::new(&part).take_while(Result::is_ok).count();
            assert!(good < expected.len());
        }
    }
}
