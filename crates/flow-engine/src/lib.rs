//! The only sequencer: capture, admit, publish, apply, complete, refresh, recover, status.
//!
//! It decides *when*; the source, the store, the lake and the refresh decide nothing of each other.
//! It speaks no HTTP and parses no configuration file.

pub mod options;
pub mod status;
