//! `verify NAME`: compares a dynamic table with its recomputation at the cut it reflects.

use std::path::Path;

use flow_engine::Command;
use serde_json::{Map, Value};

use super::{change, names};
use crate::cli::Verify;
use crate::control::protocol::Verified;
use crate::control::{Request, Response};
use crate::exit::{Exit, Failure};
use crate::output;

pub(super) fn run(file: &Path, verify: &Verify) -> Result<Exit, Failure> {
    let name = names::dynamic_table(&verify.name)?;
    let request = Request::Verify {
        name: verify.name.clone(),
    };
    let Response::Verified(verified) = change::carry_out(file, &request, Command::Verify { name })? else {
        return Err(Failure::new(
            Exit::Failure,
            "the service gave another answer than was asked for",
        ));
    };
    match verify.json {
        true => output::json(&verified)?,
        false => output::result(&describe(&verified))?,
    }
    Ok(if verified.equal { Exit::Done } else { Exit::Differs })
}

fn describe(verified: &Verified) -> String {
    let Verified { name, data_lsn, .. } = verified;
    if verified.equal {
        return format!("{name} equals its query at {data_lsn}\n");
    }
    let mut text = format!(
        "{name} differs from its query at {data_lsn}: {} rows missing, {} unexpected\n",
        verified.missing, verified.unexpected
    );
    let mut show = |mark: &str, rows: &[Map<String, Value>]| {
        for row in rows {
            text.push_str(&format!("{mark} {}\n", Value::Object(row.clone())));
        }
    };
    show("missing   ", &verified.missing_rows);
    show("unexpected", &verified.unexpected_rows);
    text
}
