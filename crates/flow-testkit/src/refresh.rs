//! One change of the source and the refresh that follows it, as a reader of the catalog sees them.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::NoTls;

use crate::catalog::{CatalogReader, current_snapshot};

/// How often the catalog is looked at; it bounds the error of each measured time.
const POLL: Duration = Duration::from_millis(1);

/// Is what was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Is the time from COMMIT returned until an input shows the change, in seconds.
    pub commit_to_input: f64,
    /// Is the time from there until the dynamic table shows it, in seconds.
    pub input_to_output: f64,
    /// Says how the dynamic table was refreshed.
    pub mode: String,
    /// Says why in this way.
    pub reason: String,
}

/// Runs `sql` as one transaction and waits until `output` reflects its inputs as they are then.
///
/// # Errors
/// When the transaction fails, or the dynamic table has no content or does not follow in time.
pub async fn follow(url: &str, catalog: &Path, output: &str, sql: &str, most: Duration) -> Result<Report> {
    let reader = CatalogReader::open(catalog)?;
    let locate = |name: &str| -> Result<String> {
        let (namespace, table) = name.rsplit_once('.').context("a table is NAMESPACE.NAME")?;
        let location = reader.location(namespace, table)?;
        location.with_context(|| format!("no table {name}"))
    };
    let first = current_snapshot(&locate(output)?)?.context("the dynamic table has no content")?;
    let inputs: Vec<String> = frontier(&first)?.into_keys().collect();
    let before: Vec<String> = inputs.iter().map(|input| locate(input)).collect::<Result<_>>()?;

    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("cannot connect")?;
    tokio::spawn(connection);
    client.batch_execute(sql).await?;
    let committed = Instant::now();
    let after = loop {
        ensure!(committed.elapsed() < most, "the inputs do not change");
        let look = || {
            inputs
                .iter()
                .map(|input| locate(input))
                .collect::<Result<Vec<String>>>()
        };
        if look()? != before {
            // Tables that are committed together may have been looked at just before and just after it.
            break look()?;
        }
        tokio::time::sleep(POLL).await;
    };
    let shown = Instant::now();
    let mut wanted = BTreeMap::new();
    for (input, location) in inputs.into_iter().zip(&after) {
        let id = current_snapshot(location)?.and_then(|snapshot| snapshot["snapshot-id"].as_i64());
        wanted.insert(input, id.map(|id| id.to_string()));
    }
    let mut seen = String::new();
    loop {
        ensure!(shown.elapsed() < most, "{output} does not follow");
        let location = locate(output)?;
        let changed = Instant::now();
        if location != seen {
            let snapshot = current_snapshot(&location)?.context("the dynamic table lost its content")?;
            if frontier(&snapshot)? == wanted {
                let text = |name: &str| snapshot["summary"][name].as_str().unwrap_or_default().to_owned();
                return Ok(Report {
                    commit_to_input: (shown - committed).as_secs_f64(),
                    input_to_output: (changed - shown).as_secs_f64(),
                    mode: text("flow.refresh-mode"),
                    reason: text("flow.refresh-reason"),
                });
            }
            seen = location;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Reads which snapshot of each input a snapshot reflects.
fn frontier(snapshot: &Value) -> Result<BTreeMap<String, Option<String>>> {
    let text = snapshot["summary"]["flow.frontier"].as_str();
    Ok(serde_json::from_str(text.context("the snapshot has no frontier")?)?)
}
