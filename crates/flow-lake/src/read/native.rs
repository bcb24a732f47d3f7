//! Reading our own files: exact types, and each row's place.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, SchemaRef};
use flow_core::TableName;
use flow_core::arrow::{FIELD_ID_KEY, arrow_schema};
use flow_core::lake::LocatedBatch;
use futures::Stream;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;

use super::channel::{self, Sender};
use super::plan::ScanPlan;
use super::positions::{self, DeletedPositions, LivePositions};
use super::snapshot_of;
use crate::error::LakeError;
use crate::table::Table;
use crate::{blocking, files, schema};

/// Counts the rows of a batch where rows are small.
const BATCH_ROWS: usize = 8192;

/// Is about the size in bytes of a batch where rows are big.
const BATCH_BYTES: u64 = 16 << 20;

/// Counts the files that one scan decodes at a time.
const READERS_MAX: usize = 4;

/// Is what the readers of one scan share.
struct Scan {
    table: TableName,
    /// Is what comes out: the snapshot's columns, or the wanted ones in the wanted order.
    wanted: SchemaRef,
    /// Is all the snapshot's columns: what a file that was written under it holds.
    whole: SchemaRef,
    plan: ScanPlan,
    deleted: DeletedPositions,
    next_file: AtomicUsize,
}

/// Streams a snapshot's live rows.
pub(super) async fn read(
    table: &Table,
    snapshot_id: i64,
    plan: ScanPlan,
    projection: Option<Vec<usize>>,
) -> Result<impl Stream<Item = Result<LocatedBatch, LakeError>> + Send + 'static, LakeError> {
    let table = table.clone();
    let scan = blocking::run(move || Scan::new(&table, snapshot_id, plan, projection)).await?;
    let scan = Arc::new(scan);
    let parallel = std::thread::available_parallelism().map_or(1, usize::from);
    let readers = parallel.min(READERS_MAX).min(scan.plan.data.len());
    let (senders, stream) = channel::channel(readers);
    for sender in senders {
        let scan = scan.clone();
        tokio::task::spawn_blocking(move || {
            let result = scan.run(&sender);
            sender.finish(result);
        });
    }
    Ok(stream)
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(FIELD_ID_KEY)?.parse().ok()
}

impl Scan {
    fn new(table: &Table, snapshot_id: i64, plan: ScanPlan, projection: Option<Vec<usize>>) -> Result<Scan, LakeError> {
        let metadata = table.metadata();
        let iceberg = snapshot_of(table, snapshot_id)?
            .schema(metadata)
            .map_err(LakeError::iceberg("find a snapshot's schema", table.name()))?;
        let whole = arrow_schema(&schema::from_iceberg(table.name(), &iceberg, metadata.properties())?);
        let wanted = match projection {
            Some(indexes) => whole
                .project(&indexes)
                .map_err(LakeError::arrow("choose columns", table.name()))?
                .into(),
            None => whole.clone(),
        };
        Ok(Scan {
            table: table.name().clone(),
            wanted,
            whole,
            deleted: positions::load(&plan)?,
            plan,
            next_file: AtomicUsize::new(0),
        })
    }

    /// Reads files until none is left.
    fn run(&self, sender: &Sender<LocatedBatch>) -> Result<(), LakeError> {
        loop {
            let index = self.next_file.fetch_add(1, Ordering::Relaxed);
            let Some(file) = self.plan.data.get(index) else {
                return Ok(());
            };
            if !self.read_file(&file.path, sender)? {
                return Ok(());
            }
        }
    }

    /// Reads one file; `false` if nobody listens any more.
    fn read_file(&self, location: &str, sender: &Sender<LocatedBatch>) -> Result<bool, LakeError> {
        let path = files::local_path(location);
        let handle = File::open(&path).map_err(|e| LakeError::file("open", &path, e))?;
        let failed = || LakeError::parquet("read", location);
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&handle, options.clone()).map_err(failed())?;
        let roots = self.roots(location, &footer)?;
        // A file of exactly these columns decodes into their types at once.
        let footer =
            match ArrowReaderMetadata::try_new(footer.metadata().clone(), options.with_schema(self.whole.clone())) {
                Ok(exact) if roots.exact => exact,
                _ => footer,
            };
        let rows = u64::try_from(footer.metadata().file_metadata().num_rows()).unwrap_or(0);
        let no_deletes = Vec::new();
        let deleted = self.deleted.get(location).unwrap_or(&no_deletes);
        let mask = ProjectionMask::roots(footer.parquet_schema(), roots.columns.iter().flatten().copied());
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(handle, footer.clone())
            .with_projection(mask)
            .with_batch_size(batch_rows(footer.metadata()))
            .with_row_selection(positions::live_rows(rows, deleted))
            .build()
            .map_err(failed())?;
        let file: Arc<str> = location.into();
        let mut live = LivePositions::new(deleted);
        for batch in reader {
            let batch = batch.map_err(LakeError::arrow("read rows", location))?;
            let located = LocatedBatch {
                file: file.clone(),
                positions: live.take(batch.num_rows()),
                batch: self.shape(&batch, &roots)?,
            };
            if !sender.send(located) {
                return Ok(false);
            }
        }
        Ok(true)
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

/// Is where the wanted columns are in one file.
struct Roots {
    columns: Vec<Option<usize>>,
    /// Says that the file has just the snapshot's columns, in order and by name.
    exact: bool,
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
