//! All local durable state, in one RocksDB.
//!
//! It never calls the network and holds no policy: it does not know *why* a transaction is kept,
//! when an operation should begin or what an operator should be told. Every call blocks; callers
//! run it on threads that may.
//!
//! 1. [`Journal`] keeps every committed source transaction that PostgreSQL may already forget.
//! 2. [`Operations`] keeps each intention to publish from begin to complete, with what it does to the row
//!    index or to a dynamic table's state.
//! 3. [`RowIndex`] knows where every live row of the lake stands, and a copy of what may be asked of it.
//! 4. [`FileRegister`] names data files by number, so that the index stays small.
//! 5. [`States`] keep what the operators of dynamic tables must remember between refreshes.
//! 6. [`Tables`], [`Refreshes`] and [`Facts`] keep what each table, each dynamic table and the whole
//!    source have come to.
//!
//! # Invariants
//! - One process opens a directory at a time.
//! - Every record has a version byte and a checksum over key and value; bytes that do not fit are an
//!   error value, never a panic.
//! - Writes become durable in the order in which they were made: whatever survives a crash is a
//!   prefix of them. What [`BulkWriter`] and [`BulkState`] write stands outside that order until they
//!   finish.
//! - After one failed write or sync nothing is written any more ([`StoreError::Poisoned`]).

mod database;
mod delta;
mod disk;
mod error;
mod facts;
mod files;
mod index;
mod journal;
mod layout;
mod lookup;
mod operations;
mod record;
mod refreshes;
mod runs;
mod sorted;
mod state;
mod store;
mod tables;
mod tuning;
mod weights;

pub use delta::{BLOCK_BYTES, DeltaEntries, DeltaEntry, HotChange, IndexDelta, Location};
pub use disk::free_bytes;
pub use error::StoreError;
pub use facts::{Facts, Identity, InitState, LedgerPosition};
pub use files::{FileRecord, FileRegister};
pub use index::{BulkWriter, Found, RowIndex};
pub use journal::{Chunks, Journal, Staged, Transactions};
pub use layout::{FORMAT_VERSION, Family};
pub use operations::{CompletionWrites, Kind, NewShare, OperationRecord, Operations, Share};
pub use refreshes::{NO_DATA, RUNS_MAX, RefreshBlocked, RefreshCompletion, RefreshRecord, RefreshRun, Refreshes};
pub use state::{BulkState, PinnedState, StateId, StateStamp, States};
pub use store::{Store, StoreOptions};
pub use tables::{Hot, TableRecord, TableState, Tables};
