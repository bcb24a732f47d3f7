//! A private server per test, and the few steps every test needs.

use std::future::Future;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use flow_core::row::{Datum, State, decode};
use flow_core::transaction::{Change, ChunkReader, TransactionMeta};
use flow_core::{Lsn, TableId, TableName, TableSchema};
use flow_source::{
    CaptureTable, ConnInfo, SourceError, SourceEvent, SourceOptions, Stream, TableRequest, create_slot, preflight,
};

/// Is how long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Is a running server; it is stopped when dropped.
pub(crate) struct Server {
    pub(crate) version: String,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    env: Vec<(String, String)>,
}

/// Is seen from the package's folder, where cargo runs its tests.
fn script() -> PathBuf {
    PathBuf::from("../../tests/tools/pg.sh")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// Lists the majors to test.
pub(crate) fn versions() -> Vec<String> {
    let list = std::env::var("FLOW_TEST_PG_VERSIONS").unwrap_or_else(|_| "17".to_owned());
    list.split([',', ' '])
        .filter(|v| !v.is_empty())
        .map(str::to_owned)
        .collect()
}

impl Server {
    /// Starts a server with extra settings and environment for the script.
    pub(crate) fn start(version: &str, conf: &str, env: &[(&str, &str)]) -> Server {
        let mut all: Vec<(String, String)> = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        all.push(("PG_CONF".to_owned(), conf.to_owned()));
        let server = Server {
            version: version.to_owned(),
            dir: tempfile::tempdir().expect("a directory"),
            port: free_port(),
            env: all,
        };
        server.run("start");
        server
    }

    /// Runs the script: `start`, `stop`, `kill`.
    pub(crate) fn run(&self, action: &str) {
        let mut command = Command::new(script());
        if std::env::var_os("TOOLS_CACHE").is_none() {
            let home = std::env::var("HOME").expect("HOME is set");
            command.env("TOOLS_CACHE", format!("{home}/.cache/embrasure-flow/tools"));
        }
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
            .arg(action)
            .arg(&self.version)
            .arg(self.dir.path())
            .arg(self.port.to_string());
        let output = command.output().expect("the script runs");
        assert!(
            output.status.success(),
            "{action}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres {rest}", self.port)
    }

    pub(crate) fn options(&self) -> SourceOptions {
        let info = ConnInfo::parse(&self.url("sslmode=disable")).expect("valid");
        let mut options = SourceOptions::new(info, "flow_test", "flow_test");
        options.heartbeat = Duration::from_millis(300);
        options
    }

    /// Opens a plain client for the test's own SQL.
    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url(""), tokio_postgres::NoTls)
            .await
            .expect("the server is up");
        tokio::spawn(connection);
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new(script())
            .arg("kill")
            .arg(&self.version)
            .arg(self.dir.path())
            .output();
    }
}

/// Waits for a future, but not for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took too long"),
    }
}

/// Runs SQL; panics with the statement's error.
pub(crate) async fn exec(client: &tokio_postgres::Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

/// Makes capture tables for requests that preflight must accept, with ids from 1.
pub(crate) async fn capture(options: &SourceOptions, requests: &[TableRequest], skip: Lsn) -> Vec<CaptureTable> {
    let report = preflight(options, requests, false).await.expect("preflight answers");
    let problems: Vec<_> = report.problems().collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let table = |(index, (request, table, _)): (usize, &(TableRequest, _, Option<TableSchema>))| {
        CaptureTable::new(TableId(index as u32 + 1), request, table, skip).expect("accepted")
    };
    report.tables.iter().enumerate().map(table).collect()
}

pub(crate) fn request(name: &str) -> TableRequest {
    TableRequest::new(TableName::new("public", name))
}

/// Is a transaction with its changes decoded.
#[derive(Debug)]
pub(crate) struct Transaction {
    pub(crate) meta: TransactionMeta,
    pub(crate) changes: Vec<Change>,
    pub(crate) largest_chunk: usize,
}

/// Takes the next transaction, passing over keepalives, and checks its frame.
pub(crate) async fn next_transaction(stream: &mut Stream) -> Result<Transaction, SourceError> {
    let mut changes = Vec::new();
    let mut begun = None;
    let mut chunks = 0;
    let mut largest_chunk = 0;
    loop {
        match soon("the next event", stream.next()).await? {
            SourceEvent::Keepalive { .. } => assert_eq!(begun, None, "a keepalive inside a transaction"),
            SourceEvent::Begin { commit_lsn, .. } => {
                assert_eq!(begun.replace(commit_lsn), None, "a begin inside a transaction");
            }
            SourceEvent::Chunk {
                commit_lsn,
                number,
                bytes,
            } => {
                assert_eq!((begun, number), (Some(commit_lsn), chunks));
                chunks += 1;
                largest_chunk = largest_chunk.max(bytes.len());
                changes.extend(ChunkReader::new(&bytes).map(|change| change.expect("own chunk")));
            }
            SourceEvent::Commit(meta) => {
                assert_eq!(Some(meta.commit_lsn), begun);
                assert_eq!((meta.chunks, meta.changes), (chunks, changes.len() as u64));
                return Ok(Transaction {
                    meta,
                    changes,
                    largest_chunk,
                });
            }
        }
    }
}

/// Takes the next transaction that changed a captured table.
pub(crate) async fn next_change(stream: &mut Stream) -> Transaction {
    loop {
        let transaction = next_transaction(stream).await.expect("the stream goes on");
        if !transaction.changes.is_empty() {
            return transaction;
        }
    }
}

/// Makes the publication and the slot, and a stream from its start.
pub(crate) async fn begin(options: &SourceOptions, requests: &[TableRequest]) -> (Vec<CaptureTable>, Stream) {
    flow_source::create_publication(options, requests)
        .await
        .expect("a publication");
    let snapshot = soon("the slot", create_slot(options, None)).await.expect("a slot");
    let tables = capture(options, requests, snapshot.consistent_point).await;
    let stream = Stream::connect(options, snapshot.consistent_point, tables.clone())
        .await
        .expect("a stream");
    (tables, stream)
}

/// Shows a row for comparing: `id=1 name='x' big=unchanged`.
pub(crate) fn show(row: &[u8], schema: &TableSchema) -> String {
    let columns = decode(row, schema).expect("own row");
    let part = |((state, datum), column): (&(State, Option<Datum<'_>>), &flow_core::Column)| {
        let value = match (state, datum) {
            (State::Present, Some(datum)) => show_datum(datum),
            (state, _) => format!("{state:?}").to_lowercase(),
        };
        format!("{}={value}", column.name)
    };
    let parts: Vec<String> = columns.iter().zip(&schema.columns).map(part).collect();
    parts.join(" ")
}

pub(crate) fn show_datum(datum: &Datum<'_>) -> String {
    match datum {
        Datum::Boolean(v) => v.to_string(),
        Datum::Int(v) | Datum::Date(v) => v.to_string(),
        Datum::Long(v) | Datum::Time(v) | Datum::Timestamp(v) | Datum::Timestamptz(v) => v.to_string(),
        Datum::Float(v) => hex(&v.to_be_bytes()),
        Datum::Double(v) => hex(&v.to_be_bytes()),
        Datum::Decimal(v) => v.to_string(),
        Datum::String(v) => shorten(v),
        Datum::Binary(v) => hex(v),
        Datum::Uuid(v) => hex(v),
        Datum::List(list) => {
            let elements = list.elements().expect("own list");
            let shown: Vec<String> = elements
                .iter()
                .map(|e| e.as_ref().map_or("NULL".to_owned(), show_datum))
                .collect();
            format!("[{}]", shown.join("|"))
        }
    }
}

/// Shows a long text by its beginning and its length.
pub(crate) fn shorten(text: &str) -> String {
    match text.len() {
        0..=10_000 if !text.starts_with("zzzz") => text.to_owned(),
        length => format!("{}…{length}", text.chars().take(10).collect::<String>()),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Shows a change for comparing.
pub(crate) fn show_change(change: &Change, tables: &[CaptureTable]) -> String {
    use flow_core::transaction::Old;
    let schema = &tables[change.table().0 as usize - 1].schema;
    let old = |old: &Old| match old {
        Old::None => "-".to_owned(),
        Old::Key(row) => format!("key({})", show(row, schema)),
        Old::Full(row) => format!("full({})", show(row, schema)),
    };
    match change {
        Change::Insert { table, new } => format!("insert {table} {}", show(new, schema)),
        Change::Update { table, old: o, new } => format!("update {table} {} {}", old(o), show(new, schema)),
        Change::Delete { table, old: o } => format!("delete {table} {}", old(o)),
        Change::Truncate { table } => format!("truncate {table}"),
        Change::Block { table, code, reason } => format!("block {table} {code} {reason}"),
    }
}

pub(crate) fn show_all(transaction: &Transaction, tables: &[CaptureTable]) -> Vec<String> {
    transaction
        .changes
        .iter()
        .map(|change| show_change(change, tables))
        .collect()
}

/// Gives a copied row in the bytes the stream's rows have.
pub(crate) fn encoded(row: &mut flow_source::CopiedRow<'_>) -> Result<Vec<u8>, flow_source::SourceError> {
    let mut builder = flow_core::row::RowBuilder::new();
    row.encode(&mut builder)?;
    Ok(builder.finish().to_vec())
}
