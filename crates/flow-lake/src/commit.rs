//! The compare-and-swap that makes snapshots visible, and the look that settles a doubt.
//!
//! 1. Each table's metadata.json is there and synced: the seal wrote it, or it is built again from
//!    the base and the sealed updates.
//! 2. One SQLite transaction swaps all pointers and records operation and source position.
//! 3. A base that moved rolls everything back; a COMMIT without an answer is `Unknown`.

use flow_core::{Epoch, Lsn, OperationId, Remedial, Remedy, TableName};

use crate::catalog::{Swap, SwapOutcome, SwapRecord};
use crate::error::LakeError;
use crate::lake::{Lake, Shared};
use crate::metadata::Version;
use crate::seal::Sealed;
use crate::{OPERATION_ID, blocking, files, metadata};

/// Is what a commit records beside the tables.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Names the operation; its row in `flow_operations`.
    pub operation_id: OperationId,
    /// Names the source.
    pub source_id: String,
    /// Is the kind of operation: `epoch`, `copy`, `refresh`.
    pub kind: String,
    /// Is the epoch the operation publishes, or stands on.
    pub epoch: Epoch,
    /// Is the range's exclusive start.
    pub from_lsn: Lsn,
    /// Is the range's inclusive end.
    pub to_lsn: Lsn,
    /// Moves the source's published position in the same transaction; never back.
    pub advance: Option<(Lsn, Epoch)>,
}

/// Is what became of a commit.
#[derive(Debug)]
pub enum CommitOutcome {
    /// All tables are visible, by this call or an earlier one.
    Committed,
    /// Nothing is visible: these tables no longer stand on the sealed base, or their files are gone.
    Conflict {
        /// Names them.
        tables: Vec<TableName>,
    },
    /// The catalog was asked to commit and gave no proof: look before anything else.
    Unknown {
        /// Is what happened instead of an answer.
        error: LakeError,
    },
}

/// Is what a look at the catalog found about one sealed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The attempt is in the table.
    Found {
        /// Is its snapshot.
        snapshot_id: i64,
    },
    /// It is not, and the table still stands on the sealed base: the same `Sealed` may be sent again.
    BaseUnchanged,
    /// It is not, and can never be: the table has moved on.
    BaseMoved,
}

impl Lake {
    /// Makes the sealed snapshots visible, all or none, and records the progress with them.
    ///
    /// Sending what is committed already is answered with `Committed`. An error means that nothing
    /// was committed. If the future is dropped, the commit may or may not happen: look.
    ///
    /// # Errors
    /// Files that could not be written, or a catalog that was busy before it was asked to commit.
    ///
    /// # Durability
    /// On [`CommitOutcome::Committed`] everything is synced.
    pub async fn commit(&self, sealed: &[Sealed], progress: &Progress) -> Result<CommitOutcome, LakeError> {
        let (shared, sealed, progress) = (self.shared.clone(), sealed.to_vec(), progress.clone());
        blocking::run(move || commit(&shared, &sealed, &progress)).await
    }

    /// Looks for a sealed attempt's marker: the commit's own record in the catalog, a retained
    /// snapshot, or the table property.
    ///
    /// # Errors
    /// [`LakeError::Missing`] if the table is gone; a busy catalog asks for patience.
    pub async fn look(&self, sealed: &Sealed) -> Result<Look, LakeError> {
        let (shared, sealed) = (self.shared.clone(), sealed.clone());
        blocking::run(move || look(&shared, &sealed)).await
    }
}

fn commit(shared: &Shared, sealed: &[Sealed], progress: &Progress) -> Result<CommitOutcome, LakeError> {
    let mut versions = Vec::with_capacity(sealed.len());
    for one in sealed {
        match prepare(shared, one)? {
            Prepared::Ready(version) => versions.push(Some(version)),
            Prepared::Committed => versions.push(None),
            Prepared::Unusable => {
                return Ok(CommitOutcome::Conflict {
                    tables: vec![one.table.clone()],
                });
            }
        }
    }
    let swaps: Vec<Swap<'_>> = sealed
        .iter()
        .zip(&versions)
        .map(|(one, version)| Swap {
            table: &one.table,
            base: &one.base_metadata_location,
            next: &one.metadata_location,
            marker: Some((&one.table_uuid, &one.attempt_id, one.snapshot_id)),
            expired: version.as_ref().map_or(&[], |version| &version.expired),
        })
        .collect();
    let record = SwapRecord {
        operation_id: progress.operation_id.as_str(),
        source_id: &progress.source_id,
        kind: &progress.kind,
        epoch: progress.epoch,
        from_lsn: progress.from_lsn,
        to_lsn: progress.to_lsn,
        advance: progress.advance,
    };
    Ok(
        match shared.catalog.swap(&swaps, Some(&record), shared.clock.now_us())? {
            SwapOutcome::Committed => {
                for one in sealed {
                    shared.versions.retire(&one.base_metadata_location);
                }
                CommitOutcome::Committed
            }
            SwapOutcome::Conflict(indexes) => CommitOutcome::Conflict {
                tables: indexes.into_iter().map(|index| sealed[index].table.clone()).collect(),
            },
            SwapOutcome::Unknown(error) => CommitOutcome::Unknown { error },
        },
    )
}

enum Prepared {
    /// The metadata file is synced.
    Ready(Version),
    /// The attempt is in the catalog already.
    Committed,
    /// The base or the table's directory cannot be read any more: long after another commit replaced
    /// the base, or because somebody damaged the table. Nothing more can be committed on it.
    Unusable,
}

/// Sees to it that the metadata file is there. What this process sealed is; after a restart it is
/// written again, in one step, because an earlier request may have made it visible meanwhile.
fn prepare(shared: &Shared, sealed: &Sealed) -> Result<Prepared, LakeError> {
    if let Some(version) = shared.versions.get(&sealed.metadata_location) {
        return Ok(Prepared::Ready(version));
    }
    if shared
        .catalog
        .committed(&sealed.table_uuid, &sealed.attempt_id)?
        .is_some()
    {
        return Ok(Prepared::Committed);
    }
    match rebuild(shared, sealed) {
        Ok(version) => {
            shared.versions.put(&sealed.metadata_location, version.clone());
            Ok(Prepared::Ready(version))
        }
        Err(error) if error.remedy() == Remedy::BlockTable => Ok(Prepared::Unusable),
        Err(error) => Err(error),
    }
}

/// Writes the sealed metadata file again, from the base and the sealed updates.
fn rebuild(shared: &Shared, sealed: &Sealed) -> Result<Version, LakeError> {
    let base = shared.versions.load(&sealed.base_metadata_location)?;
    let (version, _) = metadata::apply(&base, &sealed.base_metadata_location, sealed.updates.clone())
        .map_err(LakeError::iceberg("rebuild sealed metadata", &sealed.table))?;
    files::replace(&metadata::to_file(&sealed.metadata_location, &version.metadata)?)?;
    Ok(version)
}

fn look(shared: &Shared, sealed: &Sealed) -> Result<Look, LakeError> {
    if let Some(snapshot_id) = shared.catalog.committed(&sealed.table_uuid, &sealed.attempt_id)? {
        return Ok(Look::Found { snapshot_id });
    }
    let table = shared.require(&sealed.table)?;
    if table.uuid() != sealed.table_uuid {
        return Err(LakeError::Missing {
            table: sealed.table.to_string(),
        });
    }
    let metadata = table.metadata();
    let marked = metadata.snapshots().find(|snapshot| {
        let marker = snapshot.summary().additional_properties.get(OPERATION_ID);
        snapshot.snapshot_id() == sealed.snapshot_id || marker == Some(&sealed.attempt_id)
    });
    if let Some(snapshot) = marked {
        return Ok(Look::Found {
            snapshot_id: snapshot.snapshot_id(),
        });
    }
    if metadata.properties().get(OPERATION_ID) == Some(&sealed.attempt_id) {
        return Ok(Look::Found {
            snapshot_id: sealed.snapshot_id,
        });
    }
    Ok(if table.metadata_location() == sealed.base_metadata_location {
        Look::BaseUnchanged
    } else {
        Look::BaseMoved
    })
}
