//! Merging runs: entries in the order of their keys, those of one key made one.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::entry::{Entry, OwnEntry, Run};
use super::spill::{Spill, SpillReader};
use crate::error::StoreError;
use crate::layout::Family;

enum Source {
    File(SpillReader),
    Memory { run: Run, next: usize },
}

impl Source {
    /// Takes the next entry; `false` at the end.
    fn next(&mut self, into: &mut OwnEntry) -> Result<bool, StoreError> {
        match self {
            Source::File(file) => file.next(into),
            Source::Memory { run, next } => {
                let Some(entry) = run.entry(*next) else {
                    return Ok(false);
                };
                into.set(entry);
                *next += 1;
                Ok(true)
            }
        }
    }
}

/// Is a source with its first entry.
struct Head {
    entry: OwnEntry,
    /// Says how old the source is: 0 is the oldest.
    age: usize,
    source: Source,
}

impl Ord for Head {
    /// The heap gives the greatest: the least key, and of equal ones the oldest.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = other.entry.key.cmp(&self.entry.key);
        keys.then(other.age.cmp(&self.age))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// Merges sorted runs, the oldest first, and one in memory that is younger than all of them.
pub(super) fn merge(
    family: Family,
    spills: Vec<Spill>,
    last: Run,
    mut write: impl FnMut(Entry<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let files = spills
        .into_iter()
        .map(|spill| SpillReader::open(spill).map(Source::File));
    let memory = Source::Memory { run: last, next: 0 };
    let mut heads = BinaryHeap::new();
    for (age, source) in files.chain([Ok(memory)]).enumerate() {
        let mut source = source?;
        let mut entry = OwnEntry::new();
        if source.next(&mut entry)? {
            heads.push(Head { entry, age, source });
        }
    }
    let mut current: Option<OwnEntry> = None;
    while let Some(mut head) = heads.peek_mut() {
        match &mut current {
            Some(current) if current.key == head.entry.key => current.follow(head.entry.lend(), family)?,
            Some(current) => {
                write(current.lend())?;
                current.set(head.entry.lend());
            }
            none => none.insert(OwnEntry::new()).set(head.entry.lend()),
        }
        let Head { entry, source, .. } = &mut *head;
        if !source.next(entry)? {
            PeekMut::pop(head);
        }
    }
    current.map_or(Ok(()), |current| write(current.lend()))
}
