//! Probes, metrics and status over HTTP.
//!
//! Looks at the engine through [`Observed`] and never changes anything.
//!
//! 1. [`server`] binds, answers and stops in order.
//! 2. [`routes`] says what each path answers.
//! 3. [`metrics`] turns status and counters into Prometheus text.

mod limit;
pub mod metrics;
pub mod observed;
pub mod routes;
pub mod server;

pub use observed::Observed;
pub use server::{HttpError, HttpOptions, HttpServer};
