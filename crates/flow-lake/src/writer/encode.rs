//! One Parquet file from its first row to its sync.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, FormatVersion, StructType, serialize_data_file_to_json,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

use super::WrittenFile;
use super::metrics::{MetricColumn, Metrics};
use crate::error::LakeError;
use crate::files;

/// Is the size in bytes at which a row group ends: bounds the memory of a writer.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Is the size in bytes of the buffer between encoder and file.
const BUFFER_BYTES: usize = 256 << 10;

/// Is what all files of one kind have in common.
#[derive(Debug)]
pub(super) struct FileShape {
    pub(super) content: DataContentType,
    pub(super) arrow: SchemaRef,
    pub(super) parquet: SchemaDescriptor,
    pub(super) columns: Vec<MetricColumn>,
    pub(super) partition_type: StructType,
    /// Names a column whose values hardly repeat: a dictionary of it would only cost.
    pub(super) distinct: Option<String>,
}

/// Encodes one file. Blocks.
pub(super) struct FileEncoder {
    shape: Arc<FileShape>,
    path: String,
    writer: ArrowWriter<BufWriter<File>>,
    metrics: Metrics,
    rows: u64,
}

impl std::fmt::Debug for FileEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileEncoder")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl FileEncoder {
    /// Creates the file, over what an abandoned try of the same name left.
    pub(super) fn create(shape: Arc<FileShape>, path: String) -> Result<FileEncoder, LakeError> {
        let file = File::create(&path).map_err(|e| LakeError::file("create", Path::new(&path), e))?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("embrasure-flow {}", env!("CARGO_PKG_VERSION")))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES));
        if let Some(column) = &shape.distinct {
            let column = ColumnPath::new(vec![column.clone()]);
            properties = properties.set_column_dictionary_enabled(column, false);
        }
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true)
            .with_parquet_schema(shape.parquet.clone());
        let buffer = BufWriter::with_capacity(BUFFER_BYTES, file);
        let writer = ArrowWriter::try_new_with_options(buffer, shape.arrow.clone(), options)
            .map_err(LakeError::parquet("begin", &path))?;
        Ok(FileEncoder {
            metrics: Metrics::new(shape.columns.len()),
            shape,
            path,
            writer,
            rows: 0,
        })
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Is the size in bytes so far, what is still in memory estimated.
    pub(super) fn bytes(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), LakeError> {
        self.metrics.count_nans(&self.shape.columns, batch);
        self.writer
            .write(batch)
            .map_err(LakeError::parquet("write", &self.path))?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Closes and syncs the file; the directory is synced by the caller.
    pub(super) fn finish(mut self) -> Result<(WrittenFile, DataFile), LakeError> {
        let footer = self.writer.finish().map_err(LakeError::parquet("finish", &self.path))?;
        let bytes = self.writer.bytes_written() as u64;
        let path = Path::new(&self.path);
        let buffer = self.writer.inner_mut();
        buffer.flush().map_err(|e| LakeError::file("write", path, e))?;
        buffer.get_ref().sync_all().map_err(|e| LakeError::sync(path, e))?;
        self.metrics
            .read(&self.shape.columns, &footer)
            .map_err(LakeError::iceberg("collect statistics", &self.path))?;
        let offsets = footer.row_groups().iter().filter_map(|group| group.file_offset());
        let mut builder = DataFileBuilder::default();
        builder
            .content(self.shape.content)
            .file_path(self.path.clone())
            .file_format(DataFileFormat::Parquet)
            .record_count(self.rows)
            .file_size_in_bytes(bytes)
            .split_offsets(Some(offsets.collect()));
        self.metrics.fill(&mut builder);
        let data_file = builder
            .build()
            .map_err(|e| LakeError::broken(format!("a data file lacks a field: {e}")))?;
        let written = self.shape.describe(&data_file)?;
        Ok((written, data_file))
    }
}

impl FileShape {
    pub(super) fn describe(&self, data_file: &DataFile) -> Result<WrittenFile, LakeError> {
        let json = serialize_data_file_to_json(data_file.clone(), &self.partition_type, FormatVersion::V2)
            .map_err(LakeError::iceberg("describe", data_file.file_path()))?;
        Ok(WrittenFile {
            path: data_file.file_path().to_owned(),
            rows: data_file.record_count(),
            bytes: data_file.file_size_in_bytes(),
            json,
        })
    }
}

/// Syncs the directory of a file.
pub(super) fn sync_parent(path: &str) -> Result<(), LakeError> {
    match Path::new(path).parent() {
        Some(parent) => files::sync_dir(parent),
        None => Ok(()),
    }
}
