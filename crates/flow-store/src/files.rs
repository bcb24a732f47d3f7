//! The file register: every data file has a number, so that the row index need not hold paths.
//!
//! 1. `allocate` takes numbers before files are written; a number is never given twice.
//! 2. `register` records what was written, before the operation that made it is sealed.
//! 3. `path` answers for the row index; recent answers stay in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flow_core::{FileId, Generation, TableId};
use rocksdb::WriteBatch;
use serde::{Deserialize, Serialize};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::facts;
use crate::layout::{FactKey, Family, file_key};
use crate::record;

/// Counts the numbers reserved by one synced write; at most that many are skipped by a restart.
const RESERVED: u64 = 4096;
/// Counts the paths kept in memory, twice: a path used since the last turn survives it. At some
/// 200 bytes each they take a few megabytes.
const CACHED: usize = 8192;

/// Is one data file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Is the full path, exactly as the manifest has it.
    pub path: String,
    /// Is the captured table it belongs to; `None` for a dynamic table's.
    pub table: Option<TableId>,
    /// Is the content of the table it belongs to.
    pub generation: Generation,
    /// Counts its rows.
    pub rows: u64,
    /// Counts its bytes.
    pub bytes: u64,
}

#[derive(Debug)]
struct Inner {
    /// Is the next number to give, and the end of those reserved.
    ids: Range<u64>,
    recent: HashMap<FileId, Arc<str>>,
    older: HashMap<FileId, Arc<str>>,
}

impl Inner {
    fn remember(&mut self, file: FileId, path: Arc<str>) {
        if self.recent.len() >= CACHED {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(file, path);
    }

    fn recall(&mut self, file: FileId) -> Option<Arc<str>> {
        if let Some(path) = self.recent.get(&file) {
            return Some(path.clone());
        }
        let path = self.older.remove(&file)?;
        self.remember(file, path.clone());
        Some(path)
    }
}

/// Numbers data files and finds their paths.
#[derive(Clone, Debug)]
pub struct FileRegister {
    database: Arc<Database>,
    inner: Arc<Mutex<Inner>>,
}

impl FileRegister {
    pub(crate) fn open(database: Arc<Database>) -> Result<Self, StoreError> {
        let reserved: Option<u64> = database.get_json(Family::Facts, FactKey::FileIds.bytes())?;
        let first = reserved.unwrap_or(1);
        let inner = Inner {
            ids: first..first,
            recent: HashMap::new(),
            older: HashMap::new(),
        };
        Ok(FileRegister {
            database,
            inner: Arc::new(Mutex::new(inner)),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a number that no file has had.
    ///
    /// # Durability
    /// Never given again, used or not, across crashes too.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn next_id(&self) -> Result<FileId, StoreError> {
        Ok(self.allocate(1)?.start)
    }

    /// Takes `count` consecutive numbers that no file has had.
    ///
    /// # Durability
    /// As [`FileRegister::next_id`].
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn allocate(&self, count: u64) -> Result<Range<FileId>, StoreError> {
        let mut inner = self.inner();
        if inner.ids.end - inner.ids.start < count {
            let end = inner.ids.start + count.max(RESERVED);
            let mut batch = WriteBatch::default();
            facts::stage(&self.database, &mut batch, FactKey::FileIds, &end);
            self.database.write(batch, Durability::Synced)?;
            inner.ids.end = end;
        }
        let first = inner.ids.start;
        inner.ids.start += count;
        Ok(FileId(first)..FileId(first + count))
    }

    /// Records files.
    ///
    /// # Durability
    /// Durable with the next synced write: call it before the operation is sealed.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn register(&self, files: &[(FileId, FileRecord)]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        for (file, record) in files {
            let key = file_key(*file);
            batch.put_cf(
                self.database.family(Family::Files),
                key,
                record::seal_json(&key, record),
            );
        }
        self.database.write(batch, Durability::Logged)?;
        let mut inner = self.inner();
        for (file, record) in files {
            inner.remember(*file, record.path.as_str().into());
        }
        Ok(())
    }

    /// Reads a file's record.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn get(&self, file: FileId) -> Result<Option<FileRecord>, StoreError> {
        self.database.get_json(Family::Files, &file_key(file))
    }

    /// Finds a file's path; `None` if it was never registered or was removed.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn path(&self, file: FileId) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(path) = self.inner().recall(file) {
            return Ok(Some(path));
        }
        let Some(record) = self.get(file)? else {
            return Ok(None);
        };
        let path: Arc<str> = record.path.into();
        self.inner().remember(file, path.clone());
        Ok(Some(path))
    }

    /// Forgets files that no live row stands in.
    ///
    /// # Durability
    /// Durable with the next synced write.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn remove(&self, files: &[FileId]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        for file in files {
            batch.delete_cf(self.database.family(Family::Files), file_key(*file));
        }
        self.database.write(batch, Durability::Logged)?;
        let mut inner = self.inner();
        for file in files {
            inner.recent.remove(file);
            inner.older.remove(file);
        }
        Ok(())
    }

    /// Lists up to `limit` files from number `from` on, by number.
    ///
    /// # Errors
    /// Crash if a record cannot be read.
    pub fn list(&self, from: FileId, limit: usize) -> Result<Vec<(FileId, FileRecord)>, StoreError> {
        self.database
            .scan(Family::Files, &file_key(from), None, limit, |key, value| {
                let number = key.try_into().map(u64::from_be_bytes);
                let number = number.map_err(|_| StoreError::corrupt(Family::Files, key, "key is not a number"))?;
                Ok((FileId(number), record::open_json(Family::Files, key, value)?))
            })
    }
}
