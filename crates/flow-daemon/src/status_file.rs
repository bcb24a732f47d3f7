//! `state_dir/status.json`: the last status document, for when no service answers.
//!
//! It is for people: nothing decides by it, so it is replaced whole but not synced.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flow_engine::status::{ServiceState, Status};
use tokio_util::sync::CancellationToken;

const FILE_NAME: &str = "status.json";

/// Often enough for a look at what a killed service did last.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writes the document, whole or not at all.
///
/// # Errors
/// What the system said.
pub fn write(state_dir: &Path, status: &Status) -> io::Result<()> {
    let partial = state_dir.join("status.json.tmp");
    std::fs::write(&partial, serde_json::to_vec_pretty(status)?)?;
    std::fs::rename(partial, state_dir.join(FILE_NAME))
}

/// Reads the last document as one of a stopped service. `None` if there never was one.
///
/// # Errors
/// What the system said, or that the file is no status document.
pub fn read_stopped(state_dir: &Path) -> io::Result<Option<Status>> {
    let bytes = match std::fs::read(state_dir.join(FILE_NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let mut status: Status = serde_json::from_slice(&bytes)?;
    status.state = ServiceState::Stopped;
    status.ready = false;
    status.pid = 0;
    status.http = None;
    status.source.connected = false;
    Ok(Some(status))
}

/// Keeps the file until `shutdown`, and writes it once more at the end.
pub async fn keep(state_dir: &Path, status: impl Fn() -> Arc<Status>, shutdown: CancellationToken) {
    let mut failed = false;
    loop {
        let ended = tokio::select! {
            () = tokio::time::sleep(INTERVAL) => false,
            () = shutdown.cancelled() => true,
        };
        match write(state_dir, &status()) {
            Ok(()) => failed = false,
            Err(error) if !failed => {
                tracing::warn!(%error, "cannot write the status file");
                failed = true;
            }
            Err(_) => {}
        }
        if ended {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_service_is_shown_as_such() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(read_stopped(directory.path()).expect("no failure"), None);
        let mut status = Status {
            state: ServiceState::Streaming,
            ready: true,
            pid: 7,
            http: Some("127.0.0.1:1".into()),
            ..Status::default()
        };
        status.source.id = "shop".into();
        write(directory.path(), &status).expect("is writable");
        let read = read_stopped(directory.path()).expect("no failure").expect("was written");
        assert_eq!((read.state, read.ready, read.pid, read.http), (ServiceState::Stopped, false, 0, None));
        assert_eq!(read.source.id, "shop");
        std::fs::write(directory.path().join(FILE_NAME), b"{").expect("is writable");
        assert!(read_stopped(directory.path()).is_err());
    }
}
