//! Reads the dynamic table that an argument names.

use flow_core::TableName;

use crate::config::names::{Target, parse_target};
use crate::exit::{Exit, Failure};

/// Reads `namespace.table`.
pub(crate) fn dynamic_table(text: &str) -> Result<TableName, Failure> {
    match parse_target(text) {
        Ok(Target::Table(name)) => Ok(name),
        Ok(Target::Namespace(_)) => Err(Failure::new(Exit::Usage, "one table must be named")),
        Err(message) => Err(Failure::new(Exit::Usage, message)),
    }
}
