//! What the source is asked to do: which server, which slot, which publication, how patiently.

use std::time::Duration;

use crate::conninfo::ConnInfo;

/// Says where and how to capture.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Is the server and how to log in.
    pub conninfo: ConnInfo,
    /// Names the logical replication slot: `[a-z0-9_]`, at most 63 characters.
    pub slot: String,
    /// Names the publication.
    pub publication: String,
    /// Is how often the server is asked how far it has come and told what is safe.
    pub heartbeat: Duration,
    /// Limits making one connection, TLS and login included.
    pub connect_timeout: Duration,
    /// Is the cluster the slot belongs to, as `pg_control_system()` numbers it, once it is known.
    pub system_identifier: Option<u64>,
}

impl SourceOptions {
    /// Uses the defaults: heartbeat 10 s, connect timeout 10 s.
    pub fn new(conninfo: ConnInfo, slot: impl Into<String>, publication: impl Into<String>) -> Self {
        let connect_timeout = conninfo.connect_timeout.unwrap_or(Duration::from_secs(10));
        SourceOptions {
            conninfo,
            slot: slot.into(),
            publication: publication.into(),
            heartbeat: Duration::from_secs(10),
            connect_timeout,
            system_identifier: None,
        }
    }
}
