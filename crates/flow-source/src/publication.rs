//! The publication: what it sends, making it, and noticing that it changed.
//!
//! ALTER PUBLICATION is not on the wire, and neither is what happens to a table while it is out of
//! the publication. So the catalog rows that decide what is sent are read at connect and at each
//! heartbeat, and compared with those read before.

use flow_core::TableName;
use flow_core::schema::quote_identifier;
use serde::{Deserialize, Serialize};

use crate::capture::{SourceTable, TableRequest};
use crate::catalog::{self, Which};
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::sql::{self, Sql};

/// Is one published table's catalog identity, to notice changes that are not on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationRow {
    /// Is the table's oid.
    pub oid: u32,
    /// Is the table's name.
    pub name: TableName,
    /// Is the file that holds its rows; rewriting the table changes it.
    pub filenode: u32,
    /// Is the replica identity's letter.
    pub identity: String,
    /// Holds `attnum name type typmod` of each column, in order.
    pub columns: Vec<String>,
    /// Holds the transaction that wrote each column's catalog row.
    pub column_xmins: Vec<u32>,
}

/// Is a snapshot of the catalog rows that decide what the publication sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicationRows {
    /// Names the publication that was asked for.
    #[serde(default)]
    pub name: String,
    /// Holds `(oid, xmin)` of the publication's own row; `None` if it does not exist.
    pub publication: Option<(u32, u32)>,
    /// Says whether inserts, updates, deletes and truncates are sent.
    pub operations: [bool; 4],
    /// Says that the publication sends all tables of the database.
    pub all_tables: bool,
    /// Holds `(oid, xmin, table oid)` of `pg_publication_rel`.
    pub tables: Vec<(u32, u32, u32)>,
    /// Holds `(oid, xmin, schema oid)` of `pg_publication_namespace`; empty before PostgreSQL 15.
    pub schemas: Vec<(u32, u32, u32)>,
    /// Holds the published tables.
    pub relations: Vec<RelationRow>,
}

/// Is what a change of the publication means for captured tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationChange {
    /// Holds the captured tables that may have lost rows.
    pub affected: Vec<Affected>,
}

/// Is a captured table that may have lost rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affected {
    /// Is the table's oid.
    pub oid: u32,
    /// Says what happened to it.
    pub reason: String,
    /// Says that the stream tells of it too, once the table is written to: no row is lost for whoever
    /// stops there.
    pub told: bool,
}

impl PublicationChange {
    /// Says that no captured table is concerned.
    pub fn is_empty(&self) -> bool {
        self.affected.is_empty()
    }
}

impl PublicationRows {
    /// Says that these are another publication's rows, and not those of one that was renamed.
    pub fn is_another(&self, earlier: &PublicationRows) -> bool {
        let oid = |rows: &PublicationRows| rows.publication.map(|(oid, _)| oid);
        !earlier.name.is_empty() && earlier.name != self.name && oid(earlier) != oid(self)
    }

    /// Says which of the captured tables (by oid) may have lost rows between `earlier` and `self`.
    ///
    /// The caller keeps the rows of the last comparison that found nothing as the next `earlier`:
    /// a table's rewrite is recognised by its file and a column's catalog row changing together,
    /// which harmless changes do one at a time.
    pub fn compare(&self, earlier: &PublicationRows, captured: &[u32]) -> PublicationChange {
        let mut change = PublicationChange::default();
        for &oid in captured {
            let lost = self.why_rows_lost(earlier, oid).map(|reason| (reason, false));
            let told = || self.why_shape_changed(earlier, oid).map(|reason| (reason, true));
            let affected = lost.or_else(told);
            change
                .affected
                .extend(affected.map(|(reason, told)| Affected { oid, reason, told }));
        }
        change
    }

    fn why_rows_lost(&self, earlier: &PublicationRows, oid: u32) -> Option<String> {
        let Some((publication, _)) = self.publication else {
            return Some("the publication was dropped".to_owned());
        };
        if earlier.publication.is_some_and(|(before, _)| before != publication) {
            return Some("the publication was dropped and made again".to_owned());
        }
        let Some(now) = self.relations.iter().find(|r| r.oid == oid) else {
            return Some("the table was dropped, or taken out of the publication".to_owned());
        };
        // Every change of the publication's own row writes it again, even one that was undone.
        if self.publication != earlier.publication {
            return Some("the publication's operations or options were changed".to_owned());
        }
        let own = |rows: &PublicationRows| rows.tables.iter().find(|row| row.2 == oid).map(|row| (row.0, row.1));
        // A table that comes by FOR ALL TABLES has no row of its own.
        if own(self) != own(earlier) && !(self.all_tables && earlier.all_tables) {
            return Some(
                "the table was taken out of the publication and added, or its filter or columns changed".to_owned(),
            );
        }
        if own(self).is_none() && !self.all_tables && self.schemas != earlier.schemas {
            return Some("the publication's schemas were changed".to_owned());
        }
        let before = earlier.relations.iter().find(|r| r.oid == oid)?;
        if now.filenode != before.filenode && now.column_xmins != before.column_xmins {
            return Some("the table was rewritten by a change of a column".to_owned());
        }
        None
    }

    fn why_shape_changed(&self, earlier: &PublicationRows, oid: u32) -> Option<String> {
        let now = self.relations.iter().find(|r| r.oid == oid)?;
        let before = earlier.relations.iter().find(|r| r.oid == oid)?;
        if now.name != before.name {
            return Some(format!("the table was renamed to {}", now.name));
        }
        if now.identity != before.identity {
            return Some("the replica identity was changed".to_owned());
        }
        if now.columns != before.columns {
            return Some("the table's columns were changed".to_owned());
        }
        None
    }
}

/// Reads the catalog rows that decide what the publication sends.
///
/// # Errors
/// Unreachable (retry), login and TLS (reconfigure).
pub async fn publication_rows(options: &SourceOptions) -> Result<PublicationRows, SourceError> {
    let sql = sql::connect(options).await?;
    // One snapshot for all of them, so that no half of a change is seen.
    sql.execute(
        "reading the publication",
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    )
    .await?;
    read_rows(&sql, &options.publication).await
}

async fn read_rows(sql: &Sql, publication: &str) -> Result<PublicationRows, SourceError> {
    const READING: &str = "reading the publication";
    let text = "SELECT oid, xmin::text::int8, pubinsert, pubupdate, pubdelete, pubtruncate, puballtables \
         FROM pg_publication WHERE pubname = $1";
    let Some(own) = sql.query(READING, text, &[&publication]).await?.into_iter().next() else {
        return Ok(PublicationRows {
            name: publication.to_owned(),
            ..PublicationRows::default()
        });
    };
    let oid: u32 = own.get(0);
    let triples = |rows: Vec<tokio_postgres::Row>| {
        let triple = |row: &tokio_postgres::Row| (row.get(0), row.get::<_, i64>(1) as u32, row.get(2));
        rows.iter().map(triple).collect::<Vec<(u32, u32, u32)>>()
    };
    let text = "SELECT oid, xmin::text::int8, prrelid FROM pg_publication_rel WHERE prpubid = $1 ORDER BY oid";
    let tables = triples(sql.query(READING, text, &[&oid]).await?);
    let schemas = match sql.version {
        ..150_000 => Vec::new(),
        _ => {
            let text =
                "SELECT oid, xmin::text::int8, pnnspid FROM pg_publication_namespace WHERE pnpubid = $1 ORDER BY oid";
            triples(sql.query(READING, text, &[&oid]).await?)
        }
    };
    let text = "SELECT c.oid, n.nspname::text, c.relname::text, pg_relation_filenode(c.oid), c.relreplident::text, \
         array_agg(a.attnum || ' ' || a.attname || ' ' || a.atttypid || ' ' || a.atttypmod ORDER BY a.attnum), \
         array_agg(a.xmin::text::int8 ORDER BY a.attnum) \
         FROM pg_get_publication_tables($1) g JOIN pg_class c ON c.oid = g.relid \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
         GROUP BY 1, 2, 3, 4, 5 ORDER BY 1";
    let rows = sql.query(READING, text, &[&publication]).await?;
    let relation = |row: &tokio_postgres::Row| RelationRow {
        oid: row.get(0),
        name: TableName::new(row.get::<_, String>(1), row.get::<_, String>(2)),
        filenode: row.get::<_, Option<u32>>(3).unwrap_or(0),
        identity: row.get(4),
        columns: row.get(5),
        column_xmins: row.get::<_, Vec<i64>>(6).into_iter().map(|xmin| xmin as u32).collect(),
    };
    Ok(PublicationRows {
        name: publication.to_owned(),
        publication: Some((oid, own.get::<_, i64>(1) as u32)),
        operations: [own.get(2), own.get(3), own.get(4), own.get(5)],
        all_tables: own.get(6),
        tables,
        schemas,
        relations: rows.iter().map(relation).collect(),
    })
}

/// Lists the tables the publication sends, in name order; `schema` keeps only one schema's.
///
/// # Errors
/// [`SourceError::PublicationMissing`] (reconfigure), or as [`publication_rows`].
pub async fn discover(options: &SourceOptions, schema: Option<&str>) -> Result<Vec<SourceTable>, SourceError> {
    let sql = sql::connect(options).await?;
    let text = "SELECT FROM pg_publication WHERE pubname = $1";
    let found = sql
        .query("reading the publication", text, &[&options.publication])
        .await?;
    if found.is_empty() {
        return Err(SourceError::PublicationMissing {
            publication: options.publication.clone(),
        });
    }
    catalog::read_tables(&sql, &options.publication, Which::Published(schema)).await
}

/// Makes the publication for these tables, with their column lists where `columns` is given.
///
/// # Errors
/// Reconfigure if it exists, a table does not, or the role may not.
pub async fn create_publication(options: &SourceOptions, tables: &[TableRequest]) -> Result<(), SourceError> {
    let table = |request: &TableRequest| {
        let list = request.columns.as_ref().map(|columns| {
            let quoted: Vec<String> = columns.iter().map(|c| quote_identifier(c)).collect();
            format!(" ({})", quoted.join(", "))
        });
        format!("ONLY {}{}", request.source.quoted(), list.unwrap_or_default())
    };
    let name = quote_identifier(&options.publication);
    let tables: Vec<String> = tables.iter().map(table).collect();
    let text = match tables.is_empty() {
        true => format!("CREATE PUBLICATION {name}"),
        false => format!("CREATE PUBLICATION {name} FOR TABLE {}", tables.join(", ")),
    };
    let sql = sql::connect(options).await?;
    sql.execute("creating the publication", &text).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> PublicationRows {
        PublicationRows {
            name: "p".to_owned(),
            publication: Some((1, 10)),
            operations: [true; 4],
            all_tables: false,
            tables: vec![(2, 20, 100)],
            schemas: Vec::new(),
            relations: vec![RelationRow {
                oid: 100,
                name: TableName::new("public", "t"),
                filenode: 5,
                identity: "d".to_owned(),
                columns: vec!["1 id 23 -1".to_owned()],
                column_xmins: vec![7],
            }],
        }
    }

    #[test]
    fn another_publication_is_told_from_a_renamed_one() {
        let named = |name: &str, publication| PublicationRows {
            name: name.to_owned(),
            publication,
            ..rows()
        };
        assert!(!named("q", Some((1, 11))).is_another(&rows()), "renamed");
        assert!(!named("p", Some((9, 11))).is_another(&rows()), "dropped and made again");
        assert!(!named("p", None).is_another(&rows()), "dropped");
        assert!(named("q", Some((9, 11))).is_another(&rows()));
        assert!(named("q", None).is_another(&rows()));
    }

    #[test]
    fn whatever_may_have_dropped_rows_is_found() {
        const LOST: Option<bool> = Some(false);
        const TOLD: Option<bool> = Some(true);
        let check = |change: fn(&mut PublicationRows), told: Option<bool>, expected: &str| {
            let mut later = rows();
            change(&mut later);
            let affected = later.compare(&rows(), &[100]).affected;
            assert_eq!(affected.first().map(|affected| affected.told), told, "{expected}");
            let reason = affected.first().map_or("", |affected| &affected.reason);
            assert!(reason.contains(expected), "{reason}");
        };
        check(|_| {}, None, "");
        check(|r| r.publication = None, LOST, "dropped");
        check(|r| r.publication = Some((3, 30)), LOST, "made again");
        check(|r| r.publication = Some((1, 11)), LOST, "operations");
        check(|r| r.tables[0].1 = 21, LOST, "taken out");
        check(|r| r.tables.push((3, 20, 101)), None, "");
        check(|r| r.relations.clear(), LOST, "dropped");
        check(|r| r.relations[0].identity = "n".to_owned(), TOLD, "identity");
        check(|r| r.relations[0].columns[0] = "2 id 23 -1".to_owned(), TOLD, "columns");
        check(|r| r.relations[0].filenode = 6, None, "");
        check(|r| r.relations[0].column_xmins[0] = 8, None, "");
        check(
            |r| {
                r.relations[0].filenode = 6;
                r.relations[0].column_xmins[0] = 8;
                r.relations[0].columns[0] = "1 id 20 -1".to_owned();
            },
            LOST,
            "rewritten",
        );
    }
}
