//! Percentiles of measured times, by the nearest rank: always a time that was measured.

use std::time::Duration;

use serde::Serialize;

/// Summarises measured times, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Counts the times.
    pub count: usize,
    /// Is the median.
    pub p50_ms: f64,
    /// Is the 95th percentile.
    pub p95_ms: f64,
    /// Is the 99th percentile.
    pub p99_ms: f64,
    /// Is the longest.
    pub max_ms: f64,
}

/// Summarises times in any order.
pub fn summarise(mut times: Vec<Duration>) -> Summary {
    times.sort_unstable();
    let rank = |percent: f64| {
        let rank = (percent / 100.0 * times.len() as f64).ceil() as usize;
        times
            .get(rank.max(1) - 1)
            .map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    Summary {
        count: times.len(),
        p50_ms: rank(50.0),
        p95_ms: rank(95.0),
        p99_ms: rank(99.0),
        max_ms: rank(100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_measured_times() {
        let times = (1..=100).rev().map(Duration::from_millis).collect();
        let expect = Summary {
            count: 100,
            p50_ms: 50.0,
            p95_ms: 95.0,
            p99_ms: 99.0,
            max_ms: 100.0,
        };
        assert_eq!(summarise(times), expect);
        assert_eq!(summarise(vec![Duration::from_millis(7)]).p50_ms, 7.0);
        assert_eq!(summarise(Vec::new()), Summary::default());
    }
}
