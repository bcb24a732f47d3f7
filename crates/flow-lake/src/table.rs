//! One table as the catalog showed it at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow_core::{TableName, TableSchema};
use iceberg::spec::{FormatVersion, SnapshotRef, TableMetadataRef};

use crate::error::LakeError;
use crate::metadata::Version;
use crate::{OPERATION_ID, history, schema};

/// Is a table with its metadata; cheap to clone, never changes.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) name: Arc<TableName>,
    pub(crate) metadata_location: Arc<str>,
    pub(crate) version: Version,
}

impl Table {
    /// Is namespace and name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// Is Iceberg's table UUID, hyphenated.
    pub fn uuid(&self) -> String {
        self.metadata().uuid().to_string()
    }

    /// Is the table's directory, an absolute path without scheme.
    pub fn location(&self) -> &str {
        self.metadata().location()
    }

    /// Is the metadata.json file the catalog pointed to.
    pub fn metadata_location(&self) -> &str {
        &self.metadata_location
    }

    /// Is the Iceberg metadata.
    pub fn metadata(&self) -> &TableMetadataRef {
        &self.version.metadata
    }

    /// Is the current snapshot's id; `None` for a table that never got rows.
    pub fn current_snapshot_id(&self) -> Option<i64> {
        self.metadata().current_snapshot_id()
    }

    /// Holds the table properties.
    pub fn properties(&self) -> BTreeMap<String, String> {
        let properties = self.metadata().properties();
        properties.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
    }

    /// Says how the table's shape differs from what this program creates and writes; `None` if it does not.
    ///
    /// Such a change makes no snapshot, so the snapshot id does not tell of it. Properties, sort orders,
    /// branches and tags are the user's and change nothing here.
    pub fn foreign_shape(&self) -> Option<String> {
        let metadata = self.metadata();
        let (version, schema_id) = (metadata.format_version(), metadata.current_schema_id());
        if version != FormatVersion::V2 {
            return Some(format!("its format version is {}", version as u8));
        }
        if !metadata.default_partition_spec().is_unpartitioned() {
            return Some("it is partitioned".to_owned());
        }
        (schema_id != schema::CREATED_SCHEMA_ID).then(|| format!("its schema is now number {schema_id}"))
    }

    /// Maps the current Iceberg schema back to the one the table was created with.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if a column's type is not one this program writes.
    pub fn table_schema(&self) -> Result<TableSchema, LakeError> {
        let metadata = self.metadata();
        schema::from_iceberg(self.name(), metadata.current_schema(), metadata.properties())
    }

    /// Is the `flow.operation-id` of the current snapshot's summary: `<operation>-<attempt>`.
    ///
    /// `None` for an empty table and for a snapshot that another program committed.
    pub fn current_operation_id(&self) -> Option<&str> {
        let snapshot = self.metadata().current_snapshot()?;
        let properties = &snapshot.summary().additional_properties;
        properties.get(OPERATION_ID).map(String::as_str)
    }

    /// Says whether another program made the current snapshot.
    pub fn current_is_foreign(&self) -> bool {
        self.metadata().current_snapshot().is_some() && self.current_operation_id().is_none()
    }

    /// Lists the retained snapshots of the main branch without our marker, oldest first.
    pub fn foreign_snapshots(&self) -> Vec<i64> {
        self.main_snapshots()
            .iter()
            .filter(|s| !s.summary().additional_properties.contains_key(OPERATION_ID))
            .map(|s| s.snapshot_id())
            .collect()
    }

    /// Lists the retained snapshots of the main branch, oldest first; the last one is current.
    ///
    /// Trimmed history breaks the chain of parents, so every snapshot counts that no other branch
    /// or tag alone leads to.
    pub fn main_snapshots(&self) -> Vec<SnapshotRef> {
        let metadata = self.metadata();
        let Some(current) = metadata.current_snapshot() else {
            return Vec::new();
        };
        let on_main = history::chain(metadata, current.snapshot_id());
        let elsewhere = self.held_by_other_refs();
        let mut snapshots: Vec<SnapshotRef> = metadata
            .snapshots()
            .filter(|s| on_main.contains(&s.snapshot_id()) || !elsewhere.contains(&s.snapshot_id()))
            .filter(|s| s.sequence_number() <= current.sequence_number())
            .cloned()
            .collect();
        snapshots.sort_by_key(|s| (s.sequence_number(), s.timestamp_ms()));
        snapshots
    }

    /// Holds the snapshots that a branch or tag beside `main` leads to.
    pub(crate) fn held_by_other_refs(&self) -> BTreeSet<i64> {
        let metadata = self.metadata();
        let heads = self.version.other_refs.iter();
        heads
            .filter_map(|name| metadata.snapshot_for_ref(name))
            .flat_map(|head| history::chain(metadata, head.snapshot_id()))
            .collect()
    }
}
