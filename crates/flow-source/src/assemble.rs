//! Messages of one slot into events: whole transactions of encoded changes, chunk by chunk.
//!
//! Pure. One open transaction at a time, as protocol version 1 sends them.
//!
//! 1. A relation message is compared with the captured table; a difference is kept, and blocks
//!    the table at its first change that counts.
//! 2. A row is decoded column by column with the shared decoder and appended to the chunk.
//! 3. A value that does not fit blocks its table in this transaction; the stream, the other tables
//!    and later transactions go on.
//! 4. Commit closes the chunk and gives the transaction's meta.
//!
//! # Invariants
//! - Between Begin and Commit nothing else is delivered; transactions ascend by LSN.
//! - A table gets nothing of a transaction that ends at or below its start LSN, and in each
//!   transaction nothing after its block record. What was sent of an earlier transaction never
//!   decides: a block counts only above the table's start LSN, which is not known here.

use std::collections::HashMap;

use flow_core::Lsn;
use flow_core::row::{RowBuilder, State};
use flow_core::transaction::{ChunkBuilder, TransactionMeta};

use crate::capture::CaptureTable;
use crate::error::{F_DEFINITION, F_VALUE, SourceError};
use crate::event::SourceEvent;
use crate::pgoutput::{Field, Message, OldTuple, Relation, Tuple, parse};
use crate::value::{Shape, ValueError, push_binary, push_text};

/// Is a captured table while it is streamed.
#[derive(Debug)]
struct Table {
    capture: CaptureTable,
    /// Says what the last relation message was; `None` before the first.
    relation: Option<Seen>,
    /// Is the commit LSN of the last transaction that has a block record of it.
    blocked_in: Option<Lsn>,
}

/// Is what a relation message said.
#[derive(Debug)]
struct Seen {
    /// Says, column by column, what a key-only old row carries.
    in_identity: Vec<bool>,
    /// Says how the table differs from what was captured.
    difference: Option<String>,
}

/// Is the open transaction.
#[derive(Debug)]
struct Open {
    commit_lsn: Lsn,
    xid: u32,
    /// Says that the transaction was delivered before and is dropped whole.
    repeated: bool,
    chunks: u32,
    changes: u64,
    bytes: u64,
}

/// Turns messages into events.
#[derive(Debug)]
pub(crate) struct Assembler {
    tables: HashMap<u32, Table>,
    open: Option<Open>,
    chunk: ChunkBuilder,
    /// Is where everything at or below has been delivered.
    position: Lsn,
    rows: Rows,
}

/// Holds the working space of row decoding.
#[derive(Debug, Default)]
struct Rows {
    new: RowBuilder,
    old: RowBuilder,
    scratch: Vec<u8>,
}

/// Is a change with its rows still encoded.
#[derive(Clone, Copy)]
enum Rowed<'a> {
    Insert(Tuple<'a>),
    Update(Option<OldTuple<'a>>, Tuple<'a>),
    Delete(OldTuple<'a>),
}

impl Rows {
    /// Decodes the rows of a change into `old` and `new`.
    fn decode(&mut self, capture: &CaptureTable, seen: &Seen, change: Rowed<'_>) -> Result<(), RowError> {
        let (old, new) = match change {
            Rowed::Insert(new) => (None, Some(new)),
            Rowed::Update(old, new) => (old, Some(new)),
            Rowed::Delete(old) => (Some(old), None),
        };
        if let Some(OldTuple { full, tuple }) = old {
            let identity = (!full).then_some(seen.in_identity.as_slice());
            decode_row(&mut self.old, capture, tuple, identity, &mut self.scratch)?;
        }
        match new {
            Some(tuple) => decode_row(&mut self.new, capture, tuple, None, &mut self.scratch),
            None => Ok(()),
        }
    }
}

/// Decodes one row. With `identity`, only the columns it marks are part of the row: the others
/// are NULL on the wire whatever they were.
fn decode_row(
    row: &mut RowBuilder,
    capture: &CaptureTable,
    tuple: Tuple<'_>,
    identity: Option<&[bool]>,
    scratch: &mut Vec<u8>,
) -> Result<(), RowError> {
    let columns = &capture.schema.columns;
    if tuple.count != columns.len() || capture.columns.len() != columns.len() {
        return Err(RowError {
            column: 0,
            error: ValueError::Malformed("a row with another number of columns than its relation"),
        });
    }
    row.start(columns.len());
    for (index, field) in tuple.fields().enumerate() {
        if identity.is_some_and(|marks| !marks.get(index).copied().unwrap_or(false)) {
            row.push_state(State::Absent);
            continue;
        }
        let (column, arrives) = (&columns[index], &capture.columns[index]);
        let shape = Shape {
            wire: &arrives.wire,
            target: &arrives.target,
            column_type: &column.column_type,
        };
        let result = match field {
            Field::Binary(bytes) => push_binary(row, shape, bytes, scratch),
            Field::Text(bytes) => push_text(row, shape, bytes),
            Field::Null if column.required => Err(ValueError::Unfit("NULL in the key")),
            Field::Null => {
                row.push_state(State::Null);
                Ok(())
            }
            Field::Unchanged => {
                row.push_state(State::Unchanged);
                Ok(())
            }
        };
        result.map_err(|error| RowError { column: index, error })?;
    }
    Ok(())
}

/// Says why a row was not decoded: its column's index and the value's fault.
struct RowError {
    column: usize,
    error: ValueError,
}

fn protocol(what: &str) -> SourceError {
    SourceError::Protocol(what.to_owned())
}

impl Assembler {
    /// Starts with everything at or below `start` delivered.
    pub(crate) fn new(start: Lsn, tables: Vec<CaptureTable>) -> Self {
        let table = |capture: CaptureTable| {
            let state = Table {
                relation: None,
                blocked_in: None,
                capture,
            };
            (state.capture.oid, state)
        };
        Assembler {
            tables: tables.into_iter().map(table).collect(),
            open: None,
            chunk: ChunkBuilder::new(),
            position: start,
            rows: Rows::default(),
        }
    }

    /// Is where everything at or below has been delivered.
    pub(crate) fn position(&self) -> Lsn {
        self.position
    }

    /// Takes a keepalive's WAL end, which counts only between transactions.
    pub(crate) fn keepalive(&mut self, wal_end: Lsn, events: &mut Vec<SourceEvent>) {
        if self.open.is_none() && wal_end > self.position {
            self.position = wal_end;
            events.push(SourceEvent::Keepalive { wal_end });
        }
    }

    /// Takes one message.
    ///
    /// # Errors
    /// [`SourceError::Protocol`] (retry): bytes or an order that cannot be.
    pub(crate) fn message(&mut self, bytes: &[u8], events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
        let message = parse(bytes).map_err(|bad| protocol(bad.0))?;
        match message {
            Message::Begin {
                commit_lsn,
                commit_time,
                xid,
            } => self.begin(commit_lsn, commit_time, xid, events),
            Message::Commit {
                commit_lsn,
                end_lsn,
                commit_time,
            } => self.commit(commit_lsn, end_lsn, commit_time, events),
            Message::Relation(relation) => {
                if let Some(table) = self.tables.get_mut(&relation.oid) {
                    table.relation = Some(Seen {
                        in_identity: relation.columns.iter().map(|c| c.in_identity).collect(),
                        difference: difference(&table.capture, &relation),
                    });
                }
                Ok(())
            }
            Message::Insert { oid, new } => self.change(oid, Rowed::Insert(new), events),
            Message::Update { oid, old, new } => self.change(oid, Rowed::Update(old, new), events),
            Message::Delete { oid, old } => self.change(oid, Rowed::Delete(old), events),
            Message::Truncate { oids } => self.truncate(&oids, events),
            Message::Other => Ok(()),
        }
    }

    fn begin(
        &mut self,
        commit_lsn: Lsn,
        commit_time: i64,
        xid: u32,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        if self.open.is_some() {
            return Err(protocol("a transaction begins inside another"));
        }
        let repeated = commit_lsn < self.position;
        self.open = Some(Open {
            commit_lsn,
            xid,
            repeated,
            chunks: 0,
            changes: 0,
            bytes: 0,
        });
        if !repeated {
            events.push(SourceEvent::Begin {
                commit_lsn,
                xid,
                commit_time,
            });
        }
        Ok(())
    }

    fn commit(
        &mut self,
        commit_lsn: Lsn,
        end_lsn: Lsn,
        commit_time: i64,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        self.flush(events);
        let Some(open) = self.open.take() else {
            return Err(protocol("a commit without a transaction"));
        };
        if open.commit_lsn != commit_lsn || end_lsn <= commit_lsn {
            return Err(protocol("a commit that does not belong to its transaction"));
        }
        if open.repeated {
            return Ok(());
        }
        self.position = end_lsn;
        events.push(SourceEvent::Commit(TransactionMeta {
            commit_lsn,
            end_lsn,
            commit_time,
            xid: open.xid,
            chunks: open.chunks,
            changes: open.changes,
            bytes: open.bytes,
        }));
        Ok(())
    }

    /// Hands the gathered changes on as a chunk.
    fn flush(&mut self, events: &mut Vec<SourceEvent>) {
        if let (Some(open), false) = (&mut self.open, self.chunk.is_empty()) {
            open.changes += self.chunk.changes();
            open.bytes += self.chunk.len() as u64;
            events.push(SourceEvent::Chunk {
                commit_lsn: open.commit_lsn,
                number: open.chunks,
                bytes: self.chunk.take(),
            });
            open.chunks += 1;
        }
    }

    fn change(&mut self, oid: u32, change: Rowed<'_>, events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
        let open = self
            .open
            .as_ref()
            .ok_or_else(|| protocol("a change outside a transaction"))?;
        let Some(table) = self.tables.get_mut(&oid) else {
            return Ok(());
        };
        let commit_lsn = open.commit_lsn;
        if open.repeated || table.blocked_in == Some(commit_lsn) || commit_lsn < table.capture.skip_until {
            return Ok(());
        }
        let id = table.capture.id;
        let seen = table
            .relation
            .as_ref()
            .ok_or_else(|| protocol("a change before its relation"))?;
        if let Some(difference) = &seen.difference {
            self.chunk.block(id, F_DEFINITION, difference);
            table.blocked_in = Some(commit_lsn);
            return Ok(());
        }
        match self.rows.decode(&table.capture, seen, change) {
            Ok(()) => {
                let Rows { new, old, .. } = &self.rows;
                match change {
                    Rowed::Insert(_) => self.chunk.insert(id, new.finish()),
                    Rowed::Update(None, _) => self.chunk.update(id, None, new.finish()),
                    Rowed::Update(Some(tuple), _) => {
                        self.chunk.update(id, Some((old.finish(), tuple.full)), new.finish());
                    }
                    Rowed::Delete(tuple) => self.chunk.delete(id, old.finish(), tuple.full),
                }
            }
            Err(RowError {
                error: ValueError::Malformed(what),
                ..
            }) => return Err(protocol(what)),
            Err(RowError {
                column,
                error: ValueError::Unfit(what),
            }) => {
                let name = table.capture.schema.columns.get(column).map_or("", |c| c.name.as_str());
                self.chunk.block(id, F_VALUE, &format!("column {name} got {what}"));
                table.blocked_in = Some(commit_lsn);
            }
        }
        if self.chunk.is_full() {
            self.flush(events);
        }
        Ok(())
    }

    fn truncate(&mut self, oids: &[u32], events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
        let open = self
            .open
            .as_ref()
            .ok_or_else(|| protocol("a truncate outside a transaction"))?;
        for oid in oids {
            if let Some(table) = self.tables.get(oid)
                && !open.repeated
                && table.blocked_in != Some(open.commit_lsn)
                && open.commit_lsn >= table.capture.skip_until
            {
                self.chunk.truncate(table.capture.id);
            }
        }
        if self.chunk.is_full() {
            self.flush(events);
        }
        Ok(())
    }
}

/// Says how a table on the wire differs from the captured one; `None` if it does not.
fn difference(capture: &CaptureTable, relation: &Relation<'_>) -> Option<String> {
    if (relation.schema, relation.name) != (capture.name.schema.as_str(), capture.name.name.as_str()) {
        return Some(format!(
            "the table was renamed to {}.{}",
            relation.schema, relation.name
        ));
    }
    let columns = &capture.schema.columns;
    for (index, column) in columns.iter().enumerate() {
        let Some(seen) = relation.columns.get(index) else {
            return Some(format!("column {} is no longer sent", column.name));
        };
        if seen.name != column.name {
            return Some(format!("column {} is where {} was", seen.name, column.name));
        }
        let expected = capture.columns.get(index).map(|c| (c.type_oid, c.type_mod));
        if expected != Some((seen.type_oid, seen.type_mod)) {
            return Some(format!("column {} is no longer {}", column.name, column.source_type));
        }
    }
    if let Some(extra) = relation.columns.get(columns.len()) {
        return Some(format!("column {} was added", extra.name));
    }
    let identity = |index: usize| relation.columns[index].in_identity;
    let same_key = (0..columns.len()).all(|index| identity(index) == capture.schema.key.contains(&index));
    if relation.identity != b'f' && !capture.append_only && !same_key {
        return Some("the replica identity is no longer the key".to_owned());
    }
    None
}

#[cfg(test)]
mod tests;
