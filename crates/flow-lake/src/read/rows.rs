//! Rows of one data file: chosen columns by field id, exact types, chosen positions.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Fields, SchemaRef};
use flow_core::TableName;
use flow_core::arrow::FIELD_ID_KEY;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};

use super::positions::Wanted;
use super::{arrow_schema_of, snapshot_of};
use crate::error::LakeError;
use crate::files;
use crate::table::Table;

/// Counts the rows of a batch where rows are small.
const BATCH_ROWS: usize = 8192;

/// Is about the size in bytes of a batch where rows are big.
const BATCH_BYTES: u64 = 16 << 20;

/// Reads data files as rows of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct RowReader {
    table: TableName,
    /// Is what comes out: the snapshot's columns, or the wanted ones in the wanted order.
    wanted: SchemaRef,
    /// Is all the snapshot's columns: what a file that was written under it holds.
    whole: SchemaRef,
}

/// Is all of a snapshot's columns in Arrow's terms.
fn columns(table: &Table, snapshot_id: i64) -> Result<SchemaRef, LakeError> {
    let metadata = table.metadata();
    let iceberg = snapshot_of(table, snapshot_id)?
        .schema(metadata)
        .map_err(LakeError::iceberg("find a snapshot's schema", table.name()))?;
    arrow_schema_of(table, &iceberg)
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID_KEY)?.parse().ok()
}

impl RowReader {
    /// Prepares to read columns of a snapshot; `projection` holds indexes into them.
    pub(super) fn new(table: &Table, snapshot_id: i64, projection: Option<&[usize]>) -> Result<RowReader, LakeError> {
        let whole = columns(table, snapshot_id)?;
        let wanted = match projection {
            Some(indexes) => whole
                .project(indexes)
                .map_err(LakeError::arrow("choose columns", table.name()))?
                .into(),
            None => whole.clone(),
        };
        Ok(RowReader {
            table: table.name().clone(),
            wanted,
            whole,
        })
    }

    /// Holds the columns that come out.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.wanted
    }

    /// Opens a file; the rows come in the order of their positions.
    pub(super) fn open(&self, location: &str, rows: Wanted<'_>) -> Result<FileRows<'_>, LakeError> {
        let handle = open(location)?;
        let failed = || LakeError::parquet("read", location);
        let options = match rows {
            // Pages without a wanted row are found in the offset index, and not read.
            Wanted::Only(_) => options().with_offset_index_policy(PageIndexPolicy::Optional),
            Wanted::Except(_) => options(),
        };
        let footer = ArrowReaderMetadata::load(&handle, options.clone()).map_err(failed())?;
        let roots = self.roots(location, &footer)?;
        // A file of exactly these columns decodes into their types at once.
        let footer =
            match ArrowReaderMetadata::try_new(footer.metadata().clone(), options.with_schema(self.whole.clone())) {
                Ok(exact) if roots.exact => exact,
                _ => footer,
            };
        let groups = footer.metadata().row_groups().iter();
        let groups: Vec<usize> = groups
            .map(|group| usize::try_from(group.num_rows()).unwrap_or(0))
            .collect();
        let (groups, selection) = rows.select(&groups);
        let mask = ProjectionMask::roots(footer.parquet_schema(), roots.columns.iter().flatten().copied());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(handle, footer.clone())
            .with_projection(mask)
            .with_batch_size(batch_rows(footer.metadata()))
            .with_row_groups(groups)
            .with_row_selection(selection)
            .build()
            .map_err(failed())?;
        Ok(FileRows {
            reader: self,
            location: location.to_owned(),
            roots,
            batches: reader,
        })
    }

    /// Says whether a file of another program says all by itself: field ids, nested columns shaped as
    /// the snapshot has them, and no missing column that is `filled` with something else than NULL.
    pub(super) fn understands(&self, location: &str, filled: &BTreeSet<i32>) -> Result<bool, LakeError> {
        let footer =
            ArrowReaderMetadata::load(&open(location)?, options()).map_err(LakeError::parquet("read", location))?;
        let Ok(roots) = self.roots(location, &footer) else {
            return Ok(false);
        };
        let pairs = roots.columns.iter().zip(self.wanted.fields());
        let alike = |root: &Option<usize>, field: &Field| match root {
            Some(root) => same_shape(footer.schema().field(*root).data_type(), field.data_type()),
            None => field_id(field).is_some_and(|id| !filled.contains(&id)),
        };
        Ok(pairs.into_iter().all(|(root, field)| alike(root, field)))
    }

    /// Finds each wanted column in the file by field id.
    fn roots(&self, location: &str, footer: &ArrowReaderMetadata) -> Result<Roots, LakeError> {
        let mut ids = Vec::new();
        for field in footer.parquet_schema().root_schema().get_fields() {
            let info = field.get_basic_info();
            if !info.has_id() {
                return Err(LakeError::Unsupported {
                    table: self.table.to_string(),
                    reason: format!("data file {location} has no field ids"),
                });
            }
            ids.push((info.id(), info.name().to_owned()));
        }
        let exact = ids.len() == self.whole.fields().len()
            && ids
                .iter()
                .zip(self.whole.fields())
                .all(|((id, name), field)| field_id(field) == Some(*id) && field.name() == name);
        let find = |field: &Arc<Field>| ids.iter().position(|(id, _)| field_id(field) == Some(*id));
        Ok(Roots {
            columns: self.wanted.fields().iter().map(find).collect(),
            exact,
        })
    }

    /// Brings a batch into the wanted order and types. A column the file lacks was added later.
    fn shape(&self, batch: &RecordBatch, roots: &Roots) -> Result<RecordBatch, LakeError> {
        let failed = || LakeError::arrow("shape rows", &self.table);
        let mut in_file: Vec<usize> = roots.columns.iter().flatten().copied().collect();
        in_file.sort_unstable();
        in_file.dedup();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(roots.columns.len());
        for (root, field) in roots.columns.iter().zip(self.wanted.fields()) {
            let column = root.and_then(|root| in_file.binary_search(&root).ok());
            columns.push(match column {
                Some(index) if batch.column(index).data_type() == field.data_type() => batch.column(index).clone(),
                Some(index) => arrow_cast::cast(batch.column(index), field.data_type()).map_err(failed())?,
                None => new_null_array(field.data_type(), batch.num_rows()),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.wanted.clone(), columns, &options).map_err(failed())
    }
}

fn open(location: &str) -> Result<File, LakeError> {
    let path = files::local_path(location);
    File::open(&path).map_err(|e| LakeError::file("open", &path, e))
}

fn options() -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_skip_arrow_metadata(true)
}

/// Says whether a column's nesting and the field ids within are the same; scalars may differ, as
/// they are cast.
fn same_shape(found: &DataType, wanted: &DataType) -> bool {
    let same_fields = |a: &Fields, b: &Fields| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_field(a, b));
    match (found, wanted) {
        (DataType::List(a) | DataType::LargeList(a), DataType::List(b) | DataType::LargeList(b))
        | (DataType::Map(a, _), DataType::Map(b, _)) => same_field(a, b),
        (DataType::Struct(a), DataType::Struct(b)) => same_fields(a, b),
        (a, b) => !a.is_nested() && !b.is_nested(),
    }
}

fn same_field(a: &Field, b: &Field) -> bool {
    field_id(a) == field_id(b) && same_shape(a.data_type(), b.data_type())
}

/// Is where the wanted columns are in one file.
#[derive(Debug)]
struct Roots {
    columns: Vec<Option<usize>>,
    /// Says that the file has just the snapshot's columns, in order and by name.
    exact: bool,
}

/// Is the wanted rows of one file, in batches.
pub(super) struct FileRows<'a> {
    reader: &'a RowReader,
    location: String,
    roots: Roots,
    batches: ParquetRecordBatchReader,
}

impl Iterator for FileRows<'_> {
    type Item = Result<RecordBatch, LakeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        let batch = batch.map_err(LakeError::arrow("read rows", &self.location));
        Some(batch.and_then(|batch| self.reader.shape(&batch, &self.roots)))
    }
}

/// Chooses a batch size that bounds memory also where rows are big.
fn batch_rows(footer: &ParquetMetaData) -> usize {
    let bytes: i64 = footer.row_groups().iter().map(|group| group.total_byte_size()).sum();
    let rows = footer.file_metadata().num_rows().max(1);
    let row_bytes = u64::try_from(bytes / rows).unwrap_or(0).max(1);
    usize::try_from(BATCH_BYTES / row_bytes)
        .unwrap_or(BATCH_ROWS)
        .clamp(1, BATCH_ROWS)
}
