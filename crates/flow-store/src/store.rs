//! The store as a whole: opening it, and the handles to its parts.

use std::path::PathBuf;
use std::sync::Arc;

use crate::database::Database;
use crate::disk;
use crate::error::StoreError;
use crate::facts::{Facts, Identity};
use crate::files::FileRegister;
use crate::index::RowIndex;
use crate::journal::Journal;
use crate::layout::Family;
use crate::operations::Operations;
use crate::refreshes::Refreshes;
use crate::state::States;
use crate::tables::Tables;

/// Says which directory to open and what memory it may take.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Is the state directory. It is made, for its owner only, if it is not there.
    pub dir: PathBuf,
    /// Bounds block cache and write buffers together, in bytes; at least 32 MiB are taken.
    pub memory_bytes: usize,
}

/// Is an open state directory. Clones share it; the last one dropped gives it back.
#[derive(Clone, Debug)]
pub struct Store {
    database: Arc<Database>,
    facts: Facts,
    files: FileRegister,
    index: RowIndex,
    journal: Journal,
    operations: Operations,
    refreshes: Refreshes,
    states: States,
    tables: Tables,
}

impl Store {
    /// Opens a state directory, or makes it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] (retry) if another process has it; reconfigure if it cannot be made or is
    /// of another format; crash if its database is broken.
    pub fn open(options: StoreOptions) -> Result<Store, StoreError> {
        let database = Arc::new(Database::open(&options.dir, options.memory_bytes)?);
        let facts = Facts::new(database.clone());
        let refreshes = Refreshes::new(database.clone());
        Ok(Store {
            files: FileRegister::open(database.clone())?,
            index: RowIndex::new(database.clone()),
            journal: Journal::open(database.clone())?,
            operations: Operations::new(database.clone(), facts.clone(), refreshes.clone()),
            states: States::new(database.clone()),
            tables: Tables::new(database.clone()),
            facts,
            refreshes,
            database,
        })
    }

    /// Says whose directory this is; `None` before `init`.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, StoreError> {
        self.facts.identity()
    }

    /// Gives the directory an owner. The same owner again changes nothing.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] (reconfigure) if it has another owner; crash if the write fails.
    pub fn set_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        self.facts.set_identity(identity)
    }

    /// Says whether nothing was ever initialised here: no owner, no table, no position.
    ///
    /// # Errors
    /// Crash if a record cannot be read.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        let untouched = self.journal.staged().is_zero() && self.facts.init()?.is_none();
        Ok(untouched && self.identity()?.is_none() && self.tables.all()?.is_empty())
    }

    /// Is the journal.
    pub fn journal(&self) -> Journal {
        self.journal.clone()
    }

    /// Holds the operations.
    pub fn operations(&self) -> Operations {
        self.operations.clone()
    }

    /// Is the row index.
    pub fn index(&self) -> RowIndex {
        self.index.clone()
    }

    /// Is the file register.
    pub fn files(&self) -> FileRegister {
        self.files.clone()
    }

    /// Holds the captured tables.
    pub fn tables(&self) -> Tables {
        self.tables.clone()
    }

    /// Holds the dynamic tables.
    pub fn refreshes(&self) -> Refreshes {
        self.refreshes.clone()
    }

    /// Holds the dynamic tables' state.
    pub fn states(&self) -> States {
        self.states.clone()
    }

    /// Holds the singletons.
    pub fn facts(&self) -> Facts {
        self.facts.clone()
    }

    /// Makes every logged write durable.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the sync fails; nothing more is written then.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.database.sync()
    }

    /// Is an empty folder, on the disk of the state directory, for what a computation puts down while
    /// it runs. What is left there goes when the store is opened next.
    pub fn scratch_dir(&self) -> PathBuf {
        self.database.scratch()
    }

    /// Counts the bytes that may still be written on the directory's disk.
    ///
    /// # Errors
    /// Reconfigure if the system cannot tell.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        disk::free_bytes(self.database.dir())
    }

    /// Counts the bytes of each family, files and write buffers together.
    ///
    /// # Errors
    /// Crash if RocksDB cannot answer.
    pub fn sizes(&self) -> Result<Vec<(Family, u64)>, StoreError> {
        Family::ALL
            .iter()
            .map(|family| Ok((*family, self.size(*family)?)))
            .collect()
    }

    fn size(&self, family: Family) -> Result<u64, StoreError> {
        const PARTS: [&str; 3] = [
            "rocksdb.total-sst-files-size",
            "rocksdb.total-blob-file-size",
            "rocksdb.cur-size-all-mem-tables",
        ];
        let handle = self.database.family(family);
        let mut sum = 0;
        for part in PARTS {
            let bytes = self.database.raw().property_int_value_cf(handle, part);
            sum += bytes
                .map_err(|source| StoreError::Read { family, source })?
                .unwrap_or(0);
        }
        Ok(sum)
    }
}
