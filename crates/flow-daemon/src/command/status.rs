//! `status`: where everything stands, without opening the store.
//!
//! A running service is asked over the control socket; for a stopped one its last document is
//! shown with the state `stopped`.

use std::path::Path;

use flow_engine::Status;
use flow_engine::status::{Blocked, DynamicTableState, ProblemStatus, ServiceState};
use flow_http::metrics::{dynamic_state_name, state_name, table_state_name};

use super::context;
use crate::control::{Request, Response, client};
use crate::exit::{Exit, Failure};
use crate::{output, runtime, status_file};

pub(super) fn run(file: &Path, json: bool) -> Result<Exit, Failure> {
    let config = context::local_config(file)?;
    let status = runtime::block_on(find(&config.state_dir))?;
    match json {
        true => output::json(&status)?,
        false => output::result(&describe(&status))?,
    }
    Ok(match status.ready {
        true => Exit::Done,
        false => Exit::NotReady,
    })
}

async fn find(state_dir: &Path) -> Result<Status, Failure> {
    match client::ask(state_dir, &Request::Status).await? {
        Some(Response::Status { status }) => return Ok(*status),
        Some(_) => {
            return Err(Failure::new(
                Exit::Failure,
                "the service gave another answer than its status",
            ));
        }
        None => {}
    }
    let last = status_file::read_stopped(state_dir).map_err(|error| {
        let message = format!("the status file in {} cannot be read: {error}", state_dir.display());
        Failure::new(Exit::Failure, message)
    })?;
    Ok(last.unwrap_or_else(|| Status {
        state: ServiceState::Stopped,
        ..Status::default()
    }))
}

/// Writes the document for people.
fn describe(status: &Status) -> String {
    let source = &status.source;
    let mut text = format!(
        "state      {}{}\n",
        state_name(&status.state),
        if status.ready { ", ready" } else { ", not ready" }
    );
    if status.version.is_empty() {
        return text + "no service has run with this state directory\n";
    }
    text += &format!("source     {} (slot {})\n", source.id, source.slot);
    text += &format!(
        "published  {} (epoch {})\n",
        source.published_lsn, source.published_epoch
    );
    text += &format!(
        "server {}, received {}, journaled {}, acknowledged {}\n",
        source.server_lsn, source.received_lsn, source.journaled_lsn, source.acknowledged_lsn
    );
    if let Some(http) = &status.http {
        text += &format!("http       {http}\n");
    }
    if status.storage.capture_paused {
        text += "capture waits for free disk (limits.min_free_bytes)\n";
    }
    text += &tables(status);
    text += &dynamic_tables(status);
    text += &problems(status);
    if let Some(error) = &status.last_error {
        let code = error.code.as_ref().map_or(String::new(), |code| format!("[{code}] "));
        text += &format!("\nlast error {code}{}\n", error.message);
    }
    text
}

fn tables(status: &Status) -> String {
    let mut rows = vec![
        ["TABLE", "SOURCE", "STATE", "EPOCH", "PUBLISHED", "LAG"]
            .map(String::from)
            .to_vec(),
    ];
    for table in &status.tables {
        rows.push(vec![
            table.target.clone(),
            table.source.clone(),
            table_state_name(&table.state).into(),
            table.epoch.to_string(),
            table.published_lsn.to_string(),
            format!("{:.1} s", table.lag_seconds),
        ]);
    }
    let reasons = status
        .tables
        .iter()
        .filter_map(|table| reason(&table.target, table.blocked.as_ref()));
    section(&rows, reasons.collect())
}

fn dynamic_tables(status: &Status) -> String {
    let mut rows = vec![
        ["DYNAMIC TABLE", "MODE", "STATE", "DATA", "LAG"]
            .map(String::from)
            .to_vec(),
    ];
    for table in &status.dynamic_tables {
        rows.push(vec![
            table.name.clone(),
            table.mode.clone(),
            dynamic_state_name(&table.state).into(),
            table.data_lsn.to_string(),
            format!("{:.1} s", table.lag_seconds),
        ]);
    }
    let mut reasons = String::new();
    for table in &status.dynamic_tables {
        reasons += &reason(&table.name, table.blocked.as_ref()).unwrap_or_default();
        if table.state == DynamicTableState::Detached {
            reasons += &format!("{} is detached: nothing declares it; its content stays\n", table.name);
        }
        for drift in &table.drift {
            reasons += &format!("{}: {drift}\n", table.name);
        }
    }
    section(&rows, reasons)
}

/// Lists what is wrong with the transformations and belongs to no table.
fn problems(status: &Status) -> String {
    let line = |problem: &ProblemStatus| {
        format!(
            "problem [{}] {}:{}:{}: {}\n",
            problem.code, problem.file, problem.line, problem.column, problem.message
        )
    };
    match status.problems.is_empty() {
        true => String::new(),
        false => format!("\n{}", status.problems.iter().map(line).collect::<String>()),
    }
}

fn reason(name: &str, blocked: Option<&Blocked>) -> Option<String> {
    blocked.map(|blocked| format!("{name} is blocked [{}]: {}\n", blocked.code, blocked.reason))
}

fn section(rows: &[Vec<String>], reasons: String) -> String {
    match rows.len() {
        1 => String::new(),
        _ => format!("\n{}{reasons}", output::columns(rows)),
    }
}
