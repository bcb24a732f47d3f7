//! The compare-and-swap that makes snapshots visible, and the look that settles a doubt.

use flow_core::{Epoch, Lsn, OperationId, TableName};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::seal::Sealed;

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
    /// Nothing is visible: these tables no longer stand on the sealed base.
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
    /// An error means that nothing was committed. If the future is dropped, the commit may or may
    /// not happen: look.
    ///
    /// # Errors
    /// Files that could not be written, or a catalog that was busy before it was asked to commit.
    ///
    /// # Durability
    /// On [`CommitOutcome::Committed`] everything is synced.
    pub async fn commit(&self, _sealed: &[Sealed], _progress: &Progress) -> Result<CommitOutcome, LakeError> {
        Err(LakeError::broken("not reached"))
    }

    /// Looks for a sealed attempt's marker: a retained snapshot, the table property, or the
    /// commit's own record in the catalog.
    ///
    /// # Errors
    /// [`LakeError::Missing`] if the table is gone; a busy catalog asks for patience.
    pub async fn look(&self, _sealed: &Sealed) -> Result<Look, LakeError> {
        Ok(Look::BaseMoved)
    }
}
