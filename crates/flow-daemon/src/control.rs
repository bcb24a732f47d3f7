//! The control socket: how commands reach a running service.
//!
//! `state_dir/control.sock` belongs to its owner alone. A client sends one JSON object a line and
//! gets one back; a connection may send several, one after the other.
//!
//! 1. [`protocol`] is the words.
//! 2. [`server`] answers them inside the service.
//! 3. [`client`] asks, and tells whether a service runs at all.

pub mod client;
pub mod protocol;
pub mod server;
mod socket;

pub use protocol::{Request, Response};
