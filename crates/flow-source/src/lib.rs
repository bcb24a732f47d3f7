//! One PostgreSQL slot as ordered whole transactions; the initial copy; discovery and preflight.
//!
//! Knows nothing of the lake or the store. PostgreSQL 14 to 18.
//!
//! 1. [`ConnInfo`] and [`SourceOptions`] say where the source is.
//! 2. [`preflight`](preflight()) and [`discover`] read what can be captured.
//! 3. [`create_slot`] makes the slot and its exported snapshot; [`open_copy_session`] imports it
//!    and [`CopySession::copy`] reads the rows.
//! 4. [`Stream`] delivers what committed after the slot's start, and [`Acknowledger`] tells
//!    PostgreSQL what is safe.
//! 5. [`publication_rows`] notices what is not on the wire.

mod acknowledge;
mod agree;
mod assemble;
mod capture;
mod catalog;
mod conninfo;
mod copy;
mod error;
mod event;
mod feedback;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod options;
mod pgoutput;
mod preflight;
mod publication;
mod reader;
mod session;
mod slot;
mod sql;
mod stream;
mod tls;
mod transport;
mod value;
mod wire_types;

pub use acknowledge::Acknowledger;
pub use capture::{CaptureColumn, CaptureTable, ReplicaIdentity, SourceColumn, SourceTable, TableKind, TableRequest};
pub use conninfo::{ConnInfo, SslMode};
pub use copy::{CopiedRow, CopySession, open_copy_session};
pub use error::{F_DEFINITION, F_PUBLICATION, F_VALUE, ServerError, SourceError};
pub use event::SourceEvent;
pub use options::SourceOptions;
pub use preflight::{Check, Report, SystemInfo, preflight};
pub use publication::{
    Affected, PublicationChange, PublicationRows, RelationRow, create_publication, discover, publication_rows,
};
pub use slot::{ExportedSnapshot, SlotState, create_slot, drop_slot, server_lsn, slot_state};
pub use stream::Stream;
pub use wire_types::{Refusal, Resolved, Target, Wire, choose};
