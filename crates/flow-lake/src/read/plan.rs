//! Which files make up a snapshot.

use futures::executor::block_on;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFileFormat, Datum, ManifestEntry, ManifestFile, PrimitiveLiteral, SnapshotRef,
};

use crate::error::LakeError;
use crate::lake::Shared;
use crate::metadata;
use crate::table::Table;
use crate::writer::FILE_PATH_ID;

/// Says what a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Rows, as Parquet.
    Data,
    /// Rows, in another format.
    ForeignData,
    /// Positions of deleted rows, as Parquet.
    PositionDeletes,
    /// Values of deleted rows.
    EqualityDeletes,
    /// Positions of deleted rows, as deletion vectors or in another format.
    ForeignDeletes,
}

/// Is one live file.
#[derive(Clone, Debug)]
pub(super) struct PlannedFile {
    pub(super) path: String,
    pub(super) content: Content,
    /// Is its data sequence number: deletes apply to files that are not younger than they are.
    pub(super) sequence_number: i64,
    /// Is the sequence number of the snapshot that added it, where that is known.
    pub(super) added_at: Option<i64>,
    pub(super) rows: u64,
    /// Is where a deletion vector begins in its file, which others share.
    pub(super) offset: Option<i64>,
    /// Holds the first and the last data file that a delete file may name; either may be cut short.
    named: Option<(String, String)>,
}

impl PlannedFile {
    fn new(entry: &ManifestEntry) -> PlannedFile {
        let file = entry.data_file();
        let parquet = entry.file_format() == DataFileFormat::Parquet;
        let text = |bound: Option<&Datum>| match bound?.literal() {
            PrimitiveLiteral::String(text) => Some(text.clone()),
            _ => None,
        };
        let lower = text(file.lower_bounds().get(&FILE_PATH_ID));
        PlannedFile {
            path: entry.file_path().to_owned(),
            content: match entry.content_type() {
                DataContentType::Data if parquet => Content::Data,
                DataContentType::Data => Content::ForeignData,
                DataContentType::PositionDeletes if parquet => Content::PositionDeletes,
                DataContentType::PositionDeletes => Content::ForeignDeletes,
                DataContentType::EqualityDeletes => Content::EqualityDeletes,
            },
            sequence_number: entry.sequence_number().unwrap_or(0),
            added_at: entry.file_sequence_number,
            rows: entry.record_count(),
            offset: file.content_offset(),
            named: lower.zip(text(file.upper_bounds().get(&FILE_PATH_ID))),
        }
    }

    /// Says whether a delete file may name one of the data files, which ascend.
    pub(super) fn may_name(&self, ascending: &[&str]) -> bool {
        let Some((lower, upper)) = &self.named else {
            return true;
        };
        let at = ascending.partition_point(|path| *path < lower.as_str());
        let next = ascending.get(at);
        next.is_some_and(|path| *path <= upper.as_str())
    }

    pub(super) fn is_data(&self) -> bool {
        matches!(self.content, Content::Data | Content::ForeignData)
    }
}

/// Is a snapshot's live files.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanPlan {
    pub(super) data: Vec<PlannedFile>,
    pub(super) position_deletes: Vec<PlannedFile>,
    /// Counts files that only the Iceberg library can honour.
    others: usize,
    /// Counts the rows of all data files, deleted ones too.
    pub(super) rows: u64,
}

impl ScanPlan {
    /// Says whether Parquet data files and position deletes are all there is.
    pub(super) fn is_plain(&self) -> bool {
        self.others == 0
    }
}

/// Lists a snapshot's manifests. Blocks.
pub(super) fn manifests(
    shared: &Shared,
    table: &Table,
    snapshot: &SnapshotRef,
) -> Result<Vec<ManifestFile>, LakeError> {
    let metadata = table.metadata();
    if metadata.current_snapshot_id() == Some(snapshot.snapshot_id()) {
        return Ok(shared.versions.manifests(table.metadata_location(), metadata)?.to_vec());
    }
    metadata::read_manifest_list(snapshot.manifest_list(), metadata)
}

/// Lists the live files of manifests. Blocks.
pub(super) fn live_files<'a>(
    manifests: impl IntoIterator<Item = &'a ManifestFile>,
) -> Result<Vec<PlannedFile>, LakeError> {
    let disk = FileIO::new_with_fs();
    let mut out = Vec::new();
    for file in manifests {
        let manifest =
            block_on(file.load_manifest(&disk)).map_err(LakeError::iceberg("read a manifest", &file.manifest_path))?;
        let live = manifest.entries().iter().filter(|entry| entry.is_alive());
        out.extend(live.map(|entry| PlannedFile::new(entry)));
    }
    Ok(out)
}

/// Plans a snapshot. Blocks.
pub(super) fn plan(shared: &Shared, table: &Table, snapshot: &SnapshotRef) -> Result<ScanPlan, LakeError> {
    let mut plan = ScanPlan::default();
    for file in live_files(&manifests(shared, table, snapshot)?)? {
        if file.is_data() {
            plan.rows += file.rows;
        }
        match file.content {
            Content::Data => plan.data.push(file),
            Content::PositionDeletes => plan.position_deletes.push(file),
            _ => plan.others += 1,
        }
    }
    Ok(plan)
}
