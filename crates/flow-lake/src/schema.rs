//! Table schemas as Iceberg schemas, and back.

use std::collections::HashMap;

use flow_core::{TableName, TableSchema};
use iceberg::spec::Schema;

use crate::error::LakeError;

pub(crate) fn from_iceberg(table: &TableName, _schema: &Schema, _properties: &HashMap<String, String>) -> Result<TableSchema, LakeError> {
    Err(LakeError::Unsupported { table: table.to_string(), reason: String::new() })
}
