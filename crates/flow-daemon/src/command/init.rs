//! `init`: creates the slot, copies existing rows and publishes them. Can be interrupted and run again.

use std::path::Path;

use flow_engine::Engine;
use tokio_util::sync::CancellationToken;

use super::context;
use crate::cli::Init;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{runtime, telemetry};

pub(super) fn run(file: &Path, init: &Init) -> Result<Exit, Failure> {
    let options = context::engine_options(file)?;
    telemetry::start(init.log_format, "info")?;
    runtime::block_on(async {
        let shutdown = CancellationToken::new();
        tokio::spawn(Signals::install()?.watch(shutdown.clone(), || {}));
        let (mut engine, _handle) = Engine::open(options, context::clock()).await?;
        tokio::select! {
            initialised = engine.init(init.create_publication) => initialised?,
            () = shutdown.cancelled() => {
                return Err(Failure::new(Exit::Failure, "interrupted; run it again to go on"));
            }
        }
        tracing::info!("every table has its first copy");
        Ok(Exit::Done)
    })
}
