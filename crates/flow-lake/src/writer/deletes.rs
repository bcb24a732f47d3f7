//! Position-delete files (Iceberg specification, "Position Delete Files").

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use flow_core::arrow::FIELD_ID_KEY;
use iceberg::spec::{DataContentType, DataFileBuilder, DataFileFormat, Datum, PrimitiveType, StructType};
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type as ParquetType};

use super::WrittenFile;
use super::encode::{FileEncoder, FileShape, sync_parent};
use super::metrics::MetricColumn;
use crate::error::LakeError;

/// Is the reserved field id of `file_path`.
pub(crate) const FILE_PATH_ID: i32 = 2_147_483_546;
/// Is the reserved field id of `pos`.
pub(crate) const POS_ID: i32 = 2_147_483_545;

/// Counts the rows encoded at a time.
const BATCH_ROWS: usize = 65_536;

fn shape() -> Result<FileShape, LakeError> {
    let field = |name: &str, data_type, id: i32| {
        let metadata = HashMap::from([(FIELD_ID_KEY.to_owned(), id.to_string())]);
        Field::new(name, data_type, false).with_metadata(metadata)
    };
    let column = |name, physical, logical, id| {
        ParquetType::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .with_id(Some(id))
            .build()
    };
    let parquet = || {
        let path = column(
            "file_path",
            PhysicalType::BYTE_ARRAY,
            Some(LogicalType::String),
            FILE_PATH_ID,
        )?;
        let pos = column("pos", PhysicalType::INT64, None, POS_ID)?;
        let fields = vec![Arc::new(path), Arc::new(pos)];
        let root = ParquetType::group_type_builder("table").with_fields(fields).build()?;
        Ok(SchemaDescriptor::new(Arc::new(root)))
    };
    Ok(FileShape {
        content: DataContentType::PositionDeletes,
        arrow: Arc::new(Schema::new(vec![
            field("file_path", DataType::Utf8, FILE_PATH_ID),
            field("pos", DataType::Int64, POS_ID),
        ])),
        parquet: parquet().map_err(LakeError::parquet("map the schema to", "Parquet"))?,
        columns: vec![
            MetricColumn {
                field_id: FILE_PATH_ID,
                bound: Some(PrimitiveType::String),
            },
            MetricColumn {
                field_id: POS_ID,
                bound: Some(PrimitiveType::Long),
            },
        ],
        partition_type: StructType::new(Vec::new()),
        distinct: Some("pos".to_owned()),
    })
}

/// Writes and syncs one delete file. Blocks.
pub(super) fn write(path: String, deletes: &[(Arc<str>, u64)]) -> Result<Vec<WrittenFile>, LakeError> {
    let (Some((first, _)), Some((last, _))) = (deletes.first(), deletes.last()) else {
        return Ok(Vec::new());
    };
    if !deletes.is_sorted_by(|a, b| a < b) {
        return Err(LakeError::broken("position deletes are not strictly ascending"));
    }
    let shape = Arc::new(shape()?);
    let mut encoder = FileEncoder::create(shape.clone(), path.clone())?;
    for chunk in deletes.chunks(BATCH_ROWS) {
        let paths = StringArray::from_iter_values(chunk.iter().map(|(path, _)| path));
        let positions = chunk.iter().map(|(_, position)| i64::try_from(*position));
        let positions = positions
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| LakeError::broken("a position is past 2^63"))?;
        let columns: Vec<ArrayRef> = vec![Arc::new(paths), Arc::new(Int64Array::from(positions))];
        let batch =
            RecordBatch::try_new(shape.arrow.clone(), columns).map_err(LakeError::arrow("make a batch", &path))?;
        encoder.write(&batch)?;
    }
    let (written, data_file) = encoder.finish()?;
    sync_parent(&path)?;
    // The footer's bounds of a long path are cut; readers that compare whole paths to find the
    // deletes of a file need them exact.
    let bound = |path: &str, bounds: &HashMap<i32, Datum>| {
        let mut bounds = bounds.clone();
        bounds.insert(FILE_PATH_ID, Datum::string(path));
        bounds
    };
    let exact = DataFileBuilder::default()
        .content(DataContentType::PositionDeletes)
        .file_path(path)
        .file_format(DataFileFormat::Parquet)
        .record_count(written.rows)
        .file_size_in_bytes(written.bytes)
        .split_offsets(data_file.split_offsets().map(<[i64]>::to_vec))
        .column_sizes(data_file.column_sizes().clone())
        .value_counts(data_file.value_counts().clone())
        .null_value_counts(data_file.null_value_counts().clone())
        .lower_bounds(bound(first, data_file.lower_bounds()))
        .upper_bounds(bound(last, data_file.upper_bounds()))
        .build()
        .map_err(|e| LakeError::broken(format!("a delete file lacks a field: {e}")))?;
    Ok(vec![shape.describe(&exact)?])
}
