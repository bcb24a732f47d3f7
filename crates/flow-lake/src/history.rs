//! Which snapshots a table keeps. Pure decisions, no IO.

use std::collections::BTreeSet;
use std::time::Duration;

use iceberg::spec::TableMetadata;

/// Is the width of the slots of which each keeps one older snapshot.
const SLOT_MS: i64 = 60_000;

/// Lists a snapshot and its retained ancestors.
pub(crate) fn chain(metadata: &TableMetadata, head: i64) -> BTreeSet<i64> {
    let mut seen = BTreeSet::new();
    let mut next = Some(head);
    while let Some(snapshot) = next.and_then(|id| metadata.snapshot_by_id(id)) {
        // Metadata is input: a circle of parents must not hang us.
        if !seen.insert(snapshot.snapshot_id()) {
            break;
        }
        next = snapshot.parent_snapshot_id();
    }
    seen
}

/// Says how much history stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    /// Counts the newest snapshots that stay.
    pub(crate) newest: usize,
    /// Is how long one older snapshot a minute stays.
    pub(crate) keep_for: Duration,
}

/// Chooses the snapshots to remove from `(id, timestamp in ms)`, oldest first.
///
/// The oldest snapshot of each minute stays, so that a choice made once is not revised while
/// snapshots grow older one by one.
pub(crate) fn trim(snapshots: &[(i64, i64)], retention: Retention, now_ms: i64, protected: &BTreeSet<i64>) -> Vec<i64> {
    let older = snapshots.len().saturating_sub(retention.newest.max(1));
    let horizon = now_ms.saturating_sub(i64::try_from(retention.keep_for.as_millis()).unwrap_or(i64::MAX));
    let mut slot = None;
    let mut removed = Vec::new();
    for (id, timestamp_ms) in &snapshots[..older] {
        let this = timestamp_ms.div_euclid(SLOT_MS);
        let first_of_slot = slot != Some(this);
        let stays = *timestamp_ms >= horizon && first_of_slot;
        if stays {
            slot = Some(this);
        }
        if !stays && !protected.contains(id) {
            removed.push(*id);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn check(ages_s: &[i64], newest: usize, protected: &[i64], removed: &[i64]) {
        let now_ms = 100 * 3_600_000;
        let snapshots: Vec<_> = (0..).zip(ages_s).map(|(id, age)| (id, now_ms - age * 1000)).collect();
        let retention = Retention { newest, keep_for: HOUR };
        let protected = protected.iter().copied().collect();
        assert_eq!(trim(&snapshots, retention, now_ms, &protected), removed);
    }

    #[test]
    fn the_newest_stay() {
        check(&[9000, 8000, 7000], 3, &[], &[]);
        check(&[9000, 8000, 7000], 2, &[], &[0]);
        check(&[9000, 8000, 7000], 0, &[], &[0, 1]);
        check(&[], 200, &[], &[]);
    }

    #[test]
    fn older_ones_stay_one_a_minute_for_an_hour() {
        check(&[3700, 3600, 3590, 3550, 3540, 30, 20, 10], 1, &[], &[0, 2, 3, 6]);
    }

    #[test]
    fn protected_ones_stay() {
        check(&[9000, 8000, 130, 125, 1], 1, &[0, 3], &[1]);
    }

    #[test]
    fn trimming_step_by_step_keeps_one_a_minute() {
        // A commit a second for three hours, trimmed at each commit, as a service does.
        let retention = Retention {
            newest: 200,
            keep_for: HOUR,
        };
        let mut kept: Vec<(i64, i64)> = Vec::new();
        for second in 0..3 * 3600 {
            kept.push((second, second * 1000));
            let removed: BTreeSet<i64> = trim(&kept, retention, second * 1000, &BTreeSet::new())
                .into_iter()
                .collect();
            kept.retain(|(id, _)| !removed.contains(id));
            assert!(kept.len() <= 200 + 61, "{} kept", kept.len());
        }
        assert!(kept.len() >= 200 + 55, "{} kept", kept.len());
    }
}
