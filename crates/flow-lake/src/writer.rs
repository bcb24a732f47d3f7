//! Data and position-delete files.
//!
//! Owns everything between a record batch and a synced Parquet file with its Iceberg statistics.
//! Never makes a file visible.
//!
//! 1. [`DataWriter::write`] sends a batch to a blocking thread, which encodes it.
//! 2. Past the target size the file is closed and synced, and the next one begun.
//! 3. [`DataWriter::finish`] closes the last file and syncs the directory.

use std::sync::Arc;

use arrow_array::RecordBatch;
use flow_core::{Attempt, OperationId, TableSchema};
use iceberg::spec::{DataContentType, StructType};
use serde::{Deserialize, Serialize};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::table::Table;
use crate::{blocking, files, schema};

mod deletes;
mod encode;
mod metrics;

pub(crate) use deletes::FILE_PATH_ID;
use encode::{FileEncoder, FileShape};

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
pub struct DataWriter {
    /// Is away while a blocking thread works; a caller that was dropped meanwhile never gets it back.
    state: Option<Box<WriterState>>,
    paths: Vec<Arc<str>>,
}

#[derive(Debug)]
struct WriterState {
    shape: Arc<FileShape>,
    stem: String,
    first_file_number: u32,
    data_file_bytes: u64,
    current: Option<FileEncoder>,
    finished: Vec<WrittenFile>,
}

impl WriterState {
    fn path(&self, file: usize) -> String {
        format!("{}-{}.parquet", self.stem, self.first_file_number as usize + file)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(Place, String), LakeError> {
        let full = |encoder: &FileEncoder| encoder.rows() > 0 && encoder.bytes() >= self.data_file_bytes;
        if self.current.as_ref().is_some_and(full) {
            self.close()?;
        }
        let file = self.finished.len();
        let path = self.path(file);
        let encoder = match &mut self.current {
            Some(encoder) => encoder,
            None => self
                .current
                .insert(FileEncoder::create(self.shape.clone(), path.clone())?),
        };
        let position = encoder.rows();
        encoder.write(batch)?;
        Ok((Place { file, position }, path))
    }

    fn close(&mut self) -> Result<(), LakeError> {
        if let Some(encoder) = self.current.take() {
            self.finished.push(encoder.finish()?.0);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<WrittenFile>, LakeError> {
        self.close()?;
        if let Some(parent) = self
            .finished
            .first()
            .and_then(|f| std::path::Path::new(&f.path).parent())
        {
            files::sync_dir(parent)?;
        }
        Ok(self.finished)
    }
}

impl DataWriter {
    fn take(&mut self) -> Result<Box<WriterState>, LakeError> {
        let gone = || LakeError::broken("a data writer was used after an error or a dropped write");
        self.state.take().ok_or_else(gone)
    }

    /// Appends a batch of [`flow_core::arrow::arrow_schema`]'s columns. Encodes on a blocking thread.
    ///
    /// # Errors
    /// After an error, or when its future was dropped, the writer refuses everything.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<Place, LakeError> {
        let mut state = self.take()?;
        let batch = batch.clone();
        let (state, place, path) = blocking::run(move || {
            let (place, path) = state.write(&batch)?;
            Ok((state, place, path))
        })
        .await?;
        self.state = Some(state);
        if self.paths.len() == place.file {
            self.paths.push(path.into());
        }
        Ok(place)
    }

    /// Lists the paths of the files begun so far; [`Place::file`] is an index into them.
    pub fn paths(&self) -> &[Arc<str>] {
        &self.paths
    }

    /// Closes the last file and gives all files in order; none if no row was written.
    ///
    /// # Errors
    /// As [`DataWriter::write`].
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn finish(mut self) -> Result<Vec<WrittenFile>, LakeError> {
        let state = self.take()?;
        blocking::run(move || state.finish()).await
    }
}

/// Spells what all files of an attempt's data folder begin with.
fn stem(table: &Table, operation: &OperationId, attempt: Attempt) -> String {
    format!("{}/data/{}", table.location(), operation.attempt_id(attempt))
}

impl Lake {
    /// Begins data files `<location>/data/<operation>-<attempt>-<n>.parquet`, `n` from `first_file_number`.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if the table is not one that this program can write.
    pub fn data_writer(
        &self,
        table: &Table,
        operation: &OperationId,
        attempt: Attempt,
        first_file_number: u32,
    ) -> Result<DataWriter, LakeError> {
        let table_schema = table.table_schema()?;
        let state = WriterState {
            shape: Arc::new(data_shape(&table_schema)?),
            stem: stem(table, operation, attempt),
            first_file_number,
            data_file_bytes: self.shared.options.data_file_bytes,
            current: None,
            finished: Vec::new(),
        };
        Ok(DataWriter {
            state: Some(Box::new(state)),
            paths: Vec::new(),
        })
    }

    /// Writes position deletes, strictly ascending by file and position, into
    /// `<location>/data/<operation>-<attempt>-<n>-deletes.parquet`. No deletes, no file.
    ///
    /// # Errors
    /// [`LakeError::Broken`] if the deletes are not strictly ascending.
    ///
    /// # Durability
    /// Every file and its directory is synced when it returns.
    pub async fn write_deletes(
        &self,
        table: &Table,
        operation: &OperationId,
        attempt: Attempt,
        first_file_number: u32,
        deletes: Vec<(Arc<str>, u64)>,
    ) -> Result<Vec<WrittenFile>, LakeError> {
        let path = format!(
            "{}-{first_file_number}-deletes.parquet",
            stem(table, operation, attempt)
        );
        blocking::run(move || deletes::write(path, &deletes)).await
    }
}

fn data_shape(table_schema: &TableSchema) -> Result<FileShape, LakeError> {
    let parquet = schema::to_parquet(table_schema).map_err(LakeError::parquet("map the schema to", "Parquet"))?;
    Ok(FileShape {
        content: DataContentType::Data,
        arrow: flow_core::arrow::arrow_schema(table_schema),
        parquet,
        columns: metrics::columns_of(table_schema),
        partition_type: StructType::new(Vec::new()),
        distinct: match table_schema.key[..] {
            [only] => Some(table_schema.columns[only].name.clone()),
            _ => None,
        },
    })
}
