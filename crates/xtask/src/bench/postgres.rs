//! A private PostgreSQL with fsync on, asked through Debian's `psql`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::lane::{capture, must};
use crate::workspace::root;

/// Is a running server.
pub(super) struct Postgres {
    major: String,
    folder: PathBuf,
    port: u16,
}

impl Postgres {
    /// Starts a server in an empty folder.
    pub(super) fn start(major: &str, folder: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let server = Self {
            major: major.to_owned(),
            folder: folder.to_path_buf(),
            port,
        };
        // Room for the whole backlog, so that no checkpoint falls into one measurement and not the other.
        let settings = "shared_buffers=512MB\nmax_wal_size=8GB\ncheckpoint_timeout=1h\nautovacuum=off";
        must(
            server
                .tool("start")
                .env("PG_FSYNC", "on")
                .env("PG_CONF", settings)
                .stdout(std::process::Stdio::null()),
        )?;
        Ok(server)
    }

    /// Shuts the server down.
    pub(super) fn stop(&self) -> Result<()> {
        must(&mut self.tool("stop"))
    }

    fn tool(&self, action: &str) -> Command {
        let mut command = Command::new(root().join("tests/tools/pg.sh"));
        command
            .args([action, &self.major])
            .arg(&self.folder)
            .arg(self.port.to_string());
        command
    }

    /// Is the address as a URL.
    pub(super) fn url(&self) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Is the address as DuckDB's scanner takes it.
    pub(super) fn conninfo(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Runs SQL and gives its only value.
    pub(super) fn ask(&self, sql: &str) -> Result<String> {
        Ok(capture(self.psql().args(["-c", sql]))?.trim().to_owned())
    }

    /// Runs statements one by one.
    pub(super) fn execute(&self, statements: &[&str]) -> Result<()> {
        for sql in statements {
            let answer = self.psql().args(["-c", sql]).output()?;
            ensure!(
                answer.status.success(),
                "{sql}: {}",
                String::from_utf8_lossy(&answer.stderr)
            );
        }
        Ok(())
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", &self.url()]);
        command
    }

    /// Is a position at or above the end of all that is committed.
    pub(super) fn flush_lsn(&self) -> Result<String> {
        self.ask("SELECT pg_current_wal_flush_lsn()")
    }

    /// Makes the table all benchmarks use: `rows` rows with a payload of 256 bytes.
    pub(super) fn make_table(&self, name: &str, rows: u64) -> Result<()> {
        self.execute(&[
            &format!("CREATE TABLE {name} (id bigint PRIMARY KEY, n integer NOT NULL, payload text NOT NULL, at timestamptz NOT NULL)"),
            &format!(
                "INSERT INTO {name} SELECT g, (g % 1000)::integer, repeat(md5(g::text), 8), '2024-01-01'::timestamptz + g * interval '1 ms' \
                 FROM generate_series(1, {rows}) g"
            ),
            &format!("CREATE PUBLICATION embrasure_flow FOR TABLE {name}"),
            &format!("VACUUM ANALYZE {name}"),
            "CHECKPOINT",
        ])
    }
}
