//! The captured tables that test inputs speak of.

use flow_core::{Column, ColumnType, Lsn, TableId, TableName, TableSchema};

use crate::capture::{CaptureColumn, CaptureTable};
use crate::wire_types::{Target, Wire, choose, default_type, scalar};

/// Lists the types: name, oid, oid of the array, type modifier.
pub(super) const TYPES: &[(&str, u32, u32, i32)] = &[
    ("bool", 16, 1000, -1),
    ("bytea", 17, 1001, -1),
    ("int8", 20, 1016, -1),
    ("int2", 21, 1005, -1),
    ("int4", 23, 1007, -1),
    ("text", 25, 1009, -1),
    ("float4", 700, 1021, -1),
    ("float8", 701, 1022, -1),
    ("bpchar", 1042, 1014, 8),
    ("date", 1082, 1182, -1),
    ("time", 1083, 1183, -1),
    ("timestamp", 1114, 1115, -1),
    ("timestamptz", 1184, 1185, -1),
    ("numeric", 1700, 1231, -1),
    ("decimal", 1700, 1231, ((20 << 16) | 4) + 4),
    ("uuid", 2950, 2951, -1),
    ("jsonb", 3802, 3807, -1),
];

/// Is the index and the oid of the first of the tables that have one type each.
pub(super) const TYPES_FIRST: (usize, u32) = (2, 100);

/// Is one column: its name, its type's oid and modifier, its wire form, what it becomes.
type Shape<'a> = (&'a str, u32, i32, Wire, ColumnType, Target);

/// Is a table with a key, a text, a number and a list.
pub fn table() -> CaptureTable {
    let list = Wire::Array(Box::new(Wire::Text));
    let columns = [
        key(),
        native("v", 25, Wire::Text),
        native("n", 1700, Wire::Numeric),
        native("l", 1009, list),
    ];
    capture(1, 42, "t", &columns)
}

/// Lists that table, one that starts late and has no key, and one for each type that can be captured.
pub fn tables() -> Vec<CaptureTable> {
    let mut late = capture(2, 44, "late", &[key(), native("v", 25, Wire::Text)]);
    late.append_only = true;
    late.schema.key.clear();
    late.schema.columns[0].required = false;
    late.skip_until = Lsn(110);
    let typed = (TYPES_FIRST.1..).zip(TYPES);
    let typed = typed.map(|(oid, (name, type_oid, array_oid, type_mod))| {
        let wire = scalar(*type_oid).expect("a scalar type");
        let array = Wire::Array(Box::new(wire.clone()));
        let (plain, list) = (default_type(&wire, *type_mod), default_type(&array, *type_mod));
        let mut columns = vec![
            key(),
            ("plain", *type_oid, *type_mod, wire.clone(), plain, Target::Native),
            (
                "text",
                *type_oid,
                *type_mod,
                wire.clone(),
                ColumnType::String,
                Target::Text,
            ),
            ("list", *array_oid, *type_mod, array.clone(), list, Target::Native),
            (
                "list_text",
                *array_oid,
                *type_mod,
                array,
                ColumnType::String,
                Target::Text,
            ),
        ];
        if let Ok((column_type, target)) = choose(&wire, "time") {
            columns.push(("chosen", *type_oid, *type_mod, wire, column_type, target));
        }
        capture(oid, oid, name, &columns)
    });
    [table(), late].into_iter().chain(typed).collect()
}

fn key() -> Shape<'static> {
    native("id", 23, Wire::Int4)
}

fn native(name: &str, type_oid: u32, wire: Wire) -> Shape<'_> {
    let column_type = default_type(&wire, -1);
    (name, type_oid, -1, wire, column_type, Target::Native)
}

/// Makes a table whose key is its first column.
fn capture(id: u32, oid: u32, name: &str, shapes: &[Shape<'_>]) -> CaptureTable {
    let column = |(index, (name, _, _, _, column_type, _)): (usize, &Shape<'_>)| Column {
        name: (*name).to_owned(),
        field_id: 0,
        element_id: None,
        column_type: column_type.clone(),
        required: index == 0,
        source_type: String::new(),
    };
    let arrives = |(attnum, (_, type_oid, type_mod, wire, _, target)): (i16, &Shape<'_>)| CaptureColumn {
        attnum,
        type_oid: *type_oid,
        type_mod: *type_mod,
        wire: wire.clone(),
        target: target.clone(),
    };
    CaptureTable {
        id: TableId(id),
        oid,
        name: TableName::new("public", name),
        schema: TableSchema {
            columns: shapes.iter().enumerate().map(column).collect(),
            key: vec![0],
        },
        columns: (1..).zip(shapes).map(arrives).collect(),
        append_only: false,
        skip_until: Lsn::ZERO,
        row_filter: None,
    }
}
