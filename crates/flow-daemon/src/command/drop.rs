//! `drop NAME`: removes a dynamic table that no definition declares.

use std::path::Path;

use flow_engine::Command;

use super::{change, names};
use crate::control::Request;
use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn run(file: &Path, name: &str) -> Result<Exit, Failure> {
    let table = names::dynamic_table(name)?;
    let request = Request::Drop { name: name.to_owned() };
    change::carry_out(file, &request, Command::Drop { name: table })?;
    output::note(&format!(
        "{name} is no longer in the catalog, and its state and history are gone; its files in the warehouse stay"
    ));
    Ok(Exit::Done)
}
