//! PostgreSQL judges: the same SELECT over the same rows, every value of every row compared.

mod server;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Time64MicrosecondType, TimestampMicrosecondType};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;
use flow_core::ColumnType;
use flow_refresh::PlannedTable;

use crate::lake::MemoryLake;
use crate::sample::{context, dimension_schema, fact_schema, random, refresh, table, try_planned};
use server::Server;

/// Are the statements both sides run, one a line; lines that begin with `--` are for the reader.
const STATEMENTS: &str = include_str!("postgres/statements.sql");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_postgresqls() {
    let server = Server::start();
    let mut failures = Vec::new();
    for seed in [1, 2] {
        let lake = MemoryLake::new();
        let facts = random(&fact_schema(), 160, seed);
        let dimension = random(&dimension_schema(), 14, seed + 50);
        server.load("f", &fact_schema(), &facts);
        server.load("d", &dimension_schema(), &dimension);
        server.load("e", &fact_schema(), &facts.slice(0, 0));
        lake.put(&table("bronze.f"), facts.clone());
        lake.put(&table("bronze.d"), dimension);
        lake.put(&table("bronze.e"), facts.slice(0, 0));
        let mut computed = Vec::new();
        for statement in statements() {
            match compute(statement, &lake, seed).await {
                Ok((planned, ours)) => computed.push((statement, planned, ours)),
                Err(error) => failures.push(format!("{statement}\n  {error}")),
            }
        }
        let queries: Vec<String> = computed
            .iter()
            .map(|(statement, table, _)| judged(statement, table))
            .collect();
        for ((statement, planned, ours), theirs) in computed.iter().zip(server.rows(&queries)) {
            if let Some(difference) = difference(planned, ours, &theirs) {
                failures.push(format!("seed {seed}: {statement}\n{difference}"));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} statements differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn statements() -> impl Iterator<Item = &'static str> {
    STATEMENTS
        .lines()
        .filter(|line| !line.starts_with("--") && !line.trim().is_empty())
}

type Computed = (PlannedTable, Vec<Vec<String>>);

async fn compute(statement: &str, lake: &Arc<MemoryLake>, seed: u64) -> Result<Computed, String> {
    let planned = try_planned(statement, lake).await?;
    lake.shuffle(seed);
    let output = refresh(&planned, None, lake, &context(3))
        .await
        .map_err(|error| error.to_string())?;
    let ours = rendered(&planned, &output.inserted);
    Ok((planned, ours))
}

/// Casts each column to the table's type, and shows it as [`rendered`] does.
fn judged(statement: &str, table: &PlannedTable) -> String {
    let columns = table.output.columns[..table.user_columns].iter().map(|column| {
        let name = flow_core::schema::quote_identifier(&column.name);
        match &column.column_type {
            ColumnType::Boolean => format!("{name}::boolean::int"),
            ColumnType::Int => format!("{name}::int"),
            ColumnType::Long => format!("{name}::bigint"),
            ColumnType::Float => format!("{name}::real"),
            ColumnType::Double => format!("{name}::double precision"),
            ColumnType::Decimal { precision, scale } => format!("{name}::numeric({precision},{scale})"),
            ColumnType::Time | ColumnType::Timestamp | ColumnType::Timestamptz => {
                format!("(extract(epoch FROM {name}) * 1000000)::bigint")
            }
            ColumnType::List(_) => format!("array_to_string({name}, ',', 'NULL')"),
            _ => format!("{name}::text"),
        }
    });
    let columns: Vec<String> = columns.collect();
    format!("SELECT {} FROM ({statement}) AS judged", columns.join(", "))
}

/// Shows rows as PostgreSQL's COPY does.
fn rendered(table: &PlannedTable, batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let columns = &batch.columns()[..table.user_columns];
            rows.push(columns.iter().map(|column| value(column, row)).collect());
        }
    }
    rows
}

fn value(column: &arrow_array::ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "\\N".into();
    }
    let options = FormatOptions::default().with_null("NULL");
    let shown = |column: &arrow_array::ArrayRef, row| {
        ArrayFormatter::try_new(column, &options)
            .expect("columns can be shown")
            .value(row)
            .to_string()
    };
    match column.data_type() {
        DataType::Boolean => u8::from(column.as_boolean().value(row)).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Timestamp(_, _) => column.as_primitive::<TimestampMicrosecondType>().value(row).to_string(),
        DataType::Time64(_) => column.as_primitive::<Time64MicrosecondType>().value(row).to_string(),
        DataType::List(_) => {
            let items = column.as_list::<i32>().value(row);
            let items: Vec<String> = (0..items.len()).map(|item| shown(&items, item)).collect();
            items.join(",")
        }
        DataType::FixedSizeBinary(16) => {
            let hex = shown(column, row);
            [&hex[0..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-")
        }
        _ => shown(column, row),
    }
}

/// Is a row with its floats apart.
type Split = (Vec<String>, Vec<f64>);

fn split(types: &[&ColumnType], row: &[String]) -> Split {
    let float = |at: usize| matches!(types[at], ColumnType::Float | ColumnType::Double) && row[at] != "\\N";
    let others = (0..row.len()).map(|at| if float(at) { "float".into() } else { row[at].clone() });
    let floats = (0..row.len())
        .filter(|at| float(*at))
        .map(|at| row[at].parse().unwrap_or(f64::NAN));
    (others.collect(), floats.collect())
}

fn near(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= 1e-12 + 1e-9 * a.abs().max(b.abs())
}

/// Compares multisets; floats may differ by rounding, since PostgreSQL's own sums depend on order.
fn difference(table: &PlannedTable, ours: &[Vec<String>], theirs: &[Vec<String>]) -> Option<String> {
    let types: Vec<&ColumnType> = table.output.columns.iter().map(|c| &c.column_type).collect();
    let sorted = |rows: &[Vec<String>]| {
        let mut rows: Vec<Split> = rows.iter().map(|row| split(&types, row)).collect();
        let floats = |a: &[f64], b: &[f64]| {
            let pairs = a.iter().zip(b);
            pairs
                .map(|(a, b)| a.total_cmp(b))
                .find(|order| order.is_ne())
                .unwrap_or(std::cmp::Ordering::Equal)
        };
        rows.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| floats(&a.1, &b.1)));
        rows
    };
    let (mine, judge) = (sorted(ours), sorted(theirs));
    let same = |(a, b): &(&Split, &Split)| a.0 == b.0 && a.1.iter().zip(&b.1).all(|(a, b)| near(*a, *b));
    let first = mine.iter().zip(&judge).find(|pair| !same(pair));
    if mine.len() == judge.len() && first.is_none() {
        return None;
    }
    Some(format!(
        "  {} rows ours, {} theirs; first difference {first:?}",
        mine.len(),
        judge.len()
    ))
}
