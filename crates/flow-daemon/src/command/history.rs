//! `history NAME`: the refreshes of a dynamic table, newest first.
//!
//! A running service tells all that its store keeps. Of a stopped one, those are shown that wrote
//! something, from the retained snapshots' summaries.

use std::path::Path;

use flow_core::TableName;
use flow_core::lake::{SnapshotInfo, SnapshotReader};
use flow_lake::{Lake, LakeOptions};
use serde_json::{Map, Value};

use flow_engine::status::RunStatus;

use super::{context, names};
use crate::cli::History;
use crate::config::Config;
use crate::control::{Request, Response, client};
use crate::exit::{Exit, Failure};
use crate::{output, runtime};

pub(super) fn run(file: &Path, history: &History) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let config = context::local_config(file)?;
    let name = names::dynamic_table(&history.name)?;
    let request = Request::History {
        name: history.name.clone(),
    };
    let runs = runtime::block_on(async {
        match client::ask(&config.state_dir, &request).await? {
            Some(response) => told(response),
            None => Ok(snapshots(&config, &name)
                .await?
                .iter()
                .rev()
                .filter_map(run_of)
                .collect()),
        }
    })?;
    match history.json {
        true => output::json(&runs)?,
        false => output::result(&describe(&runs))?,
    }
    Ok(Exit::Done)
}

/// Takes what the service told, each refresh as an object.
fn told(response: Response) -> Result<Vec<Map<String, Value>>, Failure> {
    let unexpected = || Failure::new(Exit::Failure, "the service gave another answer than was asked for");
    let Response::History { runs } = response else {
        return Err(unexpected());
    };
    let object = |run: RunStatus| match serde_json::to_value(run) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(unexpected()),
    };
    runs.into_iter().map(object).collect()
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
        ("started_at", "flow.started-at"),
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
    for (key, property) in [("duration_ms", "flow.refresh-ms"), ("rows_read", "flow.rows-read")] {
        run.insert(
            key.into(),
            get(property).and_then(|text| text.parse::<u64>().ok()).into(),
        );
    }
    Some(run)
}

fn describe(runs: &[Map<String, Value>]) -> String {
    let mut rows = vec![
        [
            "STARTED", "MODE", "DATA", "MS", "READ", "INSERTED", "DELETED", "RUN", "REASON",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for run in runs {
        let together = run.get("runs").and_then(Value::as_u64).filter(|runs| *runs > 1);
        let cell = |key: &str| match run.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let keys = [
            "started_at",
            "mode",
            "data_lsn",
            "duration_ms",
            "rows_read",
            "rows_inserted",
            "rows_deleted",
            "run_id",
            "reason",
        ];
        let mut row: Vec<String> = keys.into_iter().map(cell).collect();
        if let Some(runs) = together {
            row[1] += &format!(" x{runs}");
        }
        rows.push(row);
    }
    output::columns(&rows)
}
