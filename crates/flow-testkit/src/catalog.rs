//! The embedded catalog as a foreign reader sees it: an SQLite file, opened read-only.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use flow_core::Lsn;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

/// Reads a catalog file and changes nothing.
#[derive(Debug)]
pub struct CatalogReader {
    connection: Connection,
}

impl CatalogReader {
    /// Opens the file.
    ///
    /// # Errors
    /// When the file does not exist or is no SQLite database.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).with_context(|| format!("cannot open {}", path.display()))?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(Self { connection })
    }

    /// Is the LSN up to which every unblocked table is published; zero before the first commit.
    ///
    /// # Errors
    /// When the catalog has not the tables of this program, or the LSN is not in text form.
    pub fn published_lsn(&self) -> Result<Lsn> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT published_lsn FROM flow_sources")?;
        let text: Option<String> = statement.query_row([], |row| row.get(0)).optional()?;
        Ok(text.map(|text| text.parse()).transpose()?.unwrap_or(Lsn::ZERO))
    }

    /// Is where a table's metadata file lies; `None` if there is no such table.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn location(&self, namespace: &str, name: &str) -> Result<Option<String>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
        )?;
        Ok(statement.query_row([namespace, name], |row| row.get(0)).optional()?)
    }

    /// Counts the rows of a table's current snapshot by its summary; `None` while it has none.
    ///
    /// # Errors
    /// When the catalog or the metadata file cannot be read.
    pub fn total_records(&self, namespace: &str, name: &str) -> Result<Option<u64>> {
        let Some(location) = self.location(namespace, name)? else {
            return Ok(None);
        };
        let snapshot = current_snapshot(&location)?;
        let total = snapshot.as_ref().and_then(|s| s["summary"]["total-records"].as_str());
        Ok(total.map(str::parse).transpose()?)
    }
}

/// Reads a metadata file's current snapshot; `None` while there is none.
///
/// # Errors
/// When the file cannot be read.
pub fn current_snapshot(location: &str) -> Result<Option<serde_json::Value>> {
    let path = location.strip_prefix("file://").unwrap_or(location);
    let mut metadata: serde_json::Value = serde_json::from_slice(&std::fs::read(path)?)?;
    let current = metadata["current-snapshot-id"].take();
    let snapshots = metadata["snapshots"].as_array_mut();
    Ok(snapshots.and_then(|all| {
        all.iter_mut()
            .find(|s| s["snapshot-id"] == current)
            .map(serde_json::Value::take)
    }))
}
