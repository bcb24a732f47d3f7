//! Names as requests give them: prefixes, namespaces as lists of levels, tables.

use flow_core::TableName;
use serde::{Deserialize, Serialize};

use super::error::{Refusal, ServeError};
use super::{LIVE, ServedCatalog};

/// Is the longest namespace or table name in bytes: what the JDBC catalog's columns hold.
const NAME_BYTES_MAX: usize = 255;

/// Begins the names that this program keeps for itself.
const RESERVED_PREFIX: &str = "_flow_";

/// Is what a prefix shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The catalog as it is; the only one that can be changed.
    Live,
}

impl View {
    /// Refuses changes of anything but the live catalog.
    pub(super) fn check_live(self) -> Result<(), ServeError> {
        match self {
            View::Live => Ok(()),
        }
    }
}

/// Spells a table that may be there; `namespace` holds the levels.
pub fn table_name(namespace: &[String], name: impl Into<String>) -> TableName {
    TableName::new(existing(namespace), name)
}

impl ServedCatalog {
    /// Says what a prefix shows.
    ///
    /// # Errors
    /// [`Refusal::NoWarehouse`] if it shows nothing.
    pub fn view(&self, prefix: &str) -> Result<View, ServeError> {
        match prefix {
            LIVE => Ok(View::Live),
            _ => Err(no_warehouse(prefix)),
        }
    }
}

pub(super) fn no_warehouse(name: &str) -> ServeError {
    let message = format!("there is no warehouse '{name}'; this catalog is '{LIVE}'");
    ServeError::new(Refusal::NoWarehouse, message)
}

/// Is a table as bodies name it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Identifier {
    pub(super) namespace: Vec<String>,
    pub(super) name: String,
}

impl Identifier {
    pub(super) fn table(&self) -> TableName {
        table_name(&self.namespace, &self.name)
    }
}

/// Spells a namespace that may be there. One whose level holds a dot is not: dots part the levels.
pub(super) fn existing(levels: &[String]) -> String {
    match levels.iter().any(|level| level.is_empty() || level.contains('.')) {
        // No namespace has an empty level, so this one is not found.
        true => format!("{}.", levels.join("\u{1f}")),
        false => levels.join("."),
    }
}

/// Gives a namespace its levels.
pub(super) fn levels(namespace: &str) -> Vec<&str> {
    namespace.split('.').collect()
}

/// Spells a namespace that is to be made.
pub(super) fn new_namespace(levels: &[String]) -> Result<String, ServeError> {
    if levels.is_empty() {
        return Err(ServeError::bad("a namespace needs at least one level"));
    }
    for level in levels {
        check_part("namespace", level)?;
        if level.contains('.') {
            let message = format!("namespace level '{level}' has a dot, which parts levels here");
            return Err(ServeError::bad(message));
        }
    }
    let name = levels.join(".");
    check_length("namespace", &name)?;
    Ok(name)
}

/// Judges the name of a table that is to be made.
pub(super) fn new_table(namespace: &[String], name: &str) -> Result<TableName, ServeError> {
    let name = table_name(namespace, name);
    check_new_table(&name)?;
    Ok(name)
}

pub(super) fn check_new_table(name: &TableName) -> Result<(), ServeError> {
    check_part("table", &name.name)?;
    check_length("table", &name.name)?;
    match levels(&name.schema)
        .iter()
        .find(|level| level.starts_with(RESERVED_PREFIX))
    {
        None => Ok(()),
        Some(level) => check_part("namespace", level),
    }
}

fn check_part(what: &str, part: &str) -> Result<(), ServeError> {
    if part.starts_with(RESERVED_PREFIX) {
        let message = format!("{what} name '{part}' is not given: names beginning with {RESERVED_PREFIX} are reserved");
        return Err(ServeError::new(Refusal::Forbidden, message));
    }
    if part.is_empty() || part.chars().any(char::is_control) {
        let message = format!("a {what} name must not be empty or have control characters");
        return Err(ServeError::bad(message));
    }
    Ok(())
}

fn check_length(what: &str, name: &str) -> Result<(), ServeError> {
    match name.len() > NAME_BYTES_MAX {
        true => Err(ServeError::bad(format!(
            "a {what} name of more than {NAME_BYTES_MAX} bytes does not fit"
        ))),
        false => Ok(()),
    }
}
