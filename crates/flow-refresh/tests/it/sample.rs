//! Tables to compute over: small domains, so that keys meet, repeat and are NULL.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use flow_core::lake::SnapshotReader;
use flow_core::{Column, ColumnType, TableName, TableSchema};
use flow_refresh::{
    Definition, PlannedTable, RefreshContext, RefreshError, RefreshInput, RefreshOutput, Scratch, SourceFile, parse,
    plan, refresh_full,
};

use crate::lake::{Draw, MemoryLake};

pub(crate) fn table(name: &str) -> TableName {
    let (schema, name) = name.rsplit_once('.').expect("a name with a namespace");
    TableName::new(schema, name)
}

fn schema(columns: &[(&str, ColumnType)]) -> TableSchema {
    let columns = columns.iter().map(|(name, column_type)| Column {
        name: (*name).into(),
        field_id: 0,
        element_id: None,
        column_type: column_type.clone(),
        required: false,
        source_type: String::new(),
    });
    let mut schema = TableSchema {
        columns: columns.collect(),
        key: vec![],
    };
    schema.assign_field_ids();
    schema
}

pub(crate) fn fact_schema() -> TableSchema {
    schema(&[
        ("id", ColumnType::Long),
        ("k", ColumnType::Int),
        ("g", ColumnType::Int),
        ("n", ColumnType::Long),
        ("x", ColumnType::Double),
        ("r", ColumnType::Float),
        (
            "d",
            ColumnType::Decimal {
                precision: 12,
                scale: 2,
            },
        ),
        ("s", ColumnType::String),
        ("t", ColumnType::Timestamp),
        ("z", ColumnType::Timestamptz),
        ("day", ColumnType::Date),
        ("b", ColumnType::Boolean),
        ("u", ColumnType::Uuid),
    ])
}

pub(crate) fn dimension_schema() -> TableSchema {
    schema(&[
        ("k", ColumnType::Int),
        ("name", ColumnType::String),
        (
            "w",
            ColumnType::Decimal {
                precision: 10,
                scale: 4,
            },
        ),
        ("lim", ColumnType::Long),
    ])
}

/// Makes a column; one value in eight is NULL.
fn column(column_type: &ColumnType, rows: usize, draw: &mut Draw) -> ArrayRef {
    let mut some = |limit: u64| -> Vec<Option<i64>> {
        (0..rows)
            .map(|_| (draw.below(8) > 0).then(|| draw.below(limit) as i64))
            .collect()
    };
    let micros = |values: Vec<Option<i64>>| -> Vec<Option<i64>> {
        values
            .into_iter()
            .map(|v| v.map(|v| 1_700_000_000_000_000 + v * 3_700_000_001))
            .collect()
    };
    match column_type {
        ColumnType::Int => Arc::new(Int32Array::from_iter(
            some(6).into_iter().map(|v| v.map(|v| v as i32 - 2)),
        )),
        ColumnType::Long => Arc::new(Int64Array::from_iter(some(90).into_iter().map(|v| v.map(|v| v - 40)))),
        ColumnType::Double => Arc::new(Float64Array::from_iter(
            some(40).into_iter().map(|v| v.map(|v| (v - 12) as f64 / 10.0)),
        )),
        ColumnType::Float => Arc::new(Float32Array::from_iter(
            some(40).into_iter().map(|v| v.map(|v| (v - 12) as f32 / 8.0)),
        )),
        ColumnType::Decimal { precision, scale } => {
            let values = Decimal128Array::from_iter(some(30_000).into_iter().map(|v| v.map(|v| i128::from(v) - 9_000)));
            Arc::new(
                values
                    .with_precision_and_scale(*precision, *scale as i8)
                    .expect("values are small"),
            )
        }
        ColumnType::String => {
            let words = ["ab", "abc", "b", "", "Zürich", "x_y", "10%"];
            Arc::new(StringArray::from_iter(
                some(7).into_iter().map(|v| v.map(|v| words[v as usize])),
            ))
        }
        ColumnType::Timestamp => Arc::new(TimestampMicrosecondArray::from_iter(micros(some(9000)))),
        ColumnType::Timestamptz => {
            Arc::new(TimestampMicrosecondArray::from_iter(micros(some(9000))).with_timezone("+00:00"))
        }
        ColumnType::Date => Arc::new(Date32Array::from_iter(
            some(300).into_iter().map(|v| v.map(|v| v as i32 + 19_000)),
        )),
        ColumnType::Boolean => Arc::new(BooleanArray::from_iter(some(2).into_iter().map(|v| v.map(|v| v == 1)))),
        ColumnType::Uuid => {
            let ids = some(5).into_iter().map(|v| v.map(|v| [v as u8 + 0xa0; 16]));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids, 16).expect("ids of 16 bytes"))
        }
        other => panic!("no sample values of {other}"),
    }
}

pub(crate) fn random(schema: &TableSchema, rows: usize, seed: u64) -> RecordBatch {
    let mut draw = Draw(seed);
    let columns = schema.columns.iter().map(|c| column(&c.column_type, rows, &mut draw));
    let columns = columns.collect();
    RecordBatch::try_new(flow_core::arrow::arrow_schema(schema), columns).expect("columns of the schema")
}

/// Is a lake with `bronze.f` and `bronze.d`, and an empty `bronze.e` shaped like `f`.
pub(crate) fn lake(seed: u64, rows: usize) -> Arc<MemoryLake> {
    let lake = MemoryLake::new();
    lake.put(&table("bronze.f"), random(&fact_schema(), rows, seed));
    lake.put(&table("bronze.d"), random(&dimension_schema(), 12, seed + 1));
    lake.put(&table("bronze.e"), random(&fact_schema(), 0, seed));
    lake
}

pub(crate) fn define(text: &str) -> Vec<Definition> {
    let (definitions, problems) = parse(&[SourceFile {
        path: "t.sql".into(),
        text: text.into(),
    }]);
    assert_eq!(problems, [], "{text}");
    definitions
}

/// Plans one SELECT as `gold.t`.
pub(crate) async fn planned(select: &str, lake: &Arc<MemoryLake>) -> PlannedTable {
    try_planned(select, lake)
        .await
        .unwrap_or_else(|problem| panic!("{select}: {problem}"))
}

/// Plans one SELECT as `gold.t`, or says what is wrong with it.
pub(crate) async fn try_planned(select: &str, lake: &Arc<MemoryLake>) -> Result<PlannedTable, String> {
    let definitions = define(&format!("CREATE DYNAMIC TABLE gold.t AS {select}"));
    let reader: Arc<dyn SnapshotReader> = lake.clone();
    let plan = plan(&definitions, &reader, &BTreeMap::new()).await;
    let problem = plan.problems.first().map(ToString::to_string);
    plan.tables
        .into_iter()
        .next()
        .ok_or_else(|| problem.unwrap_or_default())
}

pub(crate) fn context(partitions: usize) -> RefreshContext {
    RefreshContext {
        at_us: 0,
        run_id: "run-1".into(),
        processed_at_us: 1_700_000_000_000_000,
        memory_bytes: 256 << 20,
        partitions,
        scratch: Scratch {
            folder: std::env::temp_dir(),
            bytes_max: 1 << 30,
        },
    }
}

/// Is what a refresh changes, its rows in memory.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) inserted: Vec<RecordBatch>,
    pub(crate) deleted: Vec<(Arc<str>, u64)>,
    pub(crate) rows_read: u64,
    pub(crate) rows_inserted: u64,
    pub(crate) rows_deleted: u64,
}

impl Output {
    pub(crate) fn of(output: RefreshOutput) -> Result<Output, RefreshError> {
        let rows_inserted = output.inserted.rows();
        Ok(Output {
            inserted: output.inserted.batches()?.collect::<Result<_, _>>()?,
            rows_read: output.rows_read,
            rows_inserted,
            rows_deleted: output.deleted.len() as u64,
            deleted: output.deleted,
        })
    }
}

/// Refreshes a table over the newest snapshots of its inputs.
pub(crate) async fn refresh(
    table: &PlannedTable,
    stored: Option<i64>,
    lake: &Arc<MemoryLake>,
    context: &RefreshContext,
) -> Result<Output, RefreshError> {
    let mut inputs = Vec::new();
    for name in &table.inputs {
        let loaded = lake.load(name).await.expect("memory is read");
        let last = loaded.and_then(|table| table.snapshots.last().map(|s| s.snapshot_id));
        inputs.push(RefreshInput {
            name: name.clone(),
            snapshot_id: last,
        });
    }
    let reader: Arc<dyn SnapshotReader> = lake.clone();
    Output::of(refresh_full(table, &inputs, stored, reader, context).await?)
}
