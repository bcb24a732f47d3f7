//! Commands that change something: through the running service, or else on the store itself.

use std::path::Path;

use flow_engine::{Command, Engine, Reply, Verification};

use super::context;
use super::query::cell;
use crate::control::protocol::{Refreshed, Verified};
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
        response(engine.execute(command).await?)
    })
}

/// Turns the engine's reply into the control socket's words.
pub(super) fn response(reply: Reply) -> Result<Response, Failure> {
    Ok(match reply {
        Reply::Done => Response::Done,
        Reply::History(runs) => Response::History { runs },
        Reply::Verified(verification) => {
            let Verification {
                name,
                data_lsn,
                missing,
                unexpected,
            } = verification.as_ref();
            Response::Verified(Verified {
                name: name.to_string(),
                data_lsn: data_lsn.to_string(),
                equal: verification.equal(),
                missing: missing.count,
                unexpected: unexpected.count,
                missing_rows: cell::json_rows(&missing.rows)?,
                unexpected_rows: cell::json_rows(&unexpected.rows)?,
            })
        }
        Reply::Refreshed(tables) => {
            let named = tables.into_iter().map(|(name, run)| Refreshed {
                name: name.to_string(),
                run,
            });
            Response::Refreshed {
                tables: named.collect(),
            }
        }
    })
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
