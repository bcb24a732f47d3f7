//! Benchmarks against named baselines, in one run on one machine.
//!
//! 1. Build in release; start a private PostgreSQL with fsync on, in a scratch folder.
//! 2. Make the data; warm the baseline up; measure it; measure ours.
//! 3. Compare the lake's content with PostgreSQL's, then print one JSON document.
//!
//! Times are taken outside the process under test: from its start, or from COMMIT returned, until the
//! catalog file shows the result. A ratio is of rates, ours ÷ baseline.

mod copy;
mod deliveries;
mod drain;
mod freshness;
mod postgres;
mod refresh;
mod service;
mod usage;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::lane::{capture, must};
use crate::workspace::{cargo, root, target_dir};
use postgres::Postgres;

/// Is what the command line asked for.
struct Options {
    major: String,
    rows: u64,
    mutations: u64,
    seconds: u64,
    /// Is the build that is measured. Only `release` figures count; `dev` tries the benchmark itself.
    profile: String,
    out: Option<PathBuf>,
    keep: bool,
    /// Measures freshness through the demo's dynamic tables.
    dag: bool,
}

/// Is where one benchmark runs.
struct Bench {
    options: Options,
    /// Is a scratch folder on the disk that is measured.
    folder: PathBuf,
    postgres: Postgres,
    flow: PathBuf,
    load: PathBuf,
}

/// Runs one benchmark and prints its document.
pub(crate) fn run(name: &str, args: &[&str]) -> Result<()> {
    let measure = match name {
        "drain" => drain::measure,
        "copy" => copy::measure,
        "freshness" => freshness::measure,
        "refresh" => refresh::measure,
        _ => bail!("no benchmark {name}; there are drain, copy, freshness, refresh"),
    };
    let mut options = parse(args)?;
    let measure = match (name, options.dag) {
        ("freshness", true) => deliveries::measure,
        (_, true) => bail!("--dag belongs to freshness"),
        _ => measure,
    };
    if name == "refresh" && !args.contains(&"--rows") {
        options.rows = refresh::ROWS;
    }
    // `--workspace` gives every dependency the features it has in the gate.
    let bins = [
        "--workspace",
        "--bin",
        "embrasure-flow",
        "--bin",
        "flow-load",
        "--locked",
    ];
    must(cargo().args(["build", "--profile", &options.profile]).args(bins))?;
    let folder_of = if options.profile == "dev" {
        "debug"
    } else {
        &options.profile
    };
    let built = target_dir()?.join(folder_of);
    let folder = std::env::temp_dir().join(format!("flow-bench-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let postgres = Postgres::start(&options.major, &folder.join("pg"))?;
    let bench = Bench {
        flow: built.join("embrasure-flow"),
        load: built.join("flow-load"),
        options,
        folder,
        postgres,
    };
    let result = bench.checked(name, measure);
    bench.finish(result)
}

impl Bench {
    fn checked(&self, name: &str, measure: fn(&Bench) -> Result<Value>) -> Result<Value> {
        let fsync = self.postgres.ask("SHOW fsync")?;
        ensure!(fsync == "on", "SHOW fsync says {fsync}: figures without it say nothing");
        let mut document = json!({
            "benchmark": name,
            "postgres": self.postgres.ask("SHOW server_version")?,
            "fsync": fsync,
            "profile": self.options.profile,
            "machine": machine()?,
            "commit": capture(cargo_free("git").args(["rev-parse", "--short", "HEAD"]))?.trim(),
        });
        let measured = measure(self)?;
        merge(&mut document, measured);
        Ok(document)
    }

    fn finish(self, result: Result<Value>) -> Result<()> {
        let failed = result.as_ref().ok().and_then(|document| document["failed"].as_array());
        let whole = result.is_ok() && failed.is_none_or(Vec::is_empty);
        if self.options.keep || !whole {
            eprintln!("kept: {}", self.folder.display());
        }
        self.postgres.stop()?;
        if !self.options.keep && whole {
            std::fs::remove_dir_all(&self.folder)?;
        }
        let text = serde_json::to_string_pretty(&result?)?;
        println!("{text}");
        if let Some(out) = &self.options.out {
            std::fs::write(out, text + "\n")?;
        }
        ensure!(whole, "some of it was not measured; the document says what and why");
        Ok(())
    }

    /// Runs the test kit's program and reads its answer.
    fn load(&self, args: &[&str]) -> Result<Value> {
        let answer = capture(std::process::Command::new(&self.load).args(args))?;
        serde_json::from_str(&answer).context("flow-load answers in JSON")
    }

    /// Compares columns of a table of the lake with PostgreSQL's by DuckDB; an error if any row differs.
    fn check_content(&self, flow: &service::Installation, source: &str, target: &str, columns: &str) -> Result<Value> {
        let script = root().join("tests/tools/compare_table.py");
        let answer = capture(
            std::process::Command::new(crate::ci::readers_python()?)
                .arg(script)
                .arg(flow.catalog())
                .args([target, &self.postgres.conninfo(), source, columns]),
        )?;
        serde_json::from_str(&answer).context("compare_table.py answers in JSON")
    }
}

fn parse(args: &[&str]) -> Result<Options> {
    let mut options = Options {
        major: "18".into(),
        rows: 1_000_000,
        mutations: 500_000,
        seconds: 60,
        profile: "release".into(),
        out: None,
        keep: false,
        dag: false,
    };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match *word {
            "--pg" => options.major = (*value()?).to_owned(),
            "--rows" => options.rows = value()?.parse()?,
            "--mutations" => options.mutations = value()?.parse()?,
            "--profile" => options.profile = (*value()?).to_owned(),
            "--seconds" => options.seconds = value()?.parse()?,
            "--out" => options.out = Some(PathBuf::from(value()?)),
            "--keep" => options.keep = true,
            "--dag" => options.dag = true,
            _ => bail!("unknown option {word}"),
        }
    }
    Ok(options)
}

fn cargo_free(program: &str) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.current_dir(root());
    command
}

fn machine() -> Result<Value> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("");
    Ok(json!({
        "cores": std::thread::available_parallelism()?.get(),
        "model": model.trim_start_matches([' ', '\t', ':']),
    }))
}

/// Adds the fields of `more` to `document`.
fn merge(document: &mut Value, more: Value) {
    if let (Some(into), Value::Object(from)) = (document.as_object_mut(), more) {
        into.extend(from);
    }
}

/// States a ratio of rates beside its goal.
fn ratio(ours: f64, baseline: f64, goal: f64) -> Value {
    let ratio = ours / baseline;
    json!({ "ratio": (ratio * 1000.0).round() / 1000.0, "goal": goal, "reached": ratio >= goal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_defaults_and_unknown_ones_are_refused() {
        let options = parse(&["--rows", "5", "--keep"]).expect("both are known");
        assert_eq!((options.rows, options.mutations, options.keep), (5, 500_000, true));
        assert!(parse(&["--row", "5"]).is_err());
        assert!(parse(&["--rows"]).is_err());
    }

    #[test]
    fn a_ratio_is_of_rates() {
        assert_eq!(
            ratio(40.0, 100.0, 0.4),
            json!({"ratio": 0.4, "goal": 0.4, "reached": true})
        );
        assert_eq!(ratio(39.0, 100.0, 0.4)["reached"], json!(false));
    }
}
