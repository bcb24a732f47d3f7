//! Table schemas as Iceberg schemas, as Parquet schemas, and back.
//!
//! The Parquet schema is spelled out from the Iceberg specification's table instead of derived
//! from Arrow's types, because Arrow has no uuid and readers look at the annotation.

use std::collections::HashMap;
use std::sync::Arc;

use flow_core::{Column, ColumnType, TableName, TableSchema};
use iceberg::spec::{ListType, NestedField, PrimitiveType, Schema, Type};
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as PhysicalType};
use parquet::schema::types::{SchemaDescriptor, Type as ParquetType};

use crate::error::LakeError;

/// Is the number of the schema a table is created with; it has no other.
pub(crate) const CREATED_SCHEMA_ID: i32 = 0;

/// Is the table property that holds the key's field ids in key order, joined by commas.
pub(crate) const KEY_PROPERTY: &str = "flow.key";

fn unsupported(table: &TableName, reason: impl Into<String>) -> LakeError {
    LakeError::Unsupported {
        table: table.to_string(),
        reason: reason.into(),
    }
}

/// Is the Iceberg type of a scalar column type.
fn primitive(column_type: &ColumnType) -> Option<PrimitiveType> {
    Some(match column_type {
        ColumnType::Boolean => PrimitiveType::Boolean,
        ColumnType::Int => PrimitiveType::Int,
        ColumnType::Long => PrimitiveType::Long,
        ColumnType::Float => PrimitiveType::Float,
        ColumnType::Double => PrimitiveType::Double,
        ColumnType::Decimal { precision, scale } => PrimitiveType::Decimal {
            precision: u32::from(*precision),
            scale: u32::from(*scale),
        },
        ColumnType::Date => PrimitiveType::Date,
        ColumnType::Time => PrimitiveType::Time,
        ColumnType::Timestamp => PrimitiveType::Timestamp,
        ColumnType::Timestamptz => PrimitiveType::Timestamptz,
        ColumnType::String => PrimitiveType::String,
        ColumnType::Binary => PrimitiveType::Binary,
        ColumnType::Uuid => PrimitiveType::Uuid,
        ColumnType::List(_) => return None,
    })
}

fn iceberg_type(column: &Column) -> Option<Type> {
    match (&column.column_type, column.element_id) {
        (ColumnType::List(element), Some(id)) => {
            let element = NestedField::list_element(id, Type::Primitive(primitive(element)?), false);
            Some(Type::List(ListType::new(Arc::new(element))))
        }
        (scalar, _) => primitive(scalar).map(Type::Primitive),
    }
}

/// Maps a table schema to Iceberg, keeping its field ids.
///
/// Identifier fields are the key columns if all of them may be: a part of a key identifies nothing.
pub(crate) fn to_iceberg(table: &TableName, schema: &TableSchema) -> Result<Schema, LakeError> {
    let mut fields = Vec::with_capacity(schema.columns.len());
    for column in &schema.columns {
        let field_type = iceberg_type(column).ok_or_else(|| {
            let kind = &column.column_type;
            unsupported(table, format!("column '{}' cannot be of type {kind}", column.name))
        })?;
        let mut field = NestedField::new(column.field_id, &column.name, field_type, column.required);
        if !column.source_type.is_empty() {
            field = field.with_doc(&column.source_type);
        }
        fields.push(Arc::new(field));
    }
    let key = || schema.key.iter().filter_map(|index| schema.columns.get(*index));
    let identifies = key().all(|column| column.required && column.column_type.can_identify());
    let identifiers: Vec<i32> = if identifies {
        key().map(|c| c.field_id).collect()
    } else {
        Vec::new()
    };
    Schema::builder()
        .with_schema_id(CREATED_SCHEMA_ID)
        .with_fields(fields)
        .with_identifier_field_ids(identifiers)
        .build()
        .map_err(LakeError::iceberg("map the schema", table))
}

/// Spells the key for [`KEY_PROPERTY`].
pub(crate) fn key_property(schema: &TableSchema) -> String {
    let ids = schema.key.iter().filter_map(|index| schema.columns.get(*index));
    ids.map(|c| c.field_id.to_string()).collect::<Vec<_>>().join(",")
}

/// Is the column type of an Iceberg type; `None` for what this program never writes.
fn column_type(field_type: &Type) -> Option<(ColumnType, Option<i32>)> {
    let scalar = match field_type {
        Type::Primitive(scalar) => scalar,
        Type::List(list) if !list.element_field.required => {
            let (element, None) = column_type(&list.element_field.field_type)? else {
                return None;
            };
            return Some((ColumnType::List(Box::new(element)), Some(list.element_field.id)));
        }
        _ => return None,
    };
    let column_type = match scalar {
        PrimitiveType::Boolean => ColumnType::Boolean,
        PrimitiveType::Int => ColumnType::Int,
        PrimitiveType::Long => ColumnType::Long,
        PrimitiveType::Float => ColumnType::Float,
        PrimitiveType::Double => ColumnType::Double,
        PrimitiveType::Decimal { precision, scale } => ColumnType::Decimal {
            precision: u8::try_from(*precision).ok()?,
            scale: u8::try_from(*scale).ok()?,
        },
        PrimitiveType::Date => ColumnType::Date,
        PrimitiveType::Time => ColumnType::Time,
        PrimitiveType::Timestamp => ColumnType::Timestamp,
        PrimitiveType::Timestamptz => ColumnType::Timestamptz,
        PrimitiveType::String => ColumnType::String,
        PrimitiveType::Binary => ColumnType::Binary,
        PrimitiveType::Uuid => ColumnType::Uuid,
        PrimitiveType::TimestampNs | PrimitiveType::TimestamptzNs | PrimitiveType::Fixed(_) => return None,
    };
    Some((column_type, None))
}

/// Maps an Iceberg schema back.
pub(crate) fn from_iceberg(
    table: &TableName,
    schema: &Schema,
    properties: &HashMap<String, String>,
) -> Result<TableSchema, LakeError> {
    let mut columns = Vec::new();
    for field in schema.as_struct().fields() {
        let (column_type, element_id) = column_type(&field.field_type).ok_or_else(|| {
            let kind = &field.field_type;
            unsupported(table, format!("column '{}' is of type {kind}", field.name))
        })?;
        columns.push(Column {
            name: field.name.clone(),
            field_id: field.id,
            element_id,
            column_type,
            required: field.required,
            source_type: field.doc.clone().unwrap_or_default(),
        });
    }
    let index_of = |id: i32| columns.iter().position(|column| column.field_id == id);
    let key = match properties.get(KEY_PROPERTY) {
        Some(text) => text
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| part.parse().ok().and_then(index_of))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| unsupported(table, format!("property {KEY_PROPERTY} names no columns")))?,
        None => {
            let mut key: Vec<_> = schema.identifier_field_ids().filter_map(index_of).collect();
            key.sort_unstable();
            key
        }
    };
    Ok(TableSchema { columns, key })
}

/// Makes the Parquet schema that the Iceberg specification prescribes ("Parquet" in appendix A).
pub(crate) fn to_parquet(schema: &TableSchema) -> Result<SchemaDescriptor, parquet::errors::ParquetError> {
    let mut fields = Vec::with_capacity(schema.columns.len());
    for column in &schema.columns {
        let repetition = if column.required {
            Repetition::REQUIRED
        } else {
            Repetition::OPTIONAL
        };
        let field = match &column.column_type {
            ColumnType::List(element) => {
                let element_id = column.element_id.unwrap_or_default();
                let element = parquet_scalar("element", element, element_id, Repetition::OPTIONAL)?;
                let list = ParquetType::group_type_builder("list")
                    .with_repetition(Repetition::REPEATED)
                    .with_fields(vec![Arc::new(element)])
                    .build()?;
                ParquetType::group_type_builder(&column.name)
                    .with_repetition(repetition)
                    .with_logical_type(Some(LogicalType::List))
                    .with_id(Some(column.field_id))
                    .with_fields(vec![Arc::new(list)])
                    .build()?
            }
            scalar => parquet_scalar(&column.name, scalar, column.field_id, repetition)?,
        };
        fields.push(Arc::new(field));
    }
    let root = ParquetType::group_type_builder("table").with_fields(fields).build()?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

/// Counts the bytes of a two's complement number of `precision` digits.
fn decimal_bytes(precision: u8) -> i32 {
    let bits = (f64::from(precision) * std::f64::consts::LOG2_10 + 1.0).ceil();
    (bits / 8.0).ceil() as i32
}

fn parquet_scalar(
    name: &str,
    column_type: &ColumnType,
    id: i32,
    repetition: Repetition,
) -> Result<ParquetType, parquet::errors::ParquetError> {
    let unit = TimeUnit::MICROS;
    let timestamp = |is_adjusted_to_u_t_c| LogicalType::Timestamp {
        is_adjusted_to_u_t_c,
        unit,
    };
    let (physical, logical, length) = match column_type {
        ColumnType::Boolean => (PhysicalType::BOOLEAN, None, -1),
        ColumnType::Int => (PhysicalType::INT32, None, -1),
        ColumnType::Long => (PhysicalType::INT64, None, -1),
        ColumnType::Float => (PhysicalType::FLOAT, None, -1),
        ColumnType::Double => (PhysicalType::DOUBLE, None, -1),
        ColumnType::Decimal { precision, scale } => {
            let logical = LogicalType::Decimal {
                scale: i32::from(*scale),
                precision: i32::from(*precision),
            };
            let (physical, length) = match precision {
                0..=9 => (PhysicalType::INT32, -1),
                10..=18 => (PhysicalType::INT64, -1),
                _ => (PhysicalType::FIXED_LEN_BYTE_ARRAY, decimal_bytes(*precision)),
            };
            (physical, Some(logical), length)
        }
        ColumnType::Date => (PhysicalType::INT32, Some(LogicalType::Date), -1),
        ColumnType::Time => {
            let logical = LogicalType::Time {
                is_adjusted_to_u_t_c: false,
                unit,
            };
            (PhysicalType::INT64, Some(logical), -1)
        }
        ColumnType::Timestamp => (PhysicalType::INT64, Some(timestamp(false)), -1),
        ColumnType::Timestamptz => (PhysicalType::INT64, Some(timestamp(true)), -1),
        ColumnType::String => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String), -1),
        ColumnType::Binary | ColumnType::List(_) => (PhysicalType::BYTE_ARRAY, None, -1),
        ColumnType::Uuid => (PhysicalType::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid), 16),
    };
    let mut builder = ParquetType::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .with_id(Some(id))
        .with_length(length);
    if let ColumnType::Decimal { precision, scale } = column_type {
        builder = builder
            .with_precision(i32::from(*precision))
            .with_scale(i32::from(*scale));
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_bytes_match_the_specification() {
        // The smallest n with 10^p - 1 ≤ 2^(8n-1) - 1.
        for (precision, bytes) in [(19, 9), (20, 9), (21, 9), (22, 10), (28, 12), (38, 16)] {
            assert_eq!(decimal_bytes(precision), bytes, "{precision}");
        }
    }

    #[test]
    fn schemas_come_back_as_they_were() {
        let column = |name: &str, column_type, required| Column {
            name: name.to_owned(),
            field_id: 0,
            element_id: None,
            column_type,
            required,
            source_type: format!("pg {name}"),
        };
        let mut schema = TableSchema {
            columns: vec![
                column("f", ColumnType::Double, true),
                column("l", ColumnType::List(Box::new(ColumnType::Uuid)), false),
                column(
                    "d",
                    ColumnType::Decimal {
                        precision: 38,
                        scale: 9,
                    },
                    true,
                ),
            ],
            key: vec![2, 0],
        };
        schema.assign_field_ids();
        let table = TableName::new("a", "b");
        let iceberg = to_iceberg(&table, &schema).expect("mapped");
        assert_eq!(iceberg.identifier_field_ids().count(), 0, "a float is in the key");
        let properties = HashMap::from([(KEY_PROPERTY.to_owned(), key_property(&schema))]);
        assert_eq!(
            from_iceberg(&table, &iceberg, &properties).expect("mapped back"),
            schema
        );
    }
}
