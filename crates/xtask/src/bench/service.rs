//! The service under measurement: one installation, started and ended as a user would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Bench;
use super::usage::{Usage, of_process, round};
use crate::lane::capture;

/// How long an orderly end may take.
const STOP_MAX: Duration = Duration::from_secs(60);

/// Is a folder with `flow.toml`.
pub(super) struct Installation {
    folder: PathBuf,
    program: PathBuf,
    url: String,
}

/// Is the running service; ended by [`Running::stop`], killed if that is never reached.
pub(super) struct Running(Child);

impl Installation {
    /// Writes a configuration for tables into a folder of the benchmark's, all else at its default.
    pub(super) fn new(bench: &Bench, folder: &str, tables: &[&str]) -> Result<Self> {
        let folder = bench.folder.join(folder);
        std::fs::create_dir_all(folder.join("transformations"))?;
        let mut config =
            "state_dir = \"state\"\n\n[source]\nid = \"bench\"\nconnection_env = \"FLOW_POSTGRES_URL\"\n\n\
             [catalog]\ntype = \"embedded\"\nwarehouse = \"warehouse\"\n\n[http]\nlisten = \"127.0.0.1:0\"\n\n\
             [dynamic_tables]\ndir = \"transformations\"\n"
                .to_owned();
        for table in tables {
            config += &format!("\n[[tables]]\nsource = \"public.{table}\"\ntarget = \"bronze.{table}\"\n");
        }
        std::fs::write(folder.join("flow.toml"), config)?;
        Ok(Self {
            folder,
            program: bench.flow.clone(),
            url: bench.postgres.url(),
        })
    }

    /// Is the catalog file.
    pub(super) fn catalog(&self) -> PathBuf {
        self.folder.join("warehouse/catalog.db")
    }

    /// Leaves one definition of a dynamic table.
    pub(super) fn define(&self, sql: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.join("transformations/bench.sql"), sql)?)
    }

    /// Takes a file of definitions over.
    pub(super) fn adopt(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("the file has a name")?;
        std::fs::copy(file, self.folder.join("transformations").join(name))?;
        Ok(())
    }

    /// Asks the running service how it stands; nothing while it does not answer.
    pub(super) fn status(&self) -> Result<Value> {
        let answer = self.command(&["status", "--json"])?.stdout(Stdio::piped()).output()?;
        Ok(serde_json::from_slice(&answer.stdout).unwrap_or_default())
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log.jsonl"))?;
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(self.folder.join("flow.toml"))
            .args(words)
            .env("FLOW_POSTGRES_URL", &self.url)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Ok(command)
    }

    /// Shows the command as one would type it.
    pub(super) fn shown(&self, words: &[&str]) -> String {
        format!("embrasure-flow --config flow.toml {}", words.join(" "))
    }

    /// Shows what `run` used between two looks at it.
    pub(super) fn cost_of_run(&self, before: &Usage, after: &Usage) -> Value {
        json!({
            "command": self.shown(&["run"]),
            "cpu_seconds": round(after.cpu_seconds - before.cpu_seconds),
            "peak_rss_mib": round(after.peak_rss_mib),
        })
    }

    /// Starts a command.
    pub(super) fn start(&self, words: &[&str]) -> Result<Running> {
        let child = self
            .command(words)?
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        Ok(Running(child))
    }

    /// Runs a command to its end.
    pub(super) fn run(&self, words: &[&str]) -> Result<()> {
        let status = self.command(words)?.status()?;
        ensure!(
            status.success(),
            "{}: {status}; see {}",
            self.shown(words),
            self.folder.join("log.jsonl").display()
        );
        Ok(())
    }
}

impl Running {
    /// Is what the process has used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        of_process(self.0.id())
    }

    /// Fails if the process has ended.
    pub(super) fn must_live(&mut self) -> Result<()> {
        let status = self.0.try_wait()?;
        ensure!(
            status.is_none(),
            "the service ended: {}",
            status.map(|s| s.to_string()).unwrap_or_default()
        );
        Ok(())
    }

    /// Asks the process to end and waits for it.
    pub(super) fn stop(mut self) -> Result<()> {
        capture(Command::new("kill").arg(self.0.id().to_string()))?;
        let end = Instant::now() + STOP_MAX;
        while self.0.try_wait()?.is_none() {
            ensure!(
                Instant::now() < end,
                "the service did not end within {} s of SIGTERM",
                STOP_MAX.as_secs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Waits until a command ended by itself.
    pub(super) fn wait(mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "the command ended with {status}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // Nobody is left to hear of a failed kill; the process is ours alone.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Counts the bytes of all files below a folder.
pub(super) fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for file in crate::workspace::files(folder, "")? {
        bytes += std::fs::metadata(&file)?.len();
    }
    Ok(bytes)
}
