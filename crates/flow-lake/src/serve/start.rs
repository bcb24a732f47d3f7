//! The first metadata of a foreign table, and writing any metadata of one.

use std::collections::HashMap;

use flow_core::TableName;
use iceberg::TableUpdate;
use iceberg::spec::{
    FormatVersion, PartitionSpec, Schema, SortOrder, TableMetadata, TableMetadataBuilder, UnboundPartitionSpec,
};
use serde_json::json;
use uuid::Uuid;

use super::error::ServeError;
use super::request::CreateTable;
use super::{Inner, place};
use crate::error::LakeError;
use crate::{files, metadata};

/// Is the property that chooses a new table's format version; it is not kept.
const FORMAT_VERSION: &str = "format-version";

/// Begins the properties and summary entries that only this program writes.
const OWN_PREFIX: &str = "flow.";

/// Is the id of the field before a table's first partition field.
const LAST_PARTITION_ID: i32 = 999;

/// Says what the library found wrong with a request.
pub(super) fn refused(error: &iceberg::Error) -> ServeError {
    ServeError::bad(format!("{}; nothing was changed", error.message()))
}

/// Judges properties that a client gives a table.
pub(super) fn check_properties(inner: &Inner, properties: &HashMap<String, String>) -> Result<(), ServeError> {
    check_own(properties.keys())?;
    place::check_properties(inner, properties)
}

/// Refuses names that tell this program's own tables and snapshots.
pub(super) fn check_own<'a>(mut keys: impl Iterator<Item = &'a String>) -> Result<(), ServeError> {
    match keys.find(|key| key.starts_with(OWN_PREFIX)) {
        None => Ok(()),
        Some(key) => Err(ServeError::bad(format!(
            "'{key}' cannot be set: names beginning with {OWN_PREFIX} are Embrasure Flow's own"
        ))),
    }
}

/// Makes the metadata that a creation asks for, with fresh field ids.
pub(super) fn from_create(inner: &Inner, name: &TableName, body: CreateTable) -> Result<TableMetadata, ServeError> {
    let mut properties = body.properties.unwrap_or_default();
    let version = match properties.remove(FORMAT_VERSION).as_deref() {
        None | Some("2") => FormatVersion::V2,
        Some("3") => FormatVersion::V3,
        Some(other) => {
            let message = format!("format-version '{other}' is not made here; 2 and 3 are");
            return Err(ServeError::bad(message));
        }
    };
    check_properties(inner, &properties)?;
    let location = match body.location {
        Some(location) => {
            place::apart(inner, name, &place::inside(inner, "location", &location)?)?;
            location
        }
        None => place::choose(inner, name),
    };
    let spec = body
        .partition_spec
        .unwrap_or_else(|| UnboundPartitionSpec::builder().build());
    let order = body.write_order.unwrap_or_else(SortOrder::unsorted_order);
    TableMetadataBuilder::new(body.schema, spec, order, location, version, properties)
        .and_then(TableMetadataBuilder::build)
        .map(|built| built.metadata)
        .map_err(|error| refused(&error))
}

/// Collects what the first of each kind of update says: a table's ids are those that its writer
/// used in its files, so they are taken as they are, which the library's builder does not.
#[derive(Debug, Default)]
struct First {
    uuid: Option<Uuid>,
    version: Option<FormatVersion>,
    location: Option<String>,
    schema: Option<Schema>,
    spec: Option<UnboundPartitionSpec>,
    order: Option<SortOrder>,
}

impl First {
    /// Takes an update; gives it back if it is for the builder.
    fn take(&mut self, update: TableUpdate) -> Option<TableUpdate> {
        match update {
            TableUpdate::AssignUuid { uuid } => self.uuid = Some(uuid),
            TableUpdate::UpgradeFormatVersion { format_version } => self.version = Some(format_version),
            TableUpdate::SetLocation { location } => self.location = Some(location),
            TableUpdate::AddSchema { schema } if self.schema.is_none() => self.schema = Some(schema),
            TableUpdate::AddSpec { spec } if self.spec.is_none() => self.spec = Some(spec),
            TableUpdate::AddSortOrder { sort_order } if self.order.is_none() => self.order = Some(sort_order),
            other => return Some(other),
        }
        None
    }

    fn metadata(&self, location: &str, now_ms: i64) -> Result<TableMetadata, ServeError> {
        let schema = self.schema.clone();
        let schema = schema.ok_or_else(|| ServeError::bad("a table needs a schema: there is no add-schema update"))?;
        let version = self.version.unwrap_or(FormatVersion::V2);
        if version == FormatVersion::V1 {
            return Err(ServeError::bad("format version 1 is not made here; 2 and 3 are"));
        }
        let spec: PartitionSpec = match &self.spec {
            Some(spec) => spec.clone().bind(schema.clone()).map_err(|error| refused(&error))?,
            None => PartitionSpec::unpartition_spec(),
        };
        let order = self.order.clone().unwrap_or_else(SortOrder::unsorted_order);
        let partition_ids = spec.fields().iter().map(|field| field.field_id);
        let mut document = json!({
            "format-version": version as u8,
            "table-uuid": self.uuid.unwrap_or_else(Uuid::new_v4).to_string(),
            "location": location,
            "last-sequence-number": 0,
            "last-updated-ms": now_ms,
            "last-column-id": schema.highest_field_id(),
            "current-schema-id": schema.schema_id(),
            "schemas": [schema],
            "default-spec-id": spec.spec_id(),
            "last-partition-id": partition_ids.max().unwrap_or(LAST_PARTITION_ID),
            "partition-specs": [spec],
            "properties": {},
            "default-sort-order-id": order.order_id,
            "sort-orders": [order],
            "snapshots": [],
            "snapshot-log": [],
            "metadata-log": [],
            "refs": {},
        });
        if version == FormatVersion::V3 {
            document["next-row-id"] = json!(0);
        }
        serde_json::from_value(document)
            .map_err(|error| ServeError::bad(format!("the updates make no table: {error}; nothing was changed")))
    }
}

/// Makes the metadata that a commit of a table which is not there yet asks for.
pub(super) fn from_updates(
    inner: &Inner,
    name: &TableName,
    updates: &[TableUpdate],
) -> Result<TableMetadata, ServeError> {
    let mut first = First::default();
    let mut rest = Vec::new();
    for update in updates {
        rest.extend(first.take(update.clone()));
    }
    let location = match &first.location {
        Some(location) => {
            place::apart(inner, name, &place::inside(inner, "location", location)?)?;
            location.trim_end_matches('/').to_owned()
        }
        None => place::choose(inner, name),
    };
    let more_schemas = rest
        .iter()
        .any(|update| matches!(update, TableUpdate::AddSchema { .. }));
    let more_specs = rest.iter().any(|update| matches!(update, TableUpdate::AddSpec { .. }));
    let more_orders = rest
        .iter()
        .any(|update| matches!(update, TableUpdate::AddSortOrder { .. }));
    // "The last one added" is the first where no other was.
    rest.retain(|update| match update {
        TableUpdate::SetCurrentSchema { schema_id } => *schema_id != -1 || more_schemas,
        TableUpdate::SetDefaultSpec { spec_id } => *spec_id != -1 || more_specs,
        TableUpdate::SetDefaultSortOrder { sort_order_id } => *sort_order_id != -1 || more_orders,
        _ => true,
    });
    let mut builder = first.metadata(&location, inner.now_ms())?.into_builder(None);
    for update in rest {
        builder = update.apply(builder).map_err(|error| refused(&error))?;
    }
    let built = builder.build().map_err(|error| refused(&error))?;
    Ok(built.metadata)
}

/// Makes a table's folders. Some clients write into them before the table is there, and make none.
pub(super) fn make_folders(location: &str) -> Result<(), ServeError> {
    for name in ["data", "metadata"] {
        let folder = files::local_path(&format!("{location}/{name}"));
        if !folder.is_dir() {
            files::make_dirs(&folder)?;
        }
    }
    Ok(())
}

/// Writes and syncs a metadata file that follows `base`, and gives its location.
pub(super) fn write(inner: &Inner, table: &TableMetadata, base: Option<&str>) -> Result<String, ServeError> {
    make_folders(table.location())?;
    let location = metadata::next_location(table.location(), base.unwrap_or_default(), Uuid::new_v4());
    let file = metadata::to_file(&location, table)?;
    if let Err(error) = files::write_together(&[file]) {
        inner.discard(&location);
        return Err(match error {
            // What a crash would leave of it does not matter: nobody was told of the file.
            LakeError::Sync { path, source } => LakeError::File {
                action: "sync",
                path,
                source,
            }
            .into(),
            other => other.into(),
        });
    }
    Ok(location)
}
