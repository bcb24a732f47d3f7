//! Dynamic tables: what their SQL means, what they read, and what a refresh changes.
//!
//! This crate computes and never commits. It reads snapshots only through
//! [`flow_core::lake::SnapshotReader`], and hands back rows to insert and rows to delete.
//!
//! 1. [`parse`] turns `.sql` files into [`Definition`]s; problems carry file, line and column.
//! 2. [`plan`] orders them, finds their inputs, checks every operator and fixes the output columns.
//! 3. [`choose_cut`] finds the newest cut that all inputs of a refresh can present.
//! 4. [`refresh_full`] computes the SELECT over that cut and compares it with what is stored.
//! 5. [`refresh_delta`] computes only what changes, from what changed in the inputs and the state that
//!    [`build_state`] made.
//! 6. [`query`] runs a user's read-only SQL with the same engine.
//!
//! # Invariants
//! - The result of a definition is a function of its input rows, and of the recorded time where its
//!   conditions name it: no order of arrival, number of threads, clock or random number shows in it (law 7).
//! - A value that does not fit its type is an error that names the table, never another value.

mod aggregates;
mod checked;
mod compile;
mod cut;
mod definition;
mod delta;
mod determinism;
mod difference;
mod error;
mod exact;
mod exactness;
mod incremental;
mod judged;
mod kind;
mod meeting;
mod moment;
mod output;
mod output_rows;
mod parse;
mod plan;
mod pushdown;
mod query;
mod refresh;
mod row_copies;
mod select;
mod session;
mod source;
mod spool;
mod subquery_rows;
mod subquery_values;
mod tokens;

pub use cut::{Cut, InputHistory, InputKind, choose_cut};
pub use definition::{Definition, Lag, Problem, RequestedMode, SourceFile};
pub use delta::{Delta, DeltaInput, DeltaPlan, InputChanges};
pub use error::RefreshError;
pub use incremental::{begin_delta, build_state, refresh_delta};
pub use output::{LINEAGE_COLUMNS, schema_difference};
pub use output_rows::{RowDigest, RowDigests, RowsToWrite, rows_to_write};
pub use parse::parse;
pub use plan::{INPUT_COLUMNS, Mode, Plan, PlannedTable, QUERY_HASH, Reason, plan};
pub use query::query;
pub use refresh::{Inserted, RefreshContext, RefreshInput, RefreshOutput, refresh_full};
pub use row_copies::{Copies, RowCopies};
pub use spool::Scratch;
