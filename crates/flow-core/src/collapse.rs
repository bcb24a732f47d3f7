//! Folds an epoch's changes of one table into one outcome per key.
//!
//! 1. Each change is folded onto what the key became earlier in the epoch.
//! 2. What the key was *before* the epoch is not known here; the fold records what it must have
//!    been ([`Expects`]), and the row index confirms it. A mismatch blocks the table: it is the
//!    proof that no change was lost or doubled.
//! 3. A deferrable key may hold two rows for a while (`UPDATE t SET id = 3 - id` swaps two keys row
//!    by row). Such a table sends whole old rows, and they tell which of the rows a change means.
//! 4. Columns PostgreSQL did not send are filled from the epoch's own rows where possible; else
//!    the outcome names the key whose row before the epoch has them ([`Pending::origin`]).

use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::key::{KeyError, encode_key};
use crate::row::{State, fill_unchanged, has_state};
use crate::schema::TableSchema;
use crate::transaction::{Change, Old};

/// Is a key's bytes.
pub type Key = Box<[u8]>;

/// Says what the row index must hold for a key before the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expects {
    /// The epoch's first change was an insert.
    Absent,
    /// The epoch's first change was an update or delete.
    Present,
}

/// Is a row an epoch leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Is the row, perhaps with unchanged columns.
    pub row: Bytes,
    /// Names the key whose row before the epoch has the unchanged columns; `None` if there are none.
    pub origin: Option<Key>,
    /// Says that the row's last change left a column out: PostgreSQL keeps that value out of line and
    /// will leave it out of the next update too, however small the row is.
    pub unsent: bool,
}

impl Pending {
    /// Is a row of which nothing was left out.
    fn whole(row: Bytes) -> Self {
        Pending {
            row,
            origin: None,
            unsent: false,
        }
    }
}

/// Is what an epoch did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Is the key.
    pub key: Key,
    /// Is what must have been there before.
    pub expects: Expects,
    /// Is the whole row from before the epoch, where PostgreSQL sent it.
    pub old: Option<Bytes>,
    /// Is the row after the epoch; `None` if the key is gone.
    pub now: Option<Pending>,
}

/// Says why a change cannot be folded. Each blocks the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollapseError {
    /// A row's key could not be read.
    #[error("key of a changed row cannot be read")]
    Key(#[from] KeyError),
    /// A key ended the epoch with two rows.
    #[error("a key has two rows")]
    Exists,
    /// An update or delete met a key the epoch already emptied.
    #[error("change of a key that does not exist")]
    Missing,
    /// An update or delete on a table without a key.
    #[error("update or delete in an append-only table")]
    AppendOnly,
    /// PostgreSQL emptied the table.
    #[error("table was truncated")]
    Truncated,
    /// The source says the table cannot be followed.
    #[error("{reason}")]
    Blocked {
        /// Names the page under `docs/errors/`.
        code: String,
        /// Says what happened.
        reason: String,
    },
}

/// Is a key while its epoch is being folded.
#[derive(Debug)]
struct Entry {
    outcome: Outcome,
    /// Holds rows the key has beside `outcome.now`, until the transaction removes them.
    beside: Vec<Pending>,
}

impl Entry {
    /// Takes the row that a change means, or the row from before the epoch (`Ok(None)`).
    fn remove(&mut self, full: Option<Bytes>) -> Result<Option<Pending>, CollapseError> {
        let Some(full) = full else {
            let taken = self.outcome.now.take().ok_or(CollapseError::Missing)?;
            self.outcome.now = self.beside.pop();
            return Ok(Some(taken));
        };
        if self.outcome.now.as_ref().is_some_and(|pending| pending.row == full) {
            let taken = self.outcome.now.take();
            self.outcome.now = self.beside.pop();
            return Ok(taken);
        }
        if let Some(place) = self.beside.iter().position(|pending| pending.row == full) {
            return Ok(Some(self.beside.swap_remove(place)));
        }
        if self.outcome.expects == Expects::Present {
            return Err(CollapseError::Missing);
        }
        self.outcome.expects = Expects::Present;
        self.outcome.old = Some(full);
        Ok(None)
    }

    fn put(&mut self, pending: Pending) {
        match self.outcome.now {
            None => self.outcome.now = Some(pending),
            Some(_) => self.beside.push(pending),
        }
    }
}

/// Folds the changes of one table.
#[derive(Debug)]
pub struct Collapse<'a> {
    schema: &'a TableSchema,
    hasher: DefaultHashBuilder,
    /// Finds a key's place in `entries`, which alone holds the key.
    places: HashTable<usize>,
    entries: Vec<Entry>,
    appended: Vec<Bytes>,
    /// Are the keys of the change being folded.
    new_key: Vec<u8>,
    old_key: Vec<u8>,
    bytes: usize,
}

impl<'a> Collapse<'a> {
    /// Starts an empty fold.
    pub fn new(schema: &'a TableSchema) -> Self {
        Collapse {
            schema,
            hasher: DefaultHashBuilder::default(),
            places: HashTable::new(),
            entries: Vec::new(),
            appended: Vec::new(),
            new_key: Vec::new(),
            old_key: Vec::new(),
            bytes: 0,
        }
    }

    /// Counts the bytes held, roughly: rows, keys and their entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Folds one change.
    pub fn fold(&mut self, change: Change) -> Result<(), CollapseError> {
        match change {
            Change::Insert { new, .. } if !self.schema.has_key() => {
                self.bytes += new.len() + 32;
                self.appended.push(new);
                Ok(())
            }
            Change::Insert { new, .. } => {
                let mut key = std::mem::take(&mut self.new_key);
                let encoded = encode_key(&new, self.schema, &mut key);
                let folded = encoded.map(|()| self.put(&key, Pending::whole(new)));
                self.new_key = key;
                Ok(folded?)
            }
            Change::Update { .. } | Change::Delete { .. } if !self.schema.has_key() => Err(CollapseError::AppendOnly),
            Change::Update { old, new, .. } => self.update(old, new),
            Change::Delete { old, .. } => {
                let (Old::Key(row) | Old::Full(row)) = &old else {
                    return Err(CollapseError::Missing);
                };
                let full = matches!(old, Old::Full(_)).then(|| row.clone());
                let mut key = std::mem::take(&mut self.old_key);
                let encoded = encode_key(row, self.schema, &mut key).map_err(CollapseError::from);
                let folded = encoded.and_then(|()| self.remove(&key, full).map(drop));
                self.old_key = key;
                folded
            }
            Change::Truncate { .. } => Err(CollapseError::Truncated),
            Change::Block { code, reason, .. } => Err(CollapseError::Blocked { code, reason }),
        }
    }

    fn update(&mut self, old: Old, new: Bytes) -> Result<(), CollapseError> {
        let (old_row, full) = match old {
            Old::None => (None, None),
            Old::Key(row) => (Some(row), None),
            Old::Full(row) => (Some(row.clone()), Some(row)),
        };
        let unsent = has_state(&new, self.schema, State::Unchanged);
        // Unsent columns may be in the old tuple; a key column always is.
        let new = match &old_row {
            Some(old_row) if unsent => self.fill(&new, old_row)?,
            _ => new,
        };
        let new = Pending {
            row: new,
            origin: None,
            unsent,
        };
        let (mut new_key, mut old_key) = (std::mem::take(&mut self.new_key), std::mem::take(&mut self.old_key));
        let folded = self.replace(&mut old_key, &mut new_key, old_row.as_deref(), full, new);
        (self.new_key, self.old_key) = (new_key, old_key);
        folded
    }

    /// Takes the old row away and puts the new one; the keys' buffers are filled on the way.
    fn replace(
        &mut self,
        old_key: &mut Vec<u8>,
        new_key: &mut Vec<u8>,
        old_row: Option<&[u8]>,
        full: Option<Bytes>,
        mut new: Pending,
    ) -> Result<(), CollapseError> {
        encode_key(&new.row, self.schema, new_key)?;
        match old_row {
            Some(row) => encode_key(row, self.schema, old_key)?,
            None => old_key.clone_from(new_key),
        }
        let before = self.remove(old_key, full)?;
        if has_state(&new.row, self.schema, State::Unchanged) {
            new.origin = match before {
                // The key's row came with this epoch: it has the columns, or knows who has.
                Some(Pending { row, origin, .. }) => {
                    new.row = self.fill(&new.row, &row)?;
                    origin.filter(|_| has_state(&new.row, self.schema, State::Unchanged))
                }
                None => Some(old_key.as_slice().into()),
            };
        }
        self.put(new_key, new);
        Ok(())
    }

    /// Fills unchanged columns from `old` as far as it has them.
    fn fill(&self, new: &Bytes, old: &[u8]) -> Result<Bytes, CollapseError> {
        let filled = fill_unchanged(new, old, self.schema).map_err(KeyError::from)?;
        Ok(filled.bytes().clone())
    }

    /// Empties a key and returns the row the epoch had put there; `None` if the row is older.
    fn remove(&mut self, key: &[u8], full: Option<Bytes>) -> Result<Option<Pending>, CollapseError> {
        let hash = self.hasher.hash_one(key);
        if let Some(place) = self.place(hash, key) {
            return self.entries[place].remove(full);
        }
        self.enter(
            hash,
            Outcome {
                key: key.into(),
                expects: Expects::Present,
                old: full,
                now: None,
            },
        );
        Ok(None)
    }

    fn put(&mut self, key: &[u8], pending: Pending) {
        self.bytes += pending.row.len();
        let hash = self.hasher.hash_one(key);
        match self.place(hash, key) {
            Some(place) => self.entries[place].put(pending),
            None => self.enter(
                hash,
                Outcome {
                    key: key.into(),
                    expects: Expects::Absent,
                    old: None,
                    now: Some(pending),
                },
            ),
        }
    }

    fn place(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.places
            .find(hash, |&place| *self.entries[place].outcome.key == *key)
            .copied()
    }

    fn enter(&mut self, hash: u64, outcome: Outcome) {
        self.bytes += outcome.key.len() + outcome.old.as_ref().map_or(0, Bytes::len) + 200;
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.places.insert_unique(hash, entries.len(), |&place| {
            hasher.hash_one(&*entries[place].outcome.key)
        });
        self.entries.push(Entry {
            outcome,
            beside: Vec::new(),
        });
    }

    /// Ends the fold: outcomes in order of first touch, and the rows of an append-only table in
    /// order. A key that came and went within the epoch is left out.
    ///
    /// # Errors
    /// [`CollapseError::Exists`] if a key ends with two rows.
    pub fn finish(self) -> Result<(Vec<Outcome>, Vec<Bytes>), CollapseError> {
        let mut outcomes = Vec::with_capacity(self.entries.len());
        for Entry { outcome, beside } in self.entries {
            if !beside.is_empty() {
                return Err(CollapseError::Exists);
            }
            if outcome.now.is_some() || outcome.expects == Expects::Present {
                outcomes.push(outcome);
            }
        }
        Ok((outcomes, self.appended))
    }
}

#[cfg(test)]
mod tests;
