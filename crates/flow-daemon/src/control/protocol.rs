//! Requests and responses of the control socket.

use flow_engine::Status;
use flow_engine::status::{RefreshStatus, RunStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exit::{Exit, Failure};

/// Is what a client may ask, such as `{"command":"refresh","name":"gold.q","full":true}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the status document.
    Status,
    /// Refreshes every dynamic table once, in order.
    Apply,
    /// Refreshes one dynamic table.
    Refresh {
        /// The table.
        name: String,
        /// Recompute even if no input changed.
        #[serde(default)]
        full: bool,
    },
    /// Stops refreshing a dynamic table.
    Suspend {
        /// The table.
        name: String,
    },
    /// Refreshes a dynamic table again.
    Resume {
        /// The table.
        name: String,
    },
    /// Removes a dynamic table that no definition declares.
    Drop {
        /// The table.
        name: String,
    },
    /// Recomputes a dynamic table at the cut it reflects and compares.
    Verify {
        /// The table.
        name: String,
    },
    /// Asks for a dynamic table's refreshes, newest first.
    History {
        /// The table.
        name: String,
    },
    /// Reads the configuration again.
    Reload,
}

/// Is one table that a command refreshed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refreshed {
    /// The table.
    pub name: String,
    /// What its refresh did.
    #[serde(flatten)]
    pub run: RefreshStatus,
}

/// Is a dynamic table compared with its recomputation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// The table.
    pub name: String,
    /// The position at which it was recomputed.
    pub data_lsn: String,
    /// Says whether the table is what its query gives.
    pub equal: bool,
    /// Counts rows that the query gives and the table lacks.
    pub missing: u64,
    /// Counts rows that the table has and the query does not give.
    pub unexpected: u64,
    /// Holds the first missing rows.
    pub missing_rows: Vec<Map<String, Value>>,
    /// Holds the first unexpected rows.
    pub unexpected_rows: Vec<Map<String, Value>>,
}

/// Is the service's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Response {
    /// It is done and there is nothing more to say.
    Done,
    /// Holds the status document.
    Status {
        /// The document.
        status: Box<Status>,
    },
    /// Holds what was refreshed.
    Refreshed {
        /// The tables in order.
        tables: Vec<Refreshed>,
    },
    /// Is what a comparison found.
    Verified(Verified),
    /// Holds a dynamic table's refreshes.
    History {
        /// The refreshes, newest first.
        runs: Vec<RunStatus>,
    },
    /// It could not be done.
    Failed {
        /// Names the page under `docs/errors/`.
        code: Option<String>,
        /// Says what happened.
        message: String,
        /// Is the exit code for the command that asked.
        exit: u8,
    },
}

impl From<Failure> for Response {
    fn from(failure: Failure) -> Self {
        Response::Failed {
            code: failure.code,
            message: failure.message,
            exit: failure.exit.number(),
        }
    }
}

impl Response {
    /// Turns a failed answer into a failure of the command that asked.
    ///
    /// # Errors
    /// The failure that the service met.
    pub fn accept(self) -> Result<Response, Failure> {
        match self {
            Response::Failed { code, message, exit } => Err(Failure {
                exit: Exit::from_number(exit),
                code,
                message,
                logged: false,
            }),
            other => Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_promise() {
        let check = |request: Request, json: &str| {
            assert_eq!(serde_json::to_string(&request).expect("plain data"), json);
            assert_eq!(serde_json::from_str::<Request>(json).expect("own words"), request);
        };
        check(Request::Status, r#"{"command":"status"}"#);
        check(Request::Reload, r#"{"command":"reload"}"#);
        let name = || "gold.q".to_string();
        check(
            Request::Refresh {
                name: name(),
                full: true,
            },
            r#"{"command":"refresh","name":"gold.q","full":true}"#,
        );
        check(
            Request::Suspend { name: name() },
            r#"{"command":"suspend","name":"gold.q"}"#,
        );
        check(Request::Drop { name: name() }, r#"{"command":"drop","name":"gold.q"}"#);
        let short: Request =
            serde_json::from_str(r#"{"command":"refresh","name":"gold.q"}"#).expect("full is optional");
        assert_eq!(
            short,
            Request::Refresh {
                name: name(),
                full: false
            }
        );
        for bad in [
            r#"{"command":"truncate"}"#,
            r#"{"command":"drop"}"#,
            r#"{"command":"suspend"}"#,
            r#"{}"#,
            "[]",
            "",
            r#"{"command":"suspend","name":"x","cascade":true}"#,
        ] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_failure_passes_through_whole() {
        let failure = Failure {
            exit: Exit::Reconfigure,
            code: Some("F0401".into()),
            message: "no such table".into(),
            logged: false,
        };
        let json = serde_json::to_string(&Response::from(failure.clone())).expect("plain data");
        assert_eq!(
            json,
            r#"{"result":"failed","code":"F0401","message":"no such table","exit":78}"#
        );
        let response: Response = serde_json::from_str(&json).expect("own words");
        assert_eq!(response.accept(), Err(failure));
    }
}
