//! Tables as the source sees them and as they are to be captured.
//!
//! [`SourceTable`] is what the catalog says; [`TableRequest`] what the user wants;
//! [`CaptureTable`] the agreement of both, which the engine keeps and the decoder obeys.

use std::collections::BTreeMap;

use flow_core::{ColumnType, Lsn, TableId, TableName, TableSchema};
use serde::{Deserialize, Serialize};

use crate::wire_types::{Refusal, Target, Wire};

/// Is what kind of relation a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// An ordinary table.
    Ordinary,
    /// A partitioned table.
    Partitioned,
    /// A partition of a partitioned table.
    Partition,
    /// A table that inherits from another, or is inherited from.
    Inherited,
    /// Anything else: a view, a foreign table, an unlogged table.
    Other,
}

/// Is a table's replica identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaIdentity {
    /// The primary key, if it is not deferrable; else nothing.
    Default,
    /// A named unique index.
    Index,
    /// The whole row.
    Full,
    /// Nothing.
    Nothing,
}

/// Is one column of a source table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceColumn {
    /// Is the name as PostgreSQL spells it.
    pub name: String,
    /// Is PostgreSQL's number of the column; it survives renaming.
    pub attnum: i16,
    /// Is the type's oid: a domain's own, where it is one.
    pub type_oid: u32,
    /// Is the type modifier.
    pub type_mod: i32,
    /// Is what `format_type` says, followed by the domain it came by, if any.
    pub type_name: String,
    /// Is what its values are on the wire and become, or why they cannot.
    pub column_type: Result<ColumnType, Refusal>,
    /// Is what its values are on the wire, if known.
    pub wire: Option<Wire>,
    /// Says that the column is computed from others.
    pub generated: bool,
    /// Says that the column is declared NOT NULL.
    pub not_null: bool,
    /// Says that the publication sends it.
    pub published: bool,
    /// Says that the column's collation may call different texts equal.
    pub nondeterministic: bool,
}

/// Is a table as the catalog describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// Is the table's oid.
    pub oid: u32,
    /// Is its name.
    pub name: TableName,
    /// Is its kind.
    pub kind: TableKind,
    /// Holds its columns in order, without dropped ones.
    pub columns: Vec<SourceColumn>,
    /// Holds indexes into `columns`: the primary key in key order; empty without one.
    pub primary_key: Vec<usize>,
    /// Says that the primary key is deferrable, and so is never the replica identity.
    pub deferrable_key: bool,
    /// Is its replica identity.
    pub replica_identity: ReplicaIdentity,
    /// Holds indexes into `columns`: what the replica identity sends of an old row.
    pub identity_columns: Vec<usize>,
    /// Says that our publication contains it.
    pub published: bool,
    /// Is the publication's row filter, as SQL.
    pub row_filter: Option<String>,
    /// Is the publication's column list, by name; `None` means all columns.
    pub column_list: Option<Vec<String>>,
    /// Says that row-level security would hide rows from our role.
    pub row_security: bool,
    /// Says that our role may read the published columns.
    pub selectable: bool,
    /// Is PostgreSQL's estimate; negative if it was never analysed.
    pub estimated_rows: i64,
    /// Is the size on disk, with TOAST and without indexes, in bytes.
    pub estimated_bytes: u64,
}

impl SourceTable {
    /// Lists the columns the publication sends, as indexes into `columns`.
    pub fn published_columns(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|i| self.columns[*i].published).collect()
    }
}

/// Says what the user wants of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRequest {
    /// Is the table's name, without patterns.
    pub source: TableName,
    /// Names the key's columns; `None` takes the replica identity.
    pub primary_key: Option<Vec<String>>,
    /// Names the columns the publication is to send; `None` takes what it sends.
    pub columns: Option<Vec<String>>,
    /// Says that the table only ever gets inserts and needs no key.
    pub append_only: bool,
    /// Chooses other types: `string`, `decimal(p,s)` or `time`, by column.
    pub types: BTreeMap<String, String>,
}

impl TableRequest {
    /// Asks for a table as it is.
    pub fn new(source: TableName) -> Self {
        TableRequest {
            source,
            primary_key: None,
            columns: None,
            append_only: false,
            types: BTreeMap::new(),
        }
    }
}

/// Says how one captured column arrives and what it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureColumn {
    /// Is PostgreSQL's number of the column.
    pub attnum: i16,
    /// Is the type's oid.
    pub type_oid: u32,
    /// Is the type modifier.
    pub type_mod: i32,
    /// Is the form of its bytes on the wire.
    pub wire: Wire,
    /// Is what they are decoded to.
    pub target: Target,
}

/// Is a table as it is captured. The engine stores it; it must not change while the table is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureTable {
    /// Is the engine's id.
    pub id: TableId,
    /// Is PostgreSQL's oid.
    pub oid: u32,
    /// Is the source's name.
    pub name: TableName,
    /// Holds the published columns in order, and the key.
    pub schema: TableSchema,
    /// Says, column by column of `schema`, how values arrive.
    pub columns: Vec<CaptureColumn>,
    /// Says that the table has no key and only inserts can be honoured.
    pub append_only: bool,
    /// Is the table's start LSN: a transaction that ends at or below it is in the copy and is
    /// skipped for this table.
    pub skip_until: Lsn,
    /// Is the publication's row filter, as SQL, for the copy.
    pub row_filter: Option<String>,
}
