//! Entries, and runs of them in memory.

use flow_core::state::{decode_weight, encode_weight};

use crate::error::StoreError;
use crate::layout::Family;

/// Says what an entry does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Sets the value.
    Put,
    /// Adds to the weight that the value is.
    Add,
}

/// Is one entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// Is an entry that owns its bytes; they are used again for the next one.
#[derive(Debug)]
pub(super) struct OwnEntry {
    pub(super) kind: Kind,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

impl OwnEntry {
    pub(super) fn new() -> Self {
        OwnEntry {
            kind: Kind::Put,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    pub(super) fn lend(&self) -> Entry<'_> {
        Entry {
            kind: self.kind,
            key: &self.key,
            value: &self.value,
        }
    }

    pub(super) fn set(&mut self, entry: Entry<'_>) {
        self.kind = entry.kind;
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.value.clear();
        self.value.extend_from_slice(entry.value);
    }

    /// Takes a later entry of the same key.
    pub(super) fn follow(&mut self, later: Entry<'_>, family: Family) -> Result<(), StoreError> {
        if later.kind == Kind::Put {
            self.set(later);
            return Ok(());
        }
        let sum = decode_weight(&self.value).zip(decode_weight(later.value));
        let sum = sum.and_then(|(stands, added)| stands.checked_add(added));
        let sum = sum.ok_or_else(|| StoreError::corrupt(family, &self.key, "a sum of weights is none"))?;
        self.value.clear();
        self.value.extend_from_slice(&encode_weight(sum));
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// Is the key's first bytes, which mostly decide an order without a look at the key.
    head: u64,
    start: u32,
    key: u32,
    value: u32,
    kind: Kind,
}

/// Holds entries in the order in which they came, or of their keys.
#[derive(Debug, Default)]
pub(super) struct Run {
    arena: Vec<u8>,
    places: Vec<Place>,
}

/// Is where the bytes begin that tell keys apart: behind the number and the generation of a state.
const HEAD_FROM: usize = 8;

impl Run {
    pub(super) fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a value is far below 4 GiB");
        let start = u32::try_from(self.arena.len()).expect("a run is far below 4 GiB");
        let mut head = [0; 8];
        let bytes = key.get(HEAD_FROM..).unwrap_or_default();
        let shown = bytes.len().min(8);
        head[..shown].copy_from_slice(&bytes[..shown]);
        self.places.push(Place {
            head: u64::from_be_bytes(head),
            start,
            key: length(key),
            value: length(value),
            kind,
        });
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
    }

    /// Counts the bytes that the run holds.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len()
    }

    fn key(&self, place: &Place) -> &[u8] {
        &self.arena[place.start as usize..][..place.key as usize]
    }

    /// Brings the entries into the order of their keys, and those of one key into that in which they came.
    pub(super) fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        let prefix = |place: &Place| &self.key(place)[..HEAD_FROM.min(place.key as usize)];
        places.sort_unstable_by(|a, b| {
            let heads = prefix(a).cmp(prefix(b)).then(a.head.cmp(&b.head));
            heads
                .then_with(|| self.key(a).cmp(self.key(b)))
                .then(a.start.cmp(&b.start))
        });
        self.places = places;
    }

    /// Is an entry by its number in the run's order.
    pub(super) fn entry(&self, number: usize) -> Option<Entry<'_>> {
        let place = self.places.get(number)?;
        Some(Entry {
            kind: place.kind,
            key: self.key(place),
            value: &self.arena[(place.start + place.key) as usize..][..place.value as usize],
        })
    }
}
