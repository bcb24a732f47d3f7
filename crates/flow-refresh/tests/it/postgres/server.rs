//! A PostgreSQL of this test's own, ended with it.

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use arrow_array::RecordBatch;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use flow_core::{ColumnType, TableSchema};

const VERSION: &str = "17";

/// Ends the rows of one query.
const MARK: &str = "== end of rows ==";

pub(super) struct Server {
    directory: tempfile::TempDir,
    port: u16,
}

/// Is seen from the package's folder, where cargo runs its tests.
fn tools() -> PathBuf {
    PathBuf::from("../../tests/tools/pg.sh")
}

impl Server {
    pub(super) fn start() -> Server {
        let directory = tempfile::tempdir().expect("a directory for the server");
        // The server runs as another user and must reach its data.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("own directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.expect("a free port").port();
        let server = Server { directory, port };
        server.tool("start");
        server.run(
            "SET client_min_messages = warning; CREATE SCHEMA bronze; ALTER DATABASE postgres SET timezone = 'UTC'",
            "",
        );
        server
    }

    fn tool(&self, action: &str) {
        let output = Command::new(tools())
            .args([action, VERSION])
            .arg(self.directory.path().join("pg"))
            .arg(self.port.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("pg.sh can be run");
        assert!(
            output.status.success(),
            "pg.sh {action}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn run(&self, sql: &str, input: &str) -> String {
        let mut psql = Command::new("psql")
            .args([
                "-X",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-d",
                "postgres",
            ])
            .args(["-p", &self.port.to_string(), "-c", sql])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql can be run");
        let mut stdin = psql.stdin.take().expect("stdin is piped");
        // psql writes rows while it reads: neither pipe may wait for the other.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()).expect("psql reads its input"));
            psql.wait_with_output().expect("psql ends")
        });
        assert!(
            output.status.success(),
            "{sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("psql writes UTF-8")
    }

    /// Replaces a table of schema `bronze` by the given rows.
    pub(super) fn load(&self, name: &str, schema: &TableSchema, rows: &RecordBatch) {
        let columns = schema.columns.iter().map(|column| {
            let column_type = match &column.column_type {
                ColumnType::Long => "bigint".to_owned(),
                ColumnType::Double => "double precision".to_owned(),
                ColumnType::Float => "real".to_owned(),
                ColumnType::String => "text".to_owned(),
                ColumnType::Decimal { precision, scale } => format!("numeric({precision},{scale})"),
                other => other.to_string(),
            };
            format!("{} {column_type}", column.name)
        });
        let columns: Vec<String> = columns.collect();
        self.run(
            &format!(
                "DROP TABLE IF EXISTS bronze.{name}; CREATE TABLE bronze.{name} ({})",
                columns.join(", ")
            ),
            "",
        );
        let options = FormatOptions::default().with_null("\\N");
        let formatters: Vec<_> = rows
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("columns can be shown"))
            .collect();
        let lines = (0..rows.num_rows()).map(|row| {
            let values: Vec<String> = formatters.iter().map(|f| f.value(row).to_string()).collect();
            values.join("\t") + "\n"
        });
        let lines: String = lines.collect();
        self.run(&format!("COPY bronze.{name} FROM STDIN"), &lines);
    }

    /// Gives the rows of each query as text.
    pub(super) fn rows(&self, queries: &[String]) -> Vec<Vec<Vec<String>>> {
        let script: String = queries
            .iter()
            .map(|query| format!("COPY ({query}) TO STDOUT;\n\\echo {MARK}\n"))
            .collect();
        let text = self.run("\\i /dev/stdin", &script);
        let mut results = vec![Vec::new()];
        for line in text.lines() {
            match line {
                MARK => results.push(Vec::new()),
                _ => {
                    let row = line.split('\t').map(str::to_owned).collect();
                    results.last_mut().expect("it is never empty").push(row);
                }
            }
        }
        results.truncate(queries.len());
        results
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = Command::new(tools())
            .args(["stop", VERSION])
            .arg(self.directory.path().join("pg"))
            .stdin(Stdio::null())
            .output();
        drop(stopped);
    }
}
