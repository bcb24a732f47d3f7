//! Whether a lake can live in a place, asked without leaving anything there.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

use uuid::Uuid;

use crate::catalog::Catalog;
use crate::error::LakeError;
use crate::files;
use crate::lake::LakeOptions;

/// Asks whether warehouse and catalog can be written, or made where they are missing. Blocks.
///
/// # Errors
/// [`LakeError::File`], [`LakeError::Catalog`] and [`LakeError::Options`] say what stands in the way.
pub fn probe(options: &LakeOptions) -> Result<(), LakeError> {
    if options.warehouse.to_str().is_none() {
        return Err(LakeError::Options {
            field: "catalog.warehouse",
            reason: "its path is not UTF-8, which Iceberg metadata must be".to_owned(),
        });
    }
    probe_dir(&options.warehouse)?;
    probe_dir(options.catalog_path.parent().unwrap_or(Path::new("/")))?;
    match Catalog::open_existing(&options.catalog_path)? {
        Some(catalog) if !catalog.is_writable()? => {
            let source = ErrorKind::PermissionDenied.into();
            Err(LakeError::file("write", &options.catalog_path, source))
        }
        _ => Ok(()),
    }
}

/// Makes and removes a file in the directory, or in the nearest one above it that is there.
fn probe_dir(dir: &Path) -> Result<(), LakeError> {
    let mut there = dir;
    loop {
        match std::fs::metadata(there) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => {
                return Err(LakeError::file(
                    "use as a directory",
                    there,
                    ErrorKind::NotADirectory.into(),
                ));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(LakeError::file("look at", there, error)),
        }
        there = match there.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
    }
    let file = there.join(format!(".embrasure-flow-check-{}", Uuid::new_v4().simple()));
    let made = OpenOptions::new().write(true).create_new(true).open(&file);
    made.map_err(|error| LakeError::file("write in", there, error))?;
    files::delete(&file)
}
