//! Tables as both sides see them: names, columns and types.
//!
//! One [`ColumnType`] is at once what a PostgreSQL value is decoded to, how it is held in a row,
//! and which Iceberg type it becomes; so copy and stream cannot differ.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names a table: a schema or namespace, and a name, both exactly as the system spells them.
///
/// Display joins them with a dot and does not quote; it is for people and for target names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// PostgreSQL: the schema. Iceberg: the namespace, levels joined by dots.
    pub schema: String,
    /// Is the table's own name; it may contain dots.
    pub name: String,
}

impl TableName {
    /// Joins the two parts as they are.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        TableName {
            schema: schema.into(),
            name: name.into(),
        }
    }

    /// Writes the name as SQL wants it, each part in double quotes.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// Quotes an identifier for PostgreSQL and DataFusion: always in double quotes, inner ones doubled.
pub fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Is the type of a column, between PostgreSQL and Iceberg.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// `boolean`.
    Boolean,
    /// `smallint`, `integer`: Iceberg `int`.
    Int,
    /// `bigint`: Iceberg `long`.
    Long,
    /// `real`: Iceberg `float`.
    Float,
    /// `double precision`: Iceberg `double`.
    Double,
    /// `numeric(p, s)` with `1 ≤ p ≤ 38` and `0 ≤ s ≤ p`: Iceberg `decimal(p, s)`.
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `date`.
    Date,
    /// `time` where the user asks for it; microseconds since midnight, below 24 hours.
    Time,
    /// `timestamp`: microseconds since 1970-01-01 00:00:00, no zone.
    Timestamp,
    /// `timestamptz`: microseconds since 1970-01-01 00:00:00 UTC.
    Timestamptz,
    /// Text kinds, json, enum, time, and every numeric that is no decimal: Iceberg `string`.
    String,
    /// `bytea`: Iceberg `binary`.
    Binary,
    /// `uuid`.
    Uuid,
    /// A one-dimensional array with lower bound 1; its elements are optional.
    List(Box<ColumnType>),
}

impl ColumnType {
    /// Says whether PostgreSQL may keep such a value out of line, so that an update can leave it out.
    pub fn can_be_toasted(&self) -> bool {
        matches!(
            self,
            ColumnType::String | ColumnType::Binary | ColumnType::List(_) | ColumnType::Decimal { .. }
        )
    }

    /// Says whether the type may stand in Iceberg's identifier fields; float and double may not
    /// (Iceberg spec, "Identifier Field IDs").
    pub fn can_identify(&self) -> bool {
        !matches!(self, ColumnType::Float | ColumnType::Double | ColumnType::List(_))
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Boolean => f.write_str("boolean"),
            ColumnType::Int => f.write_str("int"),
            ColumnType::Long => f.write_str("long"),
            ColumnType::Float => f.write_str("float"),
            ColumnType::Double => f.write_str("double"),
            ColumnType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Time => f.write_str("time"),
            ColumnType::Timestamp => f.write_str("timestamp"),
            ColumnType::Timestamptz => f.write_str("timestamptz"),
            ColumnType::String => f.write_str("string"),
            ColumnType::Binary => f.write_str("binary"),
            ColumnType::Uuid => f.write_str("uuid"),
            ColumnType::List(element) => write!(f, "list<{element}>"),
        }
    }
}

/// Is one column of a captured or derived table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Is the name as PostgreSQL spells it.
    pub name: String,
    /// Is the stable Iceberg field id, from 1.
    pub field_id: i32,
    /// Is the field id of a list's element.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_id: Option<i32>,
    /// Is the type on both sides.
    pub column_type: ColumnType,
    /// Says that the column is never NULL: key columns only.
    pub required: bool,
    /// Is what PostgreSQL calls the column's type, `numeric(12,2)` say; for messages and drift checks.
    #[serde(default)]
    pub source_type: String,
}

/// Is the shape of a table. Row bytes are read with exactly the schema they were written with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// Holds the columns in their source order.
    pub columns: Vec<Column>,
    /// Holds indexes into `columns`, in key order. Empty for an append-only table.
    pub key: Vec<usize>,
}

impl TableSchema {
    /// Finds a column's index by its exact name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Says whether the table has a key; without one only inserts can be honoured.
    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Assigns Iceberg field ids: columns first in order, list elements after them.
    pub fn assign_field_ids(&mut self) {
        let mut next = 0;
        for column in &mut self.columns {
            next += 1;
            column.field_id = next;
        }
        for column in &mut self.columns {
            column.element_id = matches!(column.column_type, ColumnType::List(_)).then(|| {
                next += 1;
                next
            });
        }
    }

    /// Lists the indexes of the columns that `hot_rows = "auto"` keeps: those PostgreSQL may leave
    /// out of an update and that are not part of the key.
    pub fn toastable_columns(&self) -> Vec<usize> {
        (0..self.columns.len())
            .filter(|index| !self.key.contains(index) && self.columns[*index].column_type.can_be_toasted())
            .collect()
    }
}
