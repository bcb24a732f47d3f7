//! A status as an engine would show it, and a plain HTTP client.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flow_core::Lsn;
use flow_engine::Status;
use flow_engine::counters::Counters;
use flow_engine::status::{
    Blocked, DynamicTableState, DynamicTableStatus, LastError, ProblemStatus, RefreshStatus, ServiceState, TableStatus,
    TableStatusState,
};
use flow_http::{HttpOptions, HttpServer, Observed};
use flow_lake::ServedCatalog;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Shows a fixed status.
pub(crate) struct Shown {
    pub(crate) status: Arc<Status>,
    pub(crate) counters: Counters,
    pub(crate) age_ms: AtomicU64,
}

impl Observed for Shown {
    fn status(&self) -> Arc<Status> {
        self.status.clone()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn main_loop_age(&self) -> Duration {
        Duration::from_millis(self.age_ms.load(Ordering::Relaxed))
    }
}

/// Is a status in which every field holds something.
pub(crate) fn full_status() -> Status {
    let blocked = Blocked {
        code: "F0130".into(),
        reason: "column \"a\" has NaN".into(),
        since: 5,
    };
    let mut status = Status {
        version: "0.1.0".into(),
        state: ServiceState::Streaming,
        ready: true,
        pid: 7,
        http: Some("127.0.0.1:1".into()),
        at: 1_000_000,
        tables: vec![TableStatus {
            source: "public.orders".into(),
            target: "bronze.orders".into(),
            state: TableStatusState::Blocked,
            epoch: 3,
            published_lsn: Lsn(0x10),
            snapshot_id: Some(i64::MAX),
            lag_seconds: 1.5,
            lag_bytes: 16,
            copied_rows: 2,
            blocked: Some(blocked.clone()),
        }],
        dynamic_tables: vec![DynamicTableStatus {
            name: "gold.q\"\n".into(),
            mode: "FULL".into(),
            state: DynamicTableState::Waiting,
            data_lsn: Lsn(0x10),
            frontier: BTreeMap::from([("bronze.orders".into(), Some("9".into()))]),
            lag_seconds: 0.5,
            last_refresh: Some(RefreshStatus {
                run_id: "r".into(),
                mode: "FULL".into(),
                reason: "input changed".into(),
                duration_ms: 3,
                rows_read: 2,
                rows_inserted: 1,
                rows_deleted: 0,
            }),
            blocked: Some(blocked),
            held_by: Some("silver.x".into()),
            drift: Vec::new(),
            state_bytes: 4096,
        }],
        problems: vec![ProblemStatus {
            code: "F0401".into(),
            file: "transformations/x.sql".into(),
            line: 3,
            column: 8,
            message: "expected AS".into(),
        }],
        last_error: Some(LastError {
            at: 2_000_000,
            code: Some("F0102".into()),
            message: "no connection".into(),
        }),
        ..Status::default()
    };
    status.source.published_lsn = Lsn(0x16_B374_D848);
    status.source.connected = true;
    status
}

/// Is a server under test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) shown: Arc<Shown>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) serving: JoinHandle<Result<(), flow_http::HttpError>>,
}

/// Starts a server on any free port.
pub(crate) async fn start(status: Status, token: Option<&str>) -> Running {
    start_with(status, token, None).await
}

/// Starts a server that serves a catalog too.
pub(crate) async fn start_with(status: Status, token: Option<&str>, catalog: Option<ServedCatalog>) -> Running {
    let options = HttpOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        token: token.map(str::to_owned),
    };
    let server = HttpServer::bind(options).await.expect("a free port");
    let shown = Arc::new(Shown {
        status: Arc::new(status),
        counters: Counters::default(),
        age_ms: AtomicU64::new(0),
    });
    let (stop, stopped) = oneshot::channel();
    let address = server.address();
    let shutdown = async {
        // A dropped sender means that the test ended; stop too.
        let _ = stopped.await;
    };
    let serving = tokio::spawn(server.serve(shown.clone(), catalog, shutdown));
    Running {
        address,
        shown,
        stop,
        serving,
    }
}

/// Asks for a path; gives status code, head and body.
pub(crate) async fn get(address: SocketAddr, path: &str, header: &str) -> (u16, String, String) {
    ask(address, "GET", path, header, "").await
}

/// Sends a request; gives status code, head and body.
pub(crate) async fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    header: &str,
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.expect("the server listens");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream
        .write_all(format!("{head}{header}\r\n{body}").as_bytes())
        .await
        .expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the server answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status code");
    (code, head.to_lowercase(), body.to_owned())
}
