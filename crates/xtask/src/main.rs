//! `cargo xtask`: the one gate of the project (`ci`), its text checks (`tidy`) and its benchmarks.
//!
//! It drives the workspace as commands and text and never links the crates it checks, so it builds in
//! seconds and works while they do not.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a command-line tool talks to a terminal and measures real time"
)]

mod bench;
mod ci;
mod lane;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask ci                        the gate: format, tidy, build, clippy, unit and service tests
cargo xtask slow LANE                 one long lane: majors, crash, random, soak, spark, fuzz
cargo xtask service MAJOR [ARG…]      service tests on one PostgreSQL major; ARGs go to pytest
cargo xtask tidy [--update]           text checks; --update rewrites the size ratchets
cargo xtask bench drain|copy|freshness|refresh [--pg MAJOR] [--rows N] [--mutations N] [--seconds N] [--out FILE] [--keep]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ci"] => ci::ci(),
        ["slow", name] => ci::slow(name),
        ["service", major, rest @ ..] => ci::service(major, rest),
        ["tidy"] => tidy::check(false),
        ["tidy", "--update"] => tidy::check(true),
        ["bench", name, rest @ ..] => bench::run(name, rest),
        _ => bail!("usage:\n{USAGE}"),
    }
}
