//! Folds a range of the journal into one outcome per key and table (steps 4 and 5 of the walk).
//!
//! 1. `survey` walks the range once and says which tables it touches and how many bytes they have.
//! 2. A range that fits the memory budget is folded in one pass. A larger one (a huge transaction
//!    stays whole) is folded in several: each pass keeps the keys of one hash class only, so memory
//!    stays bounded under any transaction size.
//! 3. An update that changes the key and leaves out columns ties both keys: they must be folded in
//!    the same pass, because the columns may come from the old key's row in this very range. Ties
//!    live in memory, so a range has a limit of them; a table that goes past it is refused.
//!
//! It reads the journal and nothing else: what the keys were before is the row index's to tell.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use flow_core::collapse::{Collapse, CollapseError, Outcome};
use flow_core::key::encode_key;
use flow_core::row::{State, fill_unchanged, has_state};
use flow_core::transaction::{Change, ChunkReader, Old};
use flow_core::{Lsn, TableId, TableSchema};
use flow_store::Store;

use crate::error::EngineError;

/// Is a range `(from, to]` of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: Lsn,
    pub(crate) to: Lsn,
}

/// Is a table as folding needs it.
#[derive(Clone, Debug)]
pub(crate) struct FoldTable {
    pub(crate) schema: Arc<TableSchema>,
    /// Transactions that end at or below this are part of the table's copy.
    pub(crate) start_lsn: Lsn,
}

/// Holds the tables whose changes are wanted; all others are skipped.
pub(crate) type FoldTables = BTreeMap<TableId, FoldTable>;

/// Is the part of folding's memory that ties may take.
const TIES_SHARE: u64 = 2;

/// Is what a tie takes in memory, in bytes: a hash table's slot of 17, at its emptiest, and half
/// again while it grows.
const TIE_BYTES: u64 = 64;

/// Is what one table's changes in a range became.
#[derive(Debug)]
pub(crate) enum TableFold {
    /// Holds outcomes per key, and the rows of an append-only table.
    Folded {
        outcomes: Vec<Outcome>,
        appended: Vec<Bytes>,
    },
    /// The table cannot be followed through this range.
    Refused { error: CollapseError, at: Lsn },
    /// The table has more keys to fold together than memory has room for.
    Tied { ties_max: u64 },
}

/// Says how a range is cut into passes.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    count: u64,
    /// Maps a key's hash to the class representative it is tied to.
    ties: HashMap<u64, u64>,
    ties_max: u64,
    /// Holds the tables that went past the limit; nothing of them is folded.
    over: BTreeSet<TableId>,
}

impl Passes {
    /// Counts the passes; at least one.
    pub(crate) fn count(&self) -> u64 {
        self.count.max(1)
    }

    fn root(&self, mut hash: u64) -> u64 {
        while let Some(&next) = self.ties.get(&hash) {
            if next == hash {
                break;
            }
            hash = next;
        }
        hash
    }

    /// Ties two keys of a table, or gives the table up.
    fn tie(&mut self, table: TableId, left: u64, right: u64) {
        let (left, right) = (self.root(left), self.root(right));
        if left == right || self.over.contains(&table) {
            return;
        }
        if self.ties.len() as u64 >= self.ties_max {
            self.over.insert(table);
            return;
        }
        self.ties.insert(left.max(right), left.min(right));
    }

    fn class(&self, hash: u64) -> u64 {
        self.root(hash) % self.count()
    }
}

/// Is what a first walk over a range tells.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Holds the wanted tables that change in the range.
    pub(crate) tables: BTreeSet<TableId>,
    /// Says how to cut it.
    pub(crate) passes: Passes,
}

fn key_hash(table: TableId, key: &[u8]) -> u64 {
    // A fixed-key hash: the same key falls into the same pass in every run.
    let mut hasher =
        std::hash::BuildHasherDefault::<std::collections::hash_map::DefaultHasher>::default().build_hasher();
    hasher.write_u32(table.0);
    hasher.write(key);
    hasher.finish()
}

/// Walks every change of the range that is wanted.
fn walk(
    store: &Store,
    range: Range,
    tables: &FoldTables,
    mut visit: impl FnMut(&FoldTable, Change, Lsn) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let journal = store.journal();
    for meta in journal.transactions(range.from, range.to) {
        let meta = meta?;
        for chunk in journal.chunks(&meta) {
            let chunk = chunk?;
            for change in ChunkReader::new(&chunk) {
                let change = change.map_err(|error| {
                    EngineError::Invariant(format!("journal chunk of transaction {}: {error}", meta.end_lsn))
                })?;
                let Some(table) = tables.get(&change.table()) else {
                    continue;
                };
                if meta.end_lsn > table.start_lsn {
                    visit(table, change, meta.end_lsn)?;
                }
            }
        }
    }
    Ok(())
}

/// Surveys a range that holds `bytes` chunk bytes and cuts it into passes of `budget_bytes`.
pub(crate) fn survey(
    store: &Store,
    range: Range,
    tables: &FoldTables,
    bytes: u64,
    budget_bytes: u64,
) -> Result<Survey, EngineError> {
    // Folding holds keys and entries beside the rows, about as much again.
    let passes = |budget: u64| (bytes * 2).div_ceil(budget.max(1)).max(1);
    let count = passes(budget_bytes);
    let mut survey = Survey {
        passes: Passes {
            count,
            ties_max: budget_bytes / TIES_SHARE / TIE_BYTES,
            ..Passes::default()
        },
        ..Survey::default()
    };
    let (mut old_key, mut new_key) = (Vec::new(), Vec::new());
    walk(store, range, tables, |table, change, _| {
        survey.tables.insert(change.table());
        if count == 1 {
            return Ok(());
        }
        if let Change::Update {
            table: id,
            old: Old::Key(old) | Old::Full(old),
            new,
        } = &change
            && has_state(new, &table.schema, State::Unchanged)
            // A key column that was left out is the old tuple's; a row that is whole with it needs no tie.
            && let Ok(new) = fill_unchanged(new, old, &table.schema)
            && new.has_state(&table.schema, State::Unchanged)
            && encode_key(old, &table.schema, &mut old_key).is_ok()
            && encode_key(new.as_bytes(), &table.schema, &mut new_key).is_ok()
            && old_key != new_key
        {
            survey.passes.tie(*id, key_hash(*id, &old_key), key_hash(*id, &new_key));
        }
        Ok(())
    })?;
    // Where each key's class lies is asked only while folding, so the count may still change.
    survey.passes.count = passes(budget_bytes - survey.passes.ties.len() as u64 * TIE_BYTES);
    Ok(survey)
}

/// Folds the part of a range that belongs to one pass.
pub(crate) fn fold(
    store: &Store,
    range: Range,
    tables: &FoldTables,
    passes: &Passes,
    pass: u64,
) -> Result<BTreeMap<TableId, TableFold>, EngineError> {
    let mut out = BTreeMap::new();
    for id in &passes.over {
        let ties_max = passes.ties_max;
        out.insert(*id, TableFold::Tied { ties_max });
    }
    let mut folds: BTreeMap<TableId, Collapse<'_>> = BTreeMap::new();
    let mut refused: BTreeMap<TableId, (CollapseError, Lsn)> = BTreeMap::new();
    let mut splitter = Splitter {
        passes,
        pass,
        key: Vec::new(),
        appended: 0,
    };
    walk(store, range, tables, |table, change, lsn| {
        let id = change.table();
        if refused.contains_key(&id) || passes.over.contains(&id) {
            return Ok(());
        }
        // The map's own entry borrows the schema for as long as the fold lives.
        let schema = &tables[&id].schema;
        let collapse = folds.entry(id).or_insert_with(|| Collapse::new(schema));
        let folded = if passes.count() == 1 {
            collapse.fold(change)
        } else {
            splitter.fold(collapse, table, change)
        };
        if let Err(error) = folded {
            refused.insert(id, (error, lsn));
        }
        Ok(())
    })?;
    for (id, collapse) in folds {
        let fold = match (refused.remove(&id), collapse) {
            (Some((error, at)), _) => TableFold::Refused { error, at },
            (None, collapse) => match collapse.finish() {
                Ok((outcomes, appended)) => TableFold::Folded { outcomes, appended },
                Err(error) => TableFold::Refused { error, at: range.to },
            },
        };
        out.insert(id, fold);
    }
    Ok(out)
}

/// Decides which changes belong to a pass.
struct Splitter<'a> {
    passes: &'a Passes,
    pass: u64,
    key: Vec<u8>,
    appended: u64,
}

impl Splitter<'_> {
    fn holds(&mut self, table: &FoldTable, id: TableId, row: &[u8]) -> Result<bool, CollapseError> {
        encode_key(row, &table.schema, &mut self.key)?;
        Ok(self.passes.class(key_hash(id, &self.key)) == self.pass)
    }

    /// Folds a change if it belongs to the pass. An update whose keys fall into two passes is, in
    /// each of them, a delete or an insert.
    fn fold(&mut self, collapse: &mut Collapse<'_>, table: &FoldTable, change: Change) -> Result<(), CollapseError> {
        match &change {
            Change::Insert { .. } if !table.schema.has_key() => {
                self.appended += 1;
                if self.appended % self.passes.count() != self.pass {
                    return Ok(());
                }
            }
            Change::Insert { table: id, new } => {
                if !self.holds(table, *id, new)? {
                    return Ok(());
                }
            }
            Change::Delete {
                table: id,
                old: Old::Key(row) | Old::Full(row),
            } => {
                if !self.holds(table, *id, row)? {
                    return Ok(());
                }
            }
            Change::Update {
                table: id,
                old: Old::None,
                new,
            } => {
                if !self.holds(table, *id, new)? {
                    return Ok(());
                }
            }
            Change::Update {
                table: id,
                old: old @ (Old::Key(row) | Old::Full(row)),
                new,
            } => {
                let filled = fill_unchanged(new, row, &table.schema).map_err(flow_core::key::KeyError::from)?;
                let new = filled.bytes().clone();
                let leaves = self.holds(table, *id, row)?;
                let enters = self.holds(table, *id, &new)?;
                return match (leaves, enters) {
                    (true, true) => collapse.fold(change),
                    (true, false) => collapse.fold(Change::Delete {
                        table: *id,
                        old: old.clone(),
                    }),
                    (false, true) => collapse.fold(Change::Insert { table: *id, new }),
                    (false, false) => Ok(()),
                };
            }
            Change::Delete { old: Old::None, .. } | Change::Truncate { .. } | Change::Block { .. } => {}
        }
        collapse.fold(change)
    }
}

#[cfg(test)]
mod tests;
