//! What an operation does to the row index, as compact blocks.
//!
//! A block is a varint count and then entries in order: tag (1 byte), key (length-prefixed), and for
//! a put: file varint, position varint, row copy (length-prefixed) where the tag says so.
//!
//! Most rows never have a copy. An entry says whether one is there to be dropped, so that only those
//! pay for a tombstone.

use flow_core::FileId;
use flow_core::codec::{Malformed, Reader, put_prefixed, put_varint};

/// Is the size at which a block is closed, in bytes: one block is one atomic batch of the row
/// index, so it stays far below a write buffer, and per-batch costs vanish.
pub const BLOCK_BYTES: usize = 256 * 1024;

/// Is where a row stands in the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Is the data file.
    pub file: FileId,
    /// Is the row's position in it, from 0.
    pub position: u64,
}

impl Location {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        put_varint(out, self.file.0);
        put_varint(out, self.position);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Location, Malformed> {
        Ok(Location {
            file: FileId(reader.varint("file id")?),
            position: reader.varint("position")?,
        })
    }
}

impl<'a> DeltaEntry<'a> {
    /// Is the key, without table and generation.
    pub fn key(&self) -> &'a [u8] {
        match self {
            DeltaEntry::Put { key, .. } | DeltaEntry::Remove { key, .. } => key,
        }
    }
}

const REMOVE: u8 = 0;
const PUT: u8 = 1;
const PUT_HOT: u8 = 2;
const PUT_DROPPING: u8 = 3;
const REMOVE_DROPPING: u8 = 4;

/// Says what becomes of the copy of a key's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotChange<'a> {
    /// There was none, and there will be none.
    None,
    /// This is the copy from now on.
    Keep(&'a [u8]),
    /// There was one, and there will be none.
    Drop,
}

/// Is one change of the row index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaEntry<'a> {
    /// The key's row stands at the location.
    Put {
        /// Is the key, without table and generation.
        key: &'a [u8],
        /// Is where the row stands.
        location: Location,
        /// Says what becomes of the copy of the row.
        hot: HotChange<'a>,
    },
    /// The key has no row.
    Remove {
        /// Is the key, without table and generation.
        key: &'a [u8],
        /// Says whether there is a copy of the row, which goes too.
        hot: bool,
    },
}

/// Gathers one block of changes of the row index. Reusable without allocating.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexDelta {
    entries: u64,
    body: Vec<u8>,
}

impl IndexDelta {
    /// Starts an empty block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the entries.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// Says whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Counts the bytes gathered.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Says whether the block should be staged before another entry is added.
    pub fn is_full(&self) -> bool {
        self.body.len() >= BLOCK_BYTES
    }

    /// Forgets all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.entries = 0;
        self.body.clear();
    }

    /// Adds that the key's row stands at `location`.
    pub fn put(&mut self, key: &[u8], location: Location, hot: HotChange<'_>) {
        self.body.push(match hot {
            HotChange::None => PUT,
            HotChange::Keep(_) => PUT_HOT,
            HotChange::Drop => PUT_DROPPING,
        });
        put_prefixed(&mut self.body, key);
        location.write(&mut self.body);
        if let HotChange::Keep(row) = hot {
            put_prefixed(&mut self.body, row);
        }
        self.entries += 1;
    }

    /// Adds that the key has no row; `hot` says whether the row had a copy.
    pub fn remove(&mut self, key: &[u8], hot: bool) {
        self.body.push(if hot { REMOVE_DROPPING } else { REMOVE });
        put_prefixed(&mut self.body, key);
        self.entries += 1;
    }

    /// Appends the block's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.entries);
        out.extend_from_slice(&self.body);
    }

    /// Reads a whole block back.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a block.
    pub fn decode(bytes: &[u8]) -> Result<IndexDelta, Malformed> {
        let mut delta = IndexDelta::new();
        for entry in DeltaEntries::new(bytes)? {
            match entry? {
                DeltaEntry::Put { key, location, hot } => delta.put(key, location, hot),
                DeltaEntry::Remove { key, hot } => delta.remove(key, hot),
            }
        }
        Ok(delta)
    }

    /// Walks the entries in order.
    pub fn entries(&self) -> DeltaEntries<'_> {
        DeltaEntries {
            left: self.entries,
            reader: Reader::new(&self.body),
        }
    }
}

/// Walks a block's entries in order; stops after the first error.
#[derive(Clone, Debug)]
pub struct DeltaEntries<'a> {
    left: u64,
    reader: Reader<'a>,
}

impl<'a> DeltaEntries<'a> {
    /// Starts before the first entry of an encoded block.
    ///
    /// # Errors
    /// [`Malformed`] if the count cannot be read.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let left = reader.varint("entry count")?;
        Ok(DeltaEntries { left, reader })
    }

    fn entry(&mut self) -> Result<DeltaEntry<'a>, Malformed> {
        let tag = self.reader.u8("entry tag")?;
        let key = self.reader.prefixed("entry key")?;
        Ok(match tag {
            REMOVE | REMOVE_DROPPING => DeltaEntry::Remove {
                key,
                hot: tag == REMOVE_DROPPING,
            },
            PUT | PUT_HOT | PUT_DROPPING => DeltaEntry::Put {
                key,
                location: Location::read(&mut self.reader)?,
                hot: match tag {
                    PUT_HOT => HotChange::Keep(self.reader.prefixed("row copy")?),
                    PUT_DROPPING => HotChange::Drop,
                    _ => HotChange::None,
                },
            },
            _ => return Err(self.reader.malformed("entry tag")),
        })
    }
}

impl<'a> Iterator for DeltaEntries<'a> {
    type Item = Result<DeltaEntry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            let over = !self.reader.is_empty();
            let error = self.reader.malformed("block end");
            self.reader.rest();
            return over.then_some(Err(error));
        }
        self.left -= 1;
        let entry = self.entry();
        if entry.is_err() {
            self.left = 0;
            self.reader.rest();
        }
        Some(entry)
    }
}
