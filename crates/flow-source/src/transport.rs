//! A byte stream to the server: TCP or Unix socket, with TLS as `sslmode` asks.
//!
//! Both the SQL client and the own replication sessions run on it, so they are reached and trusted alike.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::conninfo::{ConnInfo, SslMode};
use crate::error::SourceError;
use crate::options::SourceOptions;
use crate::tls;

/// Is the silence after which TCP asks whether the peer is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Is the pause between such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Is an open byte stream.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// TLS over TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Opens a stream within the options' connect timeout.
///
/// # Errors
/// [`SourceError::Unreachable`] (retry), [`SourceError::Tls`] (reconfigure).
pub(crate) async fn open(options: &SourceOptions) -> Result<Transport, SourceError> {
    let info = &options.conninfo;
    match tokio::time::timeout(options.connect_timeout, open_now(info)).await {
        Ok(result) => result,
        Err(_) => Err(unreachable(info, io::Error::from(io::ErrorKind::TimedOut))),
    }
}

pub(crate) fn unreachable(info: &ConnInfo, source: io::Error) -> SourceError {
    SourceError::Unreachable {
        server: info.server(),
        source,
    }
}

async fn open_now(info: &ConnInfo) -> Result<Transport, SourceError> {
    if info.is_unix() {
        // libpq never uses TLS on a Unix socket, whatever sslmode says.
        let path = format!("{}/.s.PGSQL.{}", info.host, info.port);
        let socket = UnixStream::connect(path).await.map_err(|e| unreachable(info, e))?;
        return Ok(Transport::Unix(socket));
    }
    let host = info.hostaddr.as_deref().unwrap_or(&info.host);
    let mut socket = TcpStream::connect((host, info.port))
        .await
        .map_err(|e| unreachable(info, e))?;
    socket.set_nodelay(true).map_err(|e| unreachable(info, e))?;
    // A copy may be silent for long, so only the network can tell a slow server from a dead one.
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&socket)
        .set_tcp_keepalive(&keepalive)
        .map_err(|e| unreachable(info, e))?;
    if info.sslmode == SslMode::Disable {
        return Ok(Transport::Tcp(socket));
    }
    // SSLRequest: length 8, code 80877103. The answer is one byte, read alone so that nothing
    // sent in the clear after it can be taken for part of the protected stream.
    socket
        .write_all(&[0, 0, 0, 8, 4, 210, 22, 47])
        .await
        .map_err(|e| unreachable(info, e))?;
    match socket.read_u8().await.map_err(|e| unreachable(info, e))? {
        b'S' => {}
        b'N' if info.sslmode == SslMode::Prefer => return Ok(Transport::Tcp(socket)),
        b'N' => return Err(SourceError::Tls("the server does not offer it".to_owned())),
        // An old server, or one out of resources, answers with an error message in the clear.
        b'E' => {
            return Err(unreachable(
                info,
                io::Error::other("the server answered the TLS request with an error"),
            ));
        }
        _ => return Err(SourceError::Protocol("answer to the TLS request".to_owned())),
    }
    let config = tls::client_config(info)?;
    let name = ServerName::try_from(info.host.clone())
        .map_err(|_| SourceError::Tls("host is no valid server name".to_owned()))?;
    match TlsConnector::from(config).connect(name, socket).await {
        Ok(stream) => Ok(Transport::Tls(Box::new(stream))),
        // A handshake that the peer cut off is a broken connection; one that failed is a setting.
        Err(error)
            if error
                .get_ref()
                .and_then(|e| e.downcast_ref::<rustls::Error>())
                .is_some() =>
        {
            Err(SourceError::Tls(error.to_string()))
        }
        Err(error) => Err(unreachable(info, error)),
    }
}

macro_rules! each {
    ($self:ident, $socket:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Tcp($socket) => $call,
            Transport::Unix($socket) => $call,
            Transport::Tls(boxed) => {
                let $socket = boxed.as_mut();
                $call
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, socket => Pin::new(socket).poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, socket => Pin::new(socket).poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, socket => Pin::new(socket).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, socket => Pin::new(socket).poll_shutdown(cx))
    }
}
