//! Folding, judged by hand: what each history leaves per key.

use super::*;
use crate::ids::TableId;
use crate::row::{Datum, RowBuilder};
use crate::schema::{Column, ColumnType};

const TABLE: TableId = TableId(1);

fn schema() -> TableSchema {
    let column = |name: &str, column_type| Column {
        name: name.into(),
        field_id: 0,
        element_id: None,
        column_type,
        required: false,
        source_type: String::new(),
    };
    let columns = vec![column("id", ColumnType::Int), column("v", ColumnType::String)];
    TableSchema { columns, key: vec![0] }
}

fn row(id: i32, text: Option<&str>) -> Bytes {
    let mut builder = RowBuilder::new();
    builder.start(2);
    builder.push(&ColumnType::Int, &Datum::Int(id));
    match text {
        Some(text) => builder.push(&ColumnType::String, &Datum::String(text)),
        None => builder.push_state(State::Unchanged),
    }
    builder.finish_row().bytes().clone()
}

fn key_row(id: i32) -> Bytes {
    let mut builder = RowBuilder::new();
    builder.start(2);
    builder.push(&ColumnType::Int, &Datum::Int(id));
    builder.push_state(State::Absent);
    builder.finish_row().bytes().clone()
}

fn insert(id: i32, text: &str) -> Change {
    Change::Insert {
        table: TABLE,
        new: row(id, Some(text)),
    }
}

fn update(old: Old, new: Bytes) -> Change {
    Change::Update { table: TABLE, old, new }
}

fn delete(id: i32) -> Change {
    Change::Delete {
        table: TABLE,
        old: Old::Key(key_row(id)),
    }
}

fn fold(changes: Vec<Change>) -> Result<Vec<Outcome>, CollapseError> {
    let schema = schema();
    let mut collapse = Collapse::new(&schema);
    for change in changes {
        collapse.fold(change)?;
    }
    Ok(collapse.finish()?.0)
}

/// Prints outcomes as `id: expects -> now`, sorted.
fn check(changes: Vec<Change>, expected: &[&str]) {
    let schema = schema();
    let mut lines: Vec<String> = fold(changes)
        .expect("folds")
        .iter()
        .map(|outcome| {
            let id = i32::from_be_bytes(outcome.key[..4].try_into().expect("int key")) ^ i32::MIN;
            let now = outcome.now.as_ref().map(|pending| {
                let columns = crate::row::decode(&pending.row, &schema).expect("own row");
                match (&columns[1], &pending.origin) {
                    ((State::Present, Some(Datum::String(text))), None) => (*text).to_owned(),
                    ((State::Unchanged, _), Some(origin)) => {
                        let id = i32::from_be_bytes(origin[..4].try_into().expect("int key")) ^ i32::MIN;
                        format!("as {id} was")
                    }
                    other => panic!("{other:?}"),
                }
            });
            format!("{id}: {:?} -> {}", outcome.expects, now.as_deref().unwrap_or("gone"))
        })
        .collect();
    lines.sort();
    assert_eq!(lines, expected);
}

#[test]
fn one_outcome_per_key() {
    check(vec![insert(1, "a")], &["1: Absent -> a"]);
    check(
        vec![insert(1, "a"), update(Old::None, row(1, Some("b")))],
        &["1: Absent -> b"],
    );
    check(vec![insert(1, "a"), delete(1)], &[]);
    check(vec![delete(1)], &["1: Present -> gone"]);
    check(vec![delete(1), insert(1, "c")], &["1: Present -> c"]);
    check(
        vec![update(Old::None, row(1, Some("b"))), delete(1)],
        &["1: Present -> gone"],
    );
}

#[test]
fn key_changes_move_the_row() {
    let moved = update(Old::Key(key_row(1)), row(2, Some("m")));
    check(vec![moved.clone()], &["1: Present -> gone", "2: Absent -> m"]);
    check(vec![insert(1, "a"), moved], &["2: Absent -> m"]);
}

#[test]
fn a_swap_by_way_of_a_third_key() {
    check(
        vec![
            update(Old::Key(key_row(1)), row(-1, Some("one"))),
            update(Old::Key(key_row(2)), row(1, Some("two"))),
            update(Old::Key(key_row(-1)), row(2, Some("one"))),
        ],
        &["1: Present -> two", "2: Present -> one"],
    );
}

#[test]
fn a_swap_of_a_deferrable_key_row_by_row() {
    check(
        vec![
            update(Old::Full(row(1, Some("one"))), row(2, Some("one"))),
            update(Old::Full(row(2, Some("two"))), row(1, Some("two"))),
        ],
        &["1: Present -> two", "2: Present -> one"],
    );
    // Both rows alike: which of them is meant makes no difference.
    check(
        vec![
            update(Old::Full(row(1, Some("x"))), row(2, Some("x"))),
            update(Old::Full(row(2, Some("x"))), row(1, Some("x"))),
        ],
        &["1: Present -> x"],
    );
}

#[test]
fn unchanged_columns_follow_the_row_through_key_changes() {
    check(vec![update(Old::None, row(1, None))], &["1: Present -> as 1 was"]);
    check(
        vec![insert(1, "big"), update(Old::None, row(1, None))],
        &["1: Absent -> big"],
    );
    check(
        vec![
            update(Old::None, row(1, None)),
            update(Old::Key(key_row(1)), row(2, None)),
        ],
        &["1: Present -> gone", "2: Absent -> as 1 was"],
    );
    check(
        vec![
            update(Old::Key(key_row(1)), row(2, None)),
            update(Old::Key(key_row(2)), row(3, None)),
        ],
        &["1: Present -> gone", "3: Absent -> as 1 was"],
    );
    check(
        vec![update(Old::Full(row(1, Some("big"))), row(2, None))],
        &["1: Present -> gone", "2: Absent -> big"],
    );
}

#[test]
fn impossible_histories_are_refused() {
    assert_eq!(fold(vec![insert(1, "a"), insert(1, "b")]), Err(CollapseError::Exists));
    assert_eq!(fold(vec![delete(1), delete(1)]), Err(CollapseError::Missing));
    assert_eq!(
        fold(vec![delete(1), update(Old::None, row(1, Some("b")))]),
        Err(CollapseError::Missing)
    );
    assert_eq!(
        fold(vec![Change::Truncate { table: TABLE }]),
        Err(CollapseError::Truncated)
    );
}
