//! What commands begin with: the configuration, a clock, and logs for those that are no service.

use std::path::Path;
use std::sync::Arc;

use flow_core::clock::Clock;
use flow_engine::EngineOptions;
use flow_engine::options::LocalOptions;

use crate::cli::LogFormat;
use crate::clock::SystemClock;
use crate::config::{self, Config, Purpose};
use crate::exit::Failure;
use crate::{telemetry, wire};

/// Loads the configuration with its secrets.
pub(super) fn config(file: &Path) -> Result<Config, Failure> {
    Ok(config::load(file, Purpose::Service, &environment)?)
}

/// Loads the configuration without looking at its secrets.
pub(super) fn local_config(file: &Path) -> Result<Config, Failure> {
    Ok(config::load(file, Purpose::Local, &environment)?)
}

/// Loads the configuration as the engine takes it.
pub(super) fn engine_options(file: &Path) -> Result<EngineOptions, Failure> {
    wire::engine_options(&config(file)?)
}

/// As [`engine_options`], for commands that need no `[[tables]]` yet.
pub(super) fn source_options(file: &Path) -> Result<EngineOptions, Failure> {
    let config = config::load(file, Purpose::Discover, &environment)?;
    wire::engine_options(&config)
}

/// Loads what planning takes: local options, and the engine's if the connection is known.
pub(super) fn plan_options(file: &Path) -> Result<(LocalOptions, Option<EngineOptions>), Failure> {
    let config = config::load(file, Purpose::Plan, &environment)?;
    let source = match &config.source.connection {
        Some(_) => Some(wire::engine_options(&config)?),
        None => None,
    };
    Ok((wire::local_options(&config), source))
}

/// Is the machine's clock.
pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

/// Starts logging for a command that a person runs: warnings only, as text.
pub(super) fn quiet_log() -> Result<(), Failure> {
    telemetry::start(LogFormat::Text, "warn")
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
