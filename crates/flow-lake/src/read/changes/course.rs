//! Which steps lead from one snapshot to another. Pure decisions over a table's history.

use flow_core::changes::Gap;
use iceberg::spec::{Operation, SnapshotRef};

use crate::table::Table;

/// Is a part of the way whose end holds other rows than its start.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) from: SnapshotRef,
    pub(super) to: SnapshotRef,
    /// Says that every snapshot between the two is known: each is the next one's parent.
    pub(super) unbroken: bool,
}

/// Finds the steps from one snapshot to another, which must descend from it.
///
/// A `replace` holds the rows of its parent, so that the way is cut there: what compaction rewrote is
/// neither added nor removed. Where history was trimmed, the ends alone say what changed.
pub(super) fn find(table: &Table, from: i64, to: &SnapshotRef) -> Result<Vec<Step>, Gap> {
    if from == to.snapshot_id() {
        return Ok(Vec::new());
    }
    let (path, unbroken) = path(table, from, to)?;
    let Some(start) = table.metadata().snapshot_by_id(from) else {
        return Err(Gap::Expired);
    };
    if !unbroken && !is_older_on_main(table, start, &path[0]) {
        return Err(Gap::NotDescended);
    }
    Ok(cut(start, &path, unbroken))
}

/// Lists the snapshots after `from` up to `to`, oldest first, as far as they are retained; says
/// whether the first is a child of `from`.
fn path(table: &Table, from: i64, to: &SnapshotRef) -> Result<(Vec<SnapshotRef>, bool), Gap> {
    let metadata = table.metadata();
    let mut path = vec![to.clone()];
    let unbroken = loop {
        let oldest = &path[path.len() - 1];
        let Some(parent) = oldest.parent_snapshot_id() else {
            return Err(Gap::NotDescended);
        };
        if parent == from {
            break true;
        }
        match metadata.snapshot_by_id(parent) {
            // Metadata is input: a circle of parents must not hang us.
            Some(_) if path.len() > metadata.snapshots().len() => return Err(Gap::NotDescended),
            Some(snapshot) => path.push(snapshot.clone()),
            None => break false,
        }
    };
    path.reverse();
    Ok((path, unbroken))
}

/// Says whether a snapshot stands before another, past a trimmed part, as far as that can be known.
fn is_older_on_main(table: &Table, start: &SnapshotRef, oldest: &SnapshotRef) -> bool {
    let on_main = table.main_snapshots();
    let is_on_main = on_main.iter().any(|known| known.snapshot_id() == start.snapshot_id());
    is_on_main && start.sequence_number() < oldest.sequence_number()
}

fn cut(start: &SnapshotRef, path: &[SnapshotRef], unbroken: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    // Holds where the present step begins, and what stands before the snapshot that is looked at.
    let (mut begin, mut before, mut known) = (start, unbroken.then_some(start), unbroken);
    let mut push = |from: &SnapshotRef, to: &SnapshotRef, unbroken| {
        if from.snapshot_id() != to.snapshot_id() {
            let (from, to) = (from.clone(), to.clone());
            steps.push(Step { from, to, unbroken });
        }
    };
    for snapshot in path {
        if let (Operation::Replace, Some(parent)) = (&snapshot.summary().operation, before) {
            push(begin, parent, known);
            (begin, known) = (snapshot, true);
        }
        before = Some(snapshot);
    }
    push(begin, &path[path.len() - 1], known);
    steps
}
