//! `docs`: writes generated documentation to stdout.

use crate::cli::{Docs, Page};
use crate::config::reference::configuration_page;
use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn run(docs: &Docs) -> Result<Exit, Failure> {
    let text = match docs.page {
        Page::Configuration => configuration_page(),
    };
    output::result(&text)?;
    Ok(Exit::Done)
}
