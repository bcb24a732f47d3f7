//! A lake in a temporary directory, tables to write, and programs that are not ours to read them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use flow_core::arrow::BatchBuilder;
use flow_core::clock::Clock;
use flow_core::lake::SnapshotReader;
use flow_core::row::{Datum, RowBuilder, State};
use flow_core::{Attempt, Column, ColumnType, Epoch, Lsn, OperationId, TableName, TableSchema};
use flow_lake::{CommitOutcome, Lake, LakeOptions, Progress, SealInput, Sealed, Table};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The wall clock, moved by what a test adds.
#[derive(Debug, Default)]
pub(crate) struct TestClock(AtomicI64);

impl TestClock {
    pub(crate) fn add(&self, time: Duration) {
        self.0.fetch_add(time.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "other programs stamp the same tables with the real time"
    )]
    fn now_us(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_micros() as i64 + self.0.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now_us() as u64)
    }
}

/// Is how long a property test draws; `FLOW_PROPERTY_SECONDS` gives it more.
pub(crate) fn property_budget() -> Duration {
    let seconds = std::env::var("FLOW_PROPERTY_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(2))
}

/// Draws numbers without a random source: SplitMix64.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}

pub(crate) struct Warehouse {
    pub(crate) dir: TempDir,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) lake: Lake,
}

impl Warehouse {
    pub(crate) fn new() -> Warehouse {
        Warehouse::with(|_| {})
    }

    pub(crate) fn with(change: impl Fn(&mut LakeOptions)) -> Warehouse {
        let dir = tempfile::tempdir().expect("temporary directory");
        let clock = Arc::new(TestClock::default());
        let mut options = LakeOptions::new(dir.path().join("ware/house"));
        change(&mut options);
        let lake = Lake::open(options, clock.clone()).expect("lake opens");
        Warehouse { dir, clock, lake }
    }

    /// Opens the same lake as another process would: its own connection and an empty cache.
    pub(crate) fn reopen(&self) -> Lake {
        let options = LakeOptions::new(self.dir.path().join("ware/house"));
        Lake::open(options, self.clock.clone()).expect("lake opens again")
    }
}

pub(crate) fn column(name: &str, column_type: ColumnType, required: bool) -> Column {
    Column {
        name: name.to_owned(),
        field_id: 0,
        element_id: None,
        column_type,
        required,
        source_type: String::new(),
    }
}

pub(crate) fn schema_of(columns: Vec<Column>, key: Vec<usize>) -> TableSchema {
    let mut schema = TableSchema { columns, key };
    schema.assign_field_ids();
    schema
}

/// `id long` (the key), `name string`.
pub(crate) fn small_schema() -> TableSchema {
    let columns = vec![
        column("id", ColumnType::Long, true),
        column("name", ColumnType::String, false),
    ];
    schema_of(columns, vec![0])
}

pub(crate) async fn small_table(lake: &Lake, name: &str) -> Table {
    let name = TableName::new("bronze", name);
    lake.create_table(&name, &small_schema(), BTreeMap::new())
        .await
        .expect("created")
}

pub(crate) fn small_batch(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let schema = Arc::new(small_schema());
    let mut batch = BatchBuilder::new(schema.clone());
    let mut row = RowBuilder::new();
    for id in ids {
        row.start(2);
        row.push(&ColumnType::Long, &Datum::Long(id));
        if id % 3 == 0 {
            row.push_state(State::Null);
        } else {
            row.push(&ColumnType::String, &Datum::String(&format!("name {id}")));
        }
        batch.append(row.finish()).expect("row fits");
    }
    batch.finish().expect("batch")
}

pub(crate) fn operation(id: &str) -> OperationId {
    OperationId::new(id)
}

pub(crate) fn progress(id: &str) -> Progress {
    Progress {
        operation_id: operation(id),
        source_id: "shop".to_owned(),
        kind: "epoch".to_owned(),
        epoch: Epoch(1),
        from_lsn: Lsn(1),
        to_lsn: Lsn(2),
        advance: None,
    }
}

/// Writes rows and deletes and seals them on `table`, as operation `id`, attempt 1.
pub(crate) async fn seal(
    lake: &Lake,
    table: &Table,
    id: &str,
    rows: &[RecordBatch],
    deletes: Vec<(Arc<str>, u64)>,
) -> Sealed {
    let id = operation(id);
    let mut writer = lake.data_writer(table, &id, Attempt(1), 0).expect("writer");
    for batch in rows {
        writer.write(batch).await.expect("written");
    }
    let added = writer.finish().await.expect("finished");
    let deletes = lake
        .write_deletes(table, &id, Attempt(1), 0, deletes)
        .await
        .expect("deletes");
    let input = SealInput {
        operation: &id,
        attempt: Attempt(1),
        added,
        deletes,
        summary: BTreeMap::from([("flow.epoch".to_owned(), "1".to_owned())]),
        properties: BTreeMap::new(),
        protected: BTreeSet::new(),
    };
    lake.seal(table, input).await.expect("sealed")
}

pub(crate) async fn commit(lake: &Lake, id: &str, sealed: &[Sealed]) {
    let outcome = lake.commit(sealed, &progress(id)).await.expect("commit answers");
    assert!(matches!(outcome, CommitOutcome::Committed), "{outcome:?}");
}

pub(crate) async fn reload(lake: &Lake, table: &Table) -> Table {
    lake.load(table.name()).await.expect("loads").expect("exists")
}

/// Appends rows in one commit and gives the table after it.
pub(crate) async fn append(lake: &Lake, table: &Table, id: &str, ids: impl IntoIterator<Item = i64>) -> Table {
    let sealed = seal(lake, table, id, &[small_batch(ids)], Vec::new()).await;
    commit(lake, id, &[sealed]).await;
    reload(lake, table).await
}

/// Reads the ids of the current snapshot, sorted, through our own reader.
pub(crate) async fn ids(lake: &Lake, table: &Table) -> Vec<i64> {
    let snapshot = reload(lake, table).await.current_snapshot_id().expect("a snapshot");
    ids_at(lake, table, snapshot).await
}

pub(crate) async fn ids_at(lake: &Lake, table: &Table, snapshot: i64) -> Vec<i64> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    let stream = lake.scan(table.name(), snapshot, Some(vec![0])).await.expect("scan");
    let batches: Vec<RecordBatch> = stream.try_collect().await.expect("batches");
    let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    let mut ids: Vec<i64> = batches.iter().flat_map(column).collect();
    ids.sort_unstable();
    ids
}

/// DuckDB and PyIceberg, in one process of their own.
pub(crate) struct Readers {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Readers {
    pub(crate) fn start() -> Readers {
        // Cargo runs tests in their package's folder.
        let root = Path::new("../..");
        let python = Command::new("bash")
            .arg(root.join("tests/tools/readers.sh"))
            .output()
            .expect("readers.sh runs");
        let error = String::from_utf8_lossy(&python.stderr).into_owned();
        assert!(python.status.success(), "readers.sh failed: {error}");
        let python = String::from_utf8(python.stdout).expect("a path");
        let mut child = Command::new(python.trim())
            .arg("tests/readers.py")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        Readers {
            input: child.stdin.take().expect("piped"),
            output: BufReader::new(child.stdout.take().expect("piped")),
            child,
        }
    }

    /// Sends a command without waiting for the answer.
    pub(crate) fn send(&mut self, command: &Value) {
        writeln!(self.input, "{command}").expect("python listens");
    }

    pub(crate) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("python answers");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert!(answer.get("error").is_none(), "{answer}");
        answer
    }

    pub(crate) fn ask(&mut self, command: &Value) -> Value {
        self.send(command);
        self.answer()
    }

    /// Reads the current snapshot with both programs and gives the rows they agree on, sorted.
    pub(crate) fn rows(&mut self, lake: &Lake, table: &Table, uuids: &[usize]) -> Vec<Vec<Option<String>>> {
        let duckdb = self.ask(&json!({"do": "duckdb", "metadata": table.metadata_location(), "uuids": uuids}));
        let name = table.name().to_string();
        let pyiceberg = self.ask(&json!({"do": "pyiceberg", "catalog": lake.catalog_path(), "table": name}));
        let duckdb = sorted(&duckdb);
        assert_eq!(duckdb, sorted(&pyiceberg), "DuckDB and PyIceberg differ");
        duckdb
    }
}

pub(crate) fn sorted(answer: &Value) -> Vec<Vec<Option<String>>> {
    let mut rows: Vec<Vec<Option<String>>> = serde_json::from_value(answer["rows"].clone()).expect("rows of texts");
    rows.sort();
    rows
}

impl Drop for Readers {
    fn drop(&mut self) {
        // Its input closes with us, so it ends by itself; a hanging one is ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
