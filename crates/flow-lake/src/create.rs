//! Making a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::{TableName, TableSchema};
use iceberg::spec::TableMetadata;
use serde_json::json;
use uuid::Uuid;

use crate::error::LakeError;
use crate::lake::{Lake, Shared};
use crate::metadata::{self, Version};
use crate::table::Table;
use crate::{blocking, files, schema};

/// Is the partition field id before the first, which every unpartitioned table carries.
const LAST_PARTITION_ID: i32 = 999;

/// Is the longest namespace or table name in bytes: what the JDBC catalog's columns hold.
const NAME_BYTES_MAX: usize = 255;

/// Is the longest directory name in bytes that common file systems take.
const DIRECTORY_BYTES_MAX: usize = 255;

impl Lake {
    /// Creates an empty, unpartitioned format-version-2 table; its namespace levels too.
    ///
    /// Field ids are those of `schema`. Key columns are the identifier fields, unless one is of a
    /// type Iceberg does not allow there; the key is also kept, in order, in property `flow.key`.
    ///
    /// # Errors
    /// [`LakeError::Exists`] if the catalog has the name; [`LakeError::Unsupported`] for a name or
    /// schema that Iceberg cannot hold.
    ///
    /// # Durability
    /// Metadata and catalog row are synced when it returns.
    pub async fn create_table(
        &self,
        name: &TableName,
        schema: &TableSchema,
        properties: BTreeMap<String, String>,
    ) -> Result<Table, LakeError> {
        let (shared, name, schema) = (self.shared.clone(), name.clone(), schema.clone());
        blocking::run(move || create(&shared, &name, &schema, properties)).await
    }
}

fn create(
    shared: &Shared,
    name: &TableName,
    table_schema: &TableSchema,
    mut properties: BTreeMap<String, String>,
) -> Result<Table, LakeError> {
    let exists = || LakeError::Exists {
        table: name.to_string(),
    };
    if shared.catalog.pointer(name)?.is_some() {
        return Err(exists());
    }
    let location = table_location(shared, name)?;
    properties.insert(schema::KEY_PROPERTY.to_owned(), schema::key_property(table_schema));
    let iceberg = schema::to_iceberg(name, table_schema)?;
    let metadata = new_metadata(&location, &iceberg, &properties, shared.clock.now_us() / 1000).map_err(|source| {
        LakeError::Json {
            action: "make table metadata",
            source,
        }
    })?;
    for folder in ["data", "metadata"] {
        files::make_dirs(&files::local_path(&format!("{location}/{folder}")))?;
    }
    let metadata_location = format!("{location}/metadata/00000-{}.metadata.json", Uuid::new_v4());
    files::write_together(&[metadata::to_file(&metadata_location, &metadata)?])?;
    let table_uuid = metadata.uuid().to_string();
    if !shared.catalog.insert(name, &metadata_location, &table_uuid)? {
        // Another process was faster; our file was never visible, and its name is ours alone.
        files::delete(&files::local_path(&metadata_location))?;
        return Err(exists());
    }
    let version = Version {
        metadata: Arc::new(metadata),
        manifests: Some(Arc::new(Vec::new())),
        expired: Arc::new([]),
        other_refs: Arc::new([]),
    };
    shared.versions.put(&metadata_location, version.clone());
    Ok(Table {
        name: Arc::new(name.clone()),
        metadata_location: metadata_location.into(),
        version,
    })
}

fn table_location(shared: &Shared, name: &TableName) -> Result<String, LakeError> {
    let directories = [files::directory_name(&name.schema), files::directory_name(&name.name)];
    let too_long = name.schema.len().max(name.name.len()) > NAME_BYTES_MAX
        || directories
            .iter()
            .any(|directory| directory.len() > DIRECTORY_BYTES_MAX);
    let empty = name.name.is_empty() || name.schema.split('.').any(str::is_empty);
    if too_long || empty {
        return Err(LakeError::Unsupported {
            table: name.to_string(),
            reason: "its name has an empty part, or one that is too long".to_owned(),
        });
    }
    let warehouse = shared.options.warehouse.to_string_lossy();
    let warehouse = warehouse.trim_end_matches('/');
    Ok(format!("{warehouse}/{}/{}", directories[0], directories[1]))
}

/// Spells the metadata of an empty table. The library's own builder would renumber the fields.
fn new_metadata(
    location: &str,
    schema: &iceberg::spec::Schema,
    properties: &BTreeMap<String, String>,
    now_ms: i64,
) -> Result<TableMetadata, serde_json::Error> {
    serde_json::from_value(json!({
        "format-version": 2,
        "table-uuid": Uuid::new_v4().to_string(),
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": schema.highest_field_id(),
        "schemas": [serde_json::to_value(schema)?],
        "current-schema-id": schema.schema_id(),
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": LAST_PARTITION_ID,
        "properties": properties,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }))
}
