//! What can go wrong at the source, by the operation that failed.
//!
//! The remedy decides what the engine does and which exit code a user sees; the code names the
//! page under `docs/errors/`. No message holds a password or a row value.

use std::fmt;

use flow_core::codec::Malformed;
use flow_core::{Lsn, Remedial, Remedy, TableName};

/// Is an error the server sent: its SQLSTATE and message.
///
/// The detail is left out on purpose: PostgreSQL puts row values there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// Is the five-character SQLSTATE.
    pub sqlstate: String,
    /// Is the server's primary message.
    pub message: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.sqlstate)
    }
}

impl std::error::Error for ServerError {}

/// Says why the source could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The connection string cannot be read.
    #[error("connection string: {0}")]
    ConnInfo(String),
    /// No connection could be made, or it broke.
    #[error("no connection to PostgreSQL at {server}")]
    Unreachable {
        /// Names host and port, or the socket.
        server: String,
        /// Is what the system said.
        #[source]
        source: std::io::Error,
    },
    /// The server is there but takes no connection at the moment.
    #[error("PostgreSQL is not ready: {0}")]
    NotReady(ServerError),
    /// The server refused who we are: user, password, database, `pg_hba.conf`.
    #[error("PostgreSQL refused the login: {0}")]
    Login(String),
    /// TLS could not be set up as `sslmode` asks.
    #[error("TLS to PostgreSQL: {0}")]
    Tls(String),
    /// A statement failed.
    #[error("{operation}: {error}")]
    Sql {
        /// Says what was being done.
        operation: &'static str,
        /// Is the server's answer.
        error: ServerError,
    },
    /// Bytes from the server make no sense.
    #[error("malformed message from PostgreSQL: {0}")]
    Protocol(String),
    /// The slot is not there.
    #[error("replication slot \"{slot}\" does not exist")]
    SlotMissing {
        /// Is the slot's name.
        slot: String,
    },
    /// The slot can no longer continue what was captured.
    #[error("replication slot \"{slot}\" cannot continue: {reason}")]
    SlotUnusable {
        /// Is the slot's name.
        slot: String,
        /// Says why.
        reason: String,
    },
    /// Another session streams from the slot.
    #[error("replication slot \"{slot}\" is held by server process {pid}")]
    SlotHeld {
        /// Is the slot's name.
        slot: String,
        /// Is the server process that holds it; 0 if unknown.
        pid: i32,
    },
    /// A slot of that name is there already.
    #[error("replication slot \"{slot}\" exists already")]
    SlotExists {
        /// Is the slot's name.
        slot: String,
    },
    /// The connection leads to another database cluster or database than the one captured.
    #[error("this is another database system: {reason}")]
    OtherSystem {
        /// Says what differs.
        reason: String,
    },
    /// The publication is not there.
    #[error("publication \"{publication}\" does not exist")]
    PublicationMissing {
        /// Is the publication's name.
        publication: String,
    },
    /// The publication that the slot streams by is gone, so the changes since then cannot be decoded.
    #[error("publication \"{publication}\" was dropped: what changed since then cannot be decoded any more")]
    PublicationGone {
        /// Is the publication's name.
        publication: String,
    },
    /// A table is no longer what it was when its copy was prepared.
    #[error("table {table} was changed while it was copied: {reason}")]
    TableChanged {
        /// Is the table.
        table: TableName,
        /// Says what differs.
        reason: String,
    },
    /// A table cannot be captured as asked.
    #[error("table {table}: {reason}")]
    TableRefused {
        /// Is the table.
        table: TableName,
        /// Says why and what to do.
        reason: String,
    },
    /// A value does not fit the type its column has in the lake.
    #[error("table {table}, column {column}: {reason}")]
    Value {
        /// Is the table.
        table: TableName,
        /// Is the column.
        column: String,
        /// Says what kind of value it is, without the value.
        reason: String,
    },
    /// The exported snapshot is gone: the session that exported it ended.
    #[error("exported snapshot is gone")]
    SnapshotGone,
    /// PostgreSQL wants to shut down and waits for this session.
    #[error("PostgreSQL is shutting down; everything up to {received} was received")]
    ShuttingDown {
        /// Is how far the stream had come.
        received: Lsn,
    },
    /// The stream's own task ended before its handle.
    #[error("the replication stream has ended")]
    Ended,
}

impl SourceError {
    /// Sorts a server's refusal at login by its SQLSTATE.
    pub(crate) fn from_login(error: ServerError) -> Self {
        match error.sqlstate.as_str() {
            // cannot_connect_now, too_many_connections, admin_shutdown, crash_shutdown, and the like.
            "57P03" | "53300" | "57P01" | "57P02" | "53000" | "53200" | "53400" => SourceError::NotReady(error),
            _ => SourceError::Login(error.to_string()),
        }
    }

    /// Says whether a server error means the session or the server went away.
    fn passes(sqlstate: &str) -> bool {
        // Classes: connection exception, transaction rollback, insufficient resources, object not
        // in prerequisite state (busy), operator intervention, system error, internal error.
        ["08", "40", "53", "55", "57", "58", "XX"]
            .iter()
            .any(|class| sqlstate.starts_with(class))
    }
}

impl From<Malformed> for SourceError {
    fn from(malformed: Malformed) -> Self {
        SourceError::Protocol(malformed.to_string())
    }
}

impl Remedial for SourceError {
    fn remedy(&self) -> Remedy {
        match self {
            SourceError::ConnInfo(_)
            | SourceError::Login(_)
            | SourceError::Tls(_)
            | SourceError::SlotExists { .. }
            | SourceError::PublicationMissing { .. }
            | SourceError::TableRefused { .. } => Remedy::Reconfigure,
            SourceError::Unreachable { .. }
            | SourceError::NotReady(_)
            | SourceError::Protocol(_)
            | SourceError::SlotHeld { .. }
            | SourceError::SnapshotGone
            | SourceError::TableChanged { .. }
            | SourceError::ShuttingDown { .. }
            | SourceError::Ended => Remedy::Retry,
            SourceError::Sql { error, .. } if SourceError::passes(&error.sqlstate) => Remedy::Retry,
            SourceError::Sql { .. } => Remedy::Reconfigure,
            SourceError::SlotMissing { .. }
            | SourceError::SlotUnusable { .. }
            | SourceError::OtherSystem { .. }
            | SourceError::PublicationGone { .. } => Remedy::Resync,
            SourceError::Value { .. } => Remedy::BlockTable,
        }
    }

    fn code(&self) -> Option<&'static str> {
        Some(match self {
            SourceError::ConnInfo(_) => "F0101",
            SourceError::Unreachable { .. } | SourceError::Ended => "F0102",
            SourceError::NotReady(_) => "F0103",
            SourceError::Login(_) => "F0104",
            SourceError::Tls(_) => "F0105",
            SourceError::Sql { .. } => "F0106",
            SourceError::Protocol(_) => "F0107",
            SourceError::ShuttingDown { .. } => "F0108",
            SourceError::SlotMissing { .. } => "F0110",
            SourceError::SlotUnusable { .. } => "F0111",
            SourceError::SlotHeld { .. } => "F0112",
            SourceError::SlotExists { .. } => "F0113",
            SourceError::OtherSystem { .. } => "F0114",
            SourceError::SnapshotGone => "F0115",
            SourceError::PublicationMissing { .. } => "F0120",
            SourceError::PublicationGone { .. } => F_PUBLICATION,
            SourceError::TableRefused { .. } => "F0122",
            SourceError::TableChanged { .. } => "F0123",
            SourceError::Value { .. } => F_VALUE,
        })
    }
}

/// Is the code of a value that its column cannot hold, in an error and in the stream's block record.
pub const F_VALUE: &str = "F0130";

/// Is the code of a captured table whose definition changed, in the stream's block record.
pub const F_DEFINITION: &str = "F0131";

/// Is the code of a publication that changed under a captured table.
pub const F_PUBLICATION: &str = "F0121";
