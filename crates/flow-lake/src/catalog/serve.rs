//! What the REST catalog asks of the catalog file: namespaces, pages of names, ownership, and one
//! change at a time with its answer recorded under an idempotency key.

use std::collections::BTreeMap;

use flow_core::TableName;
use flow_core::clock::UnixMicros;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{CATALOG_NAME, Catalog, insert_namespaces};
use crate::error::LakeError;

/// Is the property that says that a namespace is there; it is nobody's to see or set.
pub(crate) const EXISTS_PROPERTY: &str = "exists";

/// Counts the answers that stay recorded; the oldest give way.
const ANSWERS_MAX: i64 = 100_000;

/// Is an answer as it is recorded: what to say, not how to say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// Names a refusal; `None` for what was done.
    pub(crate) refusal: Option<String>,
    /// Holds a JSON document, or a refusal's message.
    pub(crate) body: Option<String>,
    /// Is the metadata file to answer with.
    pub(crate) metadata_location: Option<String>,
}

/// Names a request that its sender may send again.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Is what the sender chose.
    pub(crate) key: String,
    /// Tells this request from another one under the same key.
    pub(crate) request: String,
}

/// Is what became of a change.
#[derive(Debug)]
pub(crate) enum Outcome<R> {
    /// It is durable.
    Done(Recorded),
    /// Nothing was changed.
    Refused(R),
    /// It was answered before: to the request of this name.
    Answered(String, Recorded),
    /// COMMIT was sent and failed.
    Unknown(LakeError),
}

impl Catalog {
    /// Makes one change and records its answer, in one transaction.
    ///
    /// An error means that COMMIT was not sent: nothing has changed.
    pub(crate) fn change<R>(
        &self,
        key: Option<&Key>,
        now: UnixMicros,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<Result<Recorded, R>>,
    ) -> Result<Outcome<R>, LakeError> {
        let mut connection = self.lock();
        let staged = (|| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some(key) = key
                && let Some((request, recorded)) = answered(&tx, &key.key)?
            {
                return Ok((tx, Outcome::Answered(request, recorded)));
            }
            let change = match work(&tx)? {
                Ok(recorded) => Outcome::Done(recorded),
                Err(refused) => Outcome::Refused(refused),
            };
            if let (Some(key), Outcome::Done(recorded)) = (key, &change) {
                record(&tx, key, recorded, now)?;
            }
            Ok((tx, change))
        })();
        let (tx, change) = staged.map_err(self.failed("stage a change"))?;
        if !matches!(change, Outcome::Done(_)) {
            tx.rollback().map_err(self.failed("roll back a change"))?;
            return Ok(change);
        }
        Ok(match tx.commit() {
            Ok(()) => change,
            Err(error) => Outcome::Unknown(self.failed("commit")(error)),
        })
    }

    /// Is the answer recorded under a key, and the request it was given to.
    pub(crate) fn answered(&self, key: &str) -> Result<Option<(String, Recorded)>, LakeError> {
        self.read("look for an answer", |connection| answered(connection, key))
    }

    /// Forgets answers given before `before`.
    pub(crate) fn forget_answers(&self, before: UnixMicros) -> Result<(), LakeError> {
        self.write("forget answers", |tx| {
            tx.execute("DELETE FROM flow_answers WHERE answered_at < ?", [before])?;
            tx.execute(
                "DELETE FROM flow_answers WHERE key IN
                   (SELECT key FROM flow_answers ORDER BY answered_at DESC LIMIT -1 OFFSET ?)",
                [ANSWERS_MAX],
            )?;
            Ok(())
        })
    }

    /// Says whether this program made the table.
    pub(crate) fn is_own(&self, table_uuid: &str) -> Result<bool, LakeError> {
        self.read("look up an owner", |connection| {
            connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM flow_tables WHERE table_uuid = ?)")?
                .query_row([table_uuid], |row| row.get(0))
        })
    }

    /// Says whether the file records which tables are this program's own.
    pub(crate) fn knows_owners(&self) -> Result<bool, LakeError> {
        self.read("look for owners", |connection| {
            let sql = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'flow_tables'";
            let tables: i64 = connection.query_row(sql, [], |row| row.get(0))?;
            Ok(tables > 0)
        })
    }

    /// Begins to record owners, with the tables that an earlier version made.
    pub(crate) fn begin_owners(&self, table_uuids: &[String]) -> Result<(), LakeError> {
        self.write("record owners", |tx| {
            tx.execute_batch("CREATE TABLE IF NOT EXISTS flow_tables (table_uuid TEXT PRIMARY KEY) WITHOUT ROWID")?;
            for table_uuid in table_uuids {
                insert_owner(tx, table_uuid)?;
            }
            Ok(())
        })
    }

    /// Lists all namespaces in order, those too that only tables or namespaces below them tell of.
    pub(crate) fn namespaces(&self) -> Result<Vec<String>, LakeError> {
        self.read("list namespaces", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?1
                 UNION SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?1 ORDER BY 1",
            )?;
            statement.query_map([CATALOG_NAME], |row| row.get(0))?.collect()
        })
    }

    /// Holds a namespace's properties; `None` if there is no such namespace.
    pub(crate) fn namespace(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, LakeError> {
        self.read("read a namespace", |connection| {
            match namespace_exists(connection, name)? {
                true => namespace_properties(connection, name).map(Some),
                false => Ok(None),
            }
        })
    }

    /// Lists table names of a namespace after a name, in order, `limit` at most.
    pub(crate) fn tables_after(&self, namespace: &str, after: &str, limit: i64) -> Result<Vec<String>, LakeError> {
        self.read("list tables", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT table_name FROM iceberg_tables
                 WHERE catalog_name = ? AND table_namespace = ? AND table_name > ?
                   AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)
                 ORDER BY table_name LIMIT ?",
            )?;
            let rows = statement.query_map(params![CATALOG_NAME, namespace, after, limit], |row| row.get(0))?;
            rows.collect()
        })
    }
}

fn answered(connection: &Connection, key: &str) -> rusqlite::Result<Option<(String, Recorded)>> {
    connection
        .prepare_cached("SELECT request, refusal, body, metadata_location FROM flow_answers WHERE key = ?")?
        .query_row([key], |row| {
            let recorded = Recorded {
                refusal: row.get(1)?,
                body: row.get(2)?,
                metadata_location: row.get(3)?,
            };
            Ok((row.get(0)?, recorded))
        })
        .optional()
}

fn record(tx: &Transaction<'_>, key: &Key, recorded: &Recorded, now: UnixMicros) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT INTO flow_answers VALUES (?, ?, ?, ?, ?, ?)")?
        .execute(params![
            key.key,
            key.request,
            recorded.refusal,
            recorded.body,
            recorded.metadata_location,
            now
        ])?;
    Ok(())
}

pub(crate) fn insert_owner(tx: &Transaction<'_>, table_uuid: &str) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT OR IGNORE INTO flow_tables VALUES (?)")?
        .execute([table_uuid])?;
    Ok(())
}

/// Says whether a namespace is there: by itself, or because a table or namespace is in it.
pub(crate) fn namespace_exists(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ?1
                 AND (namespace = ?2 OR substr(namespace, 1, length(?2) + 1) = ?2 || '.'))
               OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = ?1
                 AND (table_namespace = ?2 OR substr(table_namespace, 1, length(?2) + 1) = ?2 || '.'))",
        )?
        .query_row([CATALOG_NAME, name], |row| row.get(0))
}

/// Says whether something is in a namespace: a table, a view or another namespace.
pub(crate) fn namespace_has_content(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ?1
                 AND substr(namespace, 1, length(?2) + 1) = ?2 || '.')
               OR EXISTS (SELECT 1 FROM iceberg_tables WHERE catalog_name = ?1
                 AND (table_namespace = ?2 OR substr(table_namespace, 1, length(?2) + 1) = ?2 || '.'))",
        )?
        .query_row([CATALOG_NAME, name], |row| row.get(0))
}

pub(crate) fn namespace_properties(connection: &Connection, name: &str) -> rusqlite::Result<BTreeMap<String, String>> {
    let mut statement = connection.prepare_cached(
        "SELECT property_key, property_value FROM iceberg_namespace_properties
         WHERE catalog_name = ? AND namespace = ? AND property_key <> ?",
    )?;
    let rows = statement.query_map([CATALOG_NAME, name, EXISTS_PROPERTY], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    rows.collect()
}

/// Adds a namespace, and those above it.
pub(crate) fn insert_namespace(
    tx: &Transaction<'_>,
    name: &str,
    properties: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    insert_namespaces(tx, name)?;
    for (key, value) in properties {
        set_namespace_property(tx, name, key, value)?;
    }
    Ok(())
}

pub(crate) fn set_namespace_property(tx: &Transaction<'_>, name: &str, key: &str, value: &str) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT OR REPLACE INTO iceberg_namespace_properties VALUES (?, ?, ?, ?)")?
        .execute([CATALOG_NAME, name, key, value])?;
    Ok(())
}

/// Removes a property; `false` if there was none.
pub(crate) fn remove_namespace_property(tx: &Transaction<'_>, name: &str, key: &str) -> rusqlite::Result<bool> {
    let removed = tx
        .prepare_cached(
            "DELETE FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ? AND property_key = ?",
        )?
        .execute([CATALOG_NAME, name, key])?;
    Ok(removed > 0)
}

pub(crate) fn remove_namespace(tx: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    tx.prepare_cached("DELETE FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ?")?
        .execute([CATALOG_NAME, name])?;
    Ok(())
}

/// Is what has a name: a table, or a view of another program.
pub(crate) fn is_taken(connection: &Connection, name: &TableName) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM iceberg_tables
               WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?)",
        )?
        .query_row([CATALOG_NAME, &name.schema, &name.name], |row| row.get(0))
}

/// Adds a table; `false` if the name is taken.
pub(crate) fn insert_table(tx: &Transaction<'_>, name: &TableName, location: &str) -> rusqlite::Result<bool> {
    let added = tx
        .prepare_cached("INSERT OR IGNORE INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')")?
        .execute([CATALOG_NAME, &name.schema, &name.name, location])?;
    Ok(added == 1)
}

/// Removes a table that stands at `location`; `false` if it does not.
pub(crate) fn remove_table(tx: &Transaction<'_>, name: &TableName, location: &str) -> rusqlite::Result<bool> {
    let removed = tx
        .prepare_cached(
            "DELETE FROM iceberg_tables
             WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?",
        )?
        .execute([CATALOG_NAME, &name.schema, &name.name, location])?;
    Ok(removed == 1)
}

/// Gives a table that stands at `location` another name; `false` if it does not stand there.
pub(crate) fn rename_table(
    tx: &Transaction<'_>,
    name: &TableName,
    location: &str,
    to: &TableName,
) -> rusqlite::Result<bool> {
    let moved = tx
        .prepare_cached(
            "UPDATE iceberg_tables SET table_namespace = ?, table_name = ?
             WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?",
        )?
        .execute([&to.schema, &to.name, CATALOG_NAME, &name.schema, &name.name, location])?;
    Ok(moved == 1)
}

/// Records that a snapshot was committed, so that a repetition is known for what it is.
pub(crate) fn insert_commit(
    tx: &Transaction<'_>,
    table_uuid: &str,
    manifest_list: &str,
    snapshot_id: i64,
    now: UnixMicros,
) -> rusqlite::Result<()> {
    tx.prepare_cached("INSERT OR IGNORE INTO flow_commits VALUES (?, ?, ?, ?)")?
        .execute(params![table_uuid, manifest_list, snapshot_id, now])?;
    Ok(())
}
