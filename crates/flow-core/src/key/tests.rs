//! Keys judged by what PostgreSQL calls equal.

use super::*;
use crate::row::RowBuilder;

fn key_of(column_type: &ColumnType, source_type: &str, datum: &Datum<'_>) -> Vec<u8> {
    let column = Column {
        name: "k".into(),
        field_id: 1,
        element_id: None,
        column_type: column_type.clone(),
        required: true,
        source_type: source_type.into(),
    };
    let schema = TableSchema {
        columns: vec![column],
        key: vec![0],
    };
    let mut builder = RowBuilder::new();
    builder.start(1);
    builder.push(column_type, datum);
    let mut out = Vec::new();
    encode_key(builder.finish(), &schema, &mut out).expect("own row");
    out
}

#[test]
fn what_postgresql_calls_equal_is_equal() {
    let number = |text| key_of(&ColumnType::String, "numeric", &Datum::String(text));
    assert_eq!(number("1.50"), number("1.5"));
    assert_eq!(number("100"), number("100.00"));
    assert_ne!(number("100"), number("1"));
    assert_eq!(number("-0.0"), number("0"));
    let text = |text| key_of(&ColumnType::String, "text", &Datum::String(text));
    assert_ne!(text("1.50"), text("1.5"));
    let double = |v| key_of(&ColumnType::Double, "double precision", &Datum::Double(v));
    assert_eq!(double(-0.0), double(0.0));
    assert_eq!(double(f64::NAN), double(-f64::NAN));
}

#[test]
fn keys_sort_as_values_do() {
    let sorted = |keys: Vec<Vec<u8>>| assert!(keys.is_sorted(), "{keys:?}");
    sorted(
        [i32::MIN, -1, 0, 1, i32::MAX]
            .map(|v| key_of(&ColumnType::Int, "", &Datum::Int(v)))
            .to_vec(),
    );
    sorted(
        [i64::MIN, -1, 0, 1, i64::MAX]
            .map(|v| key_of(&ColumnType::Long, "", &Datum::Long(v)))
            .to_vec(),
    );
    let doubles = [f64::NEG_INFINITY, -1.5, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
    sorted(
        doubles
            .map(|v| key_of(&ColumnType::Double, "", &Datum::Double(v)))
            .to_vec(),
    );
    sorted(
        ["", "a", "a\0", "a\0b", "ab"]
            .map(|v| key_of(&ColumnType::String, "", &Datum::String(v)))
            .to_vec(),
    );
}
