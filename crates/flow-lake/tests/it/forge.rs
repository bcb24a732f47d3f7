//! Snapshots as other programs make them, assembled by hand: removed files, rewrites, equality deletes.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use flow_lake::{Lake, Table, WrittenFile};
use iceberg::TableUpdate;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, MAIN_BRANCH, ManifestContentType, ManifestEntry,
    ManifestFile, ManifestList, ManifestListWriter, ManifestWriter, ManifestWriterBuilder, Operation, Snapshot,
    SnapshotReference, SnapshotRetention, Struct, StructType, Summary, TableMetadata, UNASSIGNED_SEQUENCE_NUMBER,
    deserialize_data_file_from_json,
};

use crate::fixture::reload;

/// Is a snapshot to be made.
#[derive(Debug)]
pub(crate) struct Forged {
    pub(crate) operation: Operation,
    pub(crate) added: Vec<DataFile>,
    /// Holds the paths of data and delete files that go.
    pub(crate) removed: BTreeSet<String>,
}

impl Forged {
    pub(crate) fn new(operation: Operation) -> Forged {
        Forged {
            operation,
            added: Vec::new(),
            removed: BTreeSet::new(),
        }
    }

    pub(crate) fn add(mut self, files: impl IntoIterator<Item = DataFile>) -> Forged {
        self.added.extend(files);
        self
    }

    pub(crate) fn remove(mut self, path: impl Into<String>) -> Forged {
        self.removed.insert(path.into());
        self
    }

    /// Commits the snapshot on the table as it stands, without our marker.
    pub(crate) async fn commit(self, lake: &Lake, table: &Table) -> Table {
        let table = reload(lake, table).await;
        let forge = Forge::new(&table);
        let manifests = forge.manifests(&self).await;
        let list = forge.list(manifests).await;
        let metadata = table.metadata();
        let snapshot = Snapshot::builder()
            .with_snapshot_id(forge.snapshot_id)
            .with_parent_snapshot_id(metadata.current_snapshot_id())
            .with_sequence_number(metadata.next_sequence_number())
            .with_timestamp_ms(metadata.last_updated_ms() + 1)
            .with_manifest_list(list)
            .with_summary(Summary {
                operation: self.operation,
                additional_properties: HashMap::new(),
            })
            .with_schema_id(metadata.current_schema_id())
            .build();
        let reference = main_at(forge.snapshot_id);
        update(lake, &table, vec![TableUpdate::AddSnapshot { snapshot }, reference]).await
    }
}

/// Moves the main branch.
pub(crate) fn main_at(snapshot_id: i64) -> TableUpdate {
    TableUpdate::SetSnapshotRef {
        ref_name: MAIN_BRANCH.to_owned(),
        reference: SnapshotReference {
            snapshot_id,
            retention: SnapshotRetention::Branch {
                min_snapshots_to_keep: None,
                max_snapshot_age_ms: None,
                max_ref_age_ms: None,
            },
        },
    }
}

/// Changes a table's metadata, as another program's commit does.
pub(crate) async fn update(lake: &Lake, table: &Table, updates: Vec<TableUpdate>) -> Table {
    let base = table.metadata_location();
    let mut builder = TableMetadata::clone(table.metadata()).into_builder(Some(base.to_owned()));
    for update in updates {
        builder = update.apply(builder).expect("applies");
    }
    let metadata = builder.build().expect("builds").metadata;
    let number = metadata.metadata_log().len();
    let next = format!("{}/metadata/9{number:04}-forged.metadata.json", table.location());
    assert!(!Path::new(&next).exists(), "{next}");
    std::fs::write(&next, serde_json::to_vec(&metadata).expect("is JSON")).expect("written");
    point(lake, table, &next);
    reload(lake, table).await
}

/// Lets the catalog's name of a table mean another metadata file.
pub(crate) fn point(lake: &Lake, table: &Table, location: &str) {
    let catalog = rusqlite::Connection::open(lake.catalog_path()).expect("opens");
    let sql = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ? AND metadata_location = ?";
    let values = [location, &table.name().name, table.metadata_location()];
    assert_eq!(catalog.execute(sql, values).expect("updates"), 1);
}

/// Reads the description of a file that our own writers have written.
pub(crate) fn described(table: &Table, file: &WrittenFile) -> DataFile {
    let metadata = table.metadata();
    let partition = StructType::new(Vec::new());
    let spec = metadata.default_partition_spec_id();
    deserialize_data_file_from_json(&file.json, spec, &partition, metadata.current_schema()).expect("is a file")
}

/// Describes an equality-delete file; nobody in these tests opens it.
pub(crate) fn equality_deletes(table: &Table) -> DataFile {
    DataFileBuilder::default()
        .content(DataContentType::EqualityDeletes)
        .file_path(format!("{}/data/equality-{}.parquet", table.location(), next_number()))
        .file_format(DataFileFormat::Parquet)
        .record_count(1)
        .file_size_in_bytes(1)
        .equality_ids(Some(vec![1]))
        .partition(Struct::empty())
        .build()
        .expect("is a file")
}

fn next_number() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

struct Forge<'a> {
    table: &'a Table,
    metadata: &'a TableMetadata,
    io: FileIO,
    snapshot_id: i64,
}

impl<'a> Forge<'a> {
    fn new(table: &'a Table) -> Forge<'a> {
        Forge {
            table,
            metadata: table.metadata(),
            io: FileIO::new_with_fs(),
            snapshot_id: 1_000_000 + next_number() as i64,
        }
    }

    fn path(&self, name: &str) -> String {
        let number = next_number();
        format!("{}/metadata/forged-{number}-{name}.avro", self.table.location())
    }

    /// Takes the base's manifests over, rewriting those with a removed file, and adds the new files'.
    async fn manifests(&self, forged: &Forged) -> Vec<ManifestFile> {
        let mut out = Vec::new();
        let base = match self.metadata.current_snapshot() {
            Some(snapshot) => {
                let bytes = std::fs::read(snapshot.manifest_list()).expect("readable");
                let list = ManifestList::parse_with_version(&bytes, self.metadata.format_version());
                list.expect("a manifest list").entries().to_vec()
            }
            None => Vec::new(),
        };
        for file in base {
            let manifest = file.load_manifest(&self.io).await.expect("readable");
            let live: Vec<_> = manifest.entries().iter().filter(|entry| entry.is_alive()).collect();
            let goes = |entry: &ManifestEntry| forged.removed.contains(entry.file_path());
            if !live.iter().any(|entry| goes(entry)) {
                out.push(file);
                continue;
            }
            let mut writer = self.writer(file.content).await;
            for entry in live {
                let (file, added_at) = (entry.data_file().clone(), entry.file_sequence_number);
                let number = entry.sequence_number().expect("inherited");
                match goes(entry) {
                    true => writer.add_delete_file(file, number, added_at),
                    false => writer.add_existing_file(file, entry.snapshot_id().expect("inherited"), number, added_at),
                }
                .expect("fits");
            }
            out.push(writer.write_manifest_file().await.expect("written"));
        }
        for content in [ManifestContentType::Data, ManifestContentType::Deletes] {
            let is_data = |file: &&DataFile| file.content_type() == DataContentType::Data;
            let of_content = |file: &&DataFile| is_data(file) == (content == ManifestContentType::Data);
            let files: Vec<_> = forged.added.iter().filter(of_content).cloned().collect();
            if files.is_empty() {
                continue;
            }
            let mut writer = self.writer(content).await;
            for file in files {
                writer.add_file(file, UNASSIGNED_SEQUENCE_NUMBER).expect("fits");
            }
            out.push(writer.write_manifest_file().await.expect("written"));
        }
        out
    }

    async fn writer(&self, content: ManifestContentType) -> ManifestWriter {
        let output = self.io.new_output(self.path("m")).expect("a path");
        let spec = self.metadata.default_partition_spec().as_ref().clone();
        let schema = self.metadata.current_schema().clone();
        let builder = ManifestWriterBuilder::new(output, Some(self.snapshot_id), schema, spec);
        match content {
            ManifestContentType::Data => builder.build_v2_data(),
            ManifestContentType::Deletes => builder.build_v2_deletes(),
        }
    }

    async fn list(&self, manifests: Vec<ManifestFile>) -> String {
        let path = self.path("list");
        let output = self.io.new_output(&path).expect("a path");
        let writer = output.writer().await.expect("opens");
        let parent = self.metadata.current_snapshot_id();
        let number = self.metadata.next_sequence_number();
        let mut list = ManifestListWriter::v2(writer, self.snapshot_id, parent, number);
        list.add_manifests(manifests.into_iter()).expect("fits");
        list.close().await.expect("written");
        path
    }
}
