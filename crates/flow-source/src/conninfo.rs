//! Connection strings: libpq's URL and `key=value` forms, as far as one server needs them.
//!
//! Owns what is known about reaching and trusting the server. The password is never shown.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::SourceError;

mod parse;

/// Says how far the connection must be protected; the names are libpq's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// No TLS.
    Disable,
    /// TLS if the server offers it (`prefer`; `allow` is taken as `prefer`, which protects more).
    #[default]
    Prefer,
    /// TLS, without asking who the server is unless `sslrootcert` is given.
    Require,
    /// TLS with a certificate signed by a root in `sslrootcert`.
    VerifyCa,
    /// As [`SslMode::VerifyCa`], and the certificate names the host.
    VerifyFull,
}

/// Says how to reach a server and log in.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnInfo {
    /// Is a host name or address, or a directory holding a Unix socket (begins with `/`).
    pub host: String,
    /// Is an address to connect to in place of resolving `host`.
    pub hostaddr: Option<String>,
    /// Is the TCP port, and part of the socket's file name.
    pub port: u16,
    /// Is the role.
    pub user: String,
    /// Is the password. Never displayed.
    pub password: Option<String>,
    /// Is the database.
    pub dbname: String,
    /// Says how far TLS must go.
    pub sslmode: SslMode,
    /// Is a PEM file of trusted roots, or `system` for the system's own.
    pub sslrootcert: Option<PathBuf>,
    /// Is the client's certificate, PEM.
    pub sslcert: Option<PathBuf>,
    /// Is the client's key, PEM.
    pub sslkey: Option<PathBuf>,
    /// Is what `pg_stat_activity` shows.
    pub application_name: String,
    /// Is passed to the server as command-line options: `-c name=value`.
    pub options: Option<String>,
    /// Limits making one connection.
    pub connect_timeout: Option<Duration>,
}

impl ConnInfo {
    /// Reads `postgresql://user@host/db?sslmode=…` or `host=… user=…`.
    ///
    /// # Errors
    /// [`SourceError::ConnInfo`] (reconfigure); the message never repeats a value.
    pub fn parse(text: &str) -> Result<ConnInfo, SourceError> {
        parse::parse(text).map_err(SourceError::ConnInfo)
    }

    /// Says whether `host` is a directory with a Unix socket.
    pub fn is_unix(&self) -> bool {
        self.host.starts_with('/')
    }

    /// Names the server for messages: host and port.
    pub fn server(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} database {} user {}", self.server(), self.dbname, self.user)
    }
}

impl fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnInfo")
            .field("server", &self.server())
            .field("user", &self.user)
            .field("dbname", &self.dbname)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
