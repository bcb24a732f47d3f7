//! `flow-load`: what `cargo xtask bench` runs beside the service. Prints one line of JSON.
#![allow(clippy::print_stdout, reason = "a command-line tool answers on standard output")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flow_testkit::{load, refresh};

const USAGE: &str = "\
flow-load published CATALOG LSN SECONDS          waits until the catalog shows the LSN
flow-load rows CATALOG NAMESPACE TABLE ROWS SECONDS   waits until a table holds so many rows
flow-load freshness URL CATALOG RATE SECONDS ROWS     loads at a steady rate and reports freshness
flow-load deliveries URL CATALOG RATE SECONDS ROWS NAMESPACE.TABLE   loads the demo's tables and watches a dynamic table
flow-load refresh URL CATALOG NAMESPACE.TABLE SECONDS SQL   changes the source and waits for a dynamic table";

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = match words.as_slice() {
        ["published", catalog, lsn, most] => {
            took(load::await_published(Path::new(catalog), lsn.parse()?, seconds(most)?)?)
        }
        ["rows", catalog, namespace, name, rows, most] => took(load::await_rows(
            Path::new(catalog),
            namespace,
            name,
            rows.parse()?,
            seconds(most)?,
        )?),
        ["freshness", url, catalog, rate, measured, rows] => {
            let options = steady(url, catalog, rate, measured, rows)?;
            serde_json::to_value(load::run(options).await?)?
        }
        ["deliveries", url, catalog, rate, measured, rows, watched] => {
            let (namespace, name) = watched.rsplit_once('.').context("a table is NAMESPACE.NAME")?;
            let options = load::Options {
                workload: load::Workload::Deliveries,
                watched: Some((namespace.to_owned(), name.to_owned())),
                ..steady(url, catalog, rate, measured, rows)?
            };
            serde_json::to_value(load::run(options).await?)?
        }
        ["refresh", url, catalog, output, most, sql] => {
            let report = refresh::follow(url, Path::new(catalog), output, sql, seconds(most)?);
            serde_json::to_value(report.await?)?
        }
        _ => bail!("usage:\n{USAGE}"),
    };
    println!("{answer}");
    Ok(())
}

fn steady(url: &str, catalog: &str, rate: &str, measured: &str, rows: &str) -> Result<load::Options> {
    Ok(load::Options {
        url: url.to_owned(),
        catalog: Path::new(catalog).to_path_buf(),
        rate: rate.parse().context("RATE is a number")?,
        measured: seconds(measured)?,
        margin: Duration::from_secs(3),
        workers: 24,
        rows: rows.parse().context("ROWS is a number")?,
        workload: load::Workload::Load,
        watched: None,
    })
}

fn took(time: Duration) -> serde_json::Value {
    serde_json::json!({ "seconds": time.as_secs_f64() })
}

fn seconds(text: &str) -> Result<Duration> {
    Ok(Duration::from_secs(text.parse().context("SECONDS is a whole number")?))
}
