//! Tables one by one: listing, loading, making, registering, renaming and dropping them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use flow_core::TableName;
use serde_json::{Value, json};

use super::error::{Refusal, ServeError};
use super::name::{self, View};
use super::namespaces::{Page, page};
use super::request::{CreateTable, RegisterTable, RenameTable, Request};
use super::{Inner, Reply, ServedCatalog, place, start, tag};
use crate::catalog::serve::{Recorded, insert_table, is_taken, namespace_exists, remove_table, rename_table};
use crate::error::LakeError;
use crate::metadata::Version;
use crate::{files, metadata};

/// Counts the tries of a change of one table against others who change it.
const TRIES: usize = 10;

/// Is the first byte pair of a compressed metadata file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Says which snapshots a loaded table shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Snapshots {
    /// All that the table keeps.
    #[default]
    All,
    /// Those that a branch or tag names.
    Refs,
}

impl Snapshots {
    fn form(self) -> &'static str {
        match self {
            Snapshots::All => "all",
            Snapshots::Refs => "refs",
        }
    }
}

impl ServedCatalog {
    /// Lists the tables of a namespace.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`].
    pub async fn tables(&self, _view: View, levels: Vec<String>, wanted: Page) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            let (after, size) = wanted.bounds()?;
            let namespace = name::existing(&levels);
            let limit = i64::try_from(size.saturating_add(1)).unwrap_or(i64::MAX);
            let names = inner.reader.tables_after(&namespace, after, limit)?;
            if names.is_empty() && inner.reader.namespace(&namespace)?.is_none() {
                return Err(ServeError::no_namespace(&namespace));
            }
            let show = |name: &str| json!({"namespace": levels, "name": name});
            Ok(page("identifiers", names, size, show))
        })
        .await
    }

    /// Loads a table, unless its state is among `known`.
    ///
    /// # Errors
    /// [`Refusal::NoTable`].
    pub async fn table(
        &self,
        _view: View,
        name: TableName,
        snapshots: Snapshots,
        known: Vec<String>,
    ) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            let mut location = inner.location(&name)?;
            loop {
                let tag = tag(&location, snapshots.form());
                if known.iter().any(|known| *known == tag || known == "*") {
                    return Ok(Reply::Unchanged { tag });
                }
                match reply(&location, snapshots) {
                    Ok(reply) => return Ok(reply),
                    // Its files may have gone with the table, or with an old state of it.
                    Err(error) => match inner.location(&name)? {
                        moved if moved != location => location = moved,
                        _ => return Err(error),
                    },
                }
            }
        })
        .await
    }

    /// Says whether a table is there.
    ///
    /// # Errors
    /// [`Refusal::NoTable`] if it is not.
    pub async fn table_exists(&self, _view: View, name: TableName) -> Result<Reply, ServeError> {
        self.run(move |inner| inner.location(&name).map(|_| Reply::Nothing))
            .await
    }

    /// Makes a table, or only says how it would be made.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`], [`Refusal::Exists`], and [`Refusal::BadRequest`] or
    /// [`Refusal::Forbidden`] for what cannot be made.
    pub async fn create_table(&self, view: View, levels: Vec<String>, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: CreateTable = request.read()?;
                let name = name::new_table(&levels, &body.name)?;
                inner.check_free(&name)?;
                let staged = body.stage_create == Some(true);
                let metadata = start::from_create(inner, &name, body)?;
                if staged {
                    start::make_folders(metadata.location())?;
                    let document = json!({"metadata": metadata, "config": {}}).to_string();
                    let recorded = Recorded {
                        body: Some(document),
                        ..Recorded::default()
                    };
                    // Nothing is changed by it, so nothing need be remembered of it.
                    return Ok(recorded);
                }
                let location = start::write(inner, &metadata, None)?;
                let outcome = inner.change(key, |tx| add(tx, &name, &location)).flatten();
                inner.keep_if_done(&location, outcome)
            })
        })
        .await
    }

    /// Adds a table that has its files already.
    ///
    /// # Errors
    /// As [`ServedCatalog::create_table`].
    pub async fn register_table(&self, view: View, levels: Vec<String>, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: RegisterTable = request.read()?;
                let name = name::new_table(&levels, &body.name)?;
                if body.overwrite == Some(true) {
                    return Err(ServeError::bad("a registration that overwrites is not supported"));
                }
                inner.check_free(&name)?;
                let location = body.metadata_location;
                check_registered(inner, &name, &location)?;
                inner.change(key, |tx| add(tx, &name, &location)).flatten()
            })
        })
        .await
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// [`Refusal::NoTable`], [`Refusal::NoNamespace`], [`Refusal::Exists`]; [`Refusal::Forbidden`]
    /// for a table of this program and for a reserved name.
    pub async fn rename_table(&self, view: View, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: RenameTable = request.read()?;
                let from = body.source.table();
                let to = name::new_table(&body.destination.namespace, &body.destination.name)?;
                inner.retried(&from, |location| {
                    inner.change(key, |tx| {
                        if !namespace_exists(tx, &to.schema)? {
                            return Ok(Err(Some(ServeError::no_namespace(&to.schema))));
                        }
                        if is_taken(tx, &to)? {
                            return Ok(Err(Some(ServeError::exists("table", &to))));
                        }
                        let moved = rename_table(tx, &from, location, &to)?;
                        Ok(moved.then(Recorded::default).ok_or(None))
                    })
                })
            })
        })
        .await
    }

    /// Removes a table from the catalog; its files too if `purge`, where no other table's are near.
    ///
    /// # Errors
    /// [`Refusal::NoTable`]; [`Refusal::Forbidden`] for a table of this program.
    pub async fn drop_table(
        &self,
        view: View,
        name: TableName,
        purge: bool,
        request: Request,
    ) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let mut place = String::new();
                let recorded = inner.retried(&name, |location| {
                    let version = inner.shared.versions.load(location)?;
                    version.metadata.location().clone_into(&mut place);
                    inner.change(key, |tx| {
                        let removed = remove_table(tx, &name, location)?;
                        Ok(removed.then(Recorded::default).ok_or(None))
                    })
                })?;
                if purge {
                    inner.purge(&name, &place);
                }
                Ok(recorded)
            })
        })
        .await
    }

    /// Takes a client's report of what it read, and drops it.
    ///
    /// # Errors
    /// [`Refusal::NoTable`].
    pub async fn metrics(&self, view: View, name: TableName) -> Result<Reply, ServeError> {
        self.table_exists(view, name).await
    }
}

impl Inner {
    /// Is where a table's metadata stands.
    pub(super) fn location(&self, name: &TableName) -> Result<String, ServeError> {
        let location = self.reader.pointer(name)?;
        location.ok_or_else(|| ServeError::no_table(name))
    }

    /// Refuses what would change a table of this program.
    pub(super) fn check_foreign(&self, name: &TableName, version: &Version) -> Result<(), ServeError> {
        match self.reader.is_own(&version.metadata.uuid().to_string())? {
            false => Ok(()),
            true => Err(ServeError::new(
                Refusal::Forbidden,
                format!("table {name} is written by Embrasure Flow alone; nothing was changed"),
            )),
        }
    }

    /// Refuses a table's name early, before files are written for it.
    fn check_free(&self, name: &TableName) -> Result<(), ServeError> {
        if self.reader.namespace(&name.schema)?.is_none() {
            return Err(ServeError::no_namespace(&name.schema));
        }
        match self.reader.pointer(name)? {
            None => Ok(()),
            Some(_) => Err(ServeError::exists("table", name)),
        }
    }

    /// Tries a change of one foreign table until nobody was faster.
    fn retried(
        &self,
        name: &TableName,
        mut attempt: impl FnMut(&str) -> Result<Result<Recorded, Option<ServeError>>, ServeError>,
    ) -> Result<Recorded, ServeError> {
        for _ in 0..TRIES {
            let location = self.location(name)?;
            let version = self.shared.versions.load(&location)?;
            self.check_foreign(name, &version)?;
            match attempt(&location)? {
                Ok(recorded) => return Ok(recorded),
                Err(Some(refused)) => return Err(refused),
                Err(None) => {}
            }
        }
        let message = format!("table {name} is changed faster than this can be done; nothing was changed");
        Err(ServeError::new(Refusal::Busy, message))
    }

    /// Deletes a metadata file that certainly never became visible.
    pub(super) fn keep_if_done(
        &self,
        location: &str,
        outcome: Result<Recorded, ServeError>,
    ) -> Result<Recorded, ServeError> {
        let in_use = match &outcome {
            // A repeated answer names the file of the first time.
            Ok(recorded) => recorded.metadata_location.as_deref() == Some(location),
            Err(error) => error.refusal == Refusal::Unknown,
        };
        if !in_use {
            self.discard(location);
        }
        outcome
    }

    pub(super) fn discard(&self, location: &str) {
        if let Err(error) = files::delete(&files::local_path(location)) {
            tracing::warn!(%error, "a metadata file that nobody uses stays");
        }
    }

    /// Deletes a dropped table's files. What cannot be deleted stays and is told in the log: the
    /// table is gone all the same.
    fn purge(&self, name: &TableName, location: &str) {
        let free =
            place::inside(self, "location", location).and_then(|path| place::apart(self, name, &path).map(|()| path));
        let path = match free {
            Ok(path) => path,
            Err(error) => {
                tracing::info!(table = %name, %error, "the dropped table's files stay");
                return;
            }
        };
        for folder in ["data", "metadata"] {
            match fs::remove_dir_all(path.join(folder)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!(table = %name, %error, "files of the dropped table stay");
                }
                _ => {}
            }
        }
        remove_if_empty(&path);
    }
}

fn remove_if_empty(path: &Path) {
    match fs::remove_dir(path) {
        Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
            tracing::warn!(path = %path.display(), %error, "an empty directory stays");
        }
        _ => {}
    }
}

/// Adds a table in the transaction that answers for it.
pub(super) fn add(
    tx: &rusqlite::Transaction<'_>,
    name: &TableName,
    location: &str,
) -> rusqlite::Result<Result<Recorded, ServeError>> {
    if !namespace_exists(tx, &name.schema)? {
        return Ok(Err(ServeError::no_namespace(&name.schema)));
    }
    if !insert_table(tx, name, location)? {
        return Ok(Err(ServeError::exists("table", name)));
    }
    Ok(Ok(Recorded {
        metadata_location: Some(location.to_owned()),
        ..Recorded::default()
    }))
}

fn check_registered(inner: &Inner, name: &TableName, location: &str) -> Result<(), ServeError> {
    let file = place::inside(inner, "metadata-location", location)?;
    if !file.is_file() {
        return Err(ServeError::bad(format!("metadata-location '{location}' is no file")));
    }
    let version = match inner.shared.versions.load(location) {
        Ok(version) => version,
        Err(LakeError::Iceberg { source, .. }) => {
            return Err(ServeError::bad(format!(
                "metadata-location '{location}' cannot be used: {source}"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    inner.check_foreign(name, &version)?;
    start::check_properties(inner, version.metadata.properties())?;
    let path = place::inside(inner, "location", version.metadata.location())?;
    place::apart(inner, name, &path)?;
    for snapshot in version.metadata.snapshots() {
        place::inside(inner, "manifest list", snapshot.manifest_list())?;
    }
    match file.parent().and_then(Path::parent) {
        Some(place) => place::apart(inner, name, place),
        None => Err(ServeError::bad(
            "the metadata file must lie in a folder of the table's own",
        )),
    }
}

/// Makes a table's document from its metadata file, as it was written.
pub(super) fn reply(location: &str, snapshots: Snapshots) -> Result<Reply, ServeError> {
    let path = files::local_path(location);
    let mut bytes = fs::read(&path).map_err(|e| LakeError::file("read", &path, e))?;
    let unreadable = |source| LakeError::Json {
        action: "read table metadata",
        source,
    };
    if bytes.starts_with(&GZIP) {
        let version = metadata::Versions::default().load(location)?;
        bytes = serde_json::to_vec(&version.metadata).map_err(unreadable)?;
    }
    match snapshots {
        Snapshots::All => {
            // Whatever a reader gets is whole JSON.
            serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).map_err(unreadable)?;
        }
        Snapshots::Refs => {
            let mut document: Value = serde_json::from_slice(&bytes).map_err(unreadable)?;
            keep_named_snapshots(&mut document);
            bytes = serde_json::to_vec(&document).map_err(unreadable)?;
        }
    }
    let mut json = format!("{{\"metadata-location\":{},\"metadata\":", json!(location)).into_bytes();
    json.extend(bytes);
    json.extend_from_slice(b",\"config\":{}}");
    Ok(Reply::Table {
        json,
        tag: tag(location, snapshots.form()),
    })
}

fn keep_named_snapshots(document: &mut Value) {
    let refs = document["refs"].as_object();
    let ids = refs.into_iter().flat_map(|refs| refs.values());
    let mut named: BTreeSet<i64> = ids.filter_map(|named| named["snapshot-id"].as_i64()).collect();
    named.extend(document["current-snapshot-id"].as_i64());
    if let Some(snapshots) = document["snapshots"].as_array_mut() {
        snapshots.retain(|snapshot| snapshot["snapshot-id"].as_i64().is_some_and(|id| named.contains(&id)));
    }
}
