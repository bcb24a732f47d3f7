//! The embedded catalog: one SQLite file that other Iceberg programs can open too.
//!
//! Tables `iceberg_tables` and `iceberg_namespace_properties` are those of the JDBC catalog,
//! version 1. Beside them, for this program alone: `flow_operations` and `flow_sources`
//! (published operations and positions), `flow_commits` (which attempt made which snapshot, kept
//! even where a snapshot expires), `flow_expired_metadata` (files to delete later), `flow_tables` (the
//! tables this program made) and `flow_answers` (answers that the REST catalog may have to repeat).
//!
//! Blocks; callers use a blocking thread. Never reads or writes a lake file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flow_core::clock::UnixMicros;
use flow_core::{Epoch, Lsn, TableName};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::error::LakeError;

pub(crate) mod serve;
mod swap;

pub(crate) use swap::{Swap, SwapOutcome, SwapRecord, swap_one};

/// Is the catalog's own name in its tables.
pub(crate) const CATALOG_NAME: &str = "flow";

/// Is how long a statement waits for another process's transaction.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Counts the prepared statements that stay ready; the commit path has about ten.
const STATEMENTS: usize = 32;

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name VARCHAR(255) NOT NULL,
    table_namespace VARCHAR(255) NOT NULL,
    table_name VARCHAR(255) NOT NULL,
    metadata_location VARCHAR(1000),
    previous_metadata_location VARCHAR(1000),
    iceberg_type VARCHAR(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(255) NOT NULL,
    property_key VARCHAR(255) NOT NULL,
    property_value VARCHAR(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key));
CREATE TABLE IF NOT EXISTS flow_operations (
    operation_id TEXT PRIMARY KEY,
    source_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    from_lsn TEXT NOT NULL,
    to_lsn TEXT NOT NULL,
    committed_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flow_sources (
    source_id TEXT PRIMARY KEY,
    published_lsn TEXT NOT NULL,
    published_epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flow_commits (
    table_uuid TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    committed_at INTEGER NOT NULL,
    PRIMARY KEY (table_uuid, attempt_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flow_expired_metadata (
    metadata_location TEXT PRIMARY KEY,
    expired_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS flow_answers (
    key TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    refusal TEXT,
    body TEXT,
    metadata_location TEXT,
    answered_at INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS flow_answers_by_time ON flow_answers (answered_at);
";

/// Is the one connection of this process.
#[derive(Debug)]
pub(crate) struct Catalog {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Catalog {
    /// Opens the file, making it and its tables if missing.
    pub(crate) fn open(path: &Path) -> Result<Catalog, LakeError> {
        let failed = |action| {
            move |source| LakeError::Catalog {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let connection = Connection::open(path).map_err(failed("open"))?;
        configure(&connection).map_err(failed("configure"))?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed("switch to write-ahead logging"))?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed("configure"))?;
        let catalog = Catalog {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        };
        catalog.write("create tables", |tx| {
            tx.execute_batch(SCHEMA)?;
            add_type_column(tx)
        })?;
        Ok(catalog)
    }

    /// Opens a file that is there, to read; `None` if there is none, or one without a catalog.
    ///
    /// Makes no file and no table, and leaves the file's settings as they are. SQLite may write all
    /// the same what keeping the file whole asks for: it rolls back a transaction that a crashed
    /// program left, and the last to close moves the write-ahead log into the file.
    pub(crate) fn open_existing(path: &Path) -> Result<Option<Catalog>, LakeError> {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.map_err(|error| LakeError::file("open", path, error))?,
        };
        let failed = |source| LakeError::Catalog {
            action: "open",
            path: path.to_owned(),
            source,
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        if !prepare_to_read(&connection).map_err(failed)? {
            return Ok(None);
        }
        Ok(Some(Catalog {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        }))
    }

    /// Says whether the file itself permits writing.
    pub(crate) fn is_writable(&self) -> Result<bool, LakeError> {
        self.read("ask for the rights", |connection| {
            Ok(!connection.is_readonly(rusqlite::MAIN_DB)?)
        })
    }

    pub(crate) fn failed(&self, action: &'static str) -> impl FnOnce(rusqlite::Error) -> LakeError {
        let path = self.path.clone();
        move |source| LakeError::Catalog { action, path, source }
    }

    /// Takes the connection, rolling back what a panicked holder left open.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        let guard = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if !guard.is_autocommit()
            && let Err(error) = guard.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "cannot roll back an abandoned catalog transaction");
        }
        guard
    }

    fn read<T>(
        &self,
        action: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, LakeError> {
        query(&self.lock()).map_err(self.failed(action))
    }

    fn write<T>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, LakeError> {
        let mut connection = self.lock();
        let run = |connection: &mut Connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&tx)?;
            tx.commit()?;
            Ok(value)
        };
        run(&mut connection).map_err(self.failed(action))
    }

    /// Is the metadata.json the catalog points to for a table.
    pub(crate) fn pointer(&self, name: &TableName) -> Result<Option<String>, LakeError> {
        self.read("look up a table", |connection| {
            connection
                .prepare_cached(
                    "SELECT metadata_location FROM iceberg_tables
                     WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?
                       AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)",
                )?
                .query_row(params![CATALOG_NAME, name.schema, name.name], |row| row.get(0))
                .optional()
                .map(Option::flatten)
        })
    }

    pub(crate) fn list(&self) -> Result<Vec<TableName>, LakeError> {
        self.read("list tables", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT table_namespace, table_name FROM iceberg_tables
                 WHERE catalog_name = ? AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)
                 ORDER BY table_namespace, table_name",
            )?;
            let rows = statement.query_map([CATALOG_NAME], |row| {
                Ok(TableName::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            rows.collect()
        })
    }

    /// Reads every table's pointer in one statement, and so at one moment.
    pub(crate) fn pointers(&self) -> Result<Vec<(TableName, String)>, LakeError> {
        self.read("read all tables", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables
                 WHERE catalog_name = ? AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)
                   AND metadata_location IS NOT NULL",
            )?;
            let rows = statement.query_map([CATALOG_NAME], |row| {
                let name = TableName::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
                Ok((name, row.get(2)?))
            })?;
            rows.collect()
        })
    }

    /// Removes a table that stands at `metadata_location`; `false` if it does not.
    pub(crate) fn remove(&self, name: &TableName, metadata_location: &str) -> Result<bool, LakeError> {
        self.write("remove a table", |tx| {
            let removed = tx.execute(
                "DELETE FROM iceberg_tables
                 WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?",
                params![CATALOG_NAME, name.schema, name.name, metadata_location],
            )?;
            Ok(removed == 1)
        })
    }

    /// Adds a table of this program's own and the namespaces above it; `false` if the name is taken.
    pub(crate) fn insert(
        &self,
        name: &TableName,
        metadata_location: &str,
        table_uuid: &str,
    ) -> Result<bool, LakeError> {
        self.write("create a table", |tx| {
            insert_namespaces(tx, &name.schema)?;
            let added = tx.execute(
                "INSERT OR IGNORE INTO iceberg_tables (catalog_name, table_namespace, table_name,
                     metadata_location, previous_metadata_location, iceberg_type)
                 VALUES (?, ?, ?, ?, NULL, 'TABLE')",
                params![CATALOG_NAME, name.schema, name.name, metadata_location],
            )?;
            if added == 1 {
                serve::insert_owner(tx, table_uuid)?;
            }
            Ok(added == 1)
        })
    }

    pub(crate) fn source_progress(&self, source_id: &str) -> Result<Option<(Lsn, Epoch)>, LakeError> {
        self.read("read a source's position", |connection| {
            progress_of(connection, source_id)
        })
    }

    pub(crate) fn advance(&self, source_id: &str, lsn: Lsn, epoch: Epoch) -> Result<(), LakeError> {
        self.write("advance a source", |tx| advance(tx, source_id, lsn, epoch))
    }

    /// Is the snapshot that an attempt made in a table, if the attempt was committed.
    pub(crate) fn committed(&self, table_uuid: &str, attempt_id: &str) -> Result<Option<i64>, LakeError> {
        self.read("look for a commit", |connection| {
            committed(connection, table_uuid, attempt_id)
        })
    }

    /// Lists recorded metadata files that expired before `before` and that no table points to.
    pub(crate) fn expired_metadata(&self, before: UnixMicros) -> Result<Vec<String>, LakeError> {
        self.read("list expired metadata", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT metadata_location FROM flow_expired_metadata AS e WHERE expired_at < ?
                   AND NOT EXISTS (SELECT 1 FROM iceberg_tables AS t
                     WHERE t.metadata_location = e.metadata_location
                        OR t.previous_metadata_location = e.metadata_location)
                 LIMIT 10000",
            )?;
            statement.query_map([before], |row| row.get(0))?.collect()
        })
    }

    /// Forgets deleted metadata files, and proofs of commits older than `before`.
    pub(crate) fn forget(&self, deleted: &[String], before: UnixMicros) -> Result<(), LakeError> {
        self.write("forget deleted metadata", |tx| {
            let mut statement = tx.prepare_cached("DELETE FROM flow_expired_metadata WHERE metadata_location = ?")?;
            for location in deleted {
                statement.execute([location])?;
            }
            tx.execute("DELETE FROM flow_commits WHERE committed_at < ?", [before])?;
            tx.execute("DELETE FROM flow_operations WHERE committed_at < ?", [before])?;
            Ok(())
        })
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

/// Makes a connection one that reads; `false` if the file has no catalog.
fn prepare_to_read(connection: &Connection) -> rusqlite::Result<bool> {
    configure(connection)?;
    let tables = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'iceberg_tables'";
    let tables: i64 = connection.query_row(tables, [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(false);
    }
    if !has_type_column(connection)? {
        // Seen by this connection alone: the statements read it in the place of the table.
        connection.execute_batch(
            "CREATE TEMP VIEW iceberg_tables AS SELECT *, NULL AS iceberg_type FROM main.iceberg_tables",
        )?;
    }
    connection.pragma_update(None, "query_only", true)?;
    Ok(true)
}

fn has_type_column(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info('iceberg_tables') WHERE name = 'iceberg_type'";
    let present: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(present > 0)
}

/// Adds a namespace and those above it, where they are missing.
fn insert_namespaces(tx: &Transaction<'_>, namespace: &str) -> rusqlite::Result<()> {
    let levels: Vec<&str> = namespace.split('.').collect();
    for depth in 1..=levels.len() {
        tx.prepare_cached("INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')")?
            .execute(params![CATALOG_NAME, levels[..depth].join(".")])?;
    }
    Ok(())
}

/// Adds the column that version 1 of the JDBC catalog has and version 0 lacks.
fn add_type_column(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    if !has_type_column(tx)? {
        tx.execute_batch("ALTER TABLE iceberg_tables ADD COLUMN iceberg_type VARCHAR(5)")?;
    }
    Ok(())
}

fn committed(connection: &Connection, table_uuid: &str, attempt_id: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT snapshot_id FROM flow_commits WHERE table_uuid = ? AND attempt_id = ?")?
        .query_row([table_uuid, attempt_id], |row| row.get(0))
        .optional()
}

fn progress_of(connection: &Connection, source_id: &str) -> rusqlite::Result<Option<(Lsn, Epoch)>> {
    connection
        .prepare_cached("SELECT published_lsn, published_epoch FROM flow_sources WHERE source_id = ?")?
        .query_row([source_id], |row| {
            let lsn: String = row.get(0)?;
            let lsn = lsn.parse().map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
            })?;
            Ok((lsn, Epoch(row.get(1)?)))
        })
        .optional()
}

/// Moves a source's position; each of LSN and epoch only grows.
fn advance(tx: &Transaction<'_>, source_id: &str, lsn: Lsn, epoch: Epoch) -> rusqlite::Result<()> {
    let (old_lsn, old_epoch) = progress_of(tx, source_id)?.unwrap_or_default();
    let (lsn, epoch) = (lsn.max(old_lsn), epoch.max(old_epoch));
    tx.prepare_cached("INSERT OR REPLACE INTO flow_sources VALUES (?, ?, ?)")?
        .execute(params![source_id, lsn.to_string(), epoch.0])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_of_the_older_layout_is_read_as_it_is() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("catalog.db");
        let other = Connection::open(&path).expect("opens");
        other
            .execute_batch(
                "CREATE TABLE iceberg_tables (catalog_name, table_namespace, table_name, metadata_location,
                     previous_metadata_location);
                 INSERT INTO iceberg_tables VALUES ('flow', 'a', 't', '/x/1.json', NULL), ('other', 'a', 'u', '/x', NULL)",
            )
            .expect("another program's tables");
        drop(other);
        let before = std::fs::read(&path).expect("is there");
        let catalog = Catalog::open_existing(&path).expect("opens").expect("is there");
        let name = TableName::new("a", "t");
        assert_eq!(catalog.list().expect("lists"), std::slice::from_ref(&name));
        assert_eq!(catalog.pointer(&name).expect("looks").as_deref(), Some("/x/1.json"));
        assert_eq!(catalog.pointers().expect("looks").len(), 1);
        catalog.insert(&name, "/x/2.json", "u").expect_err("is for reading");
        drop(catalog);
        assert_eq!(std::fs::read(&path).expect("is there"), before);
        assert_eq!(std::fs::read_dir(dir.path()).expect("is there").count(), 1);
    }
}
