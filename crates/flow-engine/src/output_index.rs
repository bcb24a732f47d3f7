//! Where a dynamic table's rows stand, found by their content: a part of the table's state.
//!
//! | key, behind the state's prefix | value |
//! |---|---|
//! | `ff ff 00`, row digest, file (12 bytes), position (8 bytes) | – |
//! | `ff ff 01`, file | the file's path |
//!
//! A file is numbered by the operation that wrote it and its place in that operation, so that no two
//! refreshes give the same number. Numbers are big-endian.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use flow_core::state::{StateBuilder, StateReader};
use flow_refresh::RowDigest;

use crate::error::EngineError;

/// Begins keys that no operator of a plan has: there are never so many.
const ROWS: [u8; 3] = [0xff, 0xff, 0];
const FILES: [u8; 3] = [0xff, 0xff, 1];

/// Numbers a data file: the operation, 0 for what stood before the state was built, and a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileNumber {
    pub(crate) operation: u64,
    pub(crate) file: u32,
}

impl FileNumber {
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.operation.to_be_bytes());
        bytes[8..].copy_from_slice(&self.file.to_be_bytes());
        bytes
    }
}

/// Is a stored row that goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Is its entry.
    pub(crate) key: Bytes,
    pub(crate) path: Arc<str>,
    pub(crate) position: u64,
}

/// Is the key of a row's entry.
pub(crate) fn row_key(digest: &RowDigest, file: FileNumber, position: u64) -> Bytes {
    let mut key = Vec::with_capacity(ROWS.len() + 36);
    key.extend_from_slice(&ROWS);
    key.extend_from_slice(digest);
    key.extend_from_slice(&file.bytes());
    key.extend_from_slice(&position.to_be_bytes());
    key.into()
}

/// Is the entry of a file.
pub(crate) fn file_entry(file: FileNumber, path: &str) -> (Bytes, Bytes) {
    let key = [&FILES[..], &file.bytes()].concat();
    (key.into(), Bytes::copy_from_slice(path.as_bytes()))
}

/// Finds as many copies of each row as are wanted; `None` if there are fewer.
pub(crate) fn locate(
    state: &dyn StateReader,
    wanted: &[(RowDigest, u64)],
) -> Result<Option<Vec<Located>>, EngineError> {
    let prefixes: Vec<[u8; 19]> = wanted
        .iter()
        .map(|(digest, _)| {
            let mut prefix = [0; 19];
            prefix[..3].copy_from_slice(&ROWS);
            prefix[3..].copy_from_slice(digest);
            prefix
        })
        .collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_unstable_by_key(|at| prefixes[*at]);
    let sorted: Vec<&[u8]> = order.iter().map(|at| &prefixes[*at][..]).collect();
    let mut found: Vec<Bytes> = Vec::new();
    let mut left: Vec<u64> = order.iter().map(|at| wanted[*at].1).collect();
    state.scan(&sorted, &mut |prefix, key, _| {
        found.push(Bytes::copy_from_slice(key));
        left[prefix] -= 1;
        match left[prefix] {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    if left.iter().any(|left| *left > 0) {
        return Ok(None);
    }
    with_paths(state, found)
}

/// Reads the paths of the files that rows stand in; `None` if one is not there.
fn with_paths(state: &dyn StateReader, found: Vec<Bytes>) -> Result<Option<Vec<Located>>, EngineError> {
    let mut paths: BTreeMap<&[u8], Option<Arc<str>>> = BTreeMap::new();
    for key in &found {
        let Some(file) = key.get(19..31) else { return Ok(None) };
        paths.insert(file, None);
    }
    let keys: Vec<Vec<u8>> = paths.keys().map(|file| [&FILES[..], file].concat()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (path, value) in paths.values_mut().zip(state.get(&keys)?) {
        *path = value.and_then(|value| Some(Arc::from(std::str::from_utf8(&value).ok()?)));
    }
    let located = found.iter().map(|key| {
        let path = paths.get(key.get(19..31)?)?.clone()?;
        let position = u64::from_be_bytes(key.get(31..)?.try_into().ok()?);
        Some(Located {
            key: key.clone(),
            path,
            position,
        })
    });
    Ok(located.collect())
}

/// Enters a whole table's rows into state that is being built.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    files: BTreeMap<Arc<str>, FileNumber>,
}

impl Filling {
    /// Enters rows of one file.
    pub(crate) fn put(
        &mut self,
        builder: &mut dyn StateBuilder,
        path: &Arc<str>,
        positions: &[u64],
        digests: &[RowDigest],
    ) -> Result<(), EngineError> {
        let next = u32::try_from(self.files.len())
            .map_err(|_| EngineError::Invariant("a table has more files than numbers".to_owned()))?;
        let file = match self.files.get(path) {
            Some(file) => *file,
            None => {
                let file = FileNumber {
                    operation: 0,
                    file: next,
                };
                let (key, value) = file_entry(file, path);
                builder.put(&key, &value)?;
                self.files.insert(path.clone(), file);
                file
            }
        };
        for (digest, position) in digests.iter().zip(positions) {
            builder.put(&row_key(digest, file, *position), &[])?;
        }
        Ok(())
    }
}
