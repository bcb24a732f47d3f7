//! What a client is told first: where the catalog's routes are, and which there are.

use serde_json::json;

use super::error::ServeError;
use super::name::no_warehouse;
use super::{LIVE, Reply, ServedCatalog};

/// Is how long a client may repeat a request under its key, in ISO 8601; half of how long answers
/// are kept.
const KEY_LIFETIME: &str = "PT30M";

/// Lists the routes. A client must be told: its own idea of a default set has others.
const ENDPOINTS: [&str; 16] = [
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
];

impl ServedCatalog {
    /// Answers `config`: `warehouse` is the one the client asked for, if it did.
    ///
    /// # Errors
    /// [`Refusal::NoWarehouse`](super::Refusal::NoWarehouse) for any but the catalog's own name.
    pub fn config(&self, warehouse: Option<&str>) -> Result<Reply, ServeError> {
        let prefix = match warehouse {
            None | Some("" | LIVE) => LIVE,
            Some(other) => return Err(no_warehouse(other)),
        };
        let config = json!({
            "defaults": {},
            "overrides": {"prefix": prefix},
            "endpoints": ENDPOINTS,
            "idempotency-key-lifetime": KEY_LIFETIME,
        });
        Ok(Reply::Json(config.to_string().into_bytes()))
    }
}
