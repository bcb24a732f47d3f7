//! Rows in every format.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray,
    TimestampMicrosecondArray,
};

use super::*;

fn rows() -> (SchemaRef, Vec<RecordBatch>) {
    let decimal = Decimal128Array::from(vec![Some(12_345), None])
        .with_precision_and_scale(10, 2)
        .expect("fits");
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![Some(i64::MAX), None]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("d", Arc::new(decimal)),
        ("f", Arc::new(Float64Array::from(vec![Some(f64::NAN), Some(0.5)]))),
        ("s", Arc::new(StringArray::from(vec![Some("a,\"b\"\n"), Some("")]))),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1_000_001), None]).with_timezone("+00:00")),
        ),
        ("l", Arc::new(list)),
    ];
    let batch = RecordBatch::try_from_iter(columns);
    let batch = batch.expect("equal lengths");
    (batch.schema(), vec![batch])
}

#[test]
fn json_is_exact() {
    let (schema, batches) = rows();
    let text = json(&schema, &batches).expect("can be shown");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        value,
        serde_json::json!([
            {"n": i64::MAX, "b": true, "d": "123.45", "f": "NaN", "s": "a,\"b\"\n", "t": "1970-01-01T00:00:01.000001Z", "l": [1, null]},
            {"n": null, "b": null, "d": null, "f": 0.5, "s": "", "t": null, "l": null},
        ])
    );
    assert_eq!(json(&schema, &[]).expect("can be shown"), "[]\n");
}

#[test]
fn a_column_of_type_null_is_null() {
    let column: ArrayRef = Arc::new(arrow_array::NullArray::new(1));
    let batch = RecordBatch::try_from_iter([("a", column.clone()), ("b", column)]).expect("equal lengths");
    let (schema, batches) = (batch.schema(), [batch]);
    assert_eq!(csv(&schema, &batches).expect("can be shown"), "a,b\r\n,\r\n");
    assert_eq!(
        json(&schema, &batches).expect("can be shown"),
        "[{\"a\":null,\"b\":null}]\n"
    );
}

#[test]
fn csv_tells_null_from_empty() {
    let (schema, batches) = rows();
    let text = csv(&schema, &batches).expect("can be shown");
    assert_eq!(
        text,
        "n,b,d,f,s,t,l\r\n9223372036854775807,true,123.45,NaN,\"a,\"\"b\"\"\n\",1970-01-01T00:00:01.000001Z,\"[1, NULL]\"\r\n,,,0.5,\"\",,\r\n"
    );
}

#[test]
fn tables_are_for_people() {
    let (schema, batches) = rows();
    let text = table(&schema, &batches).expect("can be shown");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[1].contains("a,\"b\"\\n"), "control characters are shown: {text}");
    assert!(lines[2].starts_with("NULL"), "{text}");
    assert_eq!(lines[3], "(2 rows)");
}
