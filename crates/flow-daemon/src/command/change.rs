//! Commands that change something: through the running service, or else on the store itself.

use std::path::Path;

use flow_engine::{Command, Engine, Reply};

use super::context;
use crate::control::protocol::Refreshed;
use crate::control::{Request, Response, client};
use crate::exit::Failure;
use crate::{runtime, wire};

/// Asks the running service; opens the store and does it here if none runs.
pub(super) fn carry_out(file: &Path, request: &Request, command: Command) -> Result<Response, Failure> {
    context::quiet_log()?;
    let config = context::local_config(file)?;
    runtime::block_on(async {
        if let Some(response) = client::ask(&config.state_dir, request).await? {
            return Ok(response);
        }
        let options = wire::engine_options(&context::config(file)?)?;
        let (mut engine, _handle) = Engine::open(options, context::clock()).await?;
        Ok(response(engine.execute(command).await?))
    })
}

/// Turns the engine's reply into the control socket's words.
pub(super) fn response(reply: Reply) -> Response {
    match reply {
        Reply::Done => Response::Done,
        Reply::Refreshed(tables) => {
            let named = tables.into_iter().map(|(name, run)| Refreshed {
                name: name.to_string(),
                run,
            });
            Response::Refreshed {
                tables: named.collect(),
            }
        }
    }
}

/// Writes what was refreshed, one table a line.
pub(super) fn describe(response: &Response) -> String {
    let Response::Refreshed { tables } = response else {
        return String::new();
    };
    let line = |table: &Refreshed| {
        let run = &table.run;
        format!(
            "{}: {} in {} ms, {} rows inserted, {} deleted ({})\n",
            table.name, run.mode, run.duration_ms, run.rows_inserted, run.rows_deleted, run.reason
        )
    };
    tables.iter().map(line).collect()
}
