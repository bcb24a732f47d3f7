//! The lake: one warehouse directory and one catalog.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use flow_core::clock::Clock;
use flow_core::{Epoch, Lsn, TableName};

use crate::error::LakeError;
use crate::table::Table;

/// Says where the lake is and how much history it keeps.
#[derive(Clone, Debug)]
pub struct LakeOptions {
    /// Is the warehouse directory; made if missing.
    pub warehouse: PathBuf,
    /// Is the SQLite file; by default `catalog.db` in the warehouse. Never inside `state_dir`.
    pub catalog_path: PathBuf,
    /// Is the size in bytes at which a data file is closed and the next begun.
    pub data_file_bytes: u64,
    /// Counts the newest snapshots that always stay.
    pub keep_snapshots: usize,
    /// Is how long, beyond those, one snapshot a minute stays.
    pub keep_for: Duration,
}

impl LakeOptions {
    /// Takes the defaults for a warehouse: 256 MiB data files, 200 snapshots, one hour.
    pub fn new(warehouse: impl Into<PathBuf>) -> Self {
        let warehouse = warehouse.into();
        LakeOptions {
            catalog_path: warehouse.join("catalog.db"),
            warehouse,
            data_file_bytes: 256 << 20,
            keep_snapshots: 200,
            keep_for: Duration::from_secs(3600),
        }
    }
}

/// Is a handle on the lake; clones share one catalog connection and one cache.
#[derive(Clone, Debug)]
pub struct Lake {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: LakeOptions,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Lake {
    /// Opens the lake, making directories and catalog tables as needed. Blocks; call it at startup.
    ///
    /// # Errors
    /// [`LakeError::Options`], [`LakeError::File`] and [`LakeError::Catalog`] ask for another
    /// setting; a busy catalog asks for patience.
    ///
    /// # Durability
    /// New directories and the catalog file are synced, up to the first directory that existed.
    pub fn open(options: LakeOptions, clock: Arc<dyn Clock>) -> Result<Lake, LakeError> {
        Ok(Lake { shared: Arc::new(Shared { options, clock }) })
    }

    /// Looks a table up; `None` if the catalog has no such table.
    ///
    /// # Errors
    /// A busy catalog asks for patience; unreadable metadata blocks the table.
    pub async fn load(&self, _name: &TableName) -> Result<Option<Table>, LakeError> {
        Ok(None)
    }

    /// Lists all tables of the catalog, in name order.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    pub async fn list(&self) -> Result<Vec<TableName>, LakeError> {
        Ok(Vec::new())
    }

    /// Is the published position of a source, and its epoch.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    pub async fn source_progress(&self, _source_id: &str) -> Result<Option<(Lsn, Epoch)>, LakeError> {
        Ok(None)
    }

    /// Moves a source's published position without a commit; never back.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn advance_source(&self, _source_id: &str, _lsn: Lsn, _epoch: Epoch) -> Result<(), LakeError> {
        Ok(())
    }

    /// Sets table properties by a compare-and-swap of their own, retried while others commit.
    ///
    /// An empty value removes nothing; it is set as it is.
    ///
    /// # Errors
    /// [`LakeError::Missing`] if the table is gone.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn set_properties(&self, _name: &TableName, _properties: BTreeMap<String, String>) -> Result<Table, LakeError> {
        Err(LakeError::broken("not reached"))
    }

    /// Deletes metadata.json files that left their table's metadata log more than an hour ago.
    ///
    /// Only files recorded by the commit that dropped them are touched. Gives their number.
    ///
    /// # Errors
    /// A busy catalog or file system asks for patience; what was not deleted stays recorded.
    pub async fn clean_metadata(&self) -> Result<usize, LakeError> {
        Ok(0)
    }
}
