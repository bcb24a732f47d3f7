//! `flow.toml`: read with line and column, judged as a whole, every problem at once.
//!
//! Owns the words of the configuration file. Never repeats a secret: secrets are named by
//! environment variables and held in [`Secret`].
//!
//! 1. [`document`] reads the text into typed sections; unknown keys and bad values are problems.
//! 2. [`check`] judges what was read, resolves paths and variables, and refuses by name what this
//!    version cannot do.
//! 3. [`reference`] writes `docs/configuration.md` from the same declarations.

pub mod check;
pub mod document;
pub mod names;
pub mod problem;
pub mod read;
pub mod reference;
pub mod secret;
#[cfg(test)]
mod tests;
pub mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flow_core::schedule::EpochLimits;
use flow_engine::options::{AckMode, Limits, TableOptions};

pub use problem::{ConfigError, Problem};
pub use secret::Secret;

/// Is a configuration that can be used: paths are absolute, secrets are resolved.
#[derive(Clone, Debug)]
pub struct Config {
    /// Is the file it came from.
    pub file: PathBuf,
    /// Holds all local state.
    pub state_dir: PathBuf,
    /// Is `[source]`.
    pub source: SourceConfig,
    /// Is the warehouse directory.
    pub warehouse: PathBuf,
    /// Is the catalog's SQLite file.
    pub catalog_path: PathBuf,
    /// Closes epochs.
    pub publish: EpochLimits,
    /// Is how long older snapshots stay.
    pub keep_for: Duration,
    /// Is how many of the newest snapshots stay.
    pub keep_snapshots: usize,
    /// Bounds memory and disk.
    pub limits: Limits,
    /// Is `[http]`.
    pub http: HttpConfig,
    /// Holds the dynamic tables' SQL files.
    pub transformations: PathBuf,
    /// Holds the captured tables.
    pub tables: Vec<TableOptions>,
}

/// Is the source's part of a configuration.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Is the name in metadata; `None` takes the database's.
    pub id: Option<String>,
    /// Names the variable that holds the connection URL.
    pub connection_env: String,
    /// Is the connection URL; `None` only where the [`Purpose`] does not need it.
    pub connection: Option<Secret>,
    /// Is the slot's name.
    pub slot: String,
    /// Is the publication's name.
    pub publication: String,
    /// Says how far PostgreSQL is told that changes are safe.
    pub ack_mode: AckMode,
    /// Is how often an idle source's position moves.
    pub heartbeat: Duration,
    /// Is how long an unavailable dependency is retried.
    pub retry_for: Duration,
    /// Is how many tables are copied at once.
    pub copy_sessions: usize,
}

/// Is the HTTP server's part of a configuration.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Is where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Is the bearer token that `/status` and the catalog ask for.
    pub token: Option<Secret>,
}

/// Says what a configuration is wanted for, and so what it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To capture and publish: everything.
    Service,
    /// To look at the source: its secrets, but no `[[tables]]` yet.
    Discover,
    /// To plan: `[[tables]]`, and the secrets that are set.
    Plan,
    /// To look at local files or ask a running service: neither secrets nor `[[tables]]`.
    Local,
}

impl Purpose {
    fn needs_secrets(self) -> bool {
        matches!(self, Purpose::Service | Purpose::Discover)
    }

    fn takes_secrets(self) -> bool {
        self != Purpose::Local
    }

    fn needs_tables(self) -> bool {
        matches!(self, Purpose::Service | Purpose::Plan)
    }
}

/// Finds the value of an environment variable; tests hand in their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads a configuration file.
///
/// # Errors
/// [`ConfigError`] with every problem; the remedy is always to reconfigure.
pub fn load(file: &Path, purpose: Purpose, environment: Environment<'_>) -> Result<Config, ConfigError> {
    /// A configuration is written by hand; a larger file is something else.
    const FILE_BYTES_MAX: u64 = 4 << 20;
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ConfigError::whole(
            file,
            "no such file; 'embrasure-flow new DIR' writes one, '--config FILE' names another",
        ),
        _ => ConfigError::whole(file, format!("cannot be read: {error}")),
    };
    let length = std::fs::metadata(file).map_err(unreadable)?.len();
    if length > FILE_BYTES_MAX {
        return Err(ConfigError::whole(
            file,
            "is larger than 4 MiB, so it is no configuration",
        ));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| ConfigError::whole(file, "is not UTF-8 text"))?;
    parse(&text, file, purpose, environment)
}

/// Reads a configuration from its text; `file` anchors relative paths.
///
/// # Errors
/// As [`load`].
pub fn parse(text: &str, file: &Path, purpose: Purpose, environment: Environment<'_>) -> Result<Config, ConfigError> {
    let mut problems = problem::Collector::new(text);
    let config = document::read(text, &mut problems)
        .and_then(|document| check::check(document, file, purpose, environment, &mut problems));
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(ConfigError {
            file: file.to_path_buf(),
            problems: problems.into_problems(),
        }),
    }
}
