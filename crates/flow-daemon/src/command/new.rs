//! `new DIR`: writes a commented `flow.toml` and an example transformation.
//!
//! Nothing that is there already is touched.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::cli::New;
use crate::exit::{Exit, Failure};
use crate::output;

const CONFIGURATION: &str = include_str!("new/flow.toml");
const TRANSFORMATION: &str = include_str!("new/example.sql");

pub(super) fn run(new: &New) -> Result<Exit, Failure> {
    let directory = new.directory.as_path();
    let transformations = directory.join("transformations");
    fs::create_dir_all(&transformations).map_err(|error| cannot(&transformations, &error))?;
    for (file, text) in [
        (directory.join("flow.toml"), CONFIGURATION),
        (transformations.join("example.sql"), TRANSFORMATION),
    ] {
        write(&file, text)?;
        output::result(&format!("{}\n", file.display()))?;
    }
    output::note("next: set FLOW_POSTGRES_URL, then 'embrasure-flow check --source' in that directory");
    Ok(Exit::Done)
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let mut opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(|error| cannot(file, &error))?;
    opened.write_all(text.as_bytes()).map_err(|error| cannot(file, &error))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            Exit::Reconfigure,
            format!("{} exists already; it was not changed", path.display()),
        ),
        _ => Failure::new(Exit::Reconfigure, format!("cannot write {}: {error}", path.display())),
    }
}
