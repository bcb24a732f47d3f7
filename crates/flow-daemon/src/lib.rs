//! The command line, the configuration file, telemetry, signals and exit codes of `embrasure-flow`.
//!
//! It wires the engine and the HTTP server together and holds no logic of theirs.
//!
//! 1. [`cli`] reads the arguments, [`config`] the file.
//! 2. [`command`] has one module for each command.
//! 3. [`control`] lets commands talk to a running service; [`status_file`] reads its last status.
//! 4. [`exit`] turns every outcome into an exit code.

pub mod cli;
mod clock;
pub mod command;
pub mod config;
pub mod control;
pub mod exit;
mod output;
mod runtime;
mod signals;
pub mod status_file;
mod telemetry;
mod wire;

use std::process::ExitCode;

use clap::Parser;

/// Runs the program: arguments in, exit code out.
pub fn main() -> ExitCode {
    // clap ends the process itself: 2 for wrong usage, 0 for --help and --version.
    let arguments = cli::Arguments::parse();
    match command::run(arguments) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.logged {
                output::failure(&failure);
            }
            failure.exit.into()
        }
    }
}
