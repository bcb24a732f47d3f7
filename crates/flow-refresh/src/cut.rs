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
    /// Is from where on a dynamic table's newest content is known to be right without a gap, up to
    /// `reached`. Another kind's does not matter.
    pub steady_from: Lsn,
    /// Is the newest LSN this input can present, at or above its last snapshot's. A foreign table's
    /// does not matter.
    pub reached: Lsn,
}

impl InputHistory {
    /// Says whether the input's content at `lsn` is known.
    ///
    /// A bronze table's is at every LSN up to its own. A dynamic table's is only at those it was
    /// computed for, and while nothing that it reads has changed: between two refreshes it may have
    /// been anything.
    fn presents(&self, lsn: Lsn) -> bool {
        match self.kind {
            InputKind::Foreign => true,
            InputKind::Bronze => lsn <= self.reached,
            InputKind::Dynamic => {
                (self.steady_from..=self.reached).contains(&lsn) || self.retained.iter().any(|(_, at)| *at == lsn)
            }
        }
    }

    /// Is the snapshot that stands for `lsn`; an error if it is no longer retained.
    fn snapshot_at(&self, lsn: Lsn) -> Result<Option<i64>, Trimmed> {
        match self.retained.iter().rev().find(|(_, at)| *at <= lsn) {
            Some((id, _)) => Ok(Some(*id)),
            None if self.trimmed => Err(Trimmed),
            None => Ok(None),
        }
    }
}

/// Says that a snapshot is no longer retained.
struct Trimmed;

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

/// Chooses the greatest LSN up to `newest` that every input can present, and the snapshots that
/// stand for it.
///
/// Gives `None` when there is no such LSN, or an input no longer retains its snapshot there: then no
/// cut exists until the input that holds the others back has caught up.
pub fn choose_cut(inputs: &[InputHistory], newest: Lsn) -> Option<Cut> {
    let positioned = || inputs.iter().filter(|input| input.kind != InputKind::Foreign);
    if positioned().next().is_none() {
        let last = |input: &InputHistory| (input.name.clone(), input.retained.last().map(|(id, _)| *id));
        return Some(Cut {
            lsn: None,
            snapshots: inputs.iter().map(last).collect(),
            held_back_by: None,
        });
    }
    let limit = positioned().map(|input| input.reached).fold(newest, Lsn::min);
    let computed = positioned()
        .filter(|input| input.kind == InputKind::Dynamic)
        .flat_map(|input| input.retained.iter().map(|(_, at)| *at));
    let mut candidates: Vec<Lsn> = computed.filter(|at| *at < limit).chain([limit]).collect();
    candidates.sort_unstable();
    let all_present = |lsn: &Lsn| positioned().all(|input| input.presents(*lsn));
    let lsn = candidates.into_iter().rev().find(all_present)?;
    let mut snapshots = Vec::with_capacity(inputs.len());
    for input in inputs {
        let snapshot = match input.kind {
            InputKind::Foreign => input.retained.last().map(|(id, _)| *id),
            _ => input.snapshot_at(lsn).ok()?,
        };
        snapshots.push((input.name.clone(), snapshot));
    }
    let another_is_newer = positioned().any(|input| input.reached.min(newest) > lsn);
    let holding = positioned()
        .find(|input| input.reached == limit && limit < newest)
        .or_else(|| positioned().find(|input| !input.presents(limit)));
    Some(Cut {
        lsn: Some(lsn),
        snapshots,
        held_back_by: holding.filter(|_| another_is_newer).map(|input| input.name.clone()),
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
            steady_from: Lsn(retained.last().map_or(0, |(_, at)| *at)),
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
        let cut = choose_cut(&inputs, Lsn(35)).expect("a cut exists");
        assert_eq!(cut.lsn, Some(Lsn(25)));
        assert_eq!(ids(&cut), [Some(2), Some(7), Some(91), None]);
        assert_eq!(cut.held_back_by, Some(TableName::new("b", "late")));
    }

    #[test]
    fn foreign_tables_alone_have_no_lsn() {
        let cut = choose_cut(&[input("f", InputKind::Foreign, &[(4, 0)], 0)], Lsn(9)).expect("a cut exists");
        assert_eq!((cut.lsn, ids(&cut)), (None, vec![Some(4)]));
    }

    #[test]
    fn an_expired_cut_is_no_cut() {
        let mut orders = input("orders", InputKind::Bronze, &[(3, 30)], 35);
        orders.trimmed = true;
        let late = input("late", InputKind::Dynamic, &[(7, 10)], 25);
        assert_eq!(choose_cut(&[orders, late], Lsn(35)), None);
    }

    #[test]
    fn two_parents_are_read_where_both_were_computed() {
        // Between 60 and 100 the first may have been anything: 80 is no cut, though both have a snapshot below.
        let often = input("often", InputKind::Dynamic, &[(1, 40), (2, 60), (3, 100)], 100);
        let seldom = input("seldom", InputKind::Dynamic, &[(7, 40), (8, 80)], 80);
        let cut = choose_cut(&[often.clone(), seldom.clone()], Lsn(120)).expect("a cut exists");
        assert_eq!((cut.lsn, ids(&cut)), (Some(Lsn(40)), vec![Some(1), Some(7)]));
        assert_eq!(cut.held_back_by, Some(TableName::new("b", "seldom")));
        // Once the second is known to be unchanged up to 100, both present it.
        let steady = InputHistory {
            reached: Lsn(110),
            ..seldom
        };
        let cut = choose_cut(&[often, steady], Lsn(120)).expect("a cut exists");
        assert_eq!((cut.lsn, ids(&cut)), (Some(Lsn(100)), vec![Some(3), Some(8)]));
    }

    #[test]
    fn a_parent_that_came_back_to_its_content_is_not_steady_before_that() {
        let mut parent = input("p", InputKind::Dynamic, &[(1, 60)], 75);
        parent.steady_from = Lsn(70);
        let held = input("held", InputKind::Bronze, &[(5, 10)], 65);
        let cut = choose_cut(&[parent, held], Lsn(80)).expect("a cut exists");
        assert_eq!(cut.lsn, Some(Lsn(60)));
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
                    input.steady_from = Lsn(lsn + below(3)).min(input.reached);
                    input
                })
                .collect();
            let newest = Lsn(below(16));
            let positioned = || inputs.iter().filter(|input| input.kind != InputKind::Foreign);
            let known = |input: &InputHistory, lsn: Lsn| match input.kind {
                InputKind::Dynamic => {
                    let computed = input.retained.iter().any(|(_, at)| *at == lsn);
                    computed || (input.steady_from <= lsn && lsn <= input.reached)
                }
                _ => lsn <= input.reached,
            };
            // The newest LSN at which every input's content is known, tried one by one.
            let expected = (0..=newest.0)
                .rev()
                .map(Lsn)
                .find(|lsn| positioned().all(|input| known(input, *lsn)));
            let lost =
                |input: &InputHistory| input.trimmed && !input.retained.iter().any(|(_, lsn)| Some(*lsn) <= expected);
            let none = expected.is_none() && positioned().next().is_some();
            let Some(cut) = choose_cut(&inputs, newest) else {
                assert!(none || positioned().any(lost), "round {round}: {inputs:?} has a cut");
                continue;
            };
            let expected = positioned().next().and(expected);
            assert!(!none && !positioned().any(lost), "round {round}: {inputs:?} has no cut");
            assert_eq!(cut.lsn, expected, "round {round}: {inputs:?} up to {newest}");
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
            let behind = positioned().any(|input| Some(input.reached.min(newest)) > cut.lsn);
            assert_eq!(late.is_some(), behind, "round {round}: {inputs:?}");
        }
    }
}
