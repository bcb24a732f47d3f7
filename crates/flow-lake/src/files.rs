//! Files and directories that are durable before anyone relies on them, and their names.
//!
//! Never decides what is written. A file is written, then synced, then its directory is synced;
//! a new directory is synced with all its ancestors.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::LakeError;

/// Is the path behind a location: Iceberg programs also write `file:` in front.
pub(crate) fn local_path(location: &str) -> PathBuf {
    let path = location.strip_prefix("file:").unwrap_or(location);
    let slashes = path.len() - path.trim_start_matches('/').len();
    PathBuf::from(&path[slashes.saturating_sub(1)..])
}

/// Syncs a directory, so that the names in it survive a crash.
pub(crate) fn sync_dir(path: &Path) -> Result<(), LakeError> {
    let dir = File::open(path).map_err(|e| LakeError::file("open directory", path, e))?;
    dir.sync_all().map_err(|e| LakeError::sync(path, e))
}

/// Makes a directory and its missing ancestors, and syncs the whole line up to the root.
///
/// Directories that exist are synced too: an earlier run may have died between making and syncing.
/// Ancestors this user may not open were not made by it.
pub(crate) fn make_dirs(path: &Path) -> Result<(), LakeError> {
    fs::create_dir_all(path).map_err(|e| LakeError::file("make directory", path, e))?;
    sync_dir(path)?;
    for ancestor in path.ancestors().skip(1) {
        match sync_dir(ancestor) {
            Err(LakeError::File { source, .. }) if source.kind() == ErrorKind::PermissionDenied => break,
            other => other?,
        }
    }
    Ok(())
}

/// Is a whole file in memory, and where it goes.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Bytes,
}

/// Writes files and syncs them and their directory. All must lie in one directory.
///
/// The syncs run side by side, so that the file system commits its journal once for all of them.
pub(crate) fn write_together(files: &[NewFile]) -> Result<(), LakeError> {
    let mut open = Vec::with_capacity(files.len());
    for file in files {
        let mut handle = File::create(&file.path).map_err(|e| LakeError::file("create", &file.path, e))?;
        handle
            .write_all(&file.bytes)
            .map_err(|e| LakeError::file("write", &file.path, e))?;
        open.push((handle, file.path.as_path()));
    }
    sync_together(&open)?;
    match files.first().and_then(|file| file.path.parent()) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

fn sync_together(open: &[(File, &Path)]) -> Result<(), LakeError> {
    let sync = |(file, path): &(File, &Path)| file.sync_all().map_err(|e| LakeError::sync(path, e));
    let Some((first, rest)) = open.split_first() else {
        return Ok(());
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = rest.iter().map(|file| scope.spawn(move || sync(file))).collect();
        let mut result = sync(first);
        for other in others {
            let one = other
                .join()
                .unwrap_or_else(|_| Err(LakeError::broken("a sync thread panicked")));
            result = result.and(one);
        }
        result
    })
}

/// Writes a file that readers may be reading right now: the old or the whole new content is seen.
pub(crate) fn replace(file: &NewFile) -> Result<(), LakeError> {
    let mut name = file.path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let parts = [NewFile {
        path: part.clone(),
        bytes: file.bytes.clone(),
    }];
    write_together(&parts)?;
    fs::rename(&part, &file.path).map_err(|e| LakeError::file("rename", &file.path, e))?;
    match file.path.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Deletes a file; one that is gone already counts as deleted.
pub(crate) fn delete(path: &Path) -> Result<(), LakeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(LakeError::file("delete", path, error)),
        _ => Ok(()),
    }
}

/// Spells a name as one directory name: different names give different ones, none is `.` or `..`,
/// and no reader has to decode anything.
pub(crate) fn directory_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || byte == b'-' || (index > 0 && (byte == b'_' || byte == b'.'));
        if plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("~{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_lose_their_scheme() {
        for location in ["/a/b", "file:/a/b", "file:///a/b"] {
            assert_eq!(local_path(location), PathBuf::from("/a/b"));
        }
    }

    #[test]
    fn directory_names_are_safe_and_distinct() {
        let check = |name: &str, want: &str| assert_eq!(directory_name(name), want);
        check("orders_2024", "orders_2024");
        check("Bestellungen äß", "Bestellungen~20~c3~a4~c3~9f");
        check("..", "~2e.");
        check("a/../b", "a~2f..~2fb");
        check("_hidden", "~5fhidden");
        check("~5fhidden", "~7e5fhidden");
    }

    #[test]
    fn a_replaced_file_is_whole() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("x");
        for content in ["first", "second"] {
            let bytes = Bytes::from_static(content.as_bytes());
            replace(&NewFile {
                path: path.clone(),
                bytes,
            })
            .expect("replaced");
            assert_eq!(fs::read_to_string(&path).expect("read"), content);
        }
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
