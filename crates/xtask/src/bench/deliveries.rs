//! `freshness --dag`: how soon the demo's last dynamic table shows a commit of its source under a steady load.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Bench;
use super::service::Installation;
use crate::workspace::root;

const TRANSACTIONS_PER_SECOND: u64 = 500;
const P95_MS_MAX: f64 = 1500.0;
/// As many packages and deliveries stand for so many rows of the other benchmarks.
const ROWS_SHARE: u64 = 10;
const TABLES: [&str; 5] = ["associates", "routes", "packages", "deliveries", "defect_reports"];
/// Is the dynamic table that the clock waits for: it reads one that reads five tables.
const WATCHED: &str = "gold.delivery_quality_daily";
/// Is how long the first build may take, in seconds.
const BUILD_SECONDS_MAX: &str = "120";

/// Measures.
pub(super) fn measure(bench: &Bench) -> Result<Value> {
    let rows = bench.options.rows / ROWS_SHARE;
    make_tables(bench, rows)?;
    let flow = Installation::new(bench, "flow", &TABLES)?;
    for file in crate::workspace::files(&root().join("demo/transformations"), "sql")? {
        flow.adopt(&file)?;
    }
    flow.run(&["init"])?;
    let mut service = flow.start(&["run"])?;
    let catalog = flow.catalog();
    let catalog = catalog.to_string_lossy();
    let (namespace, name) = WATCHED.rsplit_once('.').context("the table has a namespace")?;
    let groups = bench.postgres.ask(&format!("SELECT count(*) FROM ({QUALITY}) q"))?;
    bench.load(&["rows", &catalog, namespace, name, &groups, BUILD_SECONDS_MAX])?;
    let before = service.usage()?;
    let load = bench.load(&[
        "deliveries",
        &bench.postgres.url(),
        &catalog,
        &TRANSACTIONS_PER_SECOND.to_string(),
        &bench.options.seconds.to_string(),
        &rows.to_string(),
        WATCHED,
    ])?;
    service.must_live()?;
    let after = service.usage()?;
    bench
        .postgres
        .execute(&[&format!("CREATE TABLE quality AS {QUALITY}")])?;
    let columns = "station, day, deliveries, late, with_defects, weight_kg";
    let content = bench.check_content(&flow, "public.quality", WATCHED, columns)?;
    let modes = flow.status()?["dynamic_tables"].take();
    service.stop()?;
    let milliseconds = |name: &str| load["freshness"][name].as_f64().unwrap_or(f64::INFINITY);
    let none = |name: &str| load[name].as_u64() == Some(0);
    let reached = json!({
        "p95_below_1500_ms": milliseconds("p95_ms") < P95_MS_MAX,
        "no_missed_arrivals": none("missed_arrivals") && none("never_visible"),
    });
    Ok(json!({
        "packages": rows,
        "watched": WATCHED,
        "seconds": bench.options.seconds,
        "load": load,
        "ours": flow.cost_of_run(&before, &after),
        "dynamic_tables": modes,
        "result": reached,
        "content": content,
    }))
}

/// Is the watched table's content by the source's own tables.
const QUALITY: &str = "SELECT r.station, (d.delivered_at AT TIME ZONE 'UTC')::date AS day, count(*) AS deliveries, \
    sum(CASE WHEN d.delivered_at > p.promised_at THEN 1 ELSE 0 END) AS late, \
    sum(CASE WHEN EXISTS (SELECT FROM defect_reports f WHERE f.package_id = d.package_id) THEN 1 ELSE 0 END) \
    AS with_defects, sum(p.weight_kg)::numeric(18, 3) AS weight_kg \
    FROM deliveries d JOIN packages p ON p.id = d.package_id JOIN routes r ON r.id = p.route_id GROUP BY 1, 2";

/// Makes the demo's tables, larger, with keys that the load chooses itself.
fn make_tables(bench: &Bench, rows: u64) -> Result<()> {
    bench.postgres.execute(&[
        "CREATE TABLE associates (id integer PRIMARY KEY, name text NOT NULL, station text NOT NULL)",
        "CREATE TABLE routes (id integer PRIMARY KEY, name text NOT NULL, station text NOT NULL)",
        "CREATE TABLE packages (id bigint PRIMARY KEY, route_id integer NOT NULL, weight_kg numeric(8,3) NOT NULL, \
         promised_at timestamptz NOT NULL, label text)",
        "CREATE TABLE deliveries (package_id bigint PRIMARY KEY, associate_id integer NOT NULL, \
         delivered_at timestamptz NOT NULL, status text NOT NULL)",
        "CREATE TABLE defect_reports (id bigint PRIMARY KEY, package_id bigint NOT NULL, kind text NOT NULL, \
         reported_at timestamptz NOT NULL)",
        "CREATE INDEX ON defect_reports (package_id)",
        "INSERT INTO associates SELECT g, 'Associate ' || g, 'Station ' || g % 10 FROM generate_series(1, 8) g",
        "INSERT INTO routes SELECT g, 'Route ' || g, 'Station ' || g % 10 FROM generate_series(1, 60) g",
        &format!(
            "INSERT INTO packages SELECT g, 1 + g % 60, 0.250 + (g % 400) / 10.0, \
             '2026-11-01 12:00Z'::timestamptz + (g % 28) * interval '1 day', repeat(md5(g::text), 8) \
             FROM generate_series(1, {rows}) g"
        ),
        "INSERT INTO deliveries SELECT id, 1 + id % 8, promised_at + ((id % 13) - 10) * interval '20 minutes', \
         'delivered' FROM packages",
        &format!(
            "INSERT INTO defect_reports SELECT -g, g, 'damaged', '2026-11-20'::timestamptz \
             FROM generate_series(29, {rows}, 29) g"
        ),
        "CREATE PUBLICATION embrasure_flow FOR TABLE associates, routes, packages, deliveries, defect_reports",
        "VACUUM ANALYZE",
        "CHECKPOINT",
    ])
}
