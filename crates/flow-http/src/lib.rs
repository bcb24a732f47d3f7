//! Probes, metrics and status over HTTP, and the catalog for other programs.
//!
//! Looks at the engine through [`Observed`] and never changes it. What other programs change, they
//! change in the catalog, as [`flow_lake::ServedCatalog`] lets them.
//!
//! 1. [`server`] binds, answers and stops in order.
//! 2. [`routes`] says what each path answers.
//! 3. [`metrics`] turns status and counters into Prometheus text.
//! 4. `iceberg` speaks Iceberg's REST protocol.

mod iceberg;
mod limit;
pub mod metrics;
pub mod observed;
pub mod routes;
pub mod server;
mod token;

pub use observed::Observed;
pub use server::{HttpError, HttpOptions, HttpServer};
