//! From files to one snapshot that can be committed at any moment.

use std::collections::{BTreeMap, BTreeSet};

use flow_core::{Attempt, OperationId, TableName};
use iceberg::TableUpdate;
use serde::{Deserialize, Serialize};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::table::Table;
use crate::writer::WrittenFile;

/// Is what one snapshot shall hold.
#[derive(Clone, Debug)]
pub struct SealInput<'a> {
    /// Names the operation.
    pub operation: &'a OperationId,
    /// Counts the try.
    pub attempt: Attempt,
    /// Holds the data files to add.
    pub added: Vec<WrittenFile>,
    /// Holds the position-delete files to add.
    pub deletes: Vec<WrittenFile>,
    /// Holds further summary properties; `flow.operation-id` is set by the seal.
    pub summary: BTreeMap<String, String>,
    /// Holds table properties to set in the same commit; `flow.operation-id` is set by the seal.
    pub properties: BTreeMap<String, String>,
    /// Holds snapshot ids that trimming must keep: frontiers and pinned cuts.
    pub protected: BTreeSet<i64>,
}

/// Is one table's snapshot, written and synced but not visible. Store it as JSON; sending it again
/// gives the same snapshot id on the same base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sealed {
    /// Names the table.
    pub table: TableName,
    /// Is Iceberg's table UUID.
    pub table_uuid: String,
    /// Is `<operation>-<attempt>`.
    pub attempt_id: String,
    /// Is the metadata.json that the commit must find.
    pub base_metadata_location: String,
    /// Is the base's current snapshot.
    pub base_snapshot_id: Option<i64>,
    /// Is the snapshot the commit makes current.
    pub snapshot_id: i64,
    /// Is the metadata.json that the commit puts in the base's place.
    pub metadata_location: String,
    /// Holds the changes from the base's metadata, as Iceberg's REST protocol spells them.
    pub updates: Vec<TableUpdate>,
}

impl Lake {
    /// Writes manifests, manifest list and metadata for one snapshot on top of `table`.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if the table is not one that this program can write.
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn seal(&self, _table: &Table, _input: SealInput<'_>) -> Result<Sealed, LakeError> {
        Err(LakeError::broken("not reached"))
    }
}
