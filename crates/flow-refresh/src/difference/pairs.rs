//! Rows as bytes, found by their content: each pairs off once.

use std::collections::HashMap;

use datafusion::common::Result;

/// Marks the end of a chain.
const NONE: u32 = u32::MAX;

/// Is how many bytes of rows are taken from the system at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Is what is kept of a row beside its bytes: where it is, its hash, a link, a flag, its share of the
/// hash table.
const ROW_BYTES: usize = size_of::<Held>() + 16;

#[derive(Clone, Copy, Debug)]
struct Held {
    hash: u64,
    chunk: u32,
    start: u32,
    bytes: u32,
    /// Is the next row with this hash.
    next: u32,
    paired: bool,
}

/// Holds computed rows.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    chunks: Vec<Vec<u8>>,
    rows: Vec<Held>,
    /// Holds the first unpaired row of each hash.
    heads: HashMap<u64, u32>,
    closed: bool,
}

impl Pairs {
    /// Counts the bytes held.
    pub(super) fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Vec::capacity).sum();
        chunks + self.rows.len() * ROW_BYTES
    }

    /// Lets all rows go, for good.
    pub(super) fn close(&mut self) {
        *self = Pairs {
            closed: true,
            ..Pairs::default()
        };
    }

    /// Says that the rows were let go.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Adds a row.
    pub(super) fn add(&mut self, hash: u64, row: &[u8]) -> Result<()> {
        let index = u32::try_from(self.rows.len()).ok().filter(|index| *index != NONE);
        let index = index.ok_or_else(too_many)?;
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= row.len();
        if !self.chunks.last().is_some_and(fits) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(row.len())));
        }
        let number = u32::try_from(self.chunks.len() - 1).map_err(|_| too_many())?;
        let chunk = &mut self.chunks[number as usize];
        let start = u32::try_from(chunk.len()).map_err(|_| too_many())?;
        chunk.extend_from_slice(row);
        let head = self.heads.entry(hash).or_insert(NONE);
        self.rows.push(Held {
            hash,
            chunk: number,
            start,
            bytes: u32::try_from(row.len()).map_err(|_| too_many())?,
            next: *head,
            paired: false,
        });
        *head = index;
        Ok(())
    }

    /// Is a row's bytes.
    pub(super) fn row(&self, index: u32) -> &[u8] {
        let held = self.rows[index as usize];
        &self.chunks[held.chunk as usize][held.start as usize..][..held.bytes as usize]
    }

    /// Lists all rows with their hashes.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (0..).zip(&self.rows).map(|(index, held)| (held.hash, self.row(index)))
    }

    /// Pairs a stored row off with a computed one; says whether there was one.
    pub(super) fn pair(&mut self, hash: u64, row: &[u8]) -> bool {
        let mut before = NONE;
        let mut index = self.heads.get(&hash).copied().unwrap_or(NONE);
        while index != NONE {
            let after = self.rows[index as usize].next;
            if self.row(index) == row {
                match before {
                    NONE => {
                        self.heads.insert(hash, after);
                    }
                    _ => self.rows[before as usize].next = after,
                }
                self.rows[index as usize].paired = true;
                return true;
            }
            (before, index) = (index, after);
        }
        false
    }

    /// Lists the rows that found no twin, in the order of their bytes.
    pub(super) fn left(&self) -> Vec<u32> {
        let unpaired = (0..).zip(&self.rows).filter(|(_, held)| !held.paired);
        let mut left: Vec<u32> = unpaired.map(|(index, _)| index).collect();
        left.sort_unstable_by(|a, b| self.row(*a).cmp(self.row(*b)));
        left
    }
}

fn too_many() -> datafusion::common::DataFusionError {
    crate::exactness::inexact("a dynamic table holds at most four billion rows")
}
