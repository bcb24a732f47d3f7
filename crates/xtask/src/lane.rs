//! A lane: one named step of the gate with a time budget. Over its budget it fails, also when the
//! step itself succeeded, so slowness is noticed by the change that brings it.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Collects what the lanes of one run did.
#[derive(Default)]
pub(crate) struct Lanes {
    done: Vec<Done>,
}

struct Done {
    name: String,
    took: Duration,
    budget: Duration,
    failure: Option<String>,
}

impl Lanes {
    /// Runs one lane and prints its time. Says whether it succeeded within its budget.
    pub(crate) fn run(&mut self, name: &str, budget: Duration, step: impl FnOnce() -> Result<()>) -> bool {
        println!("── {name}");
        let start = Instant::now();
        let failure = step().err().map(|error| format!("{error:#}"));
        self.note(name, start.elapsed(), budget, failure)
    }

    /// Runs a lane that computes all the time, and counts what it would take on two quiet cores: its
    /// processor time halved, where that is less than the clock says. So a noisy machine does not
    /// fail a build that did not grow.
    pub(crate) fn run_computing(&mut self, name: &str, budget: Duration, step: impl FnOnce() -> Result<()>) -> bool {
        println!("── {name}");
        let (start, before) = (Instant::now(), children_cpu());
        let failure = step().err().map(|error| format!("{error:#}"));
        let elapsed = start.elapsed();
        let took = match (before, children_cpu()) {
            (Some(before), Some(after)) => elapsed.min(after.saturating_sub(before) / 2),
            _ => elapsed,
        };
        println!("── {name}: {} by the clock", clock(elapsed));
        self.note(name, took, budget, failure)
    }

    /// Adds a limit on the sum of the lanes whose names `counts` accepts.
    pub(crate) fn limit_sum(&mut self, name: &str, budget: Duration, counts: impl Fn(&str) -> bool) {
        let sum = self
            .done
            .iter()
            .filter(|lane| counts(&lane.name))
            .map(|lane| lane.took)
            .sum();
        self.note(name, sum, budget, None);
    }

    fn note(&mut self, name: &str, took: Duration, budget: Duration, failure: Option<String>) -> bool {
        let late = (took > budget).then(|| format!("took longer than its budget of {}", clock(budget)));
        let failure = failure.or(late);
        match &failure {
            None => println!("── {name}: {} of {}", clock(took), clock(budget)),
            Some(why) => println!("── {name}: FAILED after {}: {why}", clock(took)),
        }
        let good = failure.is_none();
        self.done.push(Done {
            name: name.to_owned(),
            took,
            budget,
            failure,
        });
        good
    }

    /// Prints all times; fails if any lane did.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n   {:<24} {:>8} {:>8}", "lane", "took", "budget");
        for lane in &self.done {
            let verdict = if lane.failure.is_some() { "FAILED" } else { "" };
            println!(
                "   {:<24} {:>8} {:>8} {verdict}",
                lane.name,
                clock(lane.took),
                clock(lane.budget)
            );
        }
        let failed: Vec<_> = self.done.iter().filter(|lane| lane.failure.is_some()).collect();
        if failed.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = failed.iter().map(|lane| lane.name.as_str()).collect();
        bail!("failed: {}", names.join(", "))
    }
}

/// Is the processor time of all child processes that ended, their children included; `None` where
/// the system does not tell (proc(5): `cutime` and `cstime`, in hundredths of a second).
fn children_cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(13)?.parse::<u64>().ok()? + fields.get(14)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// Runs a command with our own output; anything but success is an error that names it.
pub(crate) fn must(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// Runs a command and gives its standard output; its standard error is passed through.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let out = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(out.status.success(), "{shown}: {}", out.status);
    String::from_utf8(out.stdout).with_context(|| format!("{shown}: output is not UTF-8"))
}

/// Shows a command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.contains([' ', '\'', '"', ';', '(']) {
            format!("{word:?}")
        } else {
            word.into_owned()
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Counts minutes as a duration.
pub(crate) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn clock(time: Duration) -> String {
    format!(
        "{}:{:04.1}",
        time.as_secs() / 60,
        (time.as_millis() % 60_000) as f64 / 1000.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_or_late_lane_fails_the_run() {
        let mut good = Lanes::default();
        assert!(good.run("a", minutes(1), || Ok(())));
        assert!(good.finish().is_ok());

        let mut failed = Lanes::default();
        assert!(!failed.run("a", minutes(1), || bail!("no")));
        assert!(failed.run("b", minutes(1), || Ok(())));
        assert_eq!(failed.finish().map_err(|e| e.to_string()), Err("failed: a".to_owned()));

        let mut late = Lanes::default();
        assert!(!late.run("c", Duration::ZERO, || Ok(())));
        assert!(late.finish().is_err());
    }

    #[test]
    fn a_sum_over_its_limit_fails_too() {
        let mut lanes = Lanes::default();
        assert!(lanes.run("test a", minutes(1), || Ok(())));
        lanes.limit_sum("tests", Duration::ZERO, |name| name.starts_with("test "));
        assert!(lanes.finish().is_err());
    }

    #[test]
    fn a_computing_lane_counts_its_childrens_processor_time() {
        let mut lanes = Lanes::default();
        let idle = || must(Command::new("sleep").arg("0.3"));
        assert!(lanes.run_computing("idle", Duration::from_millis(200), idle));
        let busy = || must(Command::new("sh").args(["-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]));
        assert!(!lanes.run_computing("busy", Duration::from_millis(10), busy));
    }

    #[test]
    fn times_read_as_minutes_and_seconds() {
        assert_eq!(clock(Duration::from_millis(61_250)), "1:01.2");
        assert_eq!(clock(minutes(45)), "45:00.0");
    }
}
