//! `suspend NAME`: stops refreshing a dynamic table until it is resumed.

use std::path::Path;

use flow_engine::Command;

use super::{change, names};
use crate::control::Request;
use crate::exit::{Exit, Failure};

pub(super) fn run(file: &Path, name: &str) -> Result<Exit, Failure> {
    let table = names::dynamic_table(name)?;
    let request = Request::Suspend { name: name.to_owned() };
    change::carry_out(file, &request, Command::Suspend { name: table })?;
    Ok(Exit::Done)
}
