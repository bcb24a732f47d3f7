//! The embedded catalog as other programs use it over Iceberg's REST protocol, without the HTTP.
//!
//! Owns what a request means: names, places, requirements, updates, and which tables nobody but this
//! program may change. Never touches the publish path: its changes are transactions of their own on
//! the same catalog file, short ones, with every file written and synced before they begin.
//!
//! 1. `request` reads a body; `name` and `place` judge what it names.
//! 2. `namespaces` and `tables` answer what is there and change one thing; `commit` changes tables,
//!    several of them in one transaction.
//! 3. `answer` repeats what was answered to the same idempotency key.
//!
//! # Invariants
//! - A refusal means that nothing was changed, and nothing will be by that request.
//! - A repeated commit that took effect is answered as done, never as a conflict.
//! - A table that this program made is changed by its own commits alone.

mod answer;
mod commit;
mod config;
mod error;
mod name;
mod namespaces;
mod place;
mod request;
mod start;
mod tables;

use std::sync::Arc;

use uuid::Uuid;

use crate::blocking;
use crate::catalog::Catalog;
use crate::error::LakeError;
use crate::lake::{Lake, Shared};

pub use error::{Refusal, ServeError};
pub use name::{View, table_name};
pub use namespaces::Page;
pub use request::Request;
pub use tables::Snapshots;

/// Is the name of the live catalog, as warehouse and as prefix.
pub(crate) const LIVE: &str = "flow";

/// Is what a request is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done, and there is nothing to say.
    Nothing,
    /// Holds a JSON document.
    Json(Vec<u8>),
    /// Holds a table's JSON document.
    Table {
        /// Is the document.
        json: Vec<u8>,
        /// Names this state of the table, in this form.
        tag: String,
    },
    /// The table is as the client knows it.
    Unchanged {
        /// Names its state.
        tag: String,
    },
}

/// Serves the catalog of a lake. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServedCatalog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    shared: Arc<Shared>,
    /// Is a connection that only reads: who lists never makes a publisher wait.
    reader: Catalog,
}

impl Inner {
    fn now_ms(&self) -> i64 {
        self.shared.clock.now_us() / 1000
    }

    fn warehouse(&self) -> String {
        let warehouse = self.shared.options.warehouse.to_string_lossy();
        warehouse.trim_end_matches('/').to_owned()
    }
}

impl Lake {
    /// Opens the catalog for serving. Blocks; call it at startup.
    ///
    /// # Errors
    /// [`LakeError::Catalog`] and [`LakeError::File`] if the catalog file cannot be opened once more.
    pub fn serve(&self) -> Result<ServedCatalog, LakeError> {
        let reader = Catalog::open_existing(self.catalog_path())?
            .ok_or_else(|| LakeError::broken("the open catalog's file is not there"))?;
        Ok(ServedCatalog {
            inner: Arc::new(Inner {
                shared: self.shared.clone(),
                reader,
            }),
        })
    }
}

impl ServedCatalog {
    /// Runs `work` where it may block. Once begun it runs to its end, even if nobody waits any more.
    async fn run(
        &self,
        work: impl FnOnce(&Inner) -> Result<Reply, ServeError> + Send + 'static,
    ) -> Result<Reply, ServeError> {
        let inner = self.inner.clone();
        blocking::run(move || work(&inner)).await
    }
}

/// Names a table's state in one form.
fn tag(metadata_location: &str, form: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{metadata_location}\n{form}").as_bytes()).to_string()
}
