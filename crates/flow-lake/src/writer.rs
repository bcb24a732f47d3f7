//! Data and position-delete files.

use std::sync::Arc;

use arrow_array::RecordBatch;
use flow_core::{Attempt, OperationId};
use serde::{Deserialize, Serialize};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::table::Table;

/// Is a finished, synced file, ready to be sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Is the full path, exactly as manifests and position deletes spell it.
    pub path: String,
    /// Counts its rows.
    pub rows: u64,
    /// Is its size in bytes.
    pub bytes: u64,
    /// Is Iceberg's `data_file`, statistics included, as JSON.
    pub json: String,
}

/// Is where a batch's first row went; the batch's other rows follow it in the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Counts the writer's files from 0: an index into what [`DataWriter::finish`] returns.
    pub file: usize,
    /// Is the row's position in the file, from 0.
    pub position: u64,
}

/// Writes one attempt's rows of one table into data files.
#[derive(Debug)]
pub struct DataWriter {}

impl DataWriter {
    /// Appends a batch of [`flow_core::arrow::arrow_schema`]'s columns. Encodes on a blocking thread.
    ///
    /// # Errors
    /// After an error, or when its future was dropped, the writer refuses everything.
    pub async fn write(&mut self, _batch: &RecordBatch) -> Result<Place, LakeError> {
        Err(LakeError::broken("not reached"))
    }

    /// Lists the paths of the files begun so far; [`Place::file`] is an index into them.
    pub fn paths(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Closes the last file and gives all files in order; none if no row was written.
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn finish(self) -> Result<Vec<WrittenFile>, LakeError> {
        Err(LakeError::broken("not reached"))
    }
}

impl Lake {
    /// Begins data files `<location>/data/<operation>-<attempt>-<n>.parquet`, `n` from `first_file_number`.
    pub fn data_writer(&self, _table: &Table, _operation: &OperationId, _attempt: Attempt, _first_file_number: u32) -> Result<DataWriter, LakeError> {
        Err(LakeError::broken("not reached"))
    }

    /// Writes position deletes, sorted by file and position, into
    /// `<location>/data/<operation>-<attempt>-<n>-deletes.parquet`.
    ///
    /// # Errors
    /// [`LakeError::Broken`] if the deletes are not strictly ascending.
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn write_deletes(
        &self,
        _table: &Table,
        _operation: &OperationId,
        _attempt: Attempt,
        _first_file_number: u32,
        _deletes: Vec<(Arc<str>, u64)>,
    ) -> Result<Vec<WrittenFile>, LakeError> {
        Err(LakeError::broken("not reached"))
    }
}
