//! Every column type at its extremes, with deletes, through every reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use flow_core::arrow::{BatchBuilder, arrow_schema};
use flow_core::lake::SnapshotReader;
use flow_core::row::{Datum, RowBuilder, State};
use flow_core::{Attempt, ColumnType, TableName, TableSchema};
use futures::TryStreamExt;
use serde_json::json;

use crate::fixture::{Readers, Warehouse, column, commit, operation, reload, schema_of, seal};

const UUID_COLUMN: usize = 16;

fn decimal(precision: u8, scale: u8) -> ColumnType {
    ColumnType::Decimal { precision, scale }
}

fn schema() -> TableSchema {
    let list = |element| ColumnType::List(Box::new(element));
    let optional = [
        ("b", ColumnType::Boolean),
        ("i", ColumnType::Int),
        ("l", ColumnType::Long),
        ("f", ColumnType::Float),
        ("d", ColumnType::Double),
        ("dec9", decimal(9, 2)),
        ("dec18", decimal(18, 18)),
        ("dec19", decimal(19, 0)),
        ("dec38", decimal(38, 9)),
        ("dt", ColumnType::Date),
        ("tm", ColumnType::Time),
        ("ts", ColumnType::Timestamp),
        ("tz", ColumnType::Timestamptz),
        ("s", ColumnType::String),
        ("bin", ColumnType::Binary),
        ("u", ColumnType::Uuid),
        ("li", list(ColumnType::Int)),
        ("ls", list(ColumnType::String)),
        ("odd \"name\" ä", ColumnType::Long),
    ];
    let mut columns = vec![column("id", ColumnType::Long, true)];
    columns.extend(optional.map(|(name, column_type)| column(name, column_type, false)));
    schema_of(columns, vec![0])
}

/// Is one value, and the text by which every reader must answer it.
type Cell = (Option<Scalar>, Option<String>);

#[derive(Clone, Debug)]
enum Scalar {
    Boolean(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Decimal(i128),
    Date(i32),
    Time(i64),
    Timestamp(i64),
    Timestamptz(i64),
    String(String),
    Binary(Vec<u8>),
    Uuid([u8; 16]),
    List(Vec<Option<Scalar>>),
}

impl Scalar {
    fn datum(&self) -> Datum<'_> {
        match self {
            Scalar::Boolean(v) => Datum::Boolean(*v),
            Scalar::Int(v) => Datum::Int(*v),
            Scalar::Long(v) => Datum::Long(*v),
            Scalar::Float(v) => Datum::Float(*v),
            Scalar::Double(v) => Datum::Double(*v),
            Scalar::Decimal(v) => Datum::Decimal(*v),
            Scalar::Date(v) => Datum::Date(*v),
            Scalar::Time(v) => Datum::Time(*v),
            Scalar::Timestamp(v) => Datum::Timestamp(*v),
            Scalar::Timestamptz(v) => Datum::Timestamptz(*v),
            Scalar::String(v) => Datum::String(v),
            Scalar::Binary(v) => Datum::Binary(v),
            Scalar::Uuid(v) => Datum::Uuid(*v),
            Scalar::List(_) => unreachable!("lists are pushed element by element"),
        }
    }

    fn text(&self, column_type: &ColumnType) -> String {
        let float = |v: f64| {
            if v.is_nan() {
                "nan".to_owned()
            } else {
                format!("{:016x}", v.to_bits())
            }
        };
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        match self {
            Scalar::Boolean(v) => v.to_string(),
            Scalar::Int(v) | Scalar::Date(v) => v.to_string(),
            Scalar::Long(v) | Scalar::Time(v) | Scalar::Timestamp(v) | Scalar::Timestamptz(v) => v.to_string(),
            Scalar::Float(v) => float(f64::from(*v)),
            Scalar::Double(v) => float(*v),
            Scalar::Decimal(v) => decimal_text(*v, column_type),
            Scalar::String(v) => v.clone(),
            Scalar::Binary(v) => hex(v),
            Scalar::Uuid(v) => hex(v),
            Scalar::List(v) => {
                let ColumnType::List(element) = column_type else {
                    unreachable!("a list stands in a list column")
                };
                let texts = v
                    .iter()
                    .map(|v| v.as_ref().map_or("null".to_owned(), |v| v.text(element)));
                format!("[{}]", texts.collect::<Vec<_>>().join(","))
            }
        }
    }
}

fn decimal_text(unscaled: i128, column_type: &ColumnType) -> String {
    let ColumnType::Decimal { scale, .. } = column_type else {
        unreachable!("a decimal stands in a decimal column")
    };
    let scale = usize::from(*scale);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

/// Lists each column's interesting values; row `n` takes the `n`-th of each, again from the start.
fn values() -> Vec<Vec<Scalar>> {
    use Scalar::{Binary, Boolean, Date, Decimal, Double, Float, Int, List, Long, Time, Timestamp, Timestamptz, Uuid};
    let text = |s: &str| Scalar::String(s.to_owned());
    // PostgreSQL's range: 4713 BC to 294276 AD, of which microseconds reach January 294247.
    let moments = [
        -210_866_803_200_000_000,
        9_223_371_331_200_000_000,
        0,
        -1,
        951_782_400_123_456,
    ];
    vec![
        vec![Boolean(true), Boolean(false)],
        vec![Int(i32::MIN), Int(i32::MAX), Int(0), Int(-1)],
        vec![Long(i64::MIN), Long(i64::MAX), Long(0)],
        [
            f32::MIN,
            f32::MAX,
            -0.0,
            0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            1e-45,
        ]
        .map(Float)
        .to_vec(),
        [
            f64::MIN,
            f64::MAX,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MIN_POSITIVE,
            5e-324,
        ]
        .map(Double)
        .to_vec(),
        [999_999_999, -999_999_999, 0, -1, 5].map(Decimal).to_vec(),
        [999_999_999_999_999_999, -999_999_999_999_999_999, 1]
            .map(Decimal)
            .to_vec(),
        [9_999_999_999_999_999_999, -9_999_999_999_999_999_999, -1, 255, -128]
            .map(Decimal)
            .to_vec(),
        [10_i128.pow(38) - 1, 1 - 10_i128.pow(38), 1, -1, 0]
            .map(Decimal)
            .to_vec(),
        [-2_440_588, 2_145_031_948, 0, -1, 11_016].map(Date).to_vec(),
        [0, 86_399_999_999, 43_200_000_001].map(Time).to_vec(),
        moments.map(Timestamp).to_vec(),
        moments.map(Timestamptz).to_vec(),
        vec![
            text(""),
            text("NULL"),
            text("𝄞 ä \u{1}\n\t\"'\\"),
            text(&"x".repeat(70_000)),
            text(&"\u{10ffff}".repeat(100)),
        ],
        vec![
            Binary(vec![]),
            Binary(vec![0]),
            Binary((0..=255).collect()),
            Binary(vec![255; 100]),
        ],
        vec![Uuid([0; 16]), Uuid([255; 16]), Uuid(*b"0123456789abcdef")],
        vec![
            List(vec![]),
            List(vec![None]),
            List(vec![Some(Int(i32::MIN)), None, Some(Int(i32::MAX))]),
        ],
        vec![List(vec![]), List(vec![Some(text("")), None, Some(text("a,b"))])],
        vec![Long(7)],
    ]
}

fn rows(count: usize) -> Vec<Vec<Cell>> {
    let schema = schema();
    let values = values();
    let cell = |row: usize, index: usize| -> Cell {
        let column_type = &schema.columns[index].column_type;
        let value = match index {
            0 => Some(Scalar::Long(row as i64)),
            // Every seventh row is NULL throughout, and each column has a NULL of its own.
            _ if row % 7 == 6 || row == 20 + index => None,
            _ => Some(values[index - 1][row % values[index - 1].len()].clone()),
        };
        let text = value.as_ref().map(|v| v.text(column_type));
        (value, text)
    };
    (0..count)
        .map(|row| (0..schema.columns.len()).map(|index| cell(row, index)).collect())
        .collect()
}

fn batch(rows: &[Vec<Cell>]) -> RecordBatch {
    let schema = Arc::new(schema());
    let mut batch = BatchBuilder::new(schema.clone());
    let mut builder = RowBuilder::new();
    for row in rows {
        builder.start(schema.columns.len());
        for ((value, _), column) in row.iter().zip(&schema.columns) {
            match (value, &column.column_type) {
                (None, _) => builder.push_state(State::Null),
                (Some(Scalar::List(elements)), ColumnType::List(element)) => {
                    let data: Vec<_> = elements.iter().map(|e| e.as_ref().map(Scalar::datum)).collect();
                    builder.push_list(element, &data);
                }
                (Some(value), column_type) => builder.push(column_type, &value.datum()),
            }
        }
        batch.append(builder.finish()).expect("row fits");
    }
    batch.finish().expect("batch")
}

fn texts(rows: &[Vec<Cell>]) -> Vec<Vec<Option<String>>> {
    let mut texts: Vec<Vec<_>> = rows
        .iter()
        .map(|row| row.iter().map(|(_, text)| text.clone()).collect())
        .collect();
    texts.sort();
    texts
}

/// Compares cell by cell, as whole tables are too long to read.
fn assert_same(left: &[Vec<Option<String>>], right: &[Vec<Option<String>>]) {
    assert_eq!(left.len(), right.len());
    let schema = schema();
    for (left, right) in left.iter().zip(right) {
        for ((left, right), column) in left.iter().zip(right).zip(&schema.columns) {
            assert_eq!(left, right, "column '{}'", column.name);
        }
    }
}

/// Prints batches as lines that compare all of a value.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let mut lines = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|array| ArrayFormatter::try_new(array, &options).expect("prints"))
            .collect();
        for row in 0..batch.num_rows() {
            lines.push(
                columns
                    .iter()
                    .map(|c| c.value(row).to_string())
                    .collect::<Vec<_>>()
                    .join("|"),
            );
        }
    }
    lines.sort();
    lines
}

#[tokio::test]
async fn every_type_at_its_extremes_in_every_reader() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let name = TableName::new("bronze.nested", "All Types");
    let table = lake
        .create_table(&name, &schema(), BTreeMap::new())
        .await
        .expect("created");
    assert_eq!(table.table_schema().expect("mapped back"), schema());

    let all = rows(60);
    let sealed = seal(
        lake,
        &table,
        "op-1",
        &[batch(&all[..25]), batch(&all[25..])],
        Vec::new(),
    )
    .await;
    commit(lake, "op-1", &[sealed]).await;
    let table = reload(lake, &table).await;
    let file: Arc<str> = format!("{}/data/op-1-1-0.parquet", table.location()).into();
    let deleted = [0_u64, 3, 24, 25, 59];
    let deletes = deleted.iter().map(|position| (file.clone(), *position)).collect();
    let sealed = seal(lake, &table, "op-2", &[], deletes).await;
    commit(lake, "op-2", &[sealed]).await;
    let table = reload(lake, &table).await;

    let live: Vec<Vec<Cell>> = (0_u64..)
        .zip(&all)
        .filter(|(position, _)| !deleted.contains(position))
        .map(|(_, row)| row.clone())
        .collect();
    let mut readers = Readers::start();
    assert_same(&readers.rows(lake, &table, &[UUID_COLUMN]), &texts(&live));

    let description = readers.ask(&json!({
        "do": "describe", "catalog": lake.catalog_path(), "table": name.to_string()}));
    assert_eq!(description["identifiers"], json!([1]));
    assert_eq!(description["operation"], json!("delete"));
    assert_eq!(description["summary"]["total-records"], json!("60"));
    assert_eq!(description["summary"]["total-position-deletes"], json!("5"));
    assert_eq!(description["summary"]["flow.operation-id"], json!("op-2-1"));

    // Our own readers, from an empty cache.
    let lake = warehouse.reopen();
    let snapshot = table.current_snapshot_id().expect("a snapshot");
    let stream = lake.scan(&name, snapshot, None).await.expect("scan");
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("batches");
    for batch in &batches {
        assert_eq!(batch.schema(), arrow_schema(&schema()));
    }
    assert_eq!(lines(&batches), lines(&[batch(&live)]));
}

#[tokio::test]
async fn projections_come_in_the_wanted_order() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let name = TableName::new("bronze", "wide");
    let table = lake
        .create_table(&name, &schema(), BTreeMap::new())
        .await
        .expect("created");
    let all = rows(30);
    let sealed = seal(lake, &table, "op-1", &[batch(&all)], Vec::new()).await;
    commit(lake, "op-1", std::slice::from_ref(&sealed)).await;
    for projection in [vec![18, 0, 5], vec![3], vec![], vec![0, 0]] {
        let stream = lake
            .scan(&name, sealed.snapshot_id, Some(projection.clone()))
            .await
            .expect("scan");
        let batches: Vec<RecordBatch> = stream.try_collect().await.expect("batches");
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 30);
        let wanted = batch(&all).project(&projection).expect("projected");
        assert_eq!(lines(&batches), lines(&[wanted]), "{projection:?}");
    }
}

#[tokio::test]
async fn located_rows_tell_their_places() {
    let warehouse = Warehouse::with(|options| options.data_file_bytes = 1);
    let lake = &warehouse.lake;
    let name = TableName::new("bronze", "located");
    let table = lake
        .create_table(&name, &schema(), BTreeMap::new())
        .await
        .expect("created");
    let all = rows(40);
    let id = operation("op-1");
    let mut writer = lake.data_writer(&table, &id, Attempt(1), 7).expect("writer");
    let first = writer.write(&batch(&all[..10])).await.expect("written");
    let second = writer.write(&batch(&all[10..])).await.expect("written");
    assert_eq!((first.file, first.position), (0, 0));
    assert_eq!((second.file, second.position), (1, 0), "one byte is a full file");
    let paths = writer.paths().to_vec();
    let written = writer.finish().await.expect("finished");
    assert_eq!(written[1].path, format!("{}/data/op-1-1-8.parquet", table.location()));
    assert_eq!(
        paths.iter().map(|p| p.to_string()).collect::<Vec<_>>(),
        [&*written[0].path, &*written[1].path]
    );

    let sealed = seal(
        lake,
        &table,
        "op-2",
        &[batch(&all[..10]), batch(&all[10..])],
        Vec::new(),
    )
    .await;
    commit(lake, "op-2", &[sealed]).await;
    let table = reload(lake, &table).await;
    let files: Vec<Arc<str>> = (0..2)
        .map(|n| format!("{}/data/op-2-1-{n}.parquet", table.location()).into())
        .collect();
    let deletes = vec![(files[0].clone(), 9), (files[1].clone(), 0), (files[1].clone(), 29)];
    let sealed = seal(lake, &table, "op-3", &[], deletes).await;
    commit(lake, "op-3", std::slice::from_ref(&sealed)).await;

    let stream = lake.scan_located(&name, sealed.snapshot_id).await.expect("scan");
    let located: Vec<_> = stream.try_collect().await.expect("batches");
    let mut seen = 0;
    for part in &located {
        let start = if part.file == files[0] { 0 } else { 10 };
        for (row, position) in part.positions.iter().enumerate() {
            let whole = batch(&all[start + *position as usize..=start + *position as usize]);
            assert_eq!(lines(&[part.batch.slice(row, 1)]), lines(&[whole]));
            seen += 1;
        }
    }
    assert_eq!(seen, 37);
}
