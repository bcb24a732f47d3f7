//! One module for each command. Each takes its arguments and gives an exit code or a failure.

mod apply;
mod change;
mod check;
mod context;
mod dag;
mod discover;
mod docs;
mod drop;
mod history;
mod init;
mod names;
mod new;
mod plan;
mod query;
mod refresh;
mod resume;
mod run;
mod status;
mod suspend;
mod verify;

use crate::cli::{Arguments, Command};
use crate::exit::{Exit, Failure};

/// Runs the command that the arguments name.
///
/// # Errors
/// [`Failure`] with what to say and how to end.
pub fn run(arguments: Arguments) -> Result<Exit, Failure> {
    crate::telemetry::end_on_panic();
    let file = arguments.config.as_path();
    match arguments.command {
        Command::New(new) => new::run(&new),
        Command::Check(check) => check::run(file, &check),
        Command::Discover(discover) => discover::run(file, &discover),
        Command::Init(init) => init::run(file, &init),
        Command::Run(run) => run::run(file, &run),
        Command::Status(status) => status::run(file, status.json),
        Command::Plan(plan) => plan::run(file, plan.json),
        Command::Dag => dag::run(file),
        Command::Apply => apply::run(file),
        Command::Refresh(refresh) => refresh::run(file, &refresh),
        Command::Suspend(named) => suspend::run(file, &named.name),
        Command::Resume(named) => resume::run(file, &named.name),
        Command::Drop(named) => drop::run(file, &named.name),
        Command::Verify(verify) => verify::run(file, &verify),
        Command::Query(query) => query::run(file, &query),
        Command::History(history) => history::run(file, &history),
        Command::Docs(docs) => docs::run(&docs),
    }
}
