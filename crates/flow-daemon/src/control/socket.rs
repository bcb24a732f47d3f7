//! Where the socket is, whatever the length of the state directory's path.
//!
//! A Unix socket's address holds 107 bytes. On Linux a longer path is reached through the open
//! directory, `/proc/self/fd/N/control.sock`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Is the socket's file name in the state directory.
const FILE_NAME: &str = "control.sock";

/// Is the longest path that fits a socket address (unix(7)).
const ADDRESS_BYTES_MAX: usize = 107;

/// Is an address that can be bound or connected to while this value lives.
#[derive(Debug)]
pub(super) struct SocketAddress {
    path: PathBuf,
    _directory: Option<File>,
}

impl SocketAddress {
    pub(super) fn of(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(FILE_NAME);
        if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
            return Ok(SocketAddress { path, _directory: None });
        }
        let directory = File::open(state_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(FILE_NAME);
        Ok(SocketAddress {
            path,
            _directory: Some(directory),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
