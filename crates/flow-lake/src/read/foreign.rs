//! Reading tables of other programs through the Iceberg library's scan.

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use futures::{Stream, StreamExt};
use iceberg::io::FileIO;
use iceberg::{NamespaceIdent, Runtime, TableIdent};

use super::channel::{self, Sender};
use super::snapshot_of;
use crate::error::LakeError;
use crate::table::Table;

/// Streams a snapshot's live rows. `projection` holds indexes into the snapshot's columns.
pub(super) fn read(
    table: &Table,
    snapshot_id: i64,
    projection: Option<Vec<usize>>,
) -> Result<impl Stream<Item = Result<RecordBatch, LakeError>> + Send + 'static, LakeError> {
    let schema = snapshot_of(table, snapshot_id)?
        .schema(table.metadata())
        .and_then(|schema| iceberg::arrow::schema_to_arrow_schema(&schema))
        .map_err(LakeError::iceberg("map the schema", table.name()))?;
    let mut indexes: Vec<usize> = match projection {
        Some(indexes) => indexes,
        None => (0..schema.fields().len()).collect(),
    };
    let wanted: SchemaRef = schema
        .project(&indexes)
        .map_err(LakeError::arrow("choose columns", table.name()))?
        .into();
    // IMPORTANT: in the table's order. The library gives the columns of some files in the file's order
    // under the names in the order that they were asked for.
    indexes.sort_unstable();
    // It counts no rows without a column, so a scan of none reads the first.
    if indexes.is_empty() && !schema.fields().is_empty() {
        indexes.push(0);
    }
    let names: Vec<String> = indexes.iter().map(|at| schema.field(*at).name().clone()).collect();
    let (senders, stream) = channel::channel(1);
    for sender in senders {
        let (table, wanted, names) = (table.clone(), wanted.clone(), names.clone());
        tokio::task::spawn_blocking(move || {
            let result = run(&table, snapshot_id, &names, &wanted, &sender);
            sender.finish(result);
        });
    }
    Ok(stream)
}

/// Runs the scan on a runtime of its own, as the library reads files where it is polled.
fn run(
    table: &Table,
    snapshot_id: i64,
    names: &[String],
    wanted: &SchemaRef,
    sender: &Sender<RecordBatch>,
) -> Result<(), LakeError> {
    let failed = |action| LakeError::iceberg(action, table.name());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| LakeError::broken(format!("cannot start a reader: {e}")))?;
    let namespace = NamespaceIdent::from_strs(table.name().schema.split('.')).map_err(failed("name"))?;
    let iceberg_table = iceberg::table::Table::builder()
        .file_io(FileIO::new_with_fs())
        .metadata(table.metadata().clone())
        .metadata_location(table.metadata_location())
        .identifier(TableIdent::new(namespace, table.name().name.clone()))
        .runtime(Runtime::new(&runtime))
        .readonly(true)
        .build()
        .map_err(failed("open"))?;
    let scan = iceberg_table
        .scan()
        .snapshot_id(snapshot_id)
        .select(names)
        .build()
        .map_err(failed("plan a scan"))?;
    let (batches, mut batch_receiver) = tokio::sync::mpsc::channel(1);
    let scanning = runtime.spawn(async move {
        let mut stream = match scan.to_arrow().await {
            Ok(stream) => stream,
            Err(error) => return drop(batches.send(Err(error)).await),
        };
        while let Some(batch) = stream.next().await {
            if batches.send(batch).await.is_err() {
                return;
            }
        }
    });
    while let Some(batch) = runtime.block_on(batch_receiver.recv()) {
        let batch = batch.map_err(failed("scan"))?;
        if !sender.send(shape(table, &batch, wanted)?) {
            return Ok(());
        }
    }
    runtime
        .block_on(scanning)
        .map_err(|e| LakeError::broken(format!("a scan stopped half-way: {e}")))
}

/// Brings a batch into the wanted order and types.
fn shape(table: &Table, batch: &RecordBatch, wanted: &SchemaRef) -> Result<RecordBatch, LakeError> {
    let mut columns = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let column = batch
            .column_by_name(field.name())
            .ok_or_else(|| LakeError::Unsupported {
                table: table.name().to_string(),
                reason: format!("the scan left out column '{}'", field.name()),
            })?;
        columns.push(if column.data_type() == field.data_type() {
            column.clone()
        } else {
            arrow_cast::cast(column, field.data_type()).map_err(LakeError::arrow("shape rows", table.name()))?
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(wanted.clone(), columns, &options)
        .map_err(LakeError::arrow("shape rows", table.name()))
}
