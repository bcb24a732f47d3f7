//! Exit codes, and how every outcome becomes one.

use std::error::Error;
use std::process::ExitCode;

use flow_core::{Remedial, Remedy};

/// Is how the program ends. Service managers and scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// A failure that a restart may clear.
    Failure = 1,
    /// Wrong usage of the command line.
    Usage = 2,
    /// The service is not ready, or not running (`status`).
    NotReady = 3,
    /// A table differs from its recomputation (`verify`).
    Differs = 4,
    /// A broken invariant.
    Broken = 70,
    /// A dependency stayed unavailable, or another process holds the state directory.
    Unavailable = 75,
    /// The user must change something.
    Reconfigure = 78,
    /// A fresh copy is needed.
    Resync = 79,
}

impl Exit {
    const ALL: [Exit; 9] = [
        Exit::Done,
        Exit::Failure,
        Exit::Usage,
        Exit::NotReady,
        Exit::Differs,
        Exit::Broken,
        Exit::Unavailable,
        Exit::Reconfigure,
        Exit::Resync,
    ];

    /// Is the number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Finds the exit of a number; an unknown one is a failure.
    pub fn from_number(number: u8) -> Exit {
        Exit::ALL
            .into_iter()
            .find(|exit| exit.number() == number)
            .unwrap_or(Exit::Failure)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

impl From<Remedy> for Exit {
    fn from(remedy: Remedy) -> Self {
        match remedy {
            Remedy::Retry => Exit::Unavailable,
            Remedy::Replan => Exit::Failure,
            // A table that cannot go on waits for its user.
            Remedy::BlockTable | Remedy::Reconfigure => Exit::Reconfigure,
            Remedy::Resync => Exit::Resync,
            Remedy::Crash => Exit::Broken,
        }
    }
}

/// Is why a command ends badly: what to say, and with which code to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Is the exit code.
    pub exit: Exit,
    /// Names the page under `docs/errors/`.
    pub code: Option<String>,
    /// Says what happened, with all causes.
    pub message: String,
    /// Says that the log has it already.
    pub logged: bool,
}

impl Failure {
    /// Is a failure without a page.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Failure {
            exit,
            code: None,
            message: message.into(),
            logged: false,
        }
    }

    /// Follows an error's remedy and keeps its whole chain.
    pub fn from_remedial(error: &dyn Remedial) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Failure {
            exit: error.remedy().into(),
            code: error.code().map(str::to_owned),
            message,
            logged: false,
        }
    }

    /// Writes it to the log, as a service does.
    pub fn log(mut self) -> Self {
        let code = self.code.as_deref().unwrap_or("-");
        tracing::error!(code, exit = self.exit.number(), "{}", self.message);
        self.logged = tracing::enabled!(tracing::Level::ERROR);
        self
    }
}

macro_rules! from_remedial {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::from_remedial(&error)
            }
        }
    )*};
}

from_remedial!(
    crate::config::ConfigError,
    flow_engine::EngineError,
    flow_http::HttpError,
    flow_lake::LakeError,
    flow_source::SourceError
);

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let cause: &(dyn Error + 'static) = error.as_ref();
        let exit = match cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => Exit::Reconfigure,
            _ => Exit::Failure,
        };
        Failure::new(exit, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_promise() {
        let numbers = Exit::ALL.map(Exit::number);
        assert_eq!(numbers, [0, 1, 2, 3, 4, 70, 75, 78, 79]);
        for exit in Exit::ALL {
            assert_eq!(Exit::from_number(exit.number()), exit);
        }
        assert_eq!(Exit::from_number(99), Exit::Failure);
    }

    #[test]
    fn remedies_have_exits() {
        let check = |remedy: Remedy, number: u8| assert_eq!(Exit::from(remedy).number(), number);
        check(Remedy::Retry, 75);
        check(Remedy::Reconfigure, 78);
        check(Remedy::BlockTable, 78);
        check(Remedy::Resync, 79);
        check(Remedy::Crash, 70);
        check(Remedy::Replan, 1);
    }
}
