//! The only sequencer: capture, admit, publish, apply, complete, refresh, recover, status.
//!
//! It decides *when*; the source, the store, the lake and the refresh decide nothing of each other.
//! It speaks no HTTP and parses no configuration file.
//!
//! Entry points, in the order a daemon uses them:
//! - `check_source`, `check_catalog`, `discover`, `plan`, `query`: read-only, need no store.
//! - `Engine::open` → `Engine::init` → `Engine::run(shutdown)`; others hold an [`EngineHandle`].

pub mod counters;
pub mod error;
pub mod handle;
pub mod options;
pub mod status;

pub use error::EngineError;
pub use handle::{Command, EngineHandle, Reply};
pub use options::EngineOptions;
pub use status::Status;
