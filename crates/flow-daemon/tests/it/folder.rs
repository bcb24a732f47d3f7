//! A folder with a configuration, and the binary run on it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Is in the connection URL of every test; nothing may ever print it.
pub(crate) const PASSWORD: &str = "hunter2-is-secret";

/// Is one installation.
pub(crate) struct Folder {
    pub(crate) dir: TempDir,
    pub(crate) url: String,
}

/// Is what a finished command left.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    /// Makes a folder whose configuration leads to a port where nothing listens.
    pub(crate) fn new(configuration: &str) -> Folder {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("flow.toml"), configuration).expect("is writable");
        // Port 1 belongs to tcpmux, which nobody runs.
        let url = format!("postgres://flow:{PASSWORD}@127.0.0.1:1/shop?sslmode=disable");
        Folder { dir, url }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Prepares the binary with this folder's configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_embrasure-flow"));
        command
            .arg("--config")
            .arg(self.path("flow.toml"))
            .args(arguments)
            .current_dir(self.dir.path())
            .env("FLOW_POSTGRES_URL", &self.url)
            .env_remove("FLOW_LOG")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Finished {
        finish(&mut self.command(arguments))
    }
}

/// Runs a command to its end, and checks that it kept the secret.
pub(crate) fn finish(command: &mut Command) -> Finished {
    let done = command.output().expect("the binary starts");
    let finished = Finished {
        code: done.status.code(),
        out: String::from_utf8(done.stdout).expect("UTF-8"),
        err: String::from_utf8(done.stderr).expect("UTF-8"),
    };
    assert!(
        !finished.out.contains(PASSWORD) && !finished.err.contains(PASSWORD),
        "{finished:?}"
    );
    finished
}

impl Finished {
    /// Checks the exit code and that stderr has every text.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, texts: &[&str]) -> Finished {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "no '{text}' in {self:?}");
        }
        self
    }
}
