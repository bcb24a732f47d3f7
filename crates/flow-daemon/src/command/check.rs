//! `check`: validates the configuration and, with flags, asks source and catalog.

use std::path::Path;

use flow_source::Check as Answer;
use serde_json::json;

use super::context;
use crate::cli::Check;
use crate::exit::{Exit, Failure};
use crate::{output, runtime, wire};

pub(super) fn run(file: &Path, check: &Check) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let config = context::config(file)?;
    let options = wire::engine_options(&config)?;
    let mut answers = vec![Answer {
        name: "configuration".into(),
        ok: true,
        message: format!("{} is valid", file.display()),
        remedy_text: String::new(),
        table: None,
    }];
    let mut failures = Vec::new();
    if check.source {
        match runtime::block_on(async { Ok(flow_engine::look::check_source(&options).await?) }) {
            Ok(report) => answers.extend(report.checks),
            Err(failure) => failures.push(("source", failure)),
        }
    }
    if check.catalog {
        let local = wire::local_options(&config);
        let asked = async { Ok(flow_engine::look::check_catalog(&local, context::clock()).await?) };
        match runtime::block_on(asked) {
            Ok(checks) => answers.extend(checks),
            Err(failure) => failures.push(("catalog", failure)),
        }
    }
    report(check.json, &answers, &failures)?;
    let refused = answers.iter().any(|answer| !answer.ok);
    // What the user must change comes first: waiting does not clear it.
    let changes = refused || failures.iter().any(|(_, failure)| failure.exit == Exit::Reconfigure);
    Ok(match failures.first() {
        _ if changes => Exit::Reconfigure,
        Some((_, failure)) => failure.exit,
        None => Exit::Done,
    })
}

fn report(json: bool, answers: &[Answer], failures: &[(&str, Failure)]) -> Result<(), Failure> {
    if json {
        let checks: Vec<_> = answers
            .iter()
            .map(answer_json)
            .chain(failures.iter().map(failure_json))
            .collect();
        return output::json(&json!({ "checks": checks }));
    }
    let text: String = answers.iter().map(line).collect();
    output::result(&text)?;
    failures.iter().for_each(|(_, failure)| output::failure(failure));
    Ok(())
}

fn line(answer: &Answer) -> String {
    let mark = if answer.ok { "ok     " } else { "PROBLEM" };
    let table = answer
        .table
        .as_ref()
        .map_or(String::new(), |table| format!("{table}: "));
    let remedy = match answer.remedy_text.as_str() {
        "" => String::new(),
        remedy => format!("\n          {remedy}"),
    };
    format!("{mark}  {table}{}: {}{remedy}\n", answer.name, answer.message)
}

fn answer_json(answer: &Answer) -> serde_json::Value {
    json!({
        "name": answer.name,
        "ok": answer.ok,
        "message": answer.message,
        "remedy": answer.remedy_text,
        "table": answer.table.as_ref().map(ToString::to_string),
    })
}

fn failure_json((name, failure): &(&str, Failure)) -> serde_json::Value {
    json!({
        "name": name,
        "ok": false,
        "message": failure.message,
        "remedy": "",
        "table": null,
        "code": failure.code,
    })
}
