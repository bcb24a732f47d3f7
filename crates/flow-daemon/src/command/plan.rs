//! `plan`: parses and validates all dynamic tables, and shows each one's refresh mode and why.
//!
//! Tables with a problem are listed on stderr with file, line and column; the others are planned.

use std::path::Path;

use flow_refresh::{Lag, Plan};

use super::context;
use crate::exit::{Exit, Failure};
use crate::{output, runtime};

pub(super) fn run(file: &Path, json: bool) -> Result<Exit, Failure> {
    context::quiet_log()?;
    let (options, source) = context::plan_options(file)?;
    let plan =
        runtime::block_on(async { Ok(flow_engine::look::plan(&options, source.as_ref(), context::clock()).await?) })?;
    match json {
        true => output::json(&plan.to_json())?,
        false => output::result(&describe(&plan))?,
    }
    Ok(report_problems(&plan))
}

/// Lists what is wrong, and gives the exit code for it.
pub(super) fn report_problems(plan: &Plan) -> Exit {
    for problem in &plan.problems {
        output::note(&format!(
            "error[{}]: {}:{}:{}: {}",
            problem.code,
            problem.file.display(),
            problem.line,
            problem.column,
            problem.message
        ));
    }
    match plan.problems.is_empty() {
        true => Exit::Done,
        false => Exit::Reconfigure,
    }
}

fn describe(plan: &Plan) -> String {
    if plan.tables.is_empty() && plan.problems.is_empty() {
        return "no dynamic tables\n".into();
    }
    let mut text = plan.dag_text();
    for table in &plan.tables {
        text += &format!("\n{}: {}, {}\n", table.name, table.mode.as_str(), lag(table.lag));
        for reason in &table.reasons {
            text += &format!(
                "  {} {} at {}:{}:{}\n",
                reason.code,
                reason.operator,
                reason.file.display(),
                reason.line,
                reason.column
            );
        }
        for note in table.notes.iter().chain(&table.drift) {
            text += &format!("  note: {note}\n");
        }
    }
    text
}

fn lag(lag: Lag) -> String {
    match lag {
        Lag::None => "refreshed when an input commits".into(),
        Lag::Duration(duration) => format!("LAG {} s", duration.as_secs_f64()),
        Lag::Downstream => "LAG DOWNSTREAM".into(),
    }
}
