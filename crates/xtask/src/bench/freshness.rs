//! `freshness`: how soon the lake shows a commit under a steady load, with how much memory.

use anyhow::Result;
use serde_json::{Value, json};

use super::Bench;
use super::service::Installation;

const TRANSACTIONS_PER_SECOND: u64 = 500;
const P95_MS_MAX: f64 = 1000.0;
const P99_MS_MAX: f64 = 2000.0;
const PEAK_RSS_MIB_MAX: f64 = 400.0;
/// The table starts with a tenth of the other benchmarks' rows: the load, not the copy, is measured.
const ROWS_SHARE: u64 = 10;

/// Measures.
pub(super) fn measure(bench: &Bench) -> Result<Value> {
    let rows = bench.options.rows / ROWS_SHARE;
    bench.postgres.make_table("load", rows)?;
    let flow = Installation::new(bench, "flow", &["load"])?;
    flow.run(&["init"])?;
    let mut service = flow.start(&["run"])?;
    let catalog = flow.catalog();
    let catalog = catalog.to_string_lossy();
    bench.load(&["published", &catalog, &bench.postgres.flush_lsn()?, "60"])?;
    let before = service.usage()?;
    let load = bench.load(&[
        "freshness",
        &bench.postgres.url(),
        &catalog,
        &TRANSACTIONS_PER_SECOND.to_string(),
        &bench.options.seconds.to_string(),
        &rows.to_string(),
    ])?;
    service.must_live()?;
    let after = service.usage()?;
    bench.load(&["published", &catalog, &bench.postgres.flush_lsn()?, "60"])?;
    let content = bench.check_content(&flow, "public.load", "bronze.load", "*")?;
    service.stop()?;

    let milliseconds = |name: &str| load["freshness"][name].as_f64().unwrap_or(f64::INFINITY);
    let none = |name: &str| load[name].as_u64() == Some(0);
    let reached = json!({
        "p95_below_1s": milliseconds("p95_ms") < P95_MS_MAX,
        "p99_below_2s": milliseconds("p99_ms") < P99_MS_MAX,
        "no_missed_arrivals": none("missed_arrivals") && none("never_visible"),
        "peak_rss_at_most_400_mib": after.peak_rss_mib <= PEAK_RSS_MIB_MAX,
    });
    Ok(json!({
        "table_rows": rows,
        "seconds": bench.options.seconds,
        "load": load,
        "ours": flow.cost_of_run(&before, &after),
        "result": reached,
        "content": content,
    }))
}
