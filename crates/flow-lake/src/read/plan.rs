//! Which files make up a snapshot.

use futures::executor::block_on;
use iceberg::io::FileIO;
use iceberg::spec::{DataContentType, DataFileFormat, ManifestFile, SnapshotRef};

use crate::error::LakeError;
use crate::lake::Shared;
use crate::metadata;
use crate::table::Table;

/// Is one live file.
#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    pub(super) path: String,
    /// Is its data sequence number: deletes apply to files that are not younger than they are.
    pub(super) sequence_number: i64,
}

/// Is a snapshot's live files.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanPlan {
    pub(super) data: Vec<PlannedFile>,
    pub(super) position_deletes: Vec<PlannedFile>,
    /// Counts files that only the Iceberg library can honour.
    others: usize,
}

impl ScanPlan {
    /// Says whether Parquet data files and position deletes are all there is.
    pub(super) fn is_plain(&self) -> bool {
        self.others == 0
    }
}

/// Plans a snapshot. Blocks.
pub(super) fn plan(shared: &Shared, table: &Table, snapshot: &SnapshotRef) -> Result<ScanPlan, LakeError> {
    let metadata = table.metadata();
    let current = metadata.current_snapshot_id() == Some(snapshot.snapshot_id());
    let manifests: Vec<ManifestFile> = if current {
        shared.versions.manifests(table.metadata_location(), metadata)?.to_vec()
    } else {
        metadata::read_manifest_list(snapshot.manifest_list(), metadata)?
    };
    let disk = FileIO::new_with_fs();
    let mut plan = ScanPlan::default();
    for manifest_file in manifests {
        let manifest = block_on(manifest_file.load_manifest(&disk))
            .map_err(LakeError::iceberg("read a manifest", &manifest_file.manifest_path))?;
        for entry in manifest.entries().iter().filter(|entry| entry.is_alive()) {
            let file = PlannedFile {
                path: entry.file_path().to_owned(),
                sequence_number: entry.sequence_number().unwrap_or(0),
            };
            match (entry.content_type(), entry.file_format()) {
                (DataContentType::Data, DataFileFormat::Parquet) => plan.data.push(file),
                (DataContentType::PositionDeletes, DataFileFormat::Parquet) => plan.position_deletes.push(file),
                _ => plan.others += 1,
            }
        }
    }
    Ok(plan)
}
