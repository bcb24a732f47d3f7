//! The source against real PostgreSQL servers, each test on its own one.
//!
//! `FLOW_TEST_PG_VERSIONS` names the majors, `17` by default.

mod checks;
mod connection;
mod copy;
mod harness;
mod schema;
mod stream;
mod values;
