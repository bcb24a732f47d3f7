//! `run`: the service.
//!
//! 1. Bind HTTP, so that a taken address is refused before anything else is touched.
//! 2. Open the engine: from here on the state directory is ours.
//! 3. Serve HTTP, the control socket and signals beside the engine.
//! 4. When the engine ends, end them, and give its outcome.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flow_engine::{Command, Engine, EngineError, EngineHandle, EngineOptions};
use flow_http::HttpServer;
use tokio_util::sync::CancellationToken;

use super::{change, context, names};
use crate::cli::Run;
use crate::config::Config;
use crate::control::server::{ControlServer, Handler};
use crate::control::{Request, Response};
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::{runtime, telemetry, wire};

pub(super) fn run(file: &Path, run: &Run) -> Result<Exit, Failure> {
    let config = context::config(file)?;
    let options = wire::engine_options(&config)?;
    telemetry::start(run.log_format, "info")?;
    runtime::block_on(serve(file, config, options, run)).map_err(Failure::log)
}

async fn serve(file: &Path, config: Config, options: EngineOptions, run: &Run) -> Result<Exit, Failure> {
    let shutdown = CancellationToken::new();
    let signals = Signals::install()?;
    let http = HttpServer::bind(wire::http_options(&config)).await?;
    let state_dir = config.state_dir.clone();
    let (mut engine, handle) = Engine::open(options, context::clock()).await?;
    let lake = engine.lake().clone();
    let catalog = tokio::task::spawn_blocking(move || lake.serve()).await;
    let catalog = catalog.map_err(|error| Failure::new(Exit::Failure, error.to_string()))??;
    let control = ControlServer::bind(&state_dir).map_err(|error| {
        let message = format!("cannot make the control socket in {}: {error}", state_dir.display());
        Failure::new(Exit::Reconfigure, message)
    })?;
    let address = http.address().to_string();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), http = address, "started");
    handle.set_http_address(address);

    // The servers outlive the wish to stop: they show `stopping` until the engine has ended.
    let ended = CancellationToken::new();
    let service = Arc::new(Service {
        file: file.to_path_buf(),
        running: config,
        handle: handle.clone(),
    });
    let reloading = service.clone();
    let reload = move || {
        let service = reloading.clone();
        tokio::spawn(async move { service.reload_on_signal().await });
    };
    tokio::spawn(signals.watch(shutdown.clone(), reload));
    let control = tokio::spawn(control.serve(service, ended.clone()));
    let http = tokio::spawn(http.serve(Arc::new(handle), Some(catalog), ended.clone().cancelled_owned()));

    let outcome = work(&mut engine, run, &shutdown).await;
    ended.cancel();
    for joined in [control.await.map(Ok), http.await] {
        match joined {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "HTTP server failed"),
            Err(error) => tracing::warn!(%error, "a server did not end in order"),
        }
    }
    match outcome {
        // To stop while waiting for a dependency is to stop in order.
        Ok(()) | Err(EngineError::Stopped) if shutdown.is_cancelled() => {
            tracing::info!("stopped");
            Ok(Exit::Done)
        }
        Ok(()) => Err(Failure::new(Exit::Failure, "the service ended by itself")),
        Err(error) => Err(error.into()),
    }
}

async fn work(engine: &mut Engine, run: &Run, shutdown: &CancellationToken) -> Result<(), EngineError> {
    if run.init {
        tokio::select! {
            initialised = engine.init(run.create_publication) => initialised?,
            // An interrupted init is resumed by the next one.
            () = shutdown.cancelled() => return Err(EngineError::Stopped),
        }
    }
    engine.run(shutdown.clone()).await
}

/// Answers the control socket and SIGHUP.
struct Service {
    file: PathBuf,
    running: Config,
    handle: EngineHandle,
}

impl Service {
    async fn execute(&self, request: Request) -> Result<Response, Failure> {
        let command = match request {
            Request::Status => {
                let status = Box::new(self.handle.status().as_ref().clone());
                return Ok(Response::Status { status });
            }
            Request::Apply => Command::Apply,
            Request::Refresh { name, full } => Command::Refresh {
                name: names::dynamic_table(&name)?,
                full,
            },
            Request::Suspend { name } => Command::Suspend {
                name: names::dynamic_table(&name)?,
            },
            Request::Resume { name } => Command::Resume {
                name: names::dynamic_table(&name)?,
            },
            Request::Drop { name } => Command::Drop {
                name: names::dynamic_table(&name)?,
            },
            Request::Verify { name } => Command::Verify {
                name: names::dynamic_table(&name)?,
            },
            Request::History { name } => Command::History {
                name: names::dynamic_table(&name)?,
            },
            Request::Reload => Command::Reload(Box::new(self.reloaded()?)),
        };
        change::response(self.handle.command(command).await?)
    }

    /// Reads the configuration again, and refuses what a running service cannot follow.
    fn reloaded(&self) -> Result<EngineOptions, Failure> {
        let config = context::config(&self.file)?;
        let changed = wire::needs_restart(&self.running, &config);
        if !changed.is_empty() {
            let message = format!(
                "nothing was taken over: a change of {} needs a restart",
                changed.join(", ")
            );
            return Err(Failure::new(Exit::Reconfigure, message));
        }
        wire::engine_options(&config)
    }

    async fn reload_on_signal(&self) {
        match self.execute(Request::Reload).await {
            Ok(_) => tracing::info!("the configuration was read again"),
            Err(failure) => {
                let code = failure.code.as_deref().unwrap_or("-");
                tracing::error!(code, "the configuration was not taken over: {}", failure.message);
            }
        }
    }
}

impl Handler for Service {
    async fn handle(&self, request: Request) -> Response {
        self.execute(request).await.unwrap_or_else(Response::from)
    }
}
