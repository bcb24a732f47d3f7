//! `refresh`: what keeping a dynamic table fresh costs after a change, against DuckDB computing it anew from the
//! same snapshots on two threads and writing zstd Parquet.
//!
//! Each table is measured alone: a definition, its first build, changes of growing size, and the
//! comparison of its content with the baseline's.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::service::{Installation, Running};
use super::usage::round;
use super::{Bench, ratio};
use crate::lane::capture;
use crate::workspace::root;

/// Counts the fact's rows unless the command line says otherwise.
pub(super) const ROWS: u64 = 10_000_000;

/// Counts the rows that the change with a goal touches.
const GOAL_CHANGE: u64 = 1_000;

/// Is how many times smaller the fact is with which the growth is measured.
const GROWTH: u64 = 10;

/// Is by how much a refresh may grow when its inputs grow so.
const GROWTH_MAX: f64 = 1.5;

/// Is how long a first build may take.
const BUILD_MAX: Duration = Duration::from_secs(3600);

/// Is how long the content may take to follow a change, in seconds.
const REFRESH_SECONDS_MAX: &str = "600";

struct Table {
    name: &'static str,
    sql: &'static str,
    goal: f64,
}

const TABLES: [Table; 4] = [
    Table {
        name: "wide",
        sql: "SELECT f.id, f.dim_id, f.amount, f.moment, d.name, d.region, d.factor \
              FROM bronze.fact f JOIN bronze.dim d ON d.id = f.dim_id",
        goal: 40.0,
    },
    Table {
        name: "by_region",
        sql: "SELECT d.region, COUNT(*) AS n, SUM(f.amount) AS amount, MAX(f.amount) AS most \
              FROM bronze.fact f JOIN bronze.dim d ON d.id = f.dim_id GROUP BY d.region",
        goal: 10.0,
    },
    Table {
        name: "latest",
        sql: "SELECT dim_id, id, amount, moment FROM (SELECT dim_id, id, amount, moment, \
              ROW_NUMBER() OVER (PARTITION BY dim_id ORDER BY moment DESC, id DESC) AS place FROM bronze.fact) ranked \
              WHERE place = 1",
        goal: 40.0,
    },
    Table {
        name: "by_dim",
        sql: "SELECT d.id, COUNT(f.id) AS n, SUM(f.amount) AS amount \
              FROM bronze.dim d LEFT JOIN bronze.fact f ON f.dim_id = d.id GROUP BY d.id",
        goal: 40.0,
    },
];

/// Measures at a tenth of the size, then at the whole size. A table that fails is told in the document,
/// and the others are measured all the same.
pub(super) fn measure(bench: &Bench) -> Result<Value> {
    let rows = bench.options.rows;
    let small = measure_size(bench, "small", rows / GROWTH, &[GOAL_CHANGE])?;
    let mut whole = measure_size(bench, "flow", rows, &[1, GOAL_CHANGE, 100_000])?;
    for (table, small) in whole.iter_mut().zip(&small) {
        if let (Some(now), Some(before)) = (goal_seconds(table), goal_seconds(small)) {
            let growth = now / before;
            let reached = growth <= GROWTH_MAX;
            super::merge(
                table,
                json!({ "growth": { "times": round(growth), "goal": GROWTH_MAX, "reached": reached } }),
            );
        }
    }
    let failed = [failures(&small), failures(&whole)].concat();
    Ok(json!({
        "fact_rows": rows,
        "dimension_rows": rows / 10,
        "failed": failed,
        "tables": whole,
        "tenth": small,
    }))
}

/// Lists the tables that were not measured.
fn failures(tables: &[Value]) -> Vec<Value> {
    let failed = tables.iter().filter(|table| table.get("error").is_some());
    failed.map(|table| table["table"].clone()).collect()
}

/// Is the median time of the change that has a goal.
fn goal_seconds(table: &Value) -> Option<f64> {
    let changes = table["changes"].as_array()?;
    let change = changes.iter().find(|change| change["touched"] == GOAL_CHANGE)?;
    change["seconds"].as_f64()
}

/// Measures every table over a fact of `rows` rows, in an installation of its own, and removes both.
fn measure_size(bench: &Bench, folder: &str, rows: u64, touched: &[u64]) -> Result<Vec<Value>> {
    make_tables(bench, rows)?;
    let flow = Installation::new(bench, folder, &["fact", "dim"])?;
    flow.run(&["init"])?;
    let mut changes = Changes { rows, made: 0 };
    let measured = TABLES.iter().map(|table| {
        let measured = measure_table(bench, &flow, table, touched, &mut changes);
        measured.unwrap_or_else(|error| {
            let target = format!("gold.{}", table.name);
            eprintln!("{target} of {rows} rows: {error:#}");
            json!({ "table": target, "error": format!("{error:#}") })
        })
    });
    let measured = measured.collect();
    bench.postgres.execute(&[
        "SELECT pg_drop_replication_slot('embrasure_flow')",
        "DROP PUBLICATION embrasure_flow",
        "DROP TABLE fact, dim",
    ])?;
    Ok(measured)
}

fn measure_table(
    bench: &Bench,
    flow: &Installation,
    table: &Table,
    touched: &[u64],
    changes: &mut Changes,
) -> Result<Value> {
    let target = format!("gold.{}", table.name);
    flow.define(&format!("CREATE DYNAMIC TABLE {target} AS {};\n", table.sql))?;
    let start = Instant::now();
    let mut service = flow.start(&["run"])?;
    await_fresh(flow, &target, &mut service)?;
    let seconds = start.elapsed().as_secs_f64();
    let rows = changes.rows as f64;
    let first_build = json!({
        "seconds": round(seconds),
        "fact_rows_per_second": (rows / seconds).round(),
        "peak_rss_mib": round(service.usage()?.peak_rss_mib),
    });
    let mut measured = Vec::new();
    for &touched in touched {
        // The first one warms caches up, as the baseline's first run does.
        let mut runs = Vec::new();
        for _ in 0..=repeated(touched) {
            let sql = changes.next(touched.min(changes.rows / 10));
            runs.push(follow(bench, flow, &target, &sql)?);
            await_fresh(flow, &target, &mut service)?;
        }
        runs.remove(0);
        measured.push((touched, runs));
    }
    let usage = service.usage()?;
    let mut compared = compare(bench, flow, &target, table.sql)?;
    service.stop()?;
    let baseline_seconds = compared["baseline"]["seconds"]
        .as_f64()
        .context("the baseline reports seconds")?;
    let changes: Vec<Value> = measured
        .into_iter()
        .map(|(touched, runs)| {
            let seconds = median(&runs);
            let goal = if touched == GOAL_CHANGE { table.goal } else { 1.0 };
            json!({
                "touched": touched,
                "seconds": round(seconds),
                "result": ratio(1.0 / seconds, 1.0 / baseline_seconds, goal),
                "runs": runs,
            })
        })
        .collect();
    super::merge(
        &mut compared,
        json!({
            "table": target,
            "sql": table.sql,
            "first_build": first_build,
            "changes": changes,
            "peak_rss_mib": round(usage.peak_rss_mib),
        }),
    );
    Ok(compared)
}

/// Makes a change and waits until the dynamic table shows it.
fn follow(bench: &Bench, flow: &Installation, target: &str, sql: &str) -> Result<Value> {
    let (url, catalog) = (bench.postgres.url(), flow.catalog());
    let catalog = catalog.to_string_lossy();
    bench.load(&["refresh", &url, &catalog, target, REFRESH_SECONDS_MAX, sql])
}

/// Counts how often a change is made that counts.
fn repeated(touched: u64) -> usize {
    if touched > GOAL_CHANGE { 1 } else { 5 }
}

/// Waits until the dynamic table reflects all that is committed, its state with it.
fn await_fresh(flow: &Installation, target: &str, service: &mut Running) -> Result<()> {
    let end = Instant::now() + BUILD_MAX;
    loop {
        service.must_live()?;
        let status = flow.status()?;
        let tables = status["dynamic_tables"].as_array();
        let stands = |table: &Value, state: &str| table["state"] == state;
        // A service that is only beginning shows how the one before it ended.
        if let Some([table]) = tables
            .map(Vec::as_slice)
            .filter(|tables| tables[..].iter().all(|t| t["name"] == target))
        {
            ensure!(
                !stands(table, "blocked"),
                "the dynamic table is blocked: {}",
                table["blocked"]
            );
            if stands(table, "fresh") {
                return Ok(());
            }
        }
        ensure!(
            Instant::now() < end,
            "the dynamic table does not become fresh: {status}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn compare(bench: &Bench, flow: &Installation, target: &str, sql: &str) -> Result<Value> {
    let mut command = Command::new(crate::ci::readers_python()?);
    command
        .arg(root().join("tests/tools/duckdb_refresh.py"))
        .arg(flow.catalog())
        .args([target, sql])
        .arg(bench.folder.join("baseline.parquet"))
        .arg("2");
    serde_json::from_str(&capture(&mut command)?).context("duckdb_refresh.py answers in JSON")
}

fn median(runs: &[Value]) -> f64 {
    let mut seconds: Vec<f64> = runs.iter().filter_map(|run| run["input_to_output"].as_f64()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::INFINITY)
}

fn make_tables(bench: &Bench, rows: u64) -> Result<()> {
    let dimension = rows / 10;
    bench.postgres.execute(&[
        "CREATE TABLE dim (id bigint PRIMARY KEY, name text NOT NULL, region integer NOT NULL, factor integer NOT NULL)",
        &format!("INSERT INTO dim SELECT g, 'name ' || g, g % 50, g % 7 FROM generate_series(1::bigint, {dimension}) g"),
        "CREATE TABLE fact (id bigint PRIMARY KEY, dim_id bigint NOT NULL, amount numeric(12, 2) NOT NULL, \
         note text NOT NULL, moment timestamptz NOT NULL)",
        &format!(
            "INSERT INTO fact SELECT g, 1 + (g * 7919) % {dimension}, (g % 100000) / 100.0, md5(g::text), \
             '2024-01-01'::timestamptz + g * interval '1 ms' FROM generate_series(1::bigint, {rows}) g"
        ),
        "CREATE PUBLICATION embrasure_flow FOR TABLE fact, dim",
        "VACUUM ANALYZE fact",
        "VACUUM ANALYZE dim",
        "CHECKPOINT",
    ])
}

/// Makes changes: 70 % updates, 20 % inserts, 10 % deletes, on keys from all over the tables, half of
/// them in the fact and half in the dimension. A change of one row is an update of the fact.
struct Changes {
    /// Counts the fact's rows at the start.
    rows: u64,
    made: u64,
}

impl Changes {
    fn next(&mut self, touched: u64) -> String {
        self.made += 1;
        let half = touched.div_ceil(2);
        let dimension = self.rows / 10;
        let fact = [
            update(
                "fact",
                "amount = amount + 1, moment = clock_timestamp()",
                self.rows,
                half,
                self.made,
            ),
            insert(
                "fact",
                &format!("1 + (g * 31) % {dimension}, 5, 'more', clock_timestamp()"),
                half,
            ),
            delete("fact", self.rows, half, self.made),
        ];
        let dim = [
            update(
                "dim",
                "factor = factor + 1, region = (region + 1) % 50",
                dimension,
                half,
                self.made,
            ),
            insert("dim", "'more ' || g, g % 50, 3", half),
            delete("dim", dimension, half, self.made),
        ];
        match touched {
            // A row that some dimension row meets: else most tables stay as they are, and nothing follows.
            1 => format!(
                "UPDATE fact SET amount = amount + 1, moment = clock_timestamp() WHERE id = \
                 (SELECT f.id FROM fact f JOIN dim d ON d.id = f.dim_id WHERE f.id >= {} ORDER BY f.id LIMIT 1)",
                1 + self.made * 104_729 % self.rows
            ),
            _ => [fact, dim].concat().join("; "),
        }
    }
}

/// Lists `count` keys of `rows`, far from each other; others for each `turn`.
fn keys(rows: u64, count: u64, turn: u64) -> String {
    let turn = turn * 104_729;
    format!("SELECT 1 + (g * 7919 + {turn}) % {rows} FROM generate_series(1::bigint, {count}) g")
}

fn update(table: &str, set: &str, rows: u64, half: u64, turn: u64) -> String {
    let count = (half * 7).div_ceil(10);
    format!("UPDATE {table} SET {set} WHERE id IN ({})", keys(rows, count, turn))
}

fn insert(table: &str, values: &str, half: u64) -> String {
    let count = half * 2 / 10;
    format!(
        "INSERT INTO {table} SELECT g, {values} \
         FROM (SELECT (SELECT max(id) FROM {table}) + g AS g FROM generate_series(1::bigint, {count}) g) fresh"
    )
}

fn delete(table: &str, rows: u64, half: u64, turn: u64) -> String {
    let count = half / 10;
    format!("DELETE FROM {table} WHERE id IN ({})", keys(rows, count, turn + 5000))
}
