//! From files to one snapshot that can be committed at any moment.
//!
//! Owns the shape of our snapshots: manifests, manifest list, summary, history. Never asks the
//! catalog anything and makes nothing visible.
//!
//! 1. The new files go into one manifest of data and one of deletes; small old ones are merged.
//! 2. The manifest list names all of them.
//! 3. The snapshot and the trimmed history become updates on the base's metadata.
//! 4. All these files, metadata.json too, are written and synced together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flow_core::{Attempt, OperationId, TableName};
use iceberg::TableUpdate;
use iceberg::spec::{
    FormatVersion, MAIN_BRANCH, Operation, Snapshot, SnapshotReference, SnapshotRetention, Summary, TableMetadata,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::LakeError;
use crate::history::{self, Retention};
use crate::lake::{Lake, Shared};
use crate::table::Table;
use crate::writer::WrittenFile;
use crate::{OPERATION_ID, blocking, files, metadata};

mod manifests;
mod summary;

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

/// Is one table's snapshot, written and synced but not visible.
///
/// Store it as JSON; sending it again gives the same snapshot id on the same base.
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

/// Is a [`SealInput`] that a blocking thread may own.
#[derive(Debug)]
struct Plan {
    attempt_id: String,
    added: Vec<WrittenFile>,
    deletes: Vec<WrittenFile>,
    summary: BTreeMap<String, String>,
    properties: BTreeMap<String, String>,
    protected: BTreeSet<i64>,
}

impl Lake {
    /// Writes manifests, manifest list and metadata for one snapshot on top of `table`.
    ///
    /// The operation is `append` if only data files are added, `delete` if only deletes are, and
    /// `overwrite` otherwise.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if the table is not one that this program can write.
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn seal(&self, table: &Table, input: SealInput<'_>) -> Result<Sealed, LakeError> {
        let (shared, table) = (self.shared.clone(), table.clone());
        let plan = Plan {
            attempt_id: input.operation.attempt_id(input.attempt),
            added: input.added,
            deletes: input.deletes,
            summary: input.summary,
            properties: input.properties,
            protected: input.protected,
        };
        blocking::run(move || seal(&shared, &table, plan)).await
    }
}

/// Refuses tables that a snapshot of ours would damage.
fn check_writable(table: &Table) -> Result<(), LakeError> {
    let metadata = table.metadata();
    let reason = if metadata.format_version() != FormatVersion::V2 {
        "its format version is not 2"
    } else if !metadata.default_partition_spec().is_unpartitioned() {
        "it is partitioned"
    } else if !table.location().starts_with('/') {
        "its location is not a plain local path"
    } else {
        return Ok(());
    };
    Err(LakeError::Unsupported {
        table: table.name().to_string(),
        reason: reason.to_owned(),
    })
}

/// Derives the attempt's snapshot id: as good as random, positive, and not one the table has.
fn snapshot_id(metadata: &TableMetadata, attempt_id: &str) -> i64 {
    let mut salt = 0_u32;
    loop {
        let name = format!("{attempt_id}/{salt}");
        let (high, _) = Uuid::new_v5(&metadata.uuid(), name.as_bytes()).as_u64_pair();
        let id = i64::try_from(high >> 1).unwrap_or(i64::MAX);
        if id != 0 && metadata.snapshot_by_id(id).is_none() {
            return id;
        }
        salt += 1;
    }
}

fn operation_of(plan: &Plan) -> Operation {
    match (plan.added.is_empty(), plan.deletes.is_empty()) {
        (_, true) => Operation::Append,
        (true, false) => Operation::Delete,
        (false, false) => Operation::Overwrite,
    }
}

/// Seals on a blocking thread.
fn seal(shared: &Shared, table: &Table, plan: Plan) -> Result<Sealed, LakeError> {
    check_writable(table)?;
    let base = table.metadata();
    let snapshot_id = snapshot_id(base, &plan.attempt_id);
    let set = manifests::write(shared, table, &plan, snapshot_id)?;
    let manifest_list = set.list_location.clone();

    // A clock that went back must not make a snapshot older than its parent.
    let timestamp_ms = (shared.clock.now_us() / 1000).max(base.last_updated_ms() + 1);
    let properties = summary::build(base, &plan, &set.files);
    let snapshot = Snapshot::builder()
        .with_snapshot_id(snapshot_id)
        .with_parent_snapshot_id(base.current_snapshot_id())
        .with_sequence_number(base.next_sequence_number())
        .with_timestamp_ms(timestamp_ms)
        .with_manifest_list(manifest_list)
        .with_summary(Summary {
            operation: operation_of(&plan),
            additional_properties: properties,
        })
        .with_schema_id(base.current_schema_id())
        .build();
    let updates = updates(shared, table, &plan, snapshot);

    let name = table.name();
    let base_location = table.metadata_location();
    let (mut version, updates) =
        metadata::apply(&table.version, base_location, updates).map_err(LakeError::iceberg("seal a snapshot", name))?;
    let file_uuid = Uuid::new_v5(&base.uuid(), plan.attempt_id.as_bytes());
    let location = metadata::next_location(table.location(), base_location, file_uuid);
    let mut new_files = set.new_files;
    new_files.push(metadata::to_file(&location, &version.metadata)?);
    files::write_together(&new_files)?;

    version.manifests = Some(Arc::new(set.manifests));
    shared.versions.put(&location, version);
    Ok(Sealed {
        table: name.clone(),
        table_uuid: table.uuid(),
        attempt_id: plan.attempt_id,
        base_metadata_location: base_location.to_owned(),
        base_snapshot_id: base.current_snapshot_id(),
        snapshot_id,
        metadata_location: location,
        updates,
    })
}

/// Lists the changes: properties, the snapshot, its branch, and the snapshots that history drops.
fn updates(shared: &Shared, table: &Table, plan: &Plan, snapshot: Snapshot) -> Vec<TableUpdate> {
    let options = &shared.options;
    let retention = Retention {
        newest: options.keep_snapshots,
        keep_for: options.keep_for,
    };
    let mut protected = table.held_by_other_refs();
    protected.extend(&plan.protected);
    let timestamp_ms = snapshot.timestamp_ms();
    let snapshot_id = snapshot.snapshot_id();
    let main = table.main_snapshots();
    let mut history: Vec<_> = main.iter().map(|s| (s.snapshot_id(), s.timestamp_ms())).collect();
    history.push((snapshot_id, timestamp_ms));
    let removed = history::trim(&history, retention, timestamp_ms, &protected);

    let mut properties: std::collections::HashMap<_, _> = plan.properties.clone().into_iter().collect();
    properties.insert(OPERATION_ID.to_owned(), plan.attempt_id.clone());
    let reference = SnapshotReference {
        snapshot_id,
        retention: SnapshotRetention::Branch {
            min_snapshots_to_keep: None,
            max_snapshot_age_ms: None,
            max_ref_age_ms: None,
        },
    };
    let mut updates = vec![
        TableUpdate::SetProperties { updates: properties },
        TableUpdate::AddSnapshot { snapshot },
        TableUpdate::SetSnapshotRef {
            ref_name: MAIN_BRANCH.to_owned(),
            reference,
        },
    ];
    if !removed.is_empty() {
        updates.push(TableUpdate::RemoveSnapshots { snapshot_ids: removed });
    }
    updates
}
