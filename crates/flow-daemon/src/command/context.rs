//! What commands begin with: the configuration, and logs for those that are no service.

use std::path::Path;

use crate::cli::LogFormat;
use crate::config::{self, Config, Secrets};
use crate::exit::Failure;
use crate::telemetry;

/// Loads the configuration with its secrets.
pub(super) fn config(file: &Path) -> Result<Config, Failure> {
    Ok(config::load(file, Secrets::Needed, &environment)?)
}

/// Loads the configuration without looking at its secrets.
pub(super) fn local_config(file: &Path) -> Result<Config, Failure> {
    Ok(config::load(file, Secrets::NotNeeded, &environment)?)
}

/// Starts logging for a command that a person runs: warnings only, as text.
pub(super) fn quiet_log() -> Result<(), Failure> {
    telemetry::start(LogFormat::Text, "warn")
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
