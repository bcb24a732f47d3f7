//! The initial copy: a table's rows as of an exported snapshot, in the same bytes as the stream's.
use crate::capture::CaptureTable;
use crate::error::SourceError;
use crate::options::SourceOptions;

/// Holds a transaction that sees an exported snapshot.
#[derive(Debug)]
pub struct CopySession {}

/// Opens a session and imports the snapshot; when this returns, the snapshot may go.
///
/// # Errors
/// [`SourceError::SnapshotGone`] (retry with another snapshot), or as for any connection.
pub async fn open_copy_session(options: &SourceOptions, snapshot: &str) -> Result<CopySession, SourceError> {
    let _ = (options, snapshot);
    Err(SourceError::Ended)
}

impl CopySession {
    /// Copies a table: `on_rows` gets each row's encoded bytes in turn. Counts the rows.
    ///
    /// The callback is called from within this future; it may return an error to stop, which is
    /// handed back as is. After an error the session is spent.
    ///
    /// # Errors
    /// [`SourceError::Value`] (block the table) where a value does not fit; connection errors (retry).
    pub async fn copy<E: From<SourceError>>(
        &mut self,
        table: &CaptureTable,
        on_row: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let _ = (table, on_row);
        Err(SourceError::Ended.into())
    }
}
