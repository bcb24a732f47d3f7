//! Runs file, SQLite and encoding work where it may block.

use crate::error::LakeError;

/// Runs `work` on a blocking thread. Once begun it runs to its end, even if the caller is dropped.
pub(crate) async fn run<T, E, F>(work: F) -> Result<T, E>
where
    T: Send + 'static,
    E: From<LakeError> + Send + 'static,
    F: FnOnce() -> Result<T, E> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(LakeError::broken(format!("lake worker stopped: {error}")).into()),
    }
}
