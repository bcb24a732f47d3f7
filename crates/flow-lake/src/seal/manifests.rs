//! Manifests and the manifest list of one snapshot.
//!
//! Small manifests are merged as they pile up, in tiers: [`FAN_IN`] manifests of about the same
//! size become one of the next tier, so a file's entry is rewritten a few times in its life and
//! the list stays below a hundred manifests of each content for hundreds of thousands of files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on;
use iceberg::io::{FileIO, FileWrite};
use iceberg::spec::{
    DataFile, ManifestContentType, ManifestFile, ManifestListWriter, ManifestWriter, ManifestWriterBuilder, SchemaRef,
    StructType, TableMetadata, UNASSIGNED_SEQUENCE_NUMBER, deserialize_data_file_from_json,
};

use super::Plan;
use crate::error::LakeError;
use crate::files::NewFile;
use crate::lake::Shared;
use crate::table::Table;
use crate::writer::WrittenFile;

/// Counts the manifests of one tier that become one: at most 23 of them stay in each of the four
/// tiers below [`ENTRIES_MAX`], which is less than a hundred.
const FAN_IN: usize = 24;

/// Counts the entries of a manifest that is left alone: about 8 MiB, as other writers aim for.
const ENTRIES_MAX: u64 = 16_384;

/// Is everything a snapshot's manifest list needs, in memory.
#[derive(Debug)]
pub(super) struct ManifestSet {
    pub(super) list_location: String,
    pub(super) manifests: Vec<ManifestFile>,
    pub(super) new_files: Vec<NewFile>,
    pub(super) files: Vec<DataFile>,
}

/// Builds manifest files in memory, so that all of them can be synced together.
struct Builder<'a> {
    metadata: &'a TableMetadata,
    table: String,
    io: FileIO,
    stem: String,
    snapshot_id: i64,
    count: usize,
    new_files: Vec<NewFile>,
}

/// Builds the snapshot's manifests. Blocks.
pub(super) fn write(shared: &Shared, table: &Table, plan: &Plan, snapshot_id: i64) -> Result<ManifestSet, LakeError> {
    let metadata = table.metadata();
    let base = shared.versions.manifests(table.metadata_location(), metadata)?;
    let mut builder = Builder {
        metadata,
        table: table.name().to_string(),
        io: FileIO::new_with_memory(),
        stem: format!("{}/metadata/{}", table.location(), plan.attempt_id),
        snapshot_id,
        count: 0,
        new_files: Vec::new(),
    };
    let mut files = Vec::new();
    let mut manifests = Vec::new();
    let contents = [
        (ManifestContentType::Data, &plan.added),
        (ManifestContentType::Deletes, &plan.deletes),
    ];
    for (content, written) in contents {
        let added = builder.parse(written)?;
        if !added.is_empty() {
            let kept = added.clone();
            manifests.push(builder.manifest(content, |writer| {
                added
                    .into_iter()
                    .try_for_each(|file| writer.add_file(file, UNASSIGNED_SEQUENCE_NUMBER))
            })?);
            files.extend(kept);
        }
        builder.carry_over(content, &base, &mut manifests)?;
    }
    let (list_location, manifests) = builder.list(manifests)?;
    Ok(ManifestSet {
        list_location,
        manifests,
        new_files: builder.new_files,
        files,
    })
}

fn live_entries(manifest: &ManifestFile) -> u64 {
    let count = |files: Option<u32>| files.map_or(1, u64::from);
    count(manifest.added_files_count) + count(manifest.existing_files_count)
}

/// Is the size class of a manifest.
fn tier(manifest: &ManifestFile) -> u32 {
    live_entries(manifest).max(1).ilog(FAN_IN as u64)
}

impl Builder<'_> {
    fn failed(&self, action: &'static str) -> impl FnOnce(iceberg::Error) -> LakeError {
        LakeError::iceberg(action, &self.table)
    }

    fn schema(&self) -> &SchemaRef {
        self.metadata.current_schema()
    }

    fn parse(&self, written: &[WrittenFile]) -> Result<Vec<DataFile>, LakeError> {
        let partition = StructType::new(Vec::new());
        let spec_id = self.metadata.default_partition_spec_id();
        let parse = |file: &WrittenFile| {
            deserialize_data_file_from_json(&file.json, spec_id, &partition, self.schema())
                .map_err(self.failed("read a written file's description"))
        };
        written.iter().map(parse).collect()
    }

    /// Writes one manifest and gives its entry for the list.
    fn manifest(
        &mut self,
        content: ManifestContentType,
        fill: impl FnOnce(&mut ManifestWriter) -> iceberg::Result<()>,
    ) -> Result<ManifestFile, LakeError> {
        let location = format!("{}-m{}.avro", self.stem, self.count);
        self.count += 1;
        let spec = self.metadata.default_partition_spec().as_ref().clone();
        let build = || -> iceberg::Result<_> {
            let output = self.io.new_output(&location)?;
            let builder = ManifestWriterBuilder::new(output, Some(self.snapshot_id), self.schema().clone(), spec);
            let mut writer = match content {
                ManifestContentType::Data => builder.build_v2_data(),
                ManifestContentType::Deletes => builder.build_v2_deletes(),
            };
            fill(&mut writer)?;
            let manifest = block_on(writer.write_manifest_file())?;
            let bytes = block_on(self.io.new_input(&location)?.read())?;
            Ok((manifest, bytes))
        };
        let (manifest, bytes) = build().map_err(self.failed("write a manifest"))?;
        self.new_files.push(NewFile {
            path: PathBuf::from(location),
            bytes,
        });
        Ok(manifest)
    }

    /// Takes over the base's manifests of one content, merging full tiers and dropping empty ones.
    fn carry_over(
        &mut self,
        content: ManifestContentType,
        base: &[ManifestFile],
        out: &mut Vec<ManifestFile>,
    ) -> Result<(), LakeError> {
        let spec_id = self.metadata.default_partition_spec_id();
        let mut tiers: BTreeMap<u32, Vec<&ManifestFile>> = BTreeMap::new();
        let of_content = base.iter().filter(|m| m.content == content && live_entries(m) > 0);
        for manifest in of_content {
            let mergeable = manifest.partition_spec_id == spec_id && live_entries(manifest) < ENTRIES_MAX;
            if mergeable {
                tiers.entry(tier(manifest)).or_default().push(manifest);
            } else {
                out.push(manifest.clone());
            }
        }
        for members in tiers.into_values() {
            if members.len() < FAN_IN {
                out.extend(members.into_iter().cloned());
            } else {
                out.push(self.merge(content, &members)?);
            }
        }
        Ok(())
    }

    /// Copies the live entries of several manifests into one. Entries keep their sequence numbers.
    fn merge(&mut self, content: ManifestContentType, members: &[&ManifestFile]) -> Result<ManifestFile, LakeError> {
        let disk = FileIO::new_with_fs();
        let mut entries = Vec::new();
        for member in members {
            let manifest = block_on(member.load_manifest(&disk))
                .map_err(LakeError::iceberg("read a manifest", &member.manifest_path))?;
            entries.extend(manifest.entries().iter().filter(|entry| entry.is_alive()).cloned());
        }
        self.manifest(content, |writer| {
            for entry in &entries {
                let (Some(snapshot_id), Some(sequence_number)) = (entry.snapshot_id(), entry.sequence_number()) else {
                    return Err(iceberg::Error::new(
                        iceberg::ErrorKind::DataInvalid,
                        "a committed manifest entry has no snapshot id or sequence number",
                    ));
                };
                let file = entry.data_file().clone();
                writer.add_existing_file(file, snapshot_id, sequence_number, entry.file_sequence_number)?;
            }
            Ok(())
        })
    }

    /// Writes the manifest list, which gives the new manifests their sequence number.
    fn list(&mut self, mut manifests: Vec<ManifestFile>) -> Result<(String, Vec<ManifestFile>), LakeError> {
        let location = format!("{}-list.avro", self.stem);
        let sequence_number = self.metadata.next_sequence_number();
        let buffer = Buffer::default();
        let parent = self.metadata.current_snapshot_id();
        let mut writer = ManifestListWriter::v2(Box::new(buffer.clone()), self.snapshot_id, parent, sequence_number);
        writer
            .add_manifests(manifests.iter().cloned())
            .and_then(|()| block_on(writer.close()))
            .map_err(self.failed("write a manifest list"))?;
        // As the writer does, so that memory and file agree.
        for manifest in &mut manifests {
            for number in [&mut manifest.sequence_number, &mut manifest.min_sequence_number] {
                if *number == UNASSIGNED_SEQUENCE_NUMBER {
                    *number = sequence_number;
                }
            }
        }
        self.new_files.push(NewFile {
            path: PathBuf::from(&location),
            bytes: buffer.take(),
        });
        Ok((location, manifests))
    }
}

/// Is a file in memory.
#[derive(Clone, Debug, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Bytes {
        Bytes::from(std::mem::take(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }
}

#[async_trait]
impl FileWrite for Buffer {
    async fn write(&mut self, bytes: Bytes) -> iceberg::Result<()> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.extend_from_slice(&bytes);
        Ok(())
    }

    async fn close(&mut self) -> iceberg::Result<()> {
        Ok(())
    }
}
