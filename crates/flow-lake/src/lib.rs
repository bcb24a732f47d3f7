//! All of Iceberg: how rows become files, files a snapshot, and a snapshot visible.
//!
//! Owns schema mapping, data and delete writers, manifests, own row-delta commits, the embedded
//! SQLite catalog and snapshot reads. Never touches the local store and never decides *when* to
//! commit.
//!
//! 1. [`Lake::open`] opens warehouse and catalog; [`Lake::create_table`] and [`Lake::load`] give a [`Table`].
//! 2. [`Lake::data_writer`] and [`Lake::write_deletes`] write Parquet files and sync them.
//! 3. [`Lake::seal`] writes manifests and describes one snapshot as a [`Sealed`].
//! 4. [`Lake::commit`] makes the sealed snapshots of several tables visible in one SQLite transaction.
//! 5. [`Lake::look`] settles a commit whose outcome is not known.
//! 6. [`flow_core::lake::SnapshotReader`] reads any retained snapshot. Who only reads opens the lake
//!    with [`Lake::open_existing`], which makes nothing; [`probe`] asks whether it could be made.
//! 7. [`Lake::serve`] gives the catalog to other programs, who keep tables of their own in it.

mod blocking;
mod catalog;
mod commit;
mod create;
mod error;
mod files;
mod history;
mod lake;
mod metadata;
mod probe;
mod read;
mod schema;
mod seal;
mod serve;
mod table;
mod writer;

pub use commit::{CommitOutcome, Look, Progress};
pub use error::LakeError;
pub use lake::{Lake, LakeOptions};
pub use probe::probe;
pub use read::{PlacedChanges, Places};
pub use seal::{SealInput, Sealed};
pub use serve::{Page, Refusal, Reply, Request, ServeError, ServedCatalog, Snapshots, View, table_name};
pub use table::Table;
pub use writer::{DataWriter, Place, WrittenFile};

/// Is the summary and table property that names the sealed attempt which wrote a snapshot.
pub const OPERATION_ID: &str = "flow.operation-id";
