//! Rows there and back, and every way to cut one short.

use super::*;
use crate::schema::Column;

fn schema(types: &[ColumnType]) -> TableSchema {
    let column = |(index, column_type): (usize, &ColumnType)| Column {
        name: format!("c{index}"),
        field_id: 0,
        element_id: None,
        column_type: column_type.clone(),
        required: false,
        source_type: String::new(),
    };
    let mut schema = TableSchema {
        columns: types.iter().enumerate().map(column).collect(),
        key: vec![0],
    };
    schema.assign_field_ids();
    schema
}

#[test]
fn every_type_returns_and_any_cut_is_an_error() {
    let list = ColumnType::List(Box::new(ColumnType::String));
    let schema = schema(&[
        ColumnType::Boolean,
        ColumnType::Int,
        ColumnType::Long,
        ColumnType::Float,
        ColumnType::Double,
        ColumnType::Decimal {
            precision: 38,
            scale: 2,
        },
        ColumnType::Date,
        ColumnType::Time,
        ColumnType::Timestamp,
        ColumnType::Timestamptz,
        ColumnType::String,
        ColumnType::Binary,
        ColumnType::Uuid,
        list,
        ColumnType::Int,
        ColumnType::Int,
        ColumnType::Int,
    ]);
    let data = [
        Datum::Boolean(true),
        Datum::Int(i32::MIN),
        Datum::Long(i64::MAX),
        Datum::Float(-0.0),
        Datum::Double(f64::INFINITY),
        Datum::Decimal(i128::MIN),
        Datum::Date(-1),
        Datum::Time(86_399_999_999),
        Datum::Timestamp(i64::MIN),
        Datum::Timestamptz(0),
        Datum::String("a\0ü"),
        Datum::Binary(&[0, 255]),
        Datum::Uuid([7; 16]),
    ];
    let mut builder = RowBuilder::new();
    builder.start(schema.columns.len());
    for (column, datum) in schema.columns.iter().zip(&data) {
        builder.push(&column.column_type, datum);
    }
    builder.push_list(&ColumnType::String, &[Some(Datum::String("x")), None]);
    builder.push_state(State::Null);
    builder.push_state(State::Unchanged);
    builder.push_state(State::Absent);
    let row = builder.finish_row();
    let columns = row.decode(&schema).expect("own row");
    for (column, datum) in columns.iter().zip(&data) {
        assert_eq!(column.1.as_ref(), Some(datum));
    }
    let Some(Datum::List(list)) = columns[13].1 else {
        panic!("a list")
    };
    assert_eq!(list.elements().expect("own list"), vec![Some(Datum::String("x")), None]);
    let states: Vec<_> = columns[14..].iter().map(|column| column.0).collect();
    assert_eq!(states, [State::Null, State::Unchanged, State::Absent]);
    assert!(row.has_state(&schema, State::Unchanged));
    for cut in 0..row.as_bytes().len() {
        assert!(decode(&row.as_bytes()[..cut], &schema).is_err(), "cut at {cut}");
    }
}

#[test]
fn unchanged_columns_come_from_the_old_row_or_not_at_all() {
    let schema = schema(&[ColumnType::Int, ColumnType::String, ColumnType::String]);
    let row = |columns: [(State, Option<&str>); 2]| {
        let mut builder = RowBuilder::new();
        builder.start(3);
        builder.push(&ColumnType::Int, &Datum::Int(1));
        for (state, text) in columns {
            builder.push_column(&ColumnType::String, &(state, text.map(Datum::String)));
        }
        builder.finish_row()
    };
    let new = row([(State::Unchanged, None), (State::Present, Some("new"))]);
    let check = |old: [(State, Option<&str>); 2], expected: Option<Row>| {
        let resolved = resolve_unchanged(new.as_bytes(), row(old).as_bytes(), &schema).expect("own rows");
        assert_eq!(resolved, expected);
    };
    let other = (State::Absent, None);
    check(
        [(State::Present, Some("big")), other],
        Some(row([(State::Present, Some("big")), (State::Present, Some("new"))])),
    );
    check(
        [(State::Null, None), other],
        Some(row([(State::Null, None), (State::Present, Some("new"))])),
    );
    check([(State::Absent, None), other], None);
    check([(State::Unchanged, None), other], None);

    let both = row([(State::Unchanged, None), (State::Unchanged, None)]);
    let old = row([other, (State::Present, Some("key"))]);
    assert_eq!(
        fill_unchanged(both.as_bytes(), old.as_bytes(), &schema).expect("own rows"),
        row([(State::Unchanged, None), (State::Present, Some("key"))])
    );
}
