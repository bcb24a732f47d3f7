//! Meets an epoch's outcomes with what the row index knows (step 5 of the walk, second half).
//!
//! 1. Every touched key is located. What the index holds must be what the fold expects; a mismatch
//!    means that a change was lost or doubled, and blocks the table.
//! 2. Columns that PostgreSQL did not send are filled from the hot row of the key they come from.
//! 3. What is left: rows to write, locations to delete, keys to forget.

use bytes::Bytes;
use flow_core::collapse::{Expects, Key, Outcome, Pending};
use flow_core::row::{project, resolve_unchanged};
use flow_store::{Found, Hot, Location, Store, TableRecord};

use crate::error::EngineError;

/// Is the encoded size, in bytes, from which a row may hold a value that PostgreSQL keeps out of
/// line and so leaves out of an update: a quarter of PostgreSQL's `TOAST_TUPLE_THRESHOLD` (2032),
/// because an encoded row is never less than a quarter of its heap tuple (alignment and headers are
/// what it saves). A smaller row needs a copy only while it has a value from when it was larger:
/// PostgreSQL leaves that value out of the very update that makes the row small.
const TOASTABLE_ROW_BYTES_MIN: usize = 500;

/// Is what an epoch changes in one table.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Holds rows to write; the key is empty in an append-only table.
    pub(crate) rows: Vec<NewRow>,
    /// Holds keys that go, and whether the row index has a copy of their row.
    pub(crate) gone: Vec<(Key, bool)>,
    /// Holds where replaced and deleted rows stand.
    pub(crate) deletes: Vec<Location>,
}

/// Is a row to write.
#[derive(Debug)]
pub(crate) struct NewRow {
    pub(crate) key: Key,
    pub(crate) row: Bytes,
    /// Says whether the row index has a copy of the row that this one replaces.
    pub(crate) replaces_hot: bool,
    /// Says that PostgreSQL keeps a value of the row out of line, whatever the row's size.
    pub(crate) unsent: bool,
}

/// Says why a table cannot take the outcomes.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) reason: String,
}

/// Resolves one table's outcomes. `Ok(Err(_))` blocks the table.
pub(crate) fn resolve(
    store: &Store,
    table: &TableRecord,
    outcomes: Vec<Outcome>,
) -> Result<Result<Resolved, Refusal>, EngineError> {
    let keys: Vec<&[u8]> = outcomes.iter().map(|outcome| outcome.key.as_ref()).collect();
    let found = store.index().locate(table.id, table.generation, &keys)?;
    if let Some(refusal) = unexpected(&outcomes, &found) {
        return Ok(Err(refusal));
    }
    let mut origins = hot_rows(store, table, &outcomes)?.into_iter();
    let mut resolved = Resolved::default();
    for (outcome, found) in outcomes.into_iter().zip(found) {
        let has_hot = found.is_some_and(|found| found.hot);
        let location = found.map(|found| found.location);
        let Some(pending) = outcome.now else {
            resolved.deletes.extend(location);
            resolved.gone.push((outcome.key, has_hot));
            continue;
        };
        let Pending { row, origin, unsent } = pending;
        if outcome.old.as_ref() == Some(&row) {
            continue;
        }
        let row = match origin {
            None => row,
            Some(_) => match fill(&row, origins.next().flatten(), table)? {
                Some(row) => row,
                None => {
                    let reason = "an update left out a column that PostgreSQL keeps out of line (TOAST), and no copy \
                                  of the old row is kept; use hot_rows = \"auto\" (true, if it is), or REPLICA \
                                  IDENTITY FULL, and copy the table again";
                    return Ok(Err(Refusal {
                        code: "F0005",
                        reason: reason.to_owned(),
                    }));
                }
            },
        };
        resolved.deletes.extend(location);
        resolved.rows.push(NewRow {
            key: outcome.key,
            row,
            replaces_hot: has_hot,
            unsent,
        });
    }
    Ok(Ok(resolved))
}

/// Compares what the fold expects with what the index holds.
fn unexpected(outcomes: &[Outcome], found: &[Option<Found>]) -> Option<Refusal> {
    let wrong = outcomes
        .iter()
        .zip(found)
        .find(|(outcome, found)| match outcome.expects {
            Expects::Absent => found.is_some(),
            Expects::Present => found.is_none(),
        });
    let (outcome, _) = wrong?;
    let reason = match outcome.expects {
        Expects::Absent => "an insert met a key that the lake has already",
        Expects::Present => "an update or delete met a key that the lake does not have",
    };
    Some(Refusal {
        code: "F0004",
        reason: reason.to_owned(),
    })
}

/// Reads the hot rows that unsent columns come from, in the order of the outcomes that need one.
fn hot_rows(store: &Store, table: &TableRecord, outcomes: &[Outcome]) -> Result<Vec<Option<Bytes>>, EngineError> {
    let origins: Vec<&[u8]> = outcomes
        .iter()
        .filter_map(|outcome| outcome.now.as_ref()?.origin.as_deref())
        .collect();
    if origins.is_empty() {
        return Ok(Vec::new());
    }
    Ok(store.index().hot(table.id, table.generation, &origins)?)
}

fn fill(row: &Bytes, hot: Option<Bytes>, table: &TableRecord) -> Result<Option<Bytes>, EngineError> {
    let Some(hot) = hot else { return Ok(None) };
    let filled = resolve_unchanged(row, &hot, &table.schema)
        .map_err(|error| EngineError::Invariant(format!("row of {}: {error}", table.source)))?;
    Ok(filled.map(|row| row.bytes().clone()))
}

/// Says whether the index keeps a copy of a row of so many bytes; `unsent` as [`NewRow`] has it.
pub(crate) fn keeps_copy(table: &TableRecord, row_bytes: usize, unsent: bool) -> bool {
    match &table.hot {
        Hot::None => false,
        Hot::All => true,
        Hot::Columns(columns) => !columns.is_empty() && (unsent || row_bytes >= TOASTABLE_ROW_BYTES_MIN),
    }
}

/// Makes the copy that the index keeps of a row, if it keeps one; `unsent` as [`NewRow`] has it.
pub(crate) fn hot_copy(table: &TableRecord, row: &Bytes, unsent: bool) -> Result<Option<Bytes>, EngineError> {
    if !keeps_copy(table, row.len(), unsent) {
        return Ok(None);
    }
    match &table.hot {
        Hot::None => Ok(None),
        Hot::All => Ok(Some(row.clone())),
        Hot::Columns(columns) => {
            let copy = project(row, columns, &table.schema)
                .map_err(|error| EngineError::Invariant(format!("row of {}: {error}", table.source)))?;
            Ok(Some(copy.bytes().clone()))
        }
    }
}
