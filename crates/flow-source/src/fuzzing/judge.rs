//! What the decoders promise, checked event by event and row by row.

use std::collections::BTreeSet;

use flow_core::row::{Datum, State, decode};
use flow_core::transaction::{Change, ChunkReader, Old, TransactionMeta};
use flow_core::{ColumnType, Lsn, TableId};

use crate::capture::CaptureTable;
use crate::error::{F_DEFINITION, F_VALUE};
use crate::event::SourceEvent;

const DAY_US: i64 = 86_400_000_000;

/// Follows the events of one stream and panics where one breaks a promise.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    tables: &'a [CaptureTable],
    position: Lsn,
    /// Counts what the open transaction delivered.
    open: Option<TransactionMeta>,
    /// Holds the tables that were blocked in the open transaction.
    blocked: BTreeSet<TableId>,
    /// Holds the tables that were blocked in any.
    ever_blocked: BTreeSet<TableId>,
}

impl<'a> Judge<'a> {
    /// Starts with everything at or below `start` delivered.
    pub(super) fn new(tables: &'a [CaptureTable], start: Lsn) -> Self {
        Judge {
            tables,
            position: start,
            open: None,
            blocked: BTreeSet::new(),
            ever_blocked: BTreeSet::new(),
        }
    }

    /// Is where everything at or below has been delivered.
    pub(super) fn position(&self) -> Lsn {
        self.position
    }

    /// Counts the tables that were blocked.
    pub(super) fn blocked(&self) -> usize {
        self.ever_blocked.len()
    }

    /// Checks one event.
    pub(super) fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Begin {
                commit_lsn,
                xid,
                commit_time,
            } => {
                assert!(self.open.is_none(), "a transaction begins between transactions");
                assert!(commit_lsn >= self.position, "transactions ascend");
                self.blocked.clear();
                self.open = Some(TransactionMeta {
                    commit_lsn,
                    end_lsn: commit_lsn,
                    commit_time,
                    xid,
                    chunks: 0,
                    changes: 0,
                    bytes: 0,
                });
            }
            SourceEvent::Chunk {
                commit_lsn,
                number,
                bytes,
            } => {
                let mut open = self.open.take().expect("a chunk is inside a transaction");
                assert_eq!(
                    (commit_lsn, number),
                    (open.commit_lsn, open.chunks),
                    "chunks are numbered"
                );
                assert!(!bytes.is_empty(), "a chunk holds changes");
                for change in ChunkReader::new(&bytes) {
                    self.change(&change.expect("a chunk can be read"), commit_lsn);
                    open.changes += 1;
                }
                open.chunks += 1;
                open.bytes += bytes.len() as u64;
                self.open = Some(open);
            }
            SourceEvent::Commit(meta) => {
                let open = self.open.take().expect("a commit is inside a transaction");
                let TransactionMeta {
                    end_lsn, commit_time, ..
                } = meta;
                assert!(end_lsn > meta.commit_lsn, "a commit record has a length");
                let expected = TransactionMeta {
                    end_lsn,
                    commit_time,
                    ..open
                };
                assert_eq!(meta, expected, "the meta counts what was delivered");
                self.advance(end_lsn);
            }
            SourceEvent::Keepalive { wal_end } => {
                assert!(self.open.is_none(), "a keepalive counts between transactions");
                self.advance(wal_end);
            }
        }
    }

    fn advance(&mut self, position: Lsn) {
        assert!(position > self.position, "the position only grows");
        self.position = position;
    }

    fn change(&mut self, change: &Change, commit_lsn: Lsn) {
        let id = change.table();
        let table = self.tables.iter().find(|table| table.id == id);
        let table = table.expect("a change is of a captured table");
        assert!(commit_lsn >= table.skip_until, "a table starts at its start LSN");
        assert!(
            !self.blocked.contains(&id),
            "nothing of a transaction follows a table's block"
        );
        const NEW: &[State] = &[State::Unchanged];
        match change {
            Change::Insert { new, .. } => check_row(new, table, NEW),
            Change::Update { old, new, .. } => {
                check_old(old, table);
                check_row(new, table, NEW);
            }
            Change::Delete { old, .. } => {
                assert!(*old != Old::None, "a delete has an old row");
                check_old(old, table);
            }
            Change::Truncate { .. } => {}
            Change::Block { code, .. } => {
                assert!([F_DEFINITION, F_VALUE].contains(&code.as_str()), "a block has a code");
                self.blocked.insert(id);
                self.ever_blocked.insert(id);
            }
        }
    }
}

fn check_old(old: &Old, table: &CaptureTable) {
    match old {
        Old::None => {}
        Old::Key(row) => check_row(row, table, &[State::Unchanged, State::Absent]),
        Old::Full(row) => check_row(row, table, &[State::Unchanged]),
    }
}

/// Checks one row: it can be read, each value is one of its column's, and a column without a value
/// is NULL where it may be, or in one of the `states`.
pub(super) fn check_row(row: &[u8], table: &CaptureTable, states: &[State]) {
    let columns = decode(row, &table.schema).expect("a row can be read");
    for (column, (state, value)) in table.schema.columns.iter().zip(columns) {
        match (state, value) {
            (State::Present, Some(value)) => check_value(&column.column_type, value),
            (State::Null, None) => assert!(!column.required, "a key is never NULL"),
            (state, _) => assert!(states.contains(&state), "{} is {state:?}", column.name),
        }
    }
}

fn check_value(column_type: &ColumnType, value: Datum<'_>) {
    match (column_type, value) {
        (ColumnType::Decimal { precision, .. }, Datum::Decimal(value)) => {
            let limit = 10u128.pow(u32::from(*precision));
            assert!(
                value.unsigned_abs() < limit,
                "a decimal has no more digits than its type"
            );
        }
        (ColumnType::Time, Datum::Time(value)) => assert!((0..DAY_US).contains(&value), "a time is within a day"),
        (ColumnType::List(element), Datum::List(list)) => {
            for value in list.elements().expect("a list can be read").into_iter().flatten() {
                check_value(element, value);
            }
        }
        _ => {}
    }
}
