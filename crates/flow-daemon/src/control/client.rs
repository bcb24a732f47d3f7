//! Asks a running service, and tells whether there is one.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::protocol::{Request, Response};
use super::socket::SocketAddress;
use crate::exit::{Exit, Failure};

/// A status document of many thousand tables fits.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;

/// Sends a request and waits for its end, however long it takes. `None` if no service runs.
///
/// # Errors
/// What the service met; reconfigure if the socket belongs to another user; unavailable if the
/// service ended before it answered.
pub async fn ask(state_dir: &Path, request: &Request) -> Result<Option<Response>, Failure> {
    let Some(stream) = connect(state_dir).await? else {
        return Ok(None);
    };
    let lost = |error: io::Error| {
        Failure::new(
            Exit::Unavailable,
            format!("the service ended before it answered: {error}"),
        )
    };
    let (read, mut write) = stream.into_split();
    let mut bytes = serde_json::to_vec(request).expect("requests are plain data");
    bytes.push(b'\n');
    write.write_all(&bytes).await.map_err(lost)?;
    let mut line = Vec::new();
    let mut limited = BufReader::new(read).take(RESPONSE_BYTES_MAX);
    limited.read_until(b'\n', &mut line).await.map_err(lost)?;
    if line.is_empty() {
        return Err(lost(io::ErrorKind::UnexpectedEof.into()));
    }
    let response: Response = serde_json::from_slice(&line).map_err(|error| {
        let message = format!("the service answered what this version does not understand: {error}");
        Failure::new(Exit::Failure, message)
    })?;
    response.accept().map(Some)
}

async fn connect(state_dir: &Path) -> Result<Option<UnixStream>, Failure> {
    let connected = match SocketAddress::of(state_dir) {
        Ok(address) => UnixStream::connect(address.path()).await,
        Err(error) => Err(error),
    };
    match connected {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            // No file, or a file whose service was killed.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            io::ErrorKind::PermissionDenied => Err(Failure::new(
                Exit::Reconfigure,
                format!("the control socket in {} belongs to another user", state_dir.display()),
            )),
            _ => Err(Failure::new(
                Exit::Failure,
                format!("cannot reach the control socket: {error}"),
            )),
        },
    }
}
