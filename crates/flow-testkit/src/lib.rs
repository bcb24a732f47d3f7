//! What tests and benchmarks need beside the service: a clock they set, the catalog as a stranger
//! reads it, and a client that loads PostgreSQL at a steady rate.
//!
//! A dev-dependency only. It knows the service by its files and PostgreSQL alone, so what it
//! measures is what a user would see.

pub mod catalog;
pub mod clock;
pub mod load;
pub mod percentile;
pub mod refresh;
