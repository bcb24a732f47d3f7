//! The gate and the long lanes.
//!
//! 1. Format and tidy first: they answer in seconds.
//! 2. Build and clippy; PostgreSQL and the readers are fetched in the background meanwhile.
//! 3. Unit tests, then the service tests against the oldest and the newest PostgreSQL; what no server
//!    version can change runs once.
//!
//! A lane that fails stops the lanes that stand on it, never its neighbours.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::lane::{Lanes, capture, minutes, must};
use crate::tidy;
use crate::workspace::{cargo, root, target_dir};

/// Builds and clippy from an empty cache on two cores.
const BUILD_BUDGET: Duration = minutes(45);
/// One test lane; the first issue's tests aim at ten minutes together on a quiet machine.
const TEST_BUDGET: Duration = minutes(15);
/// All tests of the project together, now and later.
const TESTS_BUDGET: Duration = minutes(30);
/// One long lane.
const SLOW_BUDGET: Duration = minutes(30);
/// One fuzz target, from its build to its end.
const FUZZ_BUDGET: Duration = minutes(20);
/// How long a target looks for crashes, in seconds.
const FUZZ_SECONDS: &str = "300";
/// The fuzz targets, and where the inputs of each are kept.
const FUZZ_TARGETS: [(&str, &str); 2] = [
    ("stream", "crates/flow-source/corpus"),
    ("copy", "crates/flow-source/corpus/copy"),
];
/// The oldest and the newest supported PostgreSQL run in the gate, all five in `slow majors`.
const GATE_MAJORS: [&str; 2] = ["14", "18"];
const ALL_MAJORS: [&str; 5] = ["14", "15", "16", "17", "18"];
/// Service tests wait for deadlines more than they compute, so a few run at once.
const SERVICE_WORKERS: &str = "4";

/// Runs the gate.
pub(crate) fn ci() -> Result<()> {
    let mut lanes = Lanes::default();
    let fetching = Fetch::start(&GATE_MAJORS)?;
    lanes.run("format", minutes(1), || {
        must(cargo().args(["fmt", "--all", "--check"]))?;
        must(cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
    });
    lanes.run("tidy", minutes(1), || tidy::check(false));
    let built = lanes.run_computing("build", BUILD_BUDGET, || {
        must(cargo().args(["build", "--workspace", "--all-targets", "--locked"]))
    });
    lanes.run_computing("clippy", BUILD_BUDGET, || {
        must(cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    });
    lanes.limit_sum("build and clippy", BUILD_BUDGET, |name| {
        name == "build" || name == "clippy"
    });
    if built {
        let fetched = lanes.run("fetch (wait)", minutes(10), || fetching.wait());
        lanes.run("test units", TEST_BUDGET, || {
            let majors = GATE_MAJORS.join(",");
            must(
                cargo()
                    .args(["nextest", "run", "--workspace", "--locked"])
                    .env("FLOW_TEST_PG_VERSIONS", majors),
            )
        });
        let [oldest, newest] = GATE_MAJORS;
        let all: &[&str] = &["-n", SERVICE_WORKERS];
        for (major, args) in [(oldest, &[all, &["--of-this-major"]].concat()[..]), (newest, all)] {
            if fetched {
                lanes.run(&format!("test service {major}"), TEST_BUDGET, || pytest(major, args));
            }
        }
        lanes.limit_sum("all tests", TESTS_BUDGET, |name| name.starts_with("test "));
    }
    lanes.finish()
}

/// Runs one long lane, building first what it needs.
pub(crate) fn slow(name: &str) -> Result<()> {
    let mut lanes = Lanes::default();
    let majors: &[&str] = match name {
        "majors" => &ALL_MAJORS,
        "crash" | "random" | "random-sql" | "soak" | "spark" => &["18"],
        "fuzz" => return fuzz(lanes),
        _ => bail!("no lane {name}; there are majors, crash, random, random-sql, soak, spark, fuzz"),
    };
    let fetching = Fetch::start(majors)?;
    if !lanes.run("build", BUILD_BUDGET, build_binary) || !lanes.run("fetch (wait)", minutes(10), || fetching.wait()) {
        return lanes.finish();
    }
    if name == "majors" {
        // As in the gate, what no server version can change runs on the newest alone; it comes first.
        let [.., newest] = ALL_MAJORS;
        let all: &[&str] = &["-n", SERVICE_WORKERS];
        let own = [all, &["--of-this-major"]].concat();
        for major in ALL_MAJORS.into_iter().rev() {
            let args = if major == newest { all } else { &own };
            lanes.run(&format!("majors {major}"), SLOW_BUDGET, || pytest(major, args));
        }
        lanes.limit_sum("all majors", SLOW_BUDGET, |lane| lane.starts_with("majors "));
    } else {
        lanes.run(name, SLOW_BUDGET, || pytest("18", &["--lane", name, "-s"]));
    }
    lanes.finish()
}

/// Runs each fuzz target for some minutes, beginning with the kept inputs.
fn fuzz(mut lanes: Lanes) -> Result<()> {
    let script = root().join("tests/tools/fuzz.sh");
    let program = PathBuf::from(capture(&mut Command::new(script))?.trim());
    lanes.run("fuzz lock", minutes(1), || {
        must(cargo().args(["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"]))
    });
    for (target, kept) in FUZZ_TARGETS {
        lanes.run(&format!("fuzz {target}"), FUZZ_BUDGET, || {
            fuzz_target(&program, target, &root().join(kept))
        });
    }
    lanes.finish()
}

/// Runs one target; a crash is an error, and its input lies below `fuzz/artifacts`.
fn fuzz_target(program: &Path, target: &str, kept: &Path) -> Result<()> {
    let built = target_dir()?.join("fuzz");
    // libFuzzer writes what it finds worth keeping into the first folder and only reads the second.
    let found = built.join("corpus").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly"])
        .arg(program)
        .args(["run", "--fuzz-dir", "fuzz", "--target-dir"])
        .args([&built, Path::new(target), &found, kept])
        .args(["--", "-print_final_stats=1"])
        .args(["-timeout=30", &format!("-max_total_time={FUZZ_SECONDS}")])
        .current_dir(root())
        // The cargo that started us is the stable one.
        .env_remove("CARGO");
    must(&mut command)
}

/// Runs service tests on one major with the caller's own pytest arguments.
pub(crate) fn service(major: &str, args: &[&str]) -> Result<()> {
    build_binary()?;
    pytest(major, args)
}

fn build_binary() -> Result<()> {
    // `--workspace` gives every dependency the features it has in the gate, so that nothing is built twice.
    must(cargo().args(["build", "--workspace", "--bin", "embrasure-flow", "--locked"]))
}

/// Is the Python with the readers, made on first use.
pub(crate) fn readers_python() -> Result<PathBuf> {
    let script = root().join("tests/tools/readers.sh");
    Ok(PathBuf::from(capture(&mut Command::new(script))?.trim()))
}

fn pytest(major: &str, args: &[&str]) -> Result<()> {
    let binary = target_dir()?.join("debug/embrasure-flow");
    ensure!(
        binary.exists(),
        "{} is missing: build flow-daemon first",
        binary.display()
    );
    let mut command = Command::new(readers_python()?);
    command
        .args(["-m", "pytest", "-q", "--durations=5"])
        .args(args)
        .current_dir(root().join("tests/service"))
        .env("FLOW_BIN", binary)
        .env("FLOW_PG_MAJOR", major)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    must(&mut command)
}

/// Fills the cache with PostgreSQL and the readers while something else runs.
struct Fetch {
    child: Child,
}

impl Fetch {
    fn start(majors: &[&str]) -> Result<Self> {
        let child = Command::new(root().join("tests/tools/fetch.sh"))
            .args(majors)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot run tests/tools/fetch.sh")?;
        Ok(Self { child })
    }

    fn wait(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "tests/tools/fetch.sh: {status}");
        Ok(())
    }
}
