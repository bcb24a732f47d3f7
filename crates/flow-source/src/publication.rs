//! The publication: what it sends, making it, and noticing that it changed.
use crate::capture::{SourceTable, TableRequest};
use crate::error::SourceError;
use crate::options::SourceOptions;
use flow_core::TableName;
use serde::{Deserialize, Serialize};

/// Is one captured table's catalog identity, to notice changes that are not on the wire.
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
    /// Holds `(oid, xmin)` of the publication's own row; `None` if it does not exist.
    pub publication: Option<(u32, u32)>,
    /// Holds whether inserts, updates, deletes and truncates are sent.
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
    /// Says, for each captured table (by oid) that may have lost rows, why.
    pub affected: Vec<(u32, String)>,
}

impl PublicationRows {
    /// Says which of the captured tables (by oid) may have lost rows between `earlier` and `self`.
    pub fn compare(&self, earlier: &PublicationRows, captured: &[u32]) -> PublicationChange {
        let _ = (earlier, captured);
        PublicationChange::default()
    }
}

/// Reads the catalog rows that decide what the publication sends.
///
/// # Errors
/// Unreachable (retry), login and TLS (reconfigure).
pub async fn publication_rows(options: &SourceOptions) -> Result<PublicationRows, SourceError> {
    let _ = options;
    Err(SourceError::Ended)
}

/// Lists the tables the publication sends, in name order; `schema` keeps only one schema's.
///
/// # Errors
/// [`SourceError::PublicationMissing`] (reconfigure), or as [`publication_rows`].
pub async fn discover(options: &SourceOptions, schema: Option<&str>) -> Result<Vec<SourceTable>, SourceError> {
    let _ = (options, schema);
    Err(SourceError::Ended)
}

/// Makes the publication for these tables, with their column lists where `columns` is given.
///
/// # Errors
/// Reconfigure if it exists, a table does not, or the role may not.
pub async fn create_publication(options: &SourceOptions, tables: &[TableRequest]) -> Result<(), SourceError> {
    let _ = (options, tables);
    Err(SourceError::Ended)
}
