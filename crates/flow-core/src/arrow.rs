//! Rows as Arrow record batches, with the field ids that Iceberg's Parquet files carry.
//!
//! | column type | Arrow type |
//! |---|---|
//! | timestamp, timestamptz | `Timestamp(µs)` without zone, with `+00:00` |
//! | time | `Time64(µs)` |
//! | uuid | `FixedSizeBinary(16)` |
//! | binary | `LargeBinary` |
//! | decimal(p, s) | `Decimal128(p, s)` |
//! | list | `List`, its field named `element` |

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder, Float32Builder,
    Float64Builder, Int32Builder, Int64Builder, LargeBinaryBuilder, ListBuilder, StringBuilder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};

use crate::codec::Malformed;
use crate::row::{Datum, RowReader};
use crate::schema::{ColumnType, TableSchema};

/// Is the metadata key under which Parquet and Iceberg readers look for a field id.
pub const FIELD_ID_KEY: &str = "PARQUET:field_id";

/// Is the zone of every `timestamptz`.
pub const UTC: &str = "+00:00";

/// Says why rows gave no batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A row's bytes are broken.
    #[error("row cannot be read")]
    Malformed(#[from] Malformed),
    /// Arrow refused the columns: a NULL in a required column, say.
    #[error("columns do not make a batch")]
    Arrow(#[from] ArrowError),
}

fn with_id(field: Field, id: i32) -> Field {
    field.with_metadata(HashMap::from([(FIELD_ID_KEY.to_owned(), id.to_string())]))
}

/// Is the Arrow type of a column type; `element_id` is the field id of a list's element.
pub fn data_type(column_type: &ColumnType, element_id: Option<i32>) -> DataType {
    match column_type {
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Int => DataType::Int32,
        ColumnType::Long => DataType::Int64,
        ColumnType::Float => DataType::Float32,
        ColumnType::Double => DataType::Float64,
        ColumnType::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale as i8),
        ColumnType::Date => DataType::Date32,
        ColumnType::Time => DataType::Time64(TimeUnit::Microsecond),
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        ColumnType::String => DataType::Utf8,
        ColumnType::Binary => DataType::LargeBinary,
        ColumnType::Uuid => DataType::FixedSizeBinary(16),
        ColumnType::List(element) => DataType::List(element_field(element, element_id)),
    }
}

fn element_field(element: &ColumnType, element_id: Option<i32>) -> FieldRef {
    let field = Field::new("element", data_type(element, None), true);
    Arc::new(match element_id {
        Some(id) => with_id(field, id),
        None => field,
    })
}

/// Is the Arrow schema of a table, field ids included.
pub fn arrow_schema(schema: &TableSchema) -> SchemaRef {
    let fields = schema.columns.iter().map(|column| {
        let data_type = data_type(&column.column_type, column.element_id);
        with_id(Field::new(&column.name, data_type, !column.required), column.field_id)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Collects one column's values.
enum ColumnBuilder {
    Boolean(BooleanBuilder),
    Int(Int32Builder),
    Long(Int64Builder),
    Float(Float32Builder),
    Double(Float64Builder),
    Decimal(Decimal128Builder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    String(StringBuilder),
    Binary(LargeBinaryBuilder),
    Uuid(FixedSizeBinaryBuilder),
    List(ListBuilder<Box<dyn ArrayBuilder>>, Box<ColumnType>),
}

/// Makes a plain builder for a scalar type.
fn scalar_builder(column_type: &ColumnType) -> Box<dyn ArrayBuilder> {
    match column_type {
        ColumnType::Boolean => Box::new(BooleanBuilder::new()),
        ColumnType::Int => Box::new(Int32Builder::new()),
        ColumnType::Long => Box::new(Int64Builder::new()),
        ColumnType::Float => Box::new(Float32Builder::new()),
        ColumnType::Double => Box::new(Float64Builder::new()),
        ColumnType::Decimal { .. } => Box::new(Decimal128Builder::new().with_data_type(data_type(column_type, None))),
        ColumnType::Date => Box::new(Date32Builder::new()),
        ColumnType::Time => Box::new(Time64MicrosecondBuilder::new()),
        ColumnType::Timestamp => Box::new(TimestampMicrosecondBuilder::new()),
        ColumnType::Timestamptz => {
            Box::new(TimestampMicrosecondBuilder::new().with_data_type(data_type(column_type, None)))
        }
        ColumnType::String => Box::new(StringBuilder::new()),
        ColumnType::Binary => Box::new(LargeBinaryBuilder::new()),
        ColumnType::Uuid => Box::new(FixedSizeBinaryBuilder::new(16)),
        ColumnType::List(_) => unreachable!("lists of lists do not exist in PostgreSQL"),
    }
}

macro_rules! append_as {
    ($builder:expr, $kind:ty, $value:expr) => {
        match $builder.as_any_mut().downcast_mut::<$kind>() {
            Some(builder) => builder.append_option($value),
            None => unreachable!("the element builder was made for this element type"),
        }
    };
}

fn append_element(builder: &mut Box<dyn ArrayBuilder>, element: &ColumnType, datum: Option<Datum<'_>>) {
    macro_rules! scalar {
        ($kind:ty, $variant:path) => {{
            let value = match datum {
                Some($variant(value)) => Some(value),
                _ => None,
            };
            append_as!(builder, $kind, value)
        }};
    }
    match element {
        ColumnType::Boolean => scalar!(BooleanBuilder, Datum::Boolean),
        ColumnType::Int => scalar!(Int32Builder, Datum::Int),
        ColumnType::Long => scalar!(Int64Builder, Datum::Long),
        ColumnType::Float => scalar!(Float32Builder, Datum::Float),
        ColumnType::Double => scalar!(Float64Builder, Datum::Double),
        ColumnType::Decimal { .. } => scalar!(Decimal128Builder, Datum::Decimal),
        ColumnType::Date => scalar!(Date32Builder, Datum::Date),
        ColumnType::Time => scalar!(Time64MicrosecondBuilder, Datum::Time),
        ColumnType::Timestamp => scalar!(TimestampMicrosecondBuilder, Datum::Timestamp),
        ColumnType::Timestamptz => scalar!(TimestampMicrosecondBuilder, Datum::Timestamptz),
        ColumnType::String => scalar!(StringBuilder, Datum::String),
        ColumnType::Binary => scalar!(LargeBinaryBuilder, Datum::Binary),
        ColumnType::Uuid => match (builder.as_any_mut().downcast_mut::<FixedSizeBinaryBuilder>(), datum) {
            (Some(builder), Some(Datum::Uuid(value))) => {
                builder
                    .append_value(value)
                    .unwrap_or_else(|_| unreachable!("a uuid has 16 bytes"));
            }
            (Some(builder), _) => builder.append_null(),
            (None, _) => unreachable!("the element builder was made for this element type"),
        },
        ColumnType::List(_) => unreachable!("lists of lists do not exist in PostgreSQL"),
    }
}

impl ColumnBuilder {
    fn new(column_type: &ColumnType, element_id: Option<i32>) -> Self {
        match column_type {
            ColumnType::Boolean => ColumnBuilder::Boolean(BooleanBuilder::new()),
            ColumnType::Int => ColumnBuilder::Int(Int32Builder::new()),
            ColumnType::Long => ColumnBuilder::Long(Int64Builder::new()),
            ColumnType::Float => ColumnBuilder::Float(Float32Builder::new()),
            ColumnType::Double => ColumnBuilder::Double(Float64Builder::new()),
            ColumnType::Decimal { .. } => {
                ColumnBuilder::Decimal(Decimal128Builder::new().with_data_type(data_type(column_type, None)))
            }
            ColumnType::Date => ColumnBuilder::Date(Date32Builder::new()),
            ColumnType::Time => ColumnBuilder::Time(Time64MicrosecondBuilder::new()),
            ColumnType::Timestamp | ColumnType::Timestamptz => ColumnBuilder::Timestamp(
                TimestampMicrosecondBuilder::new().with_data_type(data_type(column_type, None)),
            ),
            ColumnType::String => ColumnBuilder::String(StringBuilder::new()),
            ColumnType::Binary => ColumnBuilder::Binary(LargeBinaryBuilder::new()),
            ColumnType::Uuid => ColumnBuilder::Uuid(FixedSizeBinaryBuilder::new(16)),
            ColumnType::List(element) => ColumnBuilder::List(
                ListBuilder::new(scalar_builder(element)).with_field(element_field(element, element_id)),
                element.clone(),
            ),
        }
    }

    fn append(&mut self, datum: Option<Datum<'_>>) -> Result<(), BatchError> {
        match (self, datum) {
            (ColumnBuilder::Boolean(b), Some(Datum::Boolean(v))) => b.append_value(v),
            (ColumnBuilder::Boolean(b), _) => b.append_null(),
            (ColumnBuilder::Int(b), Some(Datum::Int(v))) => b.append_value(v),
            (ColumnBuilder::Int(b), _) => b.append_null(),
            (ColumnBuilder::Long(b), Some(Datum::Long(v))) => b.append_value(v),
            (ColumnBuilder::Long(b), _) => b.append_null(),
            (ColumnBuilder::Float(b), Some(Datum::Float(v))) => b.append_value(v),
            (ColumnBuilder::Float(b), _) => b.append_null(),
            (ColumnBuilder::Double(b), Some(Datum::Double(v))) => b.append_value(v),
            (ColumnBuilder::Double(b), _) => b.append_null(),
            (ColumnBuilder::Decimal(b), Some(Datum::Decimal(v))) => b.append_value(v),
            (ColumnBuilder::Decimal(b), _) => b.append_null(),
            (ColumnBuilder::Date(b), Some(Datum::Date(v))) => b.append_value(v),
            (ColumnBuilder::Date(b), _) => b.append_null(),
            (ColumnBuilder::Time(b), Some(Datum::Time(v))) => b.append_value(v),
            (ColumnBuilder::Time(b), _) => b.append_null(),
            (ColumnBuilder::Timestamp(b), Some(Datum::Timestamp(v) | Datum::Timestamptz(v))) => b.append_value(v),
            (ColumnBuilder::Timestamp(b), _) => b.append_null(),
            (ColumnBuilder::String(b), Some(Datum::String(v))) => b.append_value(v),
            (ColumnBuilder::String(b), _) => b.append_null(),
            (ColumnBuilder::Binary(b), Some(Datum::Binary(v))) => b.append_value(v),
            (ColumnBuilder::Binary(b), _) => b.append_null(),
            (ColumnBuilder::Uuid(b), Some(Datum::Uuid(v))) => b.append_value(v)?,
            (ColumnBuilder::Uuid(b), _) => b.append_null(),
            (ColumnBuilder::List(b, element), Some(Datum::List(list))) => {
                for value in list.elements()? {
                    append_element(b.values(), element, value);
                }
                b.append(true);
            }
            (ColumnBuilder::List(b, _), _) => b.append(false),
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            ColumnBuilder::Boolean(b) => Arc::new(b.finish()),
            ColumnBuilder::Int(b) => Arc::new(b.finish()),
            ColumnBuilder::Long(b) => Arc::new(b.finish()),
            ColumnBuilder::Float(b) => Arc::new(b.finish()),
            ColumnBuilder::Double(b) => Arc::new(b.finish()),
            ColumnBuilder::Decimal(b) => Arc::new(b.finish()),
            ColumnBuilder::Date(b) => Arc::new(b.finish()),
            ColumnBuilder::Time(b) => Arc::new(b.finish()),
            ColumnBuilder::Timestamp(b) => Arc::new(b.finish()),
            ColumnBuilder::String(b) => Arc::new(b.finish()),
            ColumnBuilder::Binary(b) => Arc::new(b.finish()),
            ColumnBuilder::Uuid(b) => Arc::new(b.finish()),
            ColumnBuilder::List(b, _) => Arc::new(b.finish()),
        }
    }
}

/// Turns row bytes into record batches.
pub struct BatchBuilder {
    schema: Arc<TableSchema>,
    arrow: SchemaRef,
    columns: Vec<ColumnBuilder>,
    rows: usize,
    bytes: usize,
}

impl std::fmt::Debug for BatchBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchBuilder")
            .field("rows", &self.rows)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl BatchBuilder {
    /// Starts an empty batch of the table's columns.
    pub fn new(schema: Arc<TableSchema>) -> Self {
        let arrow = arrow_schema(&schema);
        let columns = schema
            .columns
            .iter()
            .map(|c| ColumnBuilder::new(&c.column_type, c.element_id))
            .collect();
        BatchBuilder {
            schema,
            arrow,
            columns,
            rows: 0,
            bytes: 0,
        }
    }

    /// Adds one row. Columns without a value become NULL.
    ///
    /// # Errors
    /// After an error the builder holds a broken row and must be dropped.
    pub fn append(&mut self, row: &[u8]) -> Result<(), BatchError> {
        let mut reader = RowReader::new(row, &self.schema)?;
        for column in &mut self.columns {
            let (_, datum) = reader.next_column()?.ok_or(Malformed { what: "row", offset: 0 })?;
            column.append(datum)?;
        }
        reader.next_column()?;
        self.end_row(row.len());
        Ok(())
    }

    /// Adds one column's value of a row that is given value by value; `None` is NULL. Every column
    /// must be given before [`BatchBuilder::end_row`].
    ///
    /// # Errors
    /// After an error the builder holds a broken row and must be dropped.
    pub fn append_value(&mut self, column: usize, value: Option<Datum<'_>>) -> Result<(), BatchError> {
        self.columns[column].append(value)
    }

    /// Ends a row given value by value; `bytes` is its size, as [`BatchBuilder::bytes`] counts.
    pub fn end_row(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Counts the rows added since the last [`BatchBuilder::finish`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Counts the row bytes added since the last [`BatchBuilder::finish`].
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the batch and starts the next.
    ///
    /// # Errors
    /// If a required column has a NULL.
    pub fn finish(&mut self) -> Result<RecordBatch, BatchError> {
        let arrays = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        self.rows = 0;
        self.bytes = 0;
        Ok(RecordBatch::try_new(self.arrow.clone(), arrays)?)
    }
}
