//! `resume NAME`: ends a suspension, or a block whose cause is gone.

use std::path::Path;

use flow_engine::Command;

use super::{change, names};
use crate::control::Request;
use crate::exit::{Exit, Failure};

pub(super) fn run(file: &Path, name: &str) -> Result<Exit, Failure> {
    let table = names::dynamic_table(name)?;
    let request = Request::Resume { name: name.to_owned() };
    change::carry_out(file, &request, Command::Resume { name: table })?;
    Ok(Exit::Done)
}
