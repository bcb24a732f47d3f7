//! Why the lake could not do something, and what its caller should do.

use std::path::{Path, PathBuf};

use flow_core::{Remedial, Remedy};

/// Says which lake operation failed, and on what.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The catalog file did not answer.
    #[error("cannot {action} in catalog {path}")]
    Catalog {
        /// Says what was tried.
        action: &'static str,
        /// Is the SQLite file.
        path: PathBuf,
        /// Is the cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A file could not be read, written or made.
    #[error("cannot {action} {path}")]
    File {
        /// Says what was tried.
        action: &'static str,
        /// Is the file or directory.
        path: PathBuf,
        /// Is the cause.
        #[source]
        source: std::io::Error,
    },
    /// The operating system could not make a file or directory durable; what is on disk is unknown.
    #[error("cannot sync {path}")]
    Sync {
        /// Is the file or directory.
        path: PathBuf,
        /// Is the cause.
        #[source]
        source: std::io::Error,
    },
    /// The warehouse or catalog setting cannot be used.
    #[error("setting {field} cannot be used: {reason}")]
    Options {
        /// Names the setting.
        field: &'static str,
        /// Says why.
        reason: String,
    },
    /// The catalog has a table of this name.
    #[error("table {table} exists in the catalog")]
    Exists {
        /// Names the table.
        table: String,
    },
    /// The catalog has no table of this name, or another one than before.
    #[error("table {table} is not in the catalog, or is another table of that name")]
    Missing {
        /// Names the table.
        table: String,
    },
    /// Other programs kept committing to the table.
    #[error("table {table} changes faster than its properties can be set")]
    Contended {
        /// Names the table.
        table: String,
    },
    /// The table or its snapshot is of a kind that cannot be honoured exactly.
    #[error("table {table} cannot be used: {reason}")]
    Unsupported {
        /// Names the table.
        table: String,
        /// Says what is not supported.
        reason: String,
    },
    /// A snapshot was expired before it was read.
    #[error("snapshot {snapshot_id} of {table} is no longer retained")]
    SnapshotGone {
        /// Names the table.
        table: String,
        /// Is Iceberg's snapshot id.
        snapshot_id: i64,
    },
    /// Iceberg metadata, a manifest list or a manifest could not be read or made.
    #[error("cannot {action} for {table}")]
    Iceberg {
        /// Says what was tried.
        action: &'static str,
        /// Names the table or file.
        table: String,
        /// Is the cause.
        #[source]
        source: Box<iceberg::Error>,
    },
    /// A Parquet file could not be read or written.
    #[error("cannot {action} {path}")]
    Parquet {
        /// Says what was tried.
        action: &'static str,
        /// Is the file.
        path: String,
        /// Is the cause.
        #[source]
        source: parquet::errors::ParquetError,
    },
    /// Columns could not be brought into the wanted shape.
    #[error("cannot {action} of {table}")]
    Arrow {
        /// Says what was tried.
        action: &'static str,
        /// Names the table or file.
        table: String,
        /// Is the cause.
        #[source]
        source: arrow_schema::ArrowError,
    },
    /// A stored JSON value (sealed attempt, file) is broken.
    #[error("cannot {action}")]
    Json {
        /// Says what was tried.
        action: &'static str,
        /// Is the cause.
        #[source]
        source: serde_json::Error,
    },
    /// The caller broke a rule of this crate, or a worker stopped half-way.
    #[error("broken invariant: {what}")]
    Broken {
        /// Says which.
        what: String,
    },
}

impl LakeError {
    pub(crate) fn file(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        LakeError::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn sync(path: &Path, source: std::io::Error) -> Self {
        LakeError::Sync {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn iceberg(action: &'static str, table: impl ToString) -> impl FnOnce(iceberg::Error) -> Self {
        let table = table.to_string();
        move |source| LakeError::Iceberg {
            action,
            table,
            source: Box::new(source),
        }
    }

    pub(crate) fn parquet(
        action: &'static str,
        path: impl ToString,
    ) -> impl FnOnce(parquet::errors::ParquetError) -> Self {
        let path = path.to_string();
        move |source| LakeError::Parquet { action, path, source }
    }

    pub(crate) fn arrow(action: &'static str, table: impl ToString) -> impl FnOnce(arrow_schema::ArrowError) -> Self {
        let table = table.to_string();
        move |source| LakeError::Arrow { action, table, source }
    }

    pub(crate) fn broken(what: impl Into<String>) -> Self {
        LakeError::Broken { what: what.into() }
    }
}

/// Says whether SQLite only asks for patience.
fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked | DiskFull | OperationInterrupted)
    )
}

/// Says whether a full disk, or a full quota, is behind an error.
fn is_storage_full(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| matches!(io.kind(), StorageFull | QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Remedial for LakeError {
    fn remedy(&self) -> Remedy {
        use std::io::ErrorKind::{AlreadyExists, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
        match self {
            // What was synced in part is unknown, and no room mends that.
            LakeError::Sync { .. } => Remedy::Crash,
            error if is_storage_full(error) => Remedy::Retry,
            LakeError::Catalog { source, .. } if is_busy(source) => Remedy::Retry,
            LakeError::Catalog { .. } => Remedy::Reconfigure,
            LakeError::File { source, .. } => match source.kind() {
                PermissionDenied | ReadOnlyFilesystem | NotADirectory | AlreadyExists => Remedy::Reconfigure,
                NotFound => Remedy::BlockTable,
                _ => Remedy::Retry,
            },
            LakeError::Contended { .. } | LakeError::SnapshotGone { .. } => Remedy::Retry,
            LakeError::Broken { .. } | LakeError::Json { .. } => Remedy::Crash,
            LakeError::Options { .. } | LakeError::Exists { .. } => Remedy::Reconfigure,
            LakeError::Missing { .. }
            | LakeError::Unsupported { .. }
            | LakeError::Iceberg { .. }
            | LakeError::Parquet { .. }
            | LakeError::Arrow { .. } => Remedy::BlockTable,
        }
    }

    fn code(&self) -> Option<&'static str> {
        Some(match self {
            LakeError::Catalog { .. } => "F0301",
            LakeError::File { .. } => "F0302",
            LakeError::Sync { .. } => "F0303",
            LakeError::Options { .. } => "F0304",
            LakeError::Exists { .. } => "F0305",
            LakeError::Missing { .. } => "F0306",
            LakeError::Unsupported { .. } => "F0307",
            LakeError::Iceberg { .. } => "F0308",
            LakeError::Parquet { .. } => "F0309",
            LakeError::Arrow { .. } => "F0310",
            LakeError::Json { .. } => "F0311",
            LakeError::Broken { .. } => "F0312",
            LakeError::Contended { .. } => "F0313",
            LakeError::SnapshotGone { .. } => "F0314",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_full_disk_asks_for_patience_wherever_it_shows() {
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let parquet = |source| LakeError::Parquet {
            action: "write",
            path: "/t/x.parquet".to_owned(),
            source,
        };
        let path = Path::new("/t/x");
        assert_eq!(parquet(full().into()).remedy(), Remedy::Retry);
        assert_eq!(LakeError::file("write", path, full()).remedy(), Remedy::Retry);
        // As a writer of writers wraps it.
        let wrapped = io::Error::other(parquet::errors::ParquetError::from(full()));
        assert_eq!(parquet(wrapped.into()).remedy(), Remedy::Retry);
        let iceberg = iceberg::Error::new(iceberg::ErrorKind::Unexpected, "write").with_source(full());
        assert_eq!(LakeError::iceberg("write", "t")(iceberg).remedy(), Remedy::Retry);
        let quota = io::Error::from(io::ErrorKind::QuotaExceeded);
        assert_eq!(LakeError::file("write", path, quota).remedy(), Remedy::Retry);

        let torn = parquet::errors::ParquetError::General("torn".to_owned());
        assert_eq!(parquet(torn).remedy(), Remedy::BlockTable);
        assert_eq!(LakeError::sync(path, full()).remedy(), Remedy::Crash);
    }
}
