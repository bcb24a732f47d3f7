//! `history NAME`: the refreshes of a dynamic table that wrote something, newest first.
//!
//! They are read from the retained snapshots' summaries, so that history and data cannot differ. A
//! refresh that changed nothing writes no snapshot; `status` shows the last one.

use std::path::Path;

use flow_core::TableName;
use flow_core::lake::{SnapshotInfo, SnapshotReader};
use flow_lake::{Lake, LakeOptions};
use serde_json::{Map, Value};

use super::{context, names};
use crate::cli::History;
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::{output, runtime};

pub(super) fn run(file: &Path, history: &History) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let config = context::local_config(file)?;
    let name = names::dynamic_table(&history.name)?;
    let snapshots = runtime::block_on(snapshots(&config, &name))?;
    let runs: Vec<Map<String, Value>> = snapshots.iter().rev().filter_map(run_of).collect();
    match history.json {
        true => output::json(&runs)?,
        false => output::result(&describe(&runs))?,
    }
    Ok(Exit::Done)
}

async fn snapshots(config: &Config, name: &TableName) -> Result<Vec<SnapshotInfo>, Failure> {
    let nothing = || Failure::new(Exit::Reconfigure, format!("the catalog has no table {name}"));
    let mut options = LakeOptions::new(&config.warehouse);
    options.catalog_path = config.catalog_path.clone();
    let clock = context::clock();
    let opened = tokio::task::spawn_blocking(move || Lake::open_existing(options, clock)).await;
    let lake = opened.map_err(|error| Failure::new(Exit::Broken, error.to_string()))??;
    let lake = lake.ok_or_else(nothing)?;
    let table = SnapshotReader::load(&lake, name).await.map_err(|error| Failure {
        exit: error.remedy.into(),
        code: None,
        message: format!("{:#}", anyhow::Error::from(error)),
        logged: false,
    })?;
    Ok(table.ok_or_else(nothing)?.snapshots)
}

/// Reads a refresh out of a snapshot; `None` if it was none.
fn run_of(snapshot: &SnapshotInfo) -> Option<Map<String, Value>> {
    let get = |key: &str| snapshot.summary.get(key).map(String::as_str);
    let mut run = Map::new();
    run.insert("run_id".into(), get("flow.run-id")?.into());
    for (key, property) in [
        ("mode", "flow.refresh-mode"),
        ("reason", "flow.refresh-reason"),
        ("data_lsn", "flow.data-lsn"),
        ("committed_at", "flow.commit-time"),
    ] {
        run.insert(key.into(), get(property).into());
    }
    let frontier = get("flow.frontier").and_then(|json| serde_json::from_str(json).ok());
    run.insert("frontier".into(), frontier.unwrap_or(Value::Null));
    run.insert("snapshot_id".into(), snapshot.snapshot_id.to_string().into());
    let count = |property: &str| get(property).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    run.insert("rows_inserted".into(), count("added-records").into());
    run.insert(
        "rows_deleted".into(),
        (count("added-position-deletes") + count("deleted-records")).into(),
    );
    Some(run)
}

fn describe(runs: &[Map<String, Value>]) -> String {
    let mut rows = vec![
        ["COMMITTED", "MODE", "DATA", "INSERTED", "DELETED", "RUN", "REASON"]
            .map(String::from)
            .to_vec(),
    ];
    for run in runs {
        let cell = |key: &str| match run.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let keys = [
            "committed_at",
            "mode",
            "data_lsn",
            "rows_inserted",
            "rows_deleted",
            "run_id",
            "reason",
        ];
        rows.push(keys.into_iter().map(cell).collect());
    }
    output::columns(&rows)
}
