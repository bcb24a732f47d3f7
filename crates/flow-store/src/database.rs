//! The open database: reads, writes of three durabilities, and what a failed write leaves behind.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rocksdb::{ColumnFamily, DB, FlushOptions, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions};
use serde::de::DeserializeOwned;

use crate::disk::{self, DirLock};
use crate::error::StoreError;
use crate::layout::{FORMAT_VERSION, FactKey, Family, after_prefix};
use crate::record;
use crate::tuning::{self, Memory};

/// Is the database's own directory inside the state directory.
const DATABASE_DIR: &str = "db";

/// Is the directory, in the state directory, in which table files lie before they are taken in.
const INCOMING_DIR: &str = "incoming";

/// Is the directory, in the state directory, for what computations put down while they run.
const SCRATCH_DIR: &str = "scratch";

/// Says what a write waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Durable when the call returns, with everything logged before it.
    Synced,
    /// In the log: durable with the next sync, in order.
    Logged,
    /// Not in the log: durable only once the family is flushed.
    Unlogged,
}

/// Is the database with its lock. Dropping it gives the directory back.
pub(crate) struct Database {
    db: DB,
    dir: PathBuf,
    poisoned: AtomicBool,
    small: Mutex<()>,
    // Fields drop in order: the database closes before the directory is given back.
    _lock: DirLock,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or makes the database.
    pub(crate) fn open(dir: &Path, memory_bytes: usize) -> Result<Database, StoreError> {
        disk::create(dir)?;
        let lock = disk::lock(dir)?;
        // What an earlier process left there belongs to nobody.
        for passing in [INCOMING_DIR, SCRATCH_DIR] {
            disk::remove_all(&dir.join(passing))?;
            disk::create(&dir.join(passing))?;
        }
        let path = dir.join(DATABASE_DIR);
        let memory = Memory::new(memory_bytes);
        let options = tuning::database(&memory);
        refuse_unknown_families(&options, &path)?;
        let opened = DB::open_cf_descriptors(&options, &path, tuning::families(&memory));
        let db = opened.map_err(|source| StoreError::Open {
            dir: dir.to_owned(),
            source,
        })?;
        let database = Database {
            db,
            dir: dir.to_owned(),
            poisoned: AtomicBool::new(false),
            small: Mutex::default(),
            _lock: lock,
        };
        database.check_format()?;
        Ok(database)
    }

    fn check_format(&self) -> Result<(), StoreError> {
        let key = FactKey::Format.bytes();
        match self.get_json::<u32>(Family::Facts, key)? {
            Some(FORMAT_VERSION) => Ok(()),
            Some(found) => Err(StoreError::Format {
                found: found.to_string(),
                supported: FORMAT_VERSION,
            }),
            None if self.holds_nothing()? => {
                let mut batch = WriteBatch::default();
                batch.put_cf(self.family(Family::Facts), key, record::seal_json(key, &FORMAT_VERSION));
                self.write(batch, Durability::Synced)
            }
            None => Err(StoreError::corrupt(Family::Facts, key, "record is missing")),
        }
    }

    fn holds_nothing(&self) -> Result<bool, StoreError> {
        for family in Family::ALL {
            let mut rows = self.db.iterator_cf(self.family(family), IteratorMode::Start);
            match rows.next() {
                None => {}
                Some(Ok(_)) => return Ok(false),
                Some(Err(source)) => return Err(StoreError::Read { family, source }),
            }
        }
        Ok(true)
    }

    /// Is the state directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Is where table files are written that the database takes in.
    pub(crate) fn incoming(&self) -> PathBuf {
        self.dir.join(INCOMING_DIR)
    }

    /// Is where computations put down what does not fit in memory.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.dir.join(SCRATCH_DIR)
    }

    /// Keeps others from reading a small record that the holder is about to write.
    pub(crate) fn exclusive(&self) -> MutexGuard<'_, ()> {
        self.small.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is RocksDB itself, for reads.
    pub(crate) fn raw(&self) -> &DB {
        &self.db
    }

    /// Is a family's handle.
    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.db.cf_handle(family.name()).expect("all families are opened")
    }

    /// Reads a wrapped value as it is stored.
    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.db.get_cf(self.family(family), key);
        found.map_err(|source| StoreError::Read { family, source })
    }

    /// Reads a JSON record.
    pub(crate) fn get_json<T: DeserializeOwned>(&self, family: Family, key: &[u8]) -> Result<Option<T>, StoreError> {
        let Some(bytes) = self.get(family, key)? else {
            return Ok(None);
        };
        record::open_json(family, key, &bytes).map(Some)
    }

    /// Reads up to `limit` records whose keys are in `[from, to)`, in key order.
    pub(crate) fn scan<T>(
        &self,
        family: Family,
        from: &[u8],
        to: Option<Vec<u8>>,
        limit: usize,
        mut read: impl FnMut(&[u8], &[u8]) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut options = ReadOptions::default();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        let mut rows = self.db.raw_iterator_cf_opt(self.family(family), options);
        rows.seek(from);
        let mut out = Vec::new();
        while out.len() < limit
            && let Some((key, value)) = rows.item()
        {
            out.push(read(key, value)?);
            rows.next();
        }
        rows.status().map_err(|source| StoreError::Read { family, source })?;
        Ok(out)
    }

    /// Finds the last key that begins with `prefix`.
    pub(crate) fn last_key(&self, family: Family, prefix: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(prefix);
        if let Some(end) = after_prefix(prefix) {
            options.set_iterate_upper_bound(end);
        }
        let mut rows = self.db.raw_iterator_cf_opt(self.family(family), options);
        rows.seek_to_last();
        let key = rows.key().map(<[u8]>::to_vec);
        rows.status().map_err(|source| StoreError::Read { family, source })?;
        Ok(key)
    }

    /// Writes a batch atomically.
    pub(crate) fn write(&self, batch: WriteBatch, durability: Durability) -> Result<(), StoreError> {
        let mut options = WriteOptions::default();
        match durability {
            Durability::Synced => options.set_sync(true),
            Durability::Logged => {}
            Durability::Unlogged => options.disable_wal(true),
        }
        self.guard("write to the state directory", |db| db.write_opt(batch, &options))
    }

    /// Makes everything logged so far durable.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.guard("sync the state directory", |db| db.flush_wal(true))
    }

    /// Writes the families' buffers to files and waits for it.
    pub(crate) fn flush(&self, families: &[Family]) -> Result<(), StoreError> {
        let handles: Vec<&ColumnFamily> = families.iter().map(|family| self.family(*family)).collect();
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.guard("flush the state directory", |db| {
            handles.iter().try_for_each(|handle| db.flush_cf_opt(*handle, &options))
        })
    }

    /// Refuses what will be written later, as `guard` refuses what is written at once.
    pub(crate) fn refuse_if_poisoned(&self) -> Result<(), StoreError> {
        match self.poisoned.load(Ordering::Acquire) {
            true => Err(StoreError::Poisoned),
            false => Ok(()),
        }
    }

    /// Runs a write unless an earlier one failed, and remembers if this one does.
    ///
    /// IMPORTANT: after a failed sync the kernel may have dropped the very pages it could not
    /// write, and a second sync would succeed without them. Only a restart finds out what is durable.
    pub(crate) fn guard(
        &self,
        action: &'static str,
        run: impl FnOnce(&DB) -> Result<(), rocksdb::Error>,
    ) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        run(&self.db).map_err(|source| {
            self.poisoned.store(true, Ordering::Release);
            StoreError::Write { action, source }
        })
    }
}

/// A family that this version does not know was made by a later one.
fn refuse_unknown_families(options: &Options, path: &Path) -> Result<(), StoreError> {
    if !path.join("CURRENT").exists() {
        return Ok(());
    }
    let names = DB::list_cf(options, path).map_err(|source| StoreError::Open {
        dir: path.to_owned(),
        source,
    })?;
    let known = |name: &String| name == "default" || Family::ALL.iter().any(|family| family.name() == name);
    match names.iter().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(StoreError::Format {
            found: format!("with family '{name}'"),
            supported: FORMAT_VERSION,
        }),
    }
}
