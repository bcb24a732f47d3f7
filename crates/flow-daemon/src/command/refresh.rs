//! `refresh NAME`: refreshes one dynamic table.

use std::path::Path;

use flow_engine::Command;

use super::{change, names};
use crate::cli::Refresh;
use crate::control::Request;
use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn run(file: &Path, refresh: &Refresh) -> Result<Exit, Failure> {
    let name = names::dynamic_table(&refresh.name)?;
    let full = refresh.full;
    let request = Request::Refresh {
        name: refresh.name.clone(),
        full,
    };
    let response = change::carry_out(file, &request, Command::Refresh { name, full })?;
    output::result(&change::describe(&response))?;
    Ok(Exit::Done)
}
