//! `copy`: how soon a million existing rows are readable, against DuckDB's PostgreSQL scanner writing
//! zstd Parquet on two threads.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::service::{Installation, size_of};
use super::usage::round;
use super::{Bench, ratio};
use crate::lane::capture;
use crate::workspace::root;

const GOAL: f64 = 0.8;

/// Measures.
pub(super) fn measure(bench: &Bench) -> Result<Value> {
    let rows = bench.options.rows;
    bench.postgres.make_table("load", rows)?;
    let baseline = baseline(bench)?;
    let baseline_seconds = baseline["seconds"].as_f64().context("the baseline reports seconds")?;

    let flow = Installation::new(bench, "flow", &["load"])?;
    let start = Instant::now();
    let init = flow.start(&["init"])?;
    let catalog = flow.catalog();
    bench.load(&[
        "rows",
        &catalog.to_string_lossy(),
        "bronze",
        "load",
        &rows.to_string(),
        "600",
    ])?;
    let seconds = start.elapsed().as_secs_f64();
    // The command may have ended by itself a moment ago; then nothing can be read any more.
    let usage = init.usage().ok();
    init.wait()?;
    let content = bench.check_content(&flow, "public.load", "bronze.load", "*")?;

    let rate = |seconds: f64| rows as f64 / seconds;
    let mut ours = json!({
        "command": flow.shown(&["init"]),
        "seconds": round(seconds),
        "rows_per_second": rate(seconds).round(),
        "warehouse_bytes": size_of(catalog.parent().context("the catalog lies in the warehouse")?)?,
    });
    super::merge(
        &mut ours,
        usage.map_or(json!({ "cpu_seconds": null }), |usage| usage.fields(rows)),
    );
    Ok(json!({
        "rows": rows,
        "ours": ours,
        "baseline": baseline,
        "result": ratio(rate(seconds), rate(baseline_seconds), GOAL),
        "content": content,
    }))
}

fn baseline(bench: &Bench) -> Result<Value> {
    let out = bench.folder.join("baseline.parquet");
    let mut command = Command::new(crate::ci::readers_python()?);
    command
        .arg(root().join("tests/tools/duckdb_copy.py"))
        .args([&bench.postgres.conninfo(), "public.load"])
        .arg(&out)
        .arg("2");
    serde_json::from_str(&capture(&mut command)?).context("duckdb_copy.py answers in JSON")
}
