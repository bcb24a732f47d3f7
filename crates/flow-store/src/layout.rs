//! The names and keys of everything on disk. They are a public API: add, retire, never reuse.
//!
//! Keys are big-endian, so that RocksDB's byte order is the numbers' order.
//!
//! | family | key | value |
//! |---|---|---|
//! | `facts` | name | one typed singleton each |
//! | `files` | file u64 | data file |
//! | `hot` | table u32, generation u32, key | row bytes (blob files) |
//! | `index` | table u32, generation u32, key | file varint, position varint, 1 if `hot` has a copy |
//! | `journal.chunk` | commit LSN u64, chunk number u32 | changes |
//! | `journal.txn` | end LSN u64 | transaction |
//! | `operation` | seq u64, part u8, share u32 | header, share or sealed plan |
//! | `operation.block` | seq u64, share u32, block u64 | index delta or state delta |
//! | `refresh` | name | dynamic table |
//! | `refresh.run` | name, 0, number u64 | one refresh |
//! | `state` | state number u32, generation u32, key | value; a weight is 8 bytes |
//! | `tables` | table u32 | captured table |
//!
//! Every value is wrapped as [`crate::record`] says.

use std::fmt;

use flow_core::{FileId, Generation, Lsn, TableId};

/// Is the version of the directory as a whole. A directory with another one is not opened.
pub const FORMAT_VERSION: u32 = 1;

/// Is a column family, sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Singletons.
    Facts,
    /// Data files by number.
    Files,
    /// Row copies.
    Hot,
    /// Row locations.
    Index,
    /// Transactions' changes.
    JournalChunk,
    /// Transactions.
    JournalTxn,
    /// Open operations.
    Operation,
    /// Open operations' index and state deltas.
    OperationBlock,
    /// Dynamic tables.
    Refresh,
    /// Dynamic tables' histories.
    RefreshRun,
    /// What operators of dynamic tables keep.
    State,
    /// Captured tables.
    Tables,
}

impl Family {
    /// Lists all families.
    pub const ALL: [Family; 12] = [
        Family::Facts,
        Family::Files,
        Family::Hot,
        Family::Index,
        Family::JournalChunk,
        Family::JournalTxn,
        Family::Operation,
        Family::OperationBlock,
        Family::Refresh,
        Family::RefreshRun,
        Family::State,
        Family::Tables,
    ];

    /// Is the name on disk.
    pub fn name(self) -> &'static str {
        match self {
            Family::Facts => "facts",
            Family::Files => "files",
            Family::Hot => "hot",
            Family::Index => "index",
            Family::JournalChunk => "journal.chunk",
            Family::JournalTxn => "journal.txn",
            Family::Operation => "operation",
            Family::OperationBlock => "operation.block",
            Family::Refresh => "refresh",
            Family::RefreshRun => "refresh.run",
            Family::State => "state",
            Family::Tables => "tables",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Is a key of the family `facts`, sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FactKey {
    FileIds,
    Format,
    Identity,
    Init,
    JournalForgotten,
    JournalPosition,
    Ledger,
    OperationSeq,
    Publication,
    StateNumbers,
    TableIds,
}

impl FactKey {
    pub(crate) fn bytes(self) -> &'static [u8] {
        match self {
            FactKey::FileIds => b"file.ids",
            FactKey::Format => b"format",
            FactKey::Identity => b"identity",
            FactKey::Init => b"init",
            FactKey::JournalForgotten => b"journal.forgotten",
            FactKey::JournalPosition => b"journal.position",
            FactKey::Ledger => b"ledger",
            FactKey::OperationSeq => b"operation.seq",
            FactKey::Publication => b"publication",
            FactKey::StateNumbers => b"state.numbers",
            FactKey::TableIds => b"table.ids",
        }
    }
}

/// Is a part of an operation in the family `operation`; the number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationPart {
    Header,
    Share(u32),
    Plan(u32),
}

pub(crate) fn file_key(file: FileId) -> [u8; 8] {
    file.0.to_be_bytes()
}

pub(crate) fn table_key(table: TableId) -> [u8; 4] {
    table.0.to_be_bytes()
}

pub(crate) fn transaction_key(end: Lsn) -> [u8; 8] {
    end.0.to_be_bytes()
}

pub(crate) fn chunk_key(commit: Lsn, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&commit.0.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Is what all keys of one content of a table begin with, in `index` and `hot`.
pub(crate) fn row_prefix(table: TableId, generation: Generation) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&table.0.to_be_bytes());
    key[4..].copy_from_slice(&generation.0.to_be_bytes());
    key
}

/// Is what all keys of one state of a dynamic table begin with.
pub(crate) fn state_prefix(number: u32, generation: Generation) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key[4..].copy_from_slice(&generation.0.to_be_bytes());
    key
}

/// Is the first key after all that begin with `prefix`; `None` if there is none.
pub(crate) fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

pub(crate) fn operation_key(seq: u64, part: OperationPart) -> [u8; 13] {
    let (tag, share) = match part {
        OperationPart::Header => (0, 0),
        OperationPart::Share(share) => (1, share),
        OperationPart::Plan(share) => (2, share),
    };
    let mut key = [0; 13];
    key[..8].copy_from_slice(&seq.to_be_bytes());
    key[8] = tag;
    key[9..].copy_from_slice(&share.to_be_bytes());
    key
}

/// Reads a key of the family `operation`.
pub(crate) fn parse_operation_key(key: &[u8]) -> Option<(u64, OperationPart)> {
    let key: &[u8; 13] = key.try_into().ok()?;
    let (seq, rest) = key.split_first_chunk::<8>()?;
    let (tag, share) = rest.split_first()?;
    let share = u32::from_be_bytes(share.try_into().ok()?);
    let part = match tag {
        0 => OperationPart::Header,
        1 => OperationPart::Share(share),
        2 => OperationPart::Plan(share),
        _ => return None,
    };
    Some((u64::from_be_bytes(*seq), part))
}

pub(crate) fn block_key(seq: u64, share: u32, block: u64) -> [u8; 20] {
    let mut key = [0; 20];
    key[..8].copy_from_slice(&seq.to_be_bytes());
    key[8..12].copy_from_slice(&share.to_be_bytes());
    key[12..].copy_from_slice(&block.to_be_bytes());
    key
}

/// Is what all keys of one dynamic table's history begin with. Names hold no NUL.
pub(crate) fn run_prefix(name: &str) -> Vec<u8> {
    let mut key = name.as_bytes().to_vec();
    key.push(0);
    key
}

pub(crate) fn run_key(name: &str, number: u64) -> Vec<u8> {
    let mut key = run_prefix(name);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_sorted_and_named_once() {
        let names: Vec<_> = Family::ALL.iter().map(|family| family.name()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn operation_keys_return() {
        for part in [
            OperationPart::Header,
            OperationPart::Share(7),
            OperationPart::Plan(u32::MAX),
        ] {
            assert_eq!(parse_operation_key(&operation_key(5, part)), Some((5, part)));
        }
        assert_eq!(parse_operation_key(b"short"), None);
        assert_eq!(parse_operation_key(&[9; 13]), None);
    }

    #[test]
    fn the_end_of_a_prefix_carries() {
        assert_eq!(after_prefix(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(after_prefix(&[1, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff, 0xff]), None);
    }
}
