//! metadata.json files: reading them once, building the next one, and their names.
//!
//! A metadata file never changes, so what was read or built stays in a bounded cache under its
//! location; only the catalog's pointer is asked again each time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use iceberg::TableUpdate;
use iceberg::io::FileIO;
use iceberg::spec::{MAIN_BRANCH, ManifestFile, ManifestList, TableMetadata, TableMetadataRef};

use crate::error::LakeError;
use crate::files::{self, NewFile};

/// Counts the metadata versions kept in memory: a few thousand tables at one or two versions each.
const VERSIONS_MAX: usize = 4096;

/// Is one metadata file in memory.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) metadata: TableMetadataRef,
    /// Holds the current snapshot's manifests, once someone needed them.
    pub(crate) manifests: Option<Arc<Vec<ManifestFile>>>,
    /// Holds the metadata files that left the metadata log in this version.
    pub(crate) expired: Arc<[String]>,
    /// Names the branches and tags beside `main`; only other programs make them.
    pub(crate) other_refs: Arc<[String]>,
}

#[derive(Debug, Default)]
struct Entries {
    by_location: HashMap<Arc<str>, Version>,
    order: VecDeque<Arc<str>>,
}

/// Keeps versions by location; the oldest give way.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    entries: Mutex<Entries>,
}

impl Versions {
    fn with<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        work(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get(&self, location: &str) -> Option<Version> {
        self.with(|entries| entries.by_location.get(location).cloned())
    }

    pub(crate) fn put(&self, location: &str, version: Version) {
        let location: Arc<str> = location.into();
        self.with(|entries| {
            if entries.by_location.insert(location.clone(), version).is_none() {
                entries.order.push_back(location);
            }
            while entries.order.len() > VERSIONS_MAX {
                if let Some(oldest) = entries.order.pop_front() {
                    entries.by_location.remove(&oldest);
                }
            }
        });
    }

    /// Forgets a version that a commit has replaced.
    pub(crate) fn retire(&self, location: &str) {
        self.with(|entries| {
            if entries.by_location.remove(location).is_some() {
                entries.order.retain(|kept| kept.as_ref() != location);
            }
        });
    }

    /// Reads a metadata file, or takes it from memory. Blocks.
    pub(crate) fn load(&self, location: &str) -> Result<Version, LakeError> {
        if let Some(version) = self.get(location) {
            return Ok(version);
        }
        let path = files::local_path(location);
        // The library's error hides what the system said, and that decides what to do.
        std::fs::File::open(&path).map_err(|e| LakeError::file("read", &path, e))?;
        let io = FileIO::new_with_fs();
        let metadata = futures::executor::block_on(TableMetadata::read_from(&io, location))
            .map_err(LakeError::iceberg("read metadata", location))?;
        let version = Version {
            other_refs: other_refs(&metadata)?,
            metadata: Arc::new(metadata),
            manifests: None,
            expired: Arc::new([]),
        };
        self.put(location, version.clone());
        Ok(version)
    }

    /// Lists the manifests of a version's current snapshot. Blocks.
    pub(crate) fn manifests(
        &self,
        location: &str,
        metadata: &TableMetadata,
    ) -> Result<Arc<Vec<ManifestFile>>, LakeError> {
        if let Some(manifests) = self.get(location).and_then(|version| version.manifests) {
            return Ok(manifests);
        }
        let manifests = match metadata.current_snapshot() {
            Some(snapshot) => read_manifest_list(snapshot.manifest_list(), metadata)?,
            None => Vec::new(),
        };
        let manifests = Arc::new(manifests);
        self.with(|entries| {
            if let Some(version) = entries.by_location.get_mut(location) {
                version.manifests = Some(manifests.clone());
            }
        });
        Ok(manifests)
    }
}

/// Names the branches and tags beside `main`. The library shows them only in the JSON.
fn other_refs(metadata: &TableMetadata) -> Result<Arc<[String]>, LakeError> {
    let json = serde_json::to_value(metadata).map_err(|source| LakeError::Json {
        action: "read references",
        source,
    })?;
    let refs = json.get("refs").and_then(serde_json::Value::as_object);
    let names = refs.into_iter().flat_map(|refs| refs.keys());
    Ok(names.filter(|name| *name != MAIN_BRANCH).cloned().collect())
}

/// Reads a manifest list. Blocks.
pub(crate) fn read_manifest_list(location: &str, metadata: &TableMetadata) -> Result<Vec<ManifestFile>, LakeError> {
    let path = files::local_path(location);
    let bytes = std::fs::read(&path).map_err(|e| LakeError::file("read", &path, e))?;
    let list = ManifestList::parse_with_version(&bytes, metadata.format_version())
        .map_err(LakeError::iceberg("read a manifest list", location))?;
    Ok(list.entries().to_vec())
}

/// Applies updates to a base: the same updates on the same base give the same metadata.
pub(crate) fn apply(
    base: &Version,
    base_location: &str,
    updates: impl IntoIterator<Item = TableUpdate>,
) -> Result<(Version, Vec<TableUpdate>), iceberg::Error> {
    let metadata = TableMetadata::clone(&base.metadata);
    let mut builder = metadata.into_builder(Some(base_location.to_owned()));
    for update in updates {
        builder = update.apply(builder)?;
    }
    let built = builder.build()?;
    let expired = built.expired_metadata_logs.into_iter().map(|log| log.metadata_file);
    let version = Version {
        metadata: Arc::new(built.metadata),
        manifests: None,
        expired: expired.collect(),
        other_refs: base.other_refs.clone(),
    };
    Ok((version, built.changes))
}

/// Serialises a metadata file.
pub(crate) fn to_file(location: &str, metadata: &TableMetadata) -> Result<NewFile, LakeError> {
    let bytes = serde_json::to_vec(metadata).map_err(|source| LakeError::Json {
        action: "write metadata",
        source,
    })?;
    Ok(NewFile {
        path: files::local_path(location),
        bytes: Bytes::from(bytes),
    })
}

/// Names the metadata file after `base`: `<location>/metadata/NNNNN-<uuid>.metadata.json`.
pub(crate) fn next_location(table_location: &str, base: &str, uuid: uuid::Uuid) -> String {
    let name = base.rsplit('/').next().unwrap_or_default();
    let digits: String = name
        .strip_prefix('v')
        .unwrap_or(name)
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let number = digits.parse::<u64>().map_or(0, |n| n.saturating_add(1));
    format!("{table_location}/metadata/{number:05}-{uuid}.metadata.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_files_count_up() {
        let check = |base: &str, number: &str| {
            let next = next_location("/t", base, uuid::Uuid::nil());
            assert_eq!(
                next,
                format!("/t/metadata/{number}-{}.metadata.json", uuid::Uuid::nil())
            );
        };
        check("/t/metadata/00000-0a.metadata.json", "00001");
        check("/t/metadata/99999-0a.metadata.json", "100000");
        check("file:///t/metadata/v7.metadata.json", "00008");
        check("/t/metadata/00003-0a.gz.metadata.json", "00004");
        check("/t/metadata/odd.metadata.json", "00000");
    }
}
