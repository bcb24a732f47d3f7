//! Folding in several passes, judged by folding in one.

use std::collections::BTreeMap;

use flow_core::row::{Datum, RowBuilder};
use flow_core::transaction::{ChunkBuilder, TransactionMeta};
use flow_core::{Column, ColumnType};
use flow_store::StoreOptions;

use super::*;

const TABLE: TableId = TableId(1);
const OTHER: TableId = TableId(2);

/// Is a table of `a int, b string, body string` with the key `(a, b)`.
fn table() -> FoldTable {
    let column = |name: &str, column_type| Column {
        name: name.into(),
        field_id: 0,
        element_id: None,
        column_type,
        required: false,
        source_type: String::new(),
    };
    let columns = vec![
        column("a", ColumnType::Int),
        column("b", ColumnType::String),
        column("body", ColumnType::String),
    ];
    FoldTable {
        schema: Arc::new(TableSchema {
            columns,
            key: vec![0, 1],
        }),
        start_lsn: Lsn::ZERO,
    }
}

/// Is a text column: its value, or why there is none.
type Text<'a> = Result<&'a str, State>;

fn row(a: i32, b: Text<'_>, body: Text<'_>) -> Bytes {
    let mut row = RowBuilder::new();
    row.start(3);
    row.push(&ColumnType::Int, &Datum::Int(a));
    for text in [b, body] {
        match text {
            Ok(text) => row.push(&ColumnType::String, &Datum::String(text)),
            Err(state) => row.push_state(state),
        }
    }
    row.finish_row().bytes().clone()
}

fn key_row(a: i32, b: &str) -> Bytes {
    row(a, Ok(b), Err(State::Absent))
}

/// Holds a store whose journal grows by one transaction at a time.
struct Journaled {
    store: Store,
    transactions: u64,
    _dir: tempfile::TempDir,
}

impl Journaled {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let options = StoreOptions {
            dir: dir.path().join("state"),
            memory_bytes: 16 << 20,
        };
        Journaled {
            store: Store::open(options).expect("opens"),
            transactions: 0,
            _dir: dir,
        }
    }

    /// Journals one more transaction and gives the range that holds it alone.
    fn append(&mut self, mut changes: ChunkBuilder) -> Range {
        let from = self.transactions * 100;
        self.transactions += 1;
        let (count, chunk) = (changes.changes(), changes.take());
        let meta = TransactionMeta {
            commit_lsn: Lsn(from + 50),
            end_lsn: Lsn(from + 100),
            commit_time: 1,
            xid: 1,
            chunks: 1,
            changes: count,
            bytes: chunk.len() as u64,
        };
        let journal = self.store.journal();
        journal.stage_chunk(meta.commit_lsn, 0, &chunk).expect("staged");
        journal.stage_commit(&meta).expect("staged");
        journal.sync().expect("synced");
        Range {
            from: Lsn(from),
            to: meta.end_lsn,
        }
    }
}

/// Sorts outcomes by key; whether a column was unsent is not compared, for passes may not know it.
fn sorted(outcomes: Vec<Outcome>) -> BTreeMap<Vec<u8>, Outcome> {
    let with_key = outcomes.into_iter().map(|mut outcome| {
        if let Some(pending) = &mut outcome.now {
            pending.unsent = false;
        }
        (outcome.key.to_vec(), outcome)
    });
    with_key.collect()
}

fn folded(fold: Option<TableFold>) -> Vec<Outcome> {
    match fold {
        Some(TableFold::Folded { outcomes, .. }) => outcomes,
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Folds a history in one pass and in many, and compares. Gives the number of passes.
fn check(journaled: &mut Journaled, changes: ChunkBuilder) -> u64 {
    let range = journaled.append(changes);
    let store = &journaled.store;
    let tables = FoldTables::from([(TABLE, table())]);
    let mut whole = fold(store, range, &tables, &Passes::default(), 0).expect("folds");
    let whole = sorted(folded(whole.remove(&TABLE)));
    let survey = survey(store, range, &tables, 1_000_000, 200_000).expect("surveys");
    let mut parts = Vec::new();
    for pass in 0..survey.passes.count() {
        let mut part = fold(store, range, &tables, &survey.passes, pass).expect("folds");
        parts.extend(folded(part.remove(&TABLE)));
    }
    assert_eq!(sorted(parts), whole);
    survey.passes.count()
}

#[test]
fn a_key_column_that_was_left_out_is_the_old_one() {
    let mut journaled = Journaled::new();
    for body in [Ok("sent"), Err(State::Unchanged)] {
        for before in [false, true] {
            let mut changes = ChunkBuilder::new();
            for a in 0..50 {
                if before {
                    changes.insert(TABLE, &row(a, Ok("long"), Ok("old")));
                }
                let old = key_row(a, "long");
                changes.update(TABLE, Some((&old, false)), &row(a + 100, Err(State::Unchanged), body));
            }
            assert!(check(&mut journaled, changes) >= 10);
        }
    }
}

/// Is a small generator: the same numbers for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Makes a random history, as PostgreSQL would send it.
fn history(seed: u64) -> ChunkBuilder {
    let mut numbers = Numbers(seed);
    let mut changes = ChunkBuilder::new();
    // Half of the rows are older than the range.
    let mut live: Vec<(i32, &str)> = (0..10).map(|a| (a, "old")).collect();
    for _ in 0..120 {
        let body = if numbers.below(2) == 0 {
            Ok("text")
        } else {
            Err(State::Unchanged)
        };
        let full = numbers.below(4) == 0;
        let place = numbers.below(live.len().max(1) as u64) as usize;
        let key = (numbers.below(30) as i32, ["x", "y"][numbers.below(2) as usize]);
        let Some(&(a, b)) = live.get(place).filter(|_| numbers.below(4) > 0) else {
            if !live.contains(&key) {
                changes.insert(TABLE, &row(key.0, Ok(key.1), Ok("inserted")));
                live.push(key);
            }
            continue;
        };
        let old = key_row(a, b);
        match numbers.below(5) {
            0 => {
                changes.delete(TABLE, &old, false);
                live.swap_remove(place);
            }
            1 => changes.update(TABLE, None, &row(a, Ok(b), body)),
            // The first key column changes and the second is left out.
            2 if !live.contains(&(key.0, b)) => {
                changes.update(TABLE, Some((&old, false)), &row(key.0, Err(State::Unchanged), body));
                live[place] = (key.0, b);
            }
            _ if !live.contains(&key) => {
                let sent = if full { Ok("text") } else { body };
                changes.update(TABLE, Some((&old, false)), &row(key.0, Ok(key.1), sent));
                live[place] = key;
            }
            _ => {}
        }
    }
    changes
}

#[test]
fn many_passes_give_what_one_gives() {
    let mut journaled = Journaled::new();
    for seed in 0..60 {
        println!("seed {seed}");
        check(&mut journaled, history(seed));
    }
}

#[test]
fn a_table_with_more_ties_than_memory_has_room_for_is_refused_alone() {
    let mut changes = ChunkBuilder::new();
    for a in 0..20 {
        let (old, new) = (key_row(a, "k"), row(a + 100, Ok("k"), Err(State::Unchanged)));
        changes.update(TABLE, Some((&old, false)), &new);
        changes.insert(OTHER, &row(a, Ok("k"), Ok("body")));
    }
    let mut journaled = Journaled::new();
    let range = journaled.append(changes);
    let store = &journaled.store;
    let tables = FoldTables::from([(TABLE, table()), (OTHER, table())]);
    let fold_all = |budget: u64| {
        let survey = survey(store, range, &tables, budget * 2, budget).expect("surveys");
        assert!(survey.tables.contains(&TABLE));
        let mut outcomes = Vec::new();
        let mut tied = 0;
        for pass in 0..survey.passes.count() {
            for (id, fold) in fold(store, range, &tables, &survey.passes, pass).expect("folds") {
                match fold {
                    TableFold::Folded { outcomes: some, .. } => outcomes.extend(some.into_iter().map(|_| id)),
                    TableFold::Tied { ties_max } => {
                        assert_eq!((id, ties_max), (TABLE, budget / TIES_SHARE / TIE_BYTES));
                        tied += 1;
                    }
                    TableFold::Refused { error, .. } => panic!("{error}"),
                }
            }
        }
        (
            outcomes.iter().filter(|id| **id == TABLE).count(),
            outcomes.len(),
            tied > 0,
        )
    };
    let room_for = |ties: u64| ties * TIES_SHARE * TIE_BYTES;
    assert_eq!(fold_all(room_for(20)), (40, 60, false));
    assert_eq!(fold_all(room_for(19)), (0, 20, true));
}
