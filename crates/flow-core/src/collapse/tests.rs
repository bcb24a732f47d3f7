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
fn a_row_whose_last_change_left_a_column_out_says_so() {
    let unsent = |changes| {
        let outcomes = fold(changes).expect("folds");
        let last = outcomes.into_iter().find_map(|outcome| outcome.now);
        last.expect("a row is left").unsent
    };
    assert!(!unsent(vec![insert(1, "big")]));
    assert!(unsent(vec![update(Old::None, row(1, None))]));
    // The epoch has the value, and PostgreSQL still keeps it out of line.
    assert!(unsent(vec![insert(1, "big"), update(Old::None, row(1, None))]));
    assert!(unsent(vec![
        insert(1, "big"),
        update(Old::Key(key_row(1)), row(2, None))
    ]));
    assert!(!unsent(vec![
        update(Old::None, row(1, None)),
        update(Old::None, row(1, Some("small")))
    ]));
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

mod random {
    //! Folding, judged by a model: a map of rows that each change is applied to.

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Model = BTreeMap<i32, String>;

    /// Is a wish; what the table's state does not allow is left out.
    #[derive(Clone, Debug)]
    enum Wish {
        Insert(i32, String),
        /// Changes the row, perhaps its key, perhaps leaving out its text.
        Update(i32, i32, Option<String>),
        Delete(i32),
        /// `SET id = a + b - id`: a deferrable key holds two rows in between.
        Swap(i32, i32),
    }

    fn wish() -> impl Strategy<Value = Wish> {
        let text = || prop_oneof![Just("x".to_owned()), Just("y".to_owned()), "[a-c]{1,2}"];
        prop_oneof![
            (0..6, text()).prop_map(|(id, text)| Wish::Insert(id, text)),
            (0..6, 0..6, prop::option::of(text())).prop_map(|(id, to, text)| Wish::Update(id, to, text)),
            (0..6, prop::option::of(text())).prop_map(|(id, text)| Wish::Update(id, id, text)),
            (0..6).prop_map(Wish::Delete),
            (0..6, 0..6).prop_map(|(a, b)| Wish::Swap(a, b)),
        ]
    }

    /// Says what the server sends of an old row.
    fn old(full: bool, id: i32, text: &str, key_changes: bool) -> Old {
        match (full, key_changes) {
            (true, _) => Old::Full(row(id, Some(text))),
            (false, true) => Old::Key(key_row(id)),
            (false, false) => Old::None,
        }
    }

    /// Does what is wished to the model, as the changes PostgreSQL would send.
    fn perform(model: &mut Model, wish: &Wish, full: bool, changes: &mut Vec<Change>) {
        match wish {
            Wish::Insert(id, text) if !model.contains_key(id) => {
                model.insert(*id, text.clone());
                changes.push(insert(*id, text));
            }
            Wish::Update(id, to, text) if model.contains_key(id) && (id == to || !model.contains_key(to)) => {
                let before = model.remove(id).expect("is there");
                changes.push(update(old(full, *id, &before, id != to), row(*to, text.as_deref())));
                model.insert(*to, text.clone().unwrap_or(before));
            }
            Wish::Delete(id) => {
                if let Some(before) = model.remove(id) {
                    let old = old(full, *id, &before, true);
                    changes.push(Change::Delete { table: TABLE, old });
                }
            }
            Wish::Swap(a, b) if full && a != b && model.contains_key(a) && model.contains_key(b) => {
                let (first, second) = (model[a].clone(), model[b].clone());
                changes.push(update(Old::Full(row(*a, Some(&first))), row(*b, Some(&first))));
                changes.push(update(Old::Full(row(*b, Some(&second))), row(*a, None)));
                model.insert(*b, first);
                model.insert(*a, second);
            }
            _ => {}
        }
    }

    fn text_of(row: &Bytes) -> Option<String> {
        match crate::row::decode(row, &schema()).expect("own row")[1] {
            (State::Present, Some(Datum::String(text))) => Some(text.to_owned()),
            _ => None,
        }
    }

    /// Does to `before` what the outcomes say, as the engine does with the lake.
    fn apply(before: &Model, outcomes: &[Outcome]) -> Model {
        let id_of = |key: &[u8]| i32::from_be_bytes(key.try_into().expect("int key")) ^ i32::MIN;
        let mut after = before.clone();
        for outcome in outcomes {
            let id = id_of(&outcome.key);
            assert_eq!(
                before.contains_key(&id),
                outcome.expects == Expects::Present,
                "key {id} before the epoch"
            );
            match &outcome.now {
                None => after.remove(&id),
                Some(pending) => {
                    let origin = pending.origin.as_ref().map(|key| before[&id_of(key)].clone());
                    let text = text_of(&pending.row).or(origin).expect("the text has a source");
                    after.insert(id, text)
                }
            };
        }
        after
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn outcomes_turn_the_state_before_into_the_state_after(
            before in prop::collection::btree_map(0..6_i32, "[a-c]{1,2}", 0..6),
            wishes in prop::collection::vec(wish(), 0..24),
            full: bool,
        ) {
            let (mut model, mut changes) = (before.clone(), Vec::new());
            for wish in &wishes {
                perform(&mut model, wish, full, &mut changes);
            }
            let outcomes = fold(changes).expect("a possible history folds");
            prop_assert_eq!(apply(&before, &outcomes), model);
        }
    }
}
