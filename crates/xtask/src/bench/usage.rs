//! CPU time and peak memory, from `/proc`: of a running process, and of children that were waited for.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Linux counts CPU time for user space in hundredths of a second on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Is what a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) cpu_seconds: f64,
    pub(super) peak_rss_mib: f64,
}

impl Usage {
    /// Is the usage as fields of the document; CPU also per million rows.
    pub(super) fn fields(&self, rows: u64) -> Value {
        json!({
            "cpu_seconds": round(self.cpu_seconds),
            "cpu_seconds_per_million": round(self.cpu_seconds * 1e6 / rows as f64),
            "peak_rss_mib": round(self.peak_rss_mib),
        })
    }
}

/// Reads a running process.
pub(super) fn of_process(pid: u32) -> Result<Usage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(Usage {
        cpu_seconds: cpu_seconds(&stat, 13)?,
        peak_rss_mib: peak_rss_mib(&status)?,
    })
}

/// Reads the CPU seconds of all children this process has waited for.
pub(super) fn cpu_seconds_of_children() -> Result<f64> {
    cpu_seconds(&std::fs::read_to_string("/proc/self/stat")?, 15)
}

/// Adds the two fields (user, system) that begin at `field`, counted from 0.
fn cpu_seconds(stat: &str, field: usize) -> Result<f64> {
    // The second field is the program's name in parentheses and may hold spaces.
    let (_, rest) = stat.rsplit_once(')').context("no name in /proc stat")?;
    let mut fields = rest.split_whitespace().skip(field - 2);
    let mut ticks = || -> Result<f64> { Ok(fields.next().context("/proc stat is short")?.parse::<f64>()?) };
    Ok((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

fn peak_rss_mib(status: &str) -> Result<f64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("no VmHWM in /proc status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// Rounds to three decimals.
pub(super) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_by_name_and_place() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 200 0 0 150 50 700 300 20 0 1 0";
        assert_eq!(cpu_seconds(stat, 13).ok(), Some(2.0));
        assert_eq!(cpu_seconds(stat, 15).ok(), Some(10.0));
        assert_eq!(peak_rss_mib("Name:\tx\nVmHWM:\t  2048 kB\n").ok(), Some(2.0));
        assert!(cpu_seconds("42 x", 13).is_err());
    }

    #[test]
    fn our_own_usage_is_plausible() {
        let usage = of_process(std::process::id()).expect("we are running");
        assert!(usage.peak_rss_mib > 0.1 && usage.cpu_seconds >= 0.0);
    }
}
