//! The only sequencer: capture, admit, publish, apply, complete, refresh, recover, status.
//!
//! It decides *when*; the source, the store, the lake and the refresh decide nothing of each other.
//! It speaks no HTTP and parses no configuration file. Its files, in the order data flows:
//!
//! 1. `capture` journals what the source sends; `backlog` is where publishing sees it wait.
//! 2. `publisher` admits epochs; `fold`, `resolve` and `table_writer` make them files (`epoch`).
//! 3. `publish` is the one path from an intention to a completed operation.
//! 4. `init` and `copy` give tables their first content; `block` sets one aside.
//! 5. `refresher`, `inputs` and `refresh_work` keep dynamic tables fresh.
//! 6. `service` opens, recovers, starts and ends all of it; `heartbeat` looks at what is not on the
//!    wire; `look` answers without a store.

mod acknowledgement;
mod adapters;
mod backlog;
mod block;
mod board;
mod capture;
mod compute;
mod continuity;
mod copy;
pub mod counters;
mod epoch;
pub mod error;
mod failpoint;
mod fold;
pub mod handle;
mod handover;
mod heartbeat;
mod incremental;
mod init;
mod input_changes;
mod input_copies;
mod inputs;
pub mod look;
pub mod options;
mod outage;
mod output_index;
mod plans;
mod publish;
mod publisher;
mod reads;
mod refresh_work;
mod refresher;
mod request;
mod resolve;
mod rounds;
mod service;
mod shared;
pub mod status;
mod table_writer;
mod wanted;

pub use error::EngineError;
pub use handle::{Command, EngineHandle, Reply};
pub use options::EngineOptions;
pub use service::Engine;
pub use status::Status;
