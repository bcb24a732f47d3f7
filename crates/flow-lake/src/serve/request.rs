//! Bodies of requests, and what identifies a request that may come twice.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use iceberg::spec::{Schema, SortOrder, UnboundPartitionSpec};
use iceberg::{TableRequirement, TableUpdate};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::error::ServeError;
use super::name::Identifier;
use crate::catalog::serve::Key;

/// Is the longest idempotency key in bytes; a UUID has 36.
const KEY_BYTES_MAX: usize = 64;

/// Is a request that changes something, as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// Is the key under which its sender may repeat it, if it gave one.
    pub key: Option<String>,
    /// Says what it asks for: method and path. The same key with another target is another request.
    pub target: String,
    /// Is the body.
    pub body: Bytes,
}

impl Request {
    /// Reads the body.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, ServeError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| ServeError::bad(format!("the request's body cannot be read: {error}")))
    }

    /// Names the request, if its sender may repeat it.
    pub(super) fn key(&self) -> Result<Option<Key>, ServeError> {
        let Some(key) = &self.key else {
            return Ok(None);
        };
        if key.len() > KEY_BYTES_MAX || Uuid::parse_str(key).is_err() {
            return Err(ServeError::bad("the Idempotency-Key header must be a UUID"));
        }
        let text = [self.target.as_bytes(), b"\n", &self.body].concat();
        Ok(Some(Key {
            key: key.to_ascii_lowercase(),
            request: Uuid::new_v5(&Uuid::NAMESPACE_OID, &text).to_string(),
        }))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct CreateNamespace {
    pub(super) namespace: Vec<String>,
    #[serde(default)]
    pub(super) properties: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UpdateProperties {
    #[serde(default)]
    pub(super) removals: Option<Vec<String>>,
    #[serde(default)]
    pub(super) updates: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CreateTable {
    pub(super) name: String,
    pub(super) location: Option<String>,
    pub(super) schema: Schema,
    pub(super) partition_spec: Option<UnboundPartitionSpec>,
    pub(super) write_order: Option<SortOrder>,
    pub(super) stage_create: Option<bool>,
    pub(super) properties: Option<HashMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RegisterTable {
    pub(super) name: String,
    pub(super) metadata_location: String,
    pub(super) overwrite: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RenameTable {
    pub(super) source: Identifier,
    pub(super) destination: Identifier,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitTable {
    pub(super) identifier: Option<Identifier>,
    pub(super) requirements: Vec<TableRequirement>,
    pub(super) updates: Vec<TableUpdate>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CommitTransaction {
    pub(super) table_changes: Vec<CommitTable>,
}
