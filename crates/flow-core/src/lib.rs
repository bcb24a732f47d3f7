//! The pure heart of Embrasure Flow: values, laws and decisions, without IO.
//!
//! Everything here is a function or a data type. Nothing awaits, locks, reads a clock or draws a
//! random number; time, chance and identity are handed in (see [`clock`]).
//!
//! 1. [`lsn`], [`ids`], [`schema`], [`row`], [`key`] name and hold source data.
//! 2. [`transaction`] is what the source delivers and the journal keeps.
//! 3. [`collapse`] folds an epoch of transactions into one change per key.
//! 4. [`operation`] and [`ledger`] are the publish path's states and its prefix rule.
//! 5. [`schedule`] and [`frontier`] decide when to publish and what a refresh reads.
//! 6. [`lake`] holds the traits through which the SQL layer sees tables it must not open itself.
//! 7. [`changes`] and [`state`] are what an incremental refresh reads and what it keeps.
//! 8. [`remedy`] says what an error asks of its caller.

pub mod arrow;
pub mod changes;
pub mod clock;
pub mod codec;
pub mod collapse;
mod error;
pub mod frontier;
pub mod ids;
pub mod key;
pub mod lake;
pub mod ledger;
pub mod lsn;
pub mod monotonic;
pub mod operation;
pub mod remedy;
pub mod row;
pub mod schedule;
pub mod schema;
pub mod state;
pub mod transaction;

pub use ids::{Attempt, Epoch, FileId, Generation, OperationId, TableId};
pub use lsn::Lsn;
pub use remedy::{Remedial, Remedy};
pub use schema::{Column, ColumnType, TableName, TableSchema};
