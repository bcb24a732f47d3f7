//! `apply`: refreshes every dynamic table once, in order.

use std::path::Path;

use flow_engine::Command;

use super::change;
use crate::control::Request;
use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn run(file: &Path) -> Result<Exit, Failure> {
    let response = change::carry_out(file, &Request::Apply, Command::Apply)?;
    output::result(&change::describe(&response))?;
    Ok(Exit::Done)
}
