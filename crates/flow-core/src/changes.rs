//! What changed between two cuts of a table: rows with weights.
//!
//! A row that came has weight 1, one that went −1; the same row twice has weight 2. Weights of equal
//! rows add up, and rows whose weights add up to 0 may be left out ("Z-sets": Budiu et al., "DBSP",
//! VLDB 2023). The lake tells them for any two snapshots of a table.

use std::pin::Pin;

use arrow_array::RecordBatch;
use futures_core::Stream;

use crate::error::LakeReadError;

/// Is rows and how often each came (positive) or went (negative).
#[derive(Clone, Debug)]
pub struct ChangeBatch {
    /// Holds the rows.
    pub rows: RecordBatch,
    /// Holds one weight a row.
    pub weights: Vec<i64>,
}

impl ChangeBatch {
    /// Is a batch of rows that all have one weight.
    pub fn of(rows: RecordBatch, weight: i64) -> ChangeBatch {
        let weights = vec![weight; rows.num_rows()];
        ChangeBatch { rows, weights }
    }
}

/// Is a stream of change batches.
pub type ChangeStream = Pin<Box<dyn Stream<Item = Result<ChangeBatch, LakeReadError>> + Send>>;

/// Says why the difference of two snapshots cannot be told from what they hold; the whole table is
/// read instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gap {
    /// The older one was expired.
    Expired,
    /// The newer one does not descend from the older: a rollback, or another table of that name.
    NotDescended,
    /// A snapshot between them has deletes this program cannot resolve: equality deletes.
    EqualityDeletes,
    /// The columns that are read have changed.
    Columns,
    /// Rows that came or went stand in files of a kind that only a scan of the whole table honours.
    Files,
}

impl Gap {
    /// Is the code in `flow.refresh-reason` and `history`.
    pub fn code(self) -> &'static str {
        match self {
            Gap::Expired => "INPUT_EXPIRED",
            Gap::NotDescended => "INPUT_NOT_DESCENDED",
            Gap::EqualityDeletes => "INPUT_EQUALITY_DELETES",
            Gap::Columns => "INPUT_COLUMNS",
            Gap::Files => "INPUT_FILES",
        }
    }
}

/// Is the difference of two snapshots of a table.
pub enum Changes {
    /// Their rows can be told apart.
    Rows {
        /// Counts the rows that came, before those that cancel are taken out.
        inserted: u64,
        /// Counts the rows that went, likewise.
        deleted: u64,
        /// Holds the rows. Read only when polled.
        batches: ChangeStream,
    },
    /// They cannot.
    Unknown(Gap),
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Changes::Rows { inserted, deleted, .. } => f
                .debug_struct("Rows")
                .field("inserted", inserted)
                .field("deleted", deleted)
                .finish_non_exhaustive(),
            Changes::Unknown(gap) => f.debug_tuple("Unknown").field(gap).finish(),
        }
    }
}
