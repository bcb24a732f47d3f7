//! Runs in files: kind (1 byte), length of the key and of the value (4 bytes each, little-endian), both.
//!
//! A file is of this process alone and is gone with it, so it has no version and no checksum.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{Entry, Kind, OwnEntry};
use crate::error::StoreError;

/// Is the size of a file's buffer in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Numbers the files of this process.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Directory { action, path, source }
}

/// Is a file that goes when nobody has it any more.
#[derive(Debug)]
struct Owned(PathBuf);

impl Drop for Owned {
    fn drop(&mut self) {
        // What stays behind goes at the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Is a file being written.
pub(super) struct SpillWriter {
    file: BufWriter<File>,
    path: Owned,
}

impl SpillWriter {
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = Owned(folder.join(format!("{number}.run")));
        let file = File::create(&path.0).map_err(failed("create", &path.0))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(SpillWriter { file, path })
    }

    pub(super) fn write(&mut self, entry: Entry<'_>) -> Result<(), StoreError> {
        let mut head = [0; 9];
        head[0] = u8::from(entry.kind == Kind::Add);
        head[1..5].copy_from_slice(&(entry.key.len() as u32).to_le_bytes());
        head[5..].copy_from_slice(&(entry.value.len() as u32).to_le_bytes());
        let mut parts = [&head[..], entry.key, entry.value].into_iter();
        let written = parts.try_for_each(|part| self.file.write_all(part));
        written.map_err(failed("write", &self.path.0))
    }

    pub(super) fn finish(self) -> Result<Spill, StoreError> {
        let SpillWriter { mut file, path } = self;
        file.flush().map_err(failed("write", &path.0))?;
        Ok(Spill(path))
    }
}

/// Is a whole run in a file.
#[derive(Debug)]
pub(super) struct Spill(Owned);

/// Reads a run from its file.
pub(super) struct SpillReader {
    file: BufReader<File>,
    path: Owned,
}

impl SpillReader {
    pub(super) fn open(spill: Spill) -> Result<Self, StoreError> {
        let Spill(path) = spill;
        let file = File::open(&path.0).map_err(failed("open", &path.0))?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(SpillReader { file, path })
    }

    /// Reads the next entry; `false` at the end.
    pub(super) fn next(&mut self, entry: &mut OwnEntry) -> Result<bool, StoreError> {
        self.read(entry).map_err(failed("read", &self.path.0))
    }

    fn read(&mut self, entry: &mut OwnEntry) -> std::io::Result<bool> {
        let mut head = [0; 9];
        if self.file.read(&mut head[..1])? == 0 {
            return Ok(false);
        }
        self.file.read_exact(&mut head[1..])?;
        let length = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        entry.kind = if head[0] == 1 { Kind::Add } else { Kind::Put };
        entry.key.resize(length(1), 0);
        self.file.read_exact(&mut entry.key)?;
        entry.value.resize(length(5), 0);
        self.file.read_exact(&mut entry.value)?;
        Ok(true)
    }
}
