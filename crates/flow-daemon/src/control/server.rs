//! Answers the control socket inside the service.
//!
//! 1. `bind` replaces a socket that a killed service left: whoever holds the state directory owns it.
//! 2. `serve` answers until told to stop; each connection is a task of its own.
//! 3. The socket file is removed at the end.

use std::fs::Permissions;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::protocol::{Request, Response};
use super::socket::SocketAddress;
use crate::exit::{Exit, Failure};

/// Requests name a table at most.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// Commands are given by people and their scripts; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;

/// Does what a request asks.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request.
    fn handle(&self, request: Request) -> impl Future<Output = Response> + Send;
}

/// Is a bound socket.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    address: SocketAddress,
}

impl ControlServer {
    /// Binds `state_dir/control.sock`, readable and writable for its owner only.
    ///
    /// The caller must hold the state directory's lock: an older socket is replaced.
    ///
    /// # Errors
    /// What the system said.
    pub fn bind(state_dir: &Path) -> io::Result<ControlServer> {
        let address = SocketAddress::of(state_dir)?;
        match std::fs::remove_file(address.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(address.path())?;
        std::fs::set_permissions(address.path(), Permissions::from_mode(0o600))?;
        Ok(ControlServer { listener, address })
    }

    /// Answers until `shutdown`, then removes the socket.
    pub async fn serve(self, handler: Arc<impl Handler>, shutdown: CancellationToken) {
        let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let next = async {
                let permit = free
                    .clone()
                    .acquire_owned()
                    .await
                    .expect("the semaphore is never closed");
                (permit, self.listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (handler, shutdown) = (handler.clone(), shutdown.clone());
                    tokio::spawn(async move {
                        tokio::select! {
                            () = converse(stream, handler.as_ref()) => {}
                            () = shutdown.cancelled() => {}
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "control socket cannot accept");
                    // Out of file descriptors, most likely: give others time to close theirs.
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
        // The next service replaces a socket that stays.
        let _ = std::fs::remove_file(self.address.path());
    }
}

async fn converse(stream: UnixStream, handler: &impl Handler) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut lines).take(REQUEST_BYTES_MAX);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let complete = line.last() == Some(&b'\n');
        let response = match serde_json::from_slice::<Request>(&line) {
            Ok(request) if complete => handler.handle(request).await,
            Ok(_) => Response::from(Failure::new(Exit::Usage, "a request must be one line")),
            Err(error) => Response::from(Failure::new(Exit::Usage, format!("not a request: {error}"))),
        };
        let mut bytes = serde_json::to_vec(&response).expect("responses are plain data");
        bytes.push(b'\n');
        if write.write_all(&bytes).await.is_err() || !complete {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::client;
    use super::*;

    struct Echo;

    impl Handler for Echo {
        async fn handle(&self, request: Request) -> Response {
            match request {
                Request::Reload => Response::Done,
                other => Failure::new(Exit::NotReady, format!("{other:?}")).into(),
            }
        }
    }

    async fn served(state_dir: &Path) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let server = ControlServer::bind(state_dir).expect("is free");
        let shutdown = CancellationToken::new();
        (shutdown.clone(), tokio::spawn(server.serve(Arc::new(Echo), shutdown)))
    }

    #[tokio::test]
    async fn commands_reach_a_service_and_a_stopped_one_is_told_apart() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Longer than a socket address can hold.
        let state_dir = directory.path().join("d".repeat(120));
        std::fs::create_dir(&state_dir).expect("is fresh");
        assert_eq!(
            client::ask(&state_dir, &Request::Reload).await.expect("no failure"),
            None
        );
        let (shutdown, serving) = served(&state_dir).await;
        let socket = state_dir.join("control.sock");
        let mode = std::fs::metadata(&socket).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let answer = client::ask(&state_dir, &Request::Reload).await.expect("no failure");
        assert_eq!(answer, Some(Response::Done));
        let failure = client::ask(&state_dir, &Request::Apply).await.expect_err("refused");
        assert_eq!(failure, Failure::new(Exit::NotReady, "Apply"));
        shutdown.cancel();
        serving.await.expect("ends");
        assert!(!socket.exists());
        assert_eq!(
            client::ask(&state_dir, &Request::Reload).await.expect("no failure"),
            None
        );
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_no_service_and_is_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        drop(ControlServer::bind(directory.path()).expect("is free"));
        assert!(directory.path().join("control.sock").exists());
        assert_eq!(
            client::ask(directory.path(), &Request::Status)
                .await
                .expect("no failure"),
            None
        );
        let (_shutdown, _serving) = served(directory.path()).await;
        assert_eq!(
            client::ask(directory.path(), &Request::Reload)
                .await
                .expect("no failure"),
            Some(Response::Done)
        );
    }

    #[tokio::test]
    async fn bad_requests_get_an_answer() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (_shutdown, _serving) = served(directory.path()).await;
        let check = async |bytes: Vec<u8>, expect: &str| {
            let mut stream = UnixStream::connect(directory.path().join("control.sock"))
                .await
                .expect("listens");
            // The server may close before it took all of an endless line.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).await.expect("answers");
            assert!(answer.contains(expect), "{answer}");
        };
        check(b"nonsense\n".to_vec(), "not a request").await;
        check(b"\xff\xfe\n".to_vec(), "not a request").await;
        check(b"{\"command\":\"reload\"}".to_vec(), "must be one line").await;
        check(vec![b' '; 70 << 10], "not a request").await;
        check(b"{\"command\":\"reload\"}\n".to_vec(), "done").await;
    }
}
