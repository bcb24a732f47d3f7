//! `state_dir/status.json`: the last status document, for when no service answers.
//!
//! The engine keeps it. It is for people: nothing decides by it.

use std::io;
use std::path::Path;

use flow_engine::status::{ServiceState, Status};

const FILE_NAME: &str = "status.json";

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
        let json = serde_json::to_vec(&status).expect("plain data");
        std::fs::write(directory.path().join(FILE_NAME), json).expect("is writable");
        let read = read_stopped(directory.path())
            .expect("no failure")
            .expect("was written");
        assert_eq!(
            (read.state, read.ready, read.pid, read.http),
            (ServiceState::Stopped, false, 0, None)
        );
        assert_eq!(read.source.id, "shop");
        std::fs::write(directory.path().join(FILE_NAME), b"{").expect("is writable");
        assert!(read_stopped(directory.path()).is_err());
    }
}
