//! From what the SQL engine gives to what an Iceberg table holds.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::Result;
use flow_core::{Column, ColumnType, TableSchema};

use crate::exactness::inexact;

/// Names the four lineage columns of every dynamic table, in their order.
pub const LINEAGE_COLUMNS: [&str; 4] = [
    "_flow_input_snapshot_id",
    "_flow_job_run_id",
    "_flow_processed_at",
    "_flow_refresh_mode",
];

/// Is the column type that holds every value of an Arrow type, or what to write instead.
pub(crate) fn column_type(data_type: &DataType) -> std::result::Result<ColumnType, &'static str> {
    Ok(match data_type {
        DataType::Boolean => ColumnType::Boolean,
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => ColumnType::Int,
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => ColumnType::Long,
        DataType::Float32 => ColumnType::Float,
        DataType::Float64 => ColumnType::Double,
        DataType::Decimal128(precision, scale) if *scale >= 0 && *scale as u8 <= *precision => ColumnType::Decimal {
            precision: *precision,
            scale: *scale as u8,
        },
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => {
            return Err("CAST it to numeric(38, s)");
        }
        DataType::Date32 => ColumnType::Date,
        DataType::Time32(_) | DataType::Time64(_) => ColumnType::Time,
        DataType::Timestamp(_, None) => ColumnType::Timestamp,
        DataType::Timestamp(_, Some(_)) => ColumnType::Timestamptz,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ColumnType::String,
        DataType::FixedSizeBinary(16) => ColumnType::Uuid,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            ColumnType::Binary
        }
        DataType::Dictionary(_, value) => return column_type(value),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            match column_type(item.data_type())? {
                ColumnType::List(_) => return Err("an array of arrays cannot be stored: unnest it"),
                element => ColumnType::List(Box::new(element)),
            }
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            return Err("CAST it to text, or take extract(epoch FROM …)");
        }
        DataType::Null => return Err("CAST the NULL to the type the column shall have"),
        DataType::Date64 => return Err("CAST it to date"),
        _ => return Err("CAST it to a simple type"),
    })
}

/// Makes a table's columns: the user's, then the lineage columns. Field ids are assigned.
pub(crate) fn table_schema(columns: Vec<(String, ColumnType)>) -> TableSchema {
    let lineage = [
        ColumnType::Long,
        ColumnType::String,
        ColumnType::Timestamptz,
        ColumnType::String,
    ];
    let lineage = LINEAGE_COLUMNS.iter().map(|name| (*name).to_owned()).zip(lineage);
    let columns = columns.into_iter().chain(lineage).map(|(name, column_type)| Column {
        name,
        field_id: 0,
        element_id: None,
        column_type,
        required: false,
        source_type: String::new(),
    });
    let mut schema = TableSchema {
        columns: columns.collect(),
        key: Vec::new(),
    };
    schema.assign_field_ids();
    schema
}

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: datafusion::arrow::util::display::FormatOptions::new(),
};

/// Gives a column another type without changing any value; a value that would change is an error.
pub(crate) fn cast_exactly(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let result = if array.data_type() == to {
        array.clone()
    } else {
        let result = cast_with_options(array, to, &STRICT)?;
        if loses_digits(array.data_type(), to) {
            let back = cast_with_options(&result, array.data_type(), &STRICT)?;
            if back.to_data() != array.to_data() {
                return Err(inexact(format!(
                    "a value of type {} does not fit {to} exactly",
                    array.data_type()
                )));
            }
        }
        result
    };
    if let DataType::Decimal128(precision, scale) = to {
        let digits = result.as_primitive::<Decimal128Type>();
        if digits.validate_decimal_precision(*precision).is_err() {
            return Err(inexact(format!("a value is beyond numeric({precision},{scale})")));
        }
    }
    Ok(result)
}

fn loses_digits(from: &DataType, to: &DataType) -> bool {
    let unit = |data_type: &DataType| match data_type {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => Some(*unit),
        _ => None,
    };
    unit(from) == Some(TimeUnit::Nanosecond) && unit(to) == Some(TimeUnit::Microsecond)
}

/// Casts a batch's columns to the table's own Arrow fields.
pub(crate) fn cast_columns(columns: &[ArrayRef], fields: &[Arc<arrow_schema::Field>]) -> Result<Vec<ArrayRef>> {
    let pairs = columns.iter().zip(fields);
    pairs
        .map(|(column, field)| cast_exactly(column, field.data_type()))
        .collect()
}

/// Shows both sides where a definition's columns and the stored ones differ in name, type or order.
pub fn schema_difference(planned: &TableSchema, stored: &TableSchema) -> Option<String> {
    let show = |schema: &TableSchema| {
        let user = schema
            .columns
            .iter()
            .filter(|column| !LINEAGE_COLUMNS.contains(&column.name.as_str()));
        let columns: Vec<String> = user
            .map(|column| format!("{} {}", column.name, column.column_type))
            .collect();
        columns.join(", ")
    };
    let (planned, stored) = (show(planned), show(stored));
    (planned != stored).then(|| format!("definition gives ({planned}), table has ({stored})"))
}
