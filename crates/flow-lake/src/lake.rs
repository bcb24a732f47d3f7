//! The lake: one warehouse directory and one catalog.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use flow_core::clock::Clock;
use flow_core::{Epoch, Lsn, TableName};
use iceberg::TableUpdate;
use uuid::Uuid;

use crate::catalog::{Catalog, Swap, SwapOutcome};
use crate::error::LakeError;
use crate::metadata::{self, Versions};
use crate::table::Table;
use crate::{blocking, files};

/// Is how long a metadata file stays after it left its table's metadata log, in microseconds.
const EXPIRED_METADATA_US: i64 = 3600 * 1_000_000;

/// Is how long the catalog keeps proofs of commits, in microseconds: far longer than any operation
/// stays unresolved.
const PROOF_US: i64 = 7 * 24 * 3600 * 1_000_000;

/// Is how long the REST catalog's answers can be repeated, in microseconds: twice what it promises.
const ANSWER_US: i64 = 3600 * 1_000_000;

/// Is the table property that names the source whose table it is.
const SOURCE_ID: &str = "flow.source-id";

/// Counts the tries of a property change against tables that others commit to.
const PROPERTY_TRIES: usize = 20;

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
    pub(crate) catalog: Catalog,
    pub(crate) versions: Versions,
    /// Counts the rows that change reads have decoded.
    pub(crate) change_rows_read: AtomicU64,
}

impl Shared {
    /// Reads the table the catalog points to. Blocks.
    pub(crate) fn load(&self, name: &TableName) -> Result<Option<Table>, LakeError> {
        let Some(location) = self.catalog.pointer(name)? else {
            return Ok(None);
        };
        let version = self.versions.load(&location)?;
        Ok(Some(Table {
            name: Arc::new(name.clone()),
            metadata_location: location.into(),
            version,
        }))
    }

    /// Reads a table that must be there. Blocks.
    pub(crate) fn require(&self, name: &TableName) -> Result<Table, LakeError> {
        self.load(name)?.ok_or_else(|| LakeError::Missing {
            table: name.to_string(),
        })
    }
}

/// Makes the warehouse and gives its absolute path.
fn make_warehouse(path: &Path) -> Result<PathBuf, LakeError> {
    files::make_dirs(path)?;
    let path = path.canonicalize().map_err(|e| LakeError::file("resolve", path, e))?;
    match path.to_str() {
        Some(_) => Ok(path),
        None => Err(LakeError::Options {
            field: "catalog.warehouse",
            reason: "its path is not UTF-8, which Iceberg metadata must be".to_owned(),
        }),
    }
}

impl Lake {
    /// Opens the lake, making directories and catalog tables as needed. Blocks; call it at startup.
    ///
    /// # Errors
    /// [`LakeError::Options`], [`LakeError::File`] and [`LakeError::Catalog`] ask for another
    /// setting; a busy catalog asks for patience.
    ///
    /// # Durability
    /// New directories and the catalog file are synced, with all directories above them.
    pub fn open(mut options: LakeOptions, clock: Arc<dyn Clock>) -> Result<Lake, LakeError> {
        options.warehouse = make_warehouse(&options.warehouse)?;
        let parent = match options.catalog_path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        files::make_dirs(&parent)?;
        let catalog = Catalog::open(&options.catalog_path)?;
        files::sync_dir(&parent)?;
        let lake = Lake::over(catalog, options, clock);
        lake.begin_owners()?;
        Ok(lake)
    }

    /// Begins to record which tables are this program's own. Those of an earlier version are told by
    /// the property that it gave them, which nobody else had a way to set.
    fn begin_owners(&self) -> Result<(), LakeError> {
        let shared = &self.shared;
        if shared.catalog.knows_owners()? {
            return Ok(());
        }
        let mut own = Vec::new();
        for (name, location) in shared.catalog.pointers()? {
            match shared.versions.load(&location) {
                Ok(version) if version.metadata.properties().contains_key(SOURCE_ID) => {
                    own.push(version.metadata.uuid().to_string());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(table = %name, %error, "cannot tell whose table it is: it counts as foreign")
                }
            }
        }
        shared.catalog.begin_owners(&own)
    }

    /// Opens a lake that is there, to read; `None` if there is no catalog. Makes nothing and changes
    /// nothing: what writes fails with the catalog's refusal. Blocks.
    ///
    /// # Errors
    /// [`LakeError::File`] and [`LakeError::Catalog`] if the catalog file cannot be read.
    pub fn open_existing(options: LakeOptions, clock: Arc<dyn Clock>) -> Result<Option<Lake>, LakeError> {
        let catalog = Catalog::open_existing(&options.catalog_path)?;
        Ok(catalog.map(|catalog| Lake::over(catalog, options, clock)))
    }

    fn over(catalog: Catalog, options: LakeOptions, clock: Arc<dyn Clock>) -> Lake {
        Lake {
            shared: Arc::new(Shared {
                options,
                clock,
                catalog,
                versions: Versions::default(),
                change_rows_read: AtomicU64::new(0),
            }),
        }
    }

    /// Says whether warehouse and catalog are where they were: where they are not, no table is.
    pub fn is_present(&self) -> bool {
        self.warehouse().is_dir() && self.catalog_path().is_file()
    }

    /// Is the warehouse directory, absolute.
    pub fn warehouse(&self) -> &Path {
        &self.shared.options.warehouse
    }

    /// Is the SQLite file.
    pub fn catalog_path(&self) -> &Path {
        &self.shared.options.catalog_path
    }

    /// Looks a table up; `None` if the catalog has no such table.
    ///
    /// # Errors
    /// A busy catalog asks for patience; unreadable metadata blocks the table.
    pub async fn load(&self, name: &TableName) -> Result<Option<Table>, LakeError> {
        let (shared, name) = (self.shared.clone(), name.clone());
        blocking::run(move || shared.load(&name)).await
    }

    /// Lists all tables of the catalog, in name order.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    pub async fn list(&self) -> Result<Vec<TableName>, LakeError> {
        let shared = self.shared.clone();
        blocking::run(move || shared.catalog.list()).await
    }

    /// Removes a table that never got a snapshot from the catalog, so that it can be made otherwise.
    /// Its metadata file stays. Says whether it stood exactly as `table` shows it.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if the table has content; a busy catalog asks for patience.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn drop_empty(&self, table: &Table) -> Result<bool, LakeError> {
        if table.metadata().snapshots().len() > 0 {
            return Err(LakeError::Unsupported {
                table: table.name().to_string(),
                reason: "it has content, and only an empty table is removed".to_owned(),
            });
        }
        self.drop_table(table).await
    }

    /// Removes a table from the catalog; its files stay. Says whether it stood exactly as `table` shows it.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn drop_table(&self, table: &Table) -> Result<bool, LakeError> {
        let (shared, table) = (self.shared.clone(), table.clone());
        blocking::run(move || shared.catalog.remove(table.name(), table.metadata_location())).await
    }

    /// Is the current snapshot of every table, all read in one catalog transaction: one cut.
    ///
    /// # Errors
    /// A busy catalog asks for patience; unreadable metadata blocks its table.
    pub async fn cut(&self) -> Result<BTreeMap<TableName, Option<i64>>, LakeError> {
        let shared = self.shared.clone();
        blocking::run(move || {
            let mut cut = BTreeMap::new();
            for (name, location) in shared.catalog.pointers()? {
                let version = shared.versions.load(&location)?;
                cut.insert(name, version.metadata.current_snapshot_id());
            }
            Ok(cut)
        })
        .await
    }

    /// Is the published position of a source, and its epoch.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    pub async fn source_progress(&self, source_id: &str) -> Result<Option<(Lsn, Epoch)>, LakeError> {
        let (shared, source_id) = (self.shared.clone(), source_id.to_owned());
        blocking::run(move || shared.catalog.source_progress(&source_id)).await
    }

    /// Moves a source's published position without a commit; never back.
    ///
    /// # Errors
    /// A busy catalog asks for patience.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn advance_source(&self, source_id: &str, lsn: Lsn, epoch: Epoch) -> Result<(), LakeError> {
        let (shared, source_id) = (self.shared.clone(), source_id.to_owned());
        blocking::run(move || shared.catalog.advance(&source_id, lsn, epoch)).await
    }

    /// Sets table properties by a compare-and-swap of their own, retried while others commit.
    ///
    /// # Errors
    /// [`LakeError::Missing`] if the table is gone; a busy catalog asks for patience.
    ///
    /// # Durability
    /// Synced when it returns.
    pub async fn set_properties(
        &self,
        name: &TableName,
        properties: BTreeMap<String, String>,
    ) -> Result<Table, LakeError> {
        let (shared, name) = (self.shared.clone(), name.clone());
        blocking::run(move || set_properties(&shared, &name, &properties)).await
    }

    /// Deletes metadata.json files that left their table's metadata log more than an hour ago.
    ///
    /// Only files recorded by the commit that dropped them are touched. Gives their number. Also
    /// forgets proofs of commits older than a week.
    ///
    /// # Errors
    /// A busy catalog or file system asks for patience; what was not deleted stays recorded.
    pub async fn clean_metadata(&self) -> Result<usize, LakeError> {
        let shared = self.shared.clone();
        blocking::run(move || {
            let now = shared.clock.now_us();
            let locations = shared.catalog.expired_metadata(now - EXPIRED_METADATA_US)?;
            for location in &locations {
                files::delete(&files::local_path(location))?;
                shared.versions.retire(location);
            }
            shared.catalog.forget(&locations, now - PROOF_US)?;
            shared.catalog.forget_answers(now - ANSWER_US)?;
            Ok(locations.len())
        })
        .await
    }
}

fn set_properties(
    shared: &Shared,
    name: &TableName,
    properties: &BTreeMap<String, String>,
) -> Result<Table, LakeError> {
    for _ in 0..PROPERTY_TRIES {
        let table = shared.require(name)?;
        let same = |(key, value): (&String, &String)| table.metadata().properties().get(key) == Some(value);
        if properties.iter().all(same) {
            return Ok(table);
        }
        let update = TableUpdate::SetProperties {
            updates: properties.clone().into_iter().collect(),
        };
        let base = table.metadata_location();
        let (version, _) =
            metadata::apply(&table.version, base, [update]).map_err(LakeError::iceberg("set properties", name))?;
        let next = metadata::next_location(table.location(), base, Uuid::new_v4());
        files::write_together(&[metadata::to_file(&next, &version.metadata)?])?;
        let swap = Swap {
            table: name,
            base,
            next: &next,
            marker: None,
            expired: &version.expired,
        };
        match shared.catalog.swap(&[swap], None, shared.clock.now_us())? {
            SwapOutcome::Committed => {
                shared.versions.put(&next, version.clone());
                shared.versions.retire(base);
                return Ok(Table {
                    version,
                    metadata_location: next.into(),
                    name: table.name,
                });
            }
            SwapOutcome::Conflict(_) => {}
            // Properties are set to fixed values, so trying again after a commit that may have
            // happened is harmless; the caller decides.
            SwapOutcome::Unknown(error) => return Err(error),
        }
    }
    Err(LakeError::Contended {
        table: name.to_string(),
    })
}
