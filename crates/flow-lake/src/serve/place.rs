//! Places of tables: inside the warehouse, and no table's place inside another's.

use std::path::{Component, Path, PathBuf};

use flow_core::TableName;
use uuid::Uuid;

use super::Inner;
use super::error::ServeError;
use crate::files;

/// Is the longest part of a table's name in its directory's name, in bytes: with the UUID behind it
/// a file system takes it.
const DIRECTORY_NAME_BYTES_MAX: usize = 200;

/// Names table properties that say where files go.
const PLACE_PROPERTIES: [&str; 4] = [
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
];

/// Chooses a place that no table had or will have.
pub(super) fn choose(inner: &Inner, name: &TableName) -> String {
    let part = |text: &str| {
        let mut name = files::directory_name(text);
        // Only ASCII is in it.
        name.truncate(DIRECTORY_NAME_BYTES_MAX);
        name
    };
    let (namespace, table) = (part(&name.schema), part(&name.name));
    format!("{}/{namespace}/{table}-{}", inner.warehouse(), Uuid::new_v4().simple())
}

/// Judges a file or directory that a client names, and gives its path.
///
/// # Errors
/// A refusal unless it is a plain local path inside the warehouse.
pub(super) fn inside(inner: &Inner, what: &str, location: &str) -> Result<PathBuf, ServeError> {
    let warehouse = inner.warehouse();
    let refuse = |why: &str| {
        let message = format!("{what} '{location}' {why}; this catalog keeps its tables inside {warehouse}");
        Err(ServeError::bad(message))
    };
    let text = location.strip_prefix("file:").unwrap_or(location);
    let rooted = text.starts_with('/') && (!text.starts_with("//") || text.starts_with("///"));
    if !rooted {
        return refuse("is not an absolute local path");
    }
    let path = files::local_path(location);
    let plain = |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    // Components leave out `.` and doubled slashes, which a client's string comparison would not.
    let spelled = path.to_string_lossy();
    let odd = spelled
        .trim_end_matches('/')
        .split('/')
        .skip(1)
        .any(|part| matches!(part, "" | "." | ".."));
    if odd || !path.components().all(plain) || spelled.contains('\0') {
        return refuse("has empty parts, or '.' or '..' in it");
    }
    if path == Path::new(&warehouse) || !path.starts_with(&warehouse) {
        return refuse("is outside");
    }
    // A symbolic link must not lead out of it either.
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    match there.is_some_and(|real| real.starts_with(&warehouse)) {
        true => Ok(path),
        false => refuse("leads outside"),
    }
}

/// Judges the properties that say where a table's files go.
pub(super) fn check_properties<'a>(
    inner: &Inner,
    properties: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<(), ServeError> {
    for (key, value) in properties {
        if PLACE_PROPERTIES.contains(&key.as_str()) {
            inside(inner, &format!("property {key}"), value)?;
        }
    }
    Ok(())
}

/// Refuses a place that holds another table or the catalog, or lies in another table's.
pub(super) fn apart(inner: &Inner, name: &TableName, path: &Path) -> Result<(), ServeError> {
    let refuse = |what: String| {
        let message = format!("location {} is not free: {what}", path.display());
        Err(ServeError::bad(message))
    };
    if inner.shared.options.catalog_path.starts_with(path) {
        return refuse("the catalog is in it".to_owned());
    }
    for (other, metadata_location) in inner.reader.pointers()? {
        let file = files::local_path(&metadata_location);
        // Metadata lies in a folder of its own below the table's place.
        let Some(place) = file.parent().and_then(Path::parent) else {
            continue;
        };
        if other != *name && (place.starts_with(path) || path.starts_with(place)) {
            return refuse(format!("table {other} is there"));
        }
    }
    Ok(())
}
