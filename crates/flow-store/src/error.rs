//! What can go wrong, named by the operation that failed.

use std::path::PathBuf;

use flow_core::state::StateError;
use flow_core::{Lsn, Remedial, Remedy};

use crate::layout::Family;

/// Says why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory open.
    #[error("state directory {dir} is in use by another process{holder}", dir = .dir.display())]
    Busy {
        /// Is the directory.
        dir: PathBuf,
        /// Names the holder where it is known, with a leading space: ` (pid 12)`.
        holder: String,
    },
    /// The directory or a file in it cannot be made, locked or asked about.
    #[error("cannot {action} {path}", path = .path.display())]
    Directory {
        /// Says what was tried.
        action: &'static str,
        /// Says on what.
        path: PathBuf,
        /// Is the cause.
        #[source]
        source: std::io::Error,
    },
    /// The database in the directory cannot be opened.
    #[error("cannot open the database in {dir}", dir = .dir.display())]
    Open {
        /// Is the directory.
        dir: PathBuf,
        /// Is the cause.
        #[source]
        source: rocksdb::Error,
    },
    /// The directory was written by a version with another format.
    #[error("state directory has format {found}, this version reads {supported}")]
    Format {
        /// Is what the directory says.
        found: String,
        /// Is what this version reads.
        supported: u32,
    },
    /// The directory belongs to another source, system or slot.
    #[error("state directory belongs to {field} '{found}', not '{wanted}'")]
    Foreign {
        /// Names what differs.
        field: &'static str,
        /// Is what the directory says.
        found: String,
        /// Is what the caller has.
        wanted: String,
    },
    /// Stored bytes are not what was written, or contradict each other.
    #[error("corrupt record in {family}, key {key}: {what}")]
    Corrupt {
        /// Is the column family.
        family: Family,
        /// Is the key in hexadecimal, shortened.
        key: String,
        /// Says what is wrong, without the value.
        what: String,
    },
    /// A read failed.
    #[error("cannot read {family}")]
    Read {
        /// Is the column family.
        family: Family,
        /// Is the cause.
        #[source]
        source: rocksdb::Error,
    },
    /// A write or sync failed; the store takes no further writes.
    #[error("cannot {action}")]
    Write {
        /// Says what was tried.
        action: &'static str,
        /// Is the cause.
        #[source]
        source: rocksdb::Error,
    },
    /// An earlier write or sync failed: what is durable is known only after a restart.
    #[error("an earlier write to the state directory failed")]
    Poisoned,
    /// The journal was asked to move against the order of commits.
    #[error("{what} at {at} is out of order: the journal stands at {stands}")]
    OutOfOrder {
        /// Says what was asked.
        what: &'static str,
        /// Is the position asked for.
        at: Lsn,
        /// Is the journal's.
        stands: Lsn,
    },
}

impl StoreError {
    pub(crate) fn corrupt(family: Family, key: &[u8], what: impl Into<String>) -> Self {
        const SHOWN: usize = 48;
        let mut text: String = key.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
        if key.len() > SHOWN {
            text.push('…');
        }
        StoreError::Corrupt {
            family,
            key: text,
            what: what.into(),
        }
    }
}

impl StoreError {
    /// Says it in the words of who keeps state. Damaged state is built again from the inputs, so it
    /// asks for that and not for a stop.
    pub(crate) fn into_state(self, action: &'static str) -> StateError {
        let damaged = match &self {
            StoreError::Corrupt { .. } => true,
            StoreError::Read { source, .. } => source.kind() == rocksdb::ErrorKind::Corruption,
            _ => false,
        };
        StateError {
            action,
            remedy: if damaged { Remedy::Replan } else { self.remedy() },
            source: Box::new(self),
        }
    }
}

impl Remedial for StoreError {
    fn remedy(&self) -> Remedy {
        match self {
            StoreError::Busy { .. } => Remedy::Retry,
            StoreError::Directory { .. } | StoreError::Format { .. } | StoreError::Foreign { .. } => {
                Remedy::Reconfigure
            }
            StoreError::Open { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Read { .. }
            | StoreError::Write { .. }
            | StoreError::Poisoned
            | StoreError::OutOfOrder { .. } => Remedy::Crash,
        }
    }

    fn code(&self) -> Option<&'static str> {
        Some(match self {
            StoreError::Busy { .. } => "F0201",
            StoreError::Directory { .. } => "F0202",
            StoreError::Format { .. } => "F0203",
            StoreError::Foreign { .. } => "F0204",
            StoreError::Open { .. } | StoreError::Read { .. } => "F0205",
            StoreError::Corrupt { .. } => "F0206",
            StoreError::Write { .. } | StoreError::Poisoned => "F0207",
            StoreError::OutOfOrder { .. } => "F0208",
        })
    }
}
