//! Which snapshots one refresh reads: all of its inputs at one cut.

use flow_core::{Lsn, TableName};

/// Says where an input's positions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// Captured from the source: positions are `flow.lsn`, the table reaches its published LSN.
    Bronze,
    /// A dynamic table: positions are `flow.data-lsn`, the table reaches its data LSN.
    Dynamic,
    /// Any other table: it has no positions, and is read at its current snapshot.
    Foreign,
}

/// Is what one input can present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputHistory {
    /// Is the input's name.
    pub name: TableName,
    /// Says where its positions come from.
    pub kind: InputKind,
    /// Holds the retained snapshots with the LSN each stands for, oldest first. Snapshots without
    /// an LSN of their own (a rewrite, say) carry the LSN of the content they repeat.
    pub retained: Vec<(i64, Lsn)>,
    /// Says whether snapshots older than the first retained one ever existed.
    pub trimmed: bool,
    /// Is the newest LSN this input can present, at or above its last snapshot's. A foreign table's
    /// does not matter.
    pub reached: Lsn,
}

/// Is the cut of one refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Is the LSN every input is read at. `None` if all inputs are foreign.
    pub lsn: Option<Lsn>,
    /// Holds the snapshot of each input, in the order they were given; `None` for a table that has
    /// no row yet at the cut.
    pub snapshots: Vec<(TableName, Option<i64>)>,
    /// Names the input that holds the cut back, where another could present a newer one.
    pub held_back_by: Option<TableName>,
}

/// Chooses the newest LSN that every input can present, and the snapshots that stand for it.
///
/// Gives `None` when an input no longer retains a snapshot at or below that LSN, although it had
/// one: then no cut exists until the input that holds the others back has caught up.
pub fn choose_cut(inputs: &[InputHistory]) -> Option<Cut> {
    let positioned = || inputs.iter().filter(|input| input.kind != InputKind::Foreign);
    let slowest = positioned().min_by_key(|input| input.reached);
    let lsn = slowest.map(|input| input.reached);
    let held_back_by = slowest
        .filter(|slowest| positioned().any(|input| input.reached > slowest.reached))
        .map(|slowest| slowest.name.clone());
    let mut snapshots = Vec::with_capacity(inputs.len());
    for input in inputs {
        let snapshot = match (input.kind, lsn) {
            (InputKind::Foreign, _) | (_, None) => input.retained.last(),
            (_, Some(lsn)) => {
                let at_cut = input.retained.iter().rev().find(|(_, at)| *at <= lsn);
                if at_cut.is_none() && input.trimmed {
                    return None;
                }
                at_cut
            }
        };
        snapshots.push((input.name.clone(), snapshot.map(|(id, _)| *id)));
    }
    Some(Cut {
        lsn,
        snapshots,
        held_back_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, kind: InputKind, retained: &[(i64, u64)], reached: u64) -> InputHistory {
        InputHistory {
            name: TableName::new("b", name),
            kind,
            retained: retained.iter().map(|(id, lsn)| (*id, Lsn(*lsn))).collect(),
            trimmed: false,
            reached: Lsn(reached),
        }
    }

    fn ids(cut: &Cut) -> Vec<Option<i64>> {
        cut.snapshots.iter().map(|(_, id)| *id).collect()
    }

    #[test]
    fn a_late_parent_holds_the_other_inputs_at_its_cut() {
        let inputs = [
            input("orders", InputKind::Bronze, &[(1, 10), (2, 20), (3, 30)], 35),
            input("late", InputKind::Dynamic, &[(7, 10)], 25),
            input("foreign", InputKind::Foreign, &[(90, 0), (91, 0)], 0),
            input("empty", InputKind::Bronze, &[], 35),
        ];
        let cut = choose_cut(&inputs).expect("a cut exists");
        assert_eq!(cut.lsn, Some(Lsn(25)));
        assert_eq!(ids(&cut), [Some(2), Some(7), Some(91), None]);
        assert_eq!(cut.held_back_by, Some(TableName::new("b", "late")));
    }

    #[test]
    fn foreign_tables_alone_have_no_lsn() {
        let cut = choose_cut(&[input("f", InputKind::Foreign, &[(4, 0)], 0)]).expect("a cut exists");
        assert_eq!((cut.lsn, ids(&cut)), (None, vec![Some(4)]));
    }

    #[test]
    fn an_expired_cut_is_no_cut() {
        let mut orders = input("orders", InputKind::Bronze, &[(3, 30)], 35);
        orders.trimmed = true;
        let late = input("late", InputKind::Dynamic, &[(7, 10)], 25);
        assert_eq!(choose_cut(&[orders, late]), None);
    }

    /// Draws a history, and says by brute force what a cut must be.
    #[test]
    fn every_cut_is_the_newest_that_all_can_present() {
        let mut state = 7u64;
        let mut below = move |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for round in 0..20_000 {
            let inputs: Vec<InputHistory> = (0..1 + below(4))
                .map(|at| {
                    let kind = [InputKind::Bronze, InputKind::Dynamic, InputKind::Foreign][below(3) as usize];
                    let mut lsn = 0;
                    let count = below(5) as i64;
                    let retained: Vec<(i64, u64)> = (0..count)
                        .map(|id| {
                            lsn += below(4);
                            (id, lsn)
                        })
                        .collect();
                    let mut input = input(&at.to_string(), kind, &retained, lsn + below(4));
                    input.trimmed = count > 0 && below(3) == 0;
                    input
                })
                .collect();
            let positioned = || inputs.iter().filter(|input| input.kind != InputKind::Foreign);
            // The newest LSN that no input is behind of, tried one by one.
            let expected = (0..40)
                .rev()
                .map(Lsn)
                .find(|lsn| positioned().all(|input| input.reached >= *lsn));
            let expected = positioned().next().and(expected);
            let lost =
                |input: &InputHistory| input.trimmed && !input.retained.iter().any(|(_, lsn)| Some(*lsn) <= expected);
            let Some(cut) = choose_cut(&inputs) else {
                assert!(positioned().any(lost), "round {round}: {inputs:?} has a cut");
                continue;
            };
            assert!(!positioned().any(lost), "round {round}: {inputs:?} has no cut");
            assert_eq!(cut.lsn, expected, "round {round}: {inputs:?}");
            for (input, (name, snapshot)) in inputs.iter().zip(&cut.snapshots) {
                assert_eq!(&input.name, name);
                let reached = |lsn: &Lsn| input.kind == InputKind::Foreign || Some(*lsn) <= cut.lsn;
                let newest = input
                    .retained
                    .iter()
                    .filter(|(_, lsn)| reached(lsn))
                    .map(|(id, _)| *id)
                    .max();
                assert_eq!(*snapshot, newest, "round {round}: {inputs:?}");
            }
            let late = cut.held_back_by.as_ref();
            let behind = positioned().any(|input| Some(input.reached) > cut.lsn);
            assert_eq!(late.is_some(), behind, "round {round}: {inputs:?}");
        }
    }
}
