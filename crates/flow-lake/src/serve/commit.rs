//! Commits of foreign tables: requirements, updates, and one transaction for all tables of a request.
//!
//! 1. Each table is looked up once; what it stands on is what everything below is judged by.
//! 2. A commit that took effect already is known by its snapshots, or by the UUID it created.
//! 3. Requirements are checked and updates applied; the next metadata files are written and synced.
//! 4. One transaction moves all tables from exactly that base. If one has moved, the files go and
//!    all begins again: a requirement that is no longer met then refuses the request.

use std::collections::BTreeSet;

use flow_core::TableName;
use iceberg::spec::{Snapshot, TableMetadata};
use iceberg::{TableRequirement, TableUpdate};

use super::error::{Refusal, ServeError};
use super::name::{self, View};
use super::request::{CommitTable, CommitTransaction, Request};
use super::{Inner, Reply, ServedCatalog, place, start};
use crate::catalog::serve::{Key, Recorded, insert_commit, insert_table, namespace_exists};
use crate::catalog::{Swap, swap_one};
use crate::files;
use crate::metadata::Version;

/// Counts the tries of a commit against others who commit to the same tables.
const TRIES: usize = 10;

/// Counts the tables that one transaction may change.
const TABLES_MAX: usize = 1000;

/// Is the property that lets metadata files go which left the table's metadata log.
const DELETE_OLD_METADATA: &str = "write.metadata.delete-after-commit.enabled";

impl ServedCatalog {
    /// Commits to one table, or makes it.
    ///
    /// # Errors
    /// [`Refusal::Conflict`] for a requirement that is not met; [`Refusal::Forbidden`] for a table of
    /// this program; [`Refusal::NoTable`]; [`Refusal::BadRequest`] for updates that cannot be applied;
    /// [`Refusal::Unknown`] if the catalog gave no answer.
    pub async fn commit_table(&self, view: View, name: TableName, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: CommitTable = request.read()?;
                if body.identifier.as_ref().is_some_and(|given| given.table() != name) {
                    return Err(ServeError::bad("the body names another table than the path"));
                }
                inner.commit(key, &[(name, body)], true)
            })
        })
        .await
    }

    /// Commits to several tables, all or none.
    ///
    /// # Errors
    /// As [`ServedCatalog::commit_table`].
    pub async fn commit_transaction(&self, view: View, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: CommitTransaction = request.read()?;
                if body.table_changes.len() > TABLES_MAX {
                    let message = format!("a transaction of more than {TABLES_MAX} tables is not taken");
                    return Err(ServeError::bad(message));
                }
                let mut changes = Vec::with_capacity(body.table_changes.len());
                let mut names = BTreeSet::new();
                for one in body.table_changes {
                    let given = one.identifier.as_ref();
                    let name = given
                        .ok_or_else(|| ServeError::bad("a table change has no identifier"))?
                        .table();
                    if !names.insert(name.clone()) {
                        return Err(ServeError::bad(format!("table {name} is changed twice")));
                    }
                    changes.push((name, one));
                }
                inner.commit(key, &changes, false)
            })
        })
        .await
    }
}

/// Is what a table stands on; `None` if it is not there.
type Base = Option<(String, Version)>;

/// Says whether a change took effect already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Yes,
    No,
    /// Nothing in it would show.
    CannotTell,
}

/// Is one table's step, written and not yet visible.
#[derive(Debug)]
struct Step<'a> {
    name: &'a TableName,
    base: Option<&'a str>,
    next: String,
    table_uuid: String,
    /// Holds manifest list and id of each added snapshot.
    added: Vec<(&'a str, i64)>,
    expired: Vec<String>,
}

impl Inner {
    fn commit(
        &self,
        key: Option<&Key>,
        changes: &[(TableName, CommitTable)],
        show: bool,
    ) -> Result<Recorded, ServeError> {
        for _ in 0..TRIES {
            let bases = self.bases(changes)?;
            let standing = |bases: &[Base]| Recorded {
                metadata_location: bases
                    .first()
                    .filter(|_| show)
                    .and_then(|base| Some(base.as_ref()?.0.clone())),
                ..Recorded::default()
            };
            let mut steps = Vec::with_capacity(changes.len());
            let written = match self.took_effect(changes, &bases)? {
                true => Ok(()),
                false => self.write_steps(changes, &bases, &mut steps),
            };
            let outcome = written.and_then(|()| match steps.is_empty() {
                true => self.change(key, |_| Ok(Ok(standing(&bases)))).flatten().map(Some),
                false => self.make_visible(key, &steps, show),
            });
            match outcome {
                Ok(Some(recorded)) => return Ok(recorded),
                Ok(None) => self.discard_steps(&steps),
                Err(error) => {
                    if error.refusal != Refusal::Unknown {
                        self.discard_steps(&steps);
                    }
                    return Err(error);
                }
            }
        }
        let message = "others keep committing to these tables; nothing was changed";
        Err(ServeError::new(Refusal::Conflict, message))
    }

    fn bases(&self, changes: &[(TableName, CommitTable)]) -> Result<Vec<Base>, ServeError> {
        let base = |name: &TableName| {
            let Some(location) = self.reader.pointer(name)? else {
                return Ok(None);
            };
            let version = self.shared.versions.load(&location)?;
            self.check_foreign(name, &version)?;
            Ok(Some((location, version)))
        };
        changes.iter().map(|(name, _)| base(name)).collect()
    }

    /// Says whether a request took effect before. Its tables changed all or none, so one that shows
    /// it speaks for those where nothing would.
    fn took_effect(&self, changes: &[(TableName, CommitTable)], bases: &[Base]) -> Result<bool, ServeError> {
        let mut seen = false;
        for ((_, change), base) in changes.iter().zip(bases) {
            match self.saw(change, base)? {
                Seen::Yes => seen = true,
                Seen::No => return Ok(false),
                Seen::CannotTell => {}
            }
        }
        Ok(seen)
    }

    fn saw(&self, change: &CommitTable, base: &Base) -> Result<Seen, ServeError> {
        let Some((_, version)) = base else {
            // Not made yet, or dropped since.
            return Ok(Seen::CannotTell);
        };
        let uuid = version.metadata.uuid();
        if creates(change) {
            let same =
                |update: &TableUpdate| matches!(update, TableUpdate::AssignUuid { uuid: given } if *given == uuid);
            return Ok(if change.updates.iter().any(same) {
                Seen::Yes
            } else {
                Seen::No
            });
        }
        let mut seen = Seen::CannotTell;
        for snapshot in added(change) {
            let found = version.metadata.snapshot_by_id(snapshot.snapshot_id());
            let there = found.is_some_and(|found| found.manifest_list() == snapshot.manifest_list());
            if !there
                && self
                    .reader
                    .committed(&uuid.to_string(), snapshot.manifest_list())?
                    .is_none()
            {
                return Ok(Seen::No);
            }
            seen = Seen::Yes;
        }
        Ok(seen)
    }

    /// Writes the next metadata file of each table that changes. What was written stands in `steps`
    /// even if a later one fails.
    fn write_steps<'a>(
        &self,
        changes: &'a [(TableName, CommitTable)],
        bases: &'a [Base],
        steps: &mut Vec<Step<'a>>,
    ) -> Result<(), ServeError> {
        for ((name, change), base) in changes.iter().zip(bases) {
            let base = base.as_ref();
            for requirement in &change.requirements {
                let metadata = base.map(|(_, version)| version.metadata.as_ref());
                check(name, requirement, metadata)?;
            }
            self.check_updates(&change.updates)?;
            let next = match base {
                Some((location, version)) => self.apply(name, location, version, &change.updates)?,
                None => Some((self.create(name, change)?, Vec::new())),
            };
            let Some((metadata, expired)) = next else {
                continue;
            };
            let base = base.map(|(location, _)| location.as_str());
            steps.push(Step {
                name,
                base,
                next: start::write(self, &metadata, base)?,
                table_uuid: metadata.uuid().to_string(),
                added: added(change)
                    .map(|one| (one.manifest_list(), one.snapshot_id()))
                    .collect(),
                expired,
            });
        }
        Ok(())
    }

    fn create(&self, name: &TableName, change: &CommitTable) -> Result<TableMetadata, ServeError> {
        if !creates(change) {
            return Err(ServeError::no_table(name));
        }
        name::check_new_table(name)?;
        if self.reader.namespace(&name.schema)?.is_none() {
            return Err(ServeError::no_namespace(&name.schema));
        }
        let metadata = start::from_updates(self, name, &change.updates)?;
        if self.reader.is_own(&metadata.uuid().to_string())? {
            return Err(ServeError::bad("the table's UUID is that of another table"));
        }
        Ok(metadata)
    }

    /// Applies updates; `None` if they change nothing. Gives the metadata files to delete, too.
    fn apply(
        &self,
        name: &TableName,
        location: &str,
        version: &Version,
        updates: &[TableUpdate],
    ) -> Result<Option<(TableMetadata, Vec<String>)>, ServeError> {
        let metadata = TableMetadata::clone(&version.metadata);
        let mut builder = metadata.into_builder(Some(location.to_owned()));
        for update in updates {
            builder = update.clone().apply(builder).map_err(|error| start::refused(&error))?;
        }
        let built = builder.build().map_err(|error| start::refused(&error))?;
        if built.changes.is_empty() {
            return Ok(None);
        }
        let next = built.metadata;
        if next.uuid() != version.metadata.uuid() {
            return Err(ServeError::bad(format!("the UUID of table {name} cannot be changed")));
        }
        let place = place::inside(self, "location", next.location())?;
        if next.location() != version.metadata.location() {
            place::apart(self, name, &place)?;
        }
        let mut expired = Vec::new();
        if next.properties().get(DELETE_OLD_METADATA).map(String::as_str) == Some("true") {
            let logged = built.expired_metadata_logs.into_iter().map(|log| log.metadata_file);
            // A log may name anything; only what lies where this server writes is its to delete.
            expired.extend(logged.filter(|file| {
                files::local_path(file).parent() == Some(place.join("metadata").as_path())
                    && file.ends_with(".metadata.json")
            }));
        }
        Ok(Some((next, expired)))
    }

    /// Judges what updates bring in from outside.
    fn check_updates(&self, updates: &[TableUpdate]) -> Result<(), ServeError> {
        for update in updates {
            match update {
                TableUpdate::SetProperties { updates } => start::check_properties(self, updates)?,
                TableUpdate::AddSnapshot { snapshot } => {
                    place::inside(self, "manifest list", snapshot.manifest_list())?;
                    start::check_own(snapshot.summary().additional_properties.keys())?;
                }
                TableUpdate::SetStatistics { statistics } => {
                    place::inside(self, "statistics file", &statistics.statistics_path)?;
                }
                TableUpdate::SetPartitionStatistics { partition_statistics } => {
                    place::inside(self, "statistics file", &partition_statistics.statistics_path)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves all tables in one transaction; `None` if one no longer stands on its base.
    fn make_visible(&self, key: Option<&Key>, steps: &[Step<'_>], show: bool) -> Result<Option<Recorded>, ServeError> {
        let now = self.shared.clock.now_us();
        let mut staged = false;
        let outcome = self.change(key, |tx| {
            for step in steps {
                let moved = match step.base {
                    Some(base) => swap_one(
                        tx,
                        &Swap {
                            table: step.name,
                            base,
                            next: &step.next,
                            marker: None,
                            expired: &step.expired,
                        },
                        now,
                    )?,
                    None => namespace_exists(tx, &step.name.schema)? && insert_table(tx, step.name, &step.next)?,
                };
                if !moved {
                    return Ok(Err(()));
                }
                for (manifest_list, snapshot_id) in &step.added {
                    insert_commit(tx, &step.table_uuid, manifest_list, *snapshot_id, now)?;
                }
            }
            staged = true;
            Ok(Ok(Recorded {
                metadata_location: steps.first().filter(|_| show).map(|step| step.next.clone()),
                ..Recorded::default()
            }))
        })?;
        let Ok(recorded) = outcome else {
            return Ok(None);
        };
        if staged {
            for base in steps.iter().filter_map(|step| step.base) {
                self.shared.versions.retire(base);
            }
        } else {
            // It was answered meanwhile: by the same request, sent twice.
            self.discard_steps(steps);
        }
        Ok(Some(recorded))
    }

    fn discard_steps(&self, steps: &[Step<'_>]) {
        for step in steps {
            self.discard(&step.next);
        }
    }
}

fn creates(change: &CommitTable) -> bool {
    change.requirements.contains(&TableRequirement::NotExist)
}

fn added(change: &CommitTable) -> impl Iterator<Item = &Snapshot> {
    change.updates.iter().filter_map(|update| match update {
        TableUpdate::AddSnapshot { snapshot } => Some(snapshot),
        _ => None,
    })
}

fn check(name: &TableName, requirement: &TableRequirement, metadata: Option<&TableMetadata>) -> Result<(), ServeError> {
    if metadata.is_none() && *requirement != TableRequirement::NotExist {
        return Err(ServeError::no_table(name));
    }
    requirement.check(metadata).map_err(|error| {
        let message = format!("table {name}: {}; nothing was changed", error.message());
        ServeError::new(Refusal::Conflict, message)
    })
}
