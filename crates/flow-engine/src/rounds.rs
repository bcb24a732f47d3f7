//! Which dynamic tables are refreshed together. Pure decisions, no IO.
//!
//! A dynamic table's content is known at the LSNs it was computed for, and nowhere between. A table
//! that reads two others needs an LSN for which both were computed, and two that are refreshed each
//! in their own time may never meet. So all that stands above such a table is refreshed in rounds, at
//! one LSN per round; a table that reads at most one other can take any LSN that one has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flow_core::TableName;

use crate::inputs::Moment;

/// Is a set of tables that are refreshed in common rounds.
#[derive(Debug)]
pub(crate) struct Group {
    /// Holds places in the plan, inputs before those that read them.
    pub(crate) members: Vec<usize>,
    pub(crate) round: Option<Round>,
}

/// Is a round that has begun.
#[derive(Debug)]
pub(crate) struct Round {
    /// Is what all of its tables are read at.
    pub(crate) moment: Moment,
    /// Holds the members that have not had their turn.
    pub(crate) waiting: BTreeSet<usize>,
}

/// Groups the tables of a plan, given in plan order with their inputs.
///
/// `is_foreign` tells the inputs that have no LSN: a table that reads one together with another
/// dynamic table that reads it too must see the same snapshot of it.
pub(crate) fn groups(tables: &[(&TableName, &[TableName])], is_foreign: impl Fn(&TableName) -> bool) -> Vec<Group> {
    let places: BTreeMap<&TableName, usize> = tables.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
    let mut leaders: Vec<usize> = (0..tables.len()).collect();
    let mut above: Vec<BTreeSet<usize>> = Vec::with_capacity(tables.len());
    let mut foreign: Vec<BTreeSet<&TableName>> = Vec::with_capacity(tables.len());
    for (at, (_, inputs)) in tables.iter().enumerate() {
        let parents: Vec<usize> = inputs.iter().filter_map(|name| places.get(name).copied()).collect();
        let ancestors: BTreeSet<usize> = parents
            .iter()
            .flat_map(|parent| above[*parent].iter().copied().chain([*parent]))
            .collect();
        let own: BTreeSet<&TableName> = inputs.iter().filter(|name| is_foreign(name)).collect();
        let inherited: BTreeSet<&TableName> = parents
            .iter()
            .flat_map(|parent| foreign[*parent].iter().copied())
            .collect();
        if parents.len() > 1 || !own.is_disjoint(&inherited) {
            for ancestor in &ancestors {
                join(&mut leaders, *ancestor, at);
            }
        }
        above.push(ancestors);
        foreign.push(own.union(&inherited).copied().collect());
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, leader) in leaders.into_iter().enumerate() {
        groups.entry(leader).or_default().push(at);
    }
    let group = |members| Group { members, round: None };
    groups.into_values().map(group).collect()
}

fn join(leaders: &mut [usize], a: usize, b: usize) {
    let (from, to) = (leaders[a].max(leaders[b]), leaders[a].min(leaders[b]));
    for leader in leaders {
        if *leader == from {
            *leader = to;
        }
    }
}

/// Is a member that has something to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanting {
    /// Is how long its last run makes it pause yet.
    pub(crate) pause: Duration,
    /// Is how long its lag lets it wait yet; `None` if it is refreshed on command only.
    pub(crate) due_in: Option<Duration>,
    /// Is its lag.
    pub(crate) lag: Duration,
}

/// Says when the next round begins, and with how long a lag its members take part.
///
/// A round begins as soon as one member is due and all that take part have paused. Those whose lag is
/// longer than that of any due member wait for their own time: they would be refreshed more often
/// than was asked for. Those with a shorter one take part, so that a table below both meets them.
pub(crate) fn begins(wanting: &[Wanting]) -> Begins {
    let due = |w: &&Wanting| w.due_in == Some(Duration::ZERO);
    let Some(lag) = wanting.iter().filter(due).map(|w| w.lag).max() else {
        return Begins::In(wanting.iter().filter_map(|w| w.due_in).min());
    };
    let taking_part = wanting.iter().filter(|w| w.due_in.is_some() && w.lag <= lag);
    match taking_part.map(|w| w.pause).max() {
        Some(pause) if pause > Duration::ZERO => Begins::In(Some(pause)),
        _ => Begins::Now { lag },
    }
}

/// Says when a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// Now, with the members whose lag is at most this long.
    Now {
        /// Is the longest lag of a due member.
        lag: Duration,
    },
    /// After this time; `None` if nobody asks for one.
    In(Option<Duration>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(tables: &[(&str, &[&str])]) -> Vec<Vec<usize>> {
        let name = |name: &&str| TableName::new("n", *name);
        let named: Vec<(TableName, Vec<TableName>)> = tables
            .iter()
            .map(|(table, inputs)| (name(table), inputs.iter().map(name).collect()))
            .collect();
        let borrowed: Vec<(&TableName, &[TableName])> = named.iter().map(|(t, i)| (t, i.as_slice())).collect();
        let is_foreign = |name: &TableName| name.name.starts_with("foreign");
        groups(&borrowed, is_foreign)
            .into_iter()
            .map(|group| group.members)
            .collect()
    }

    #[test]
    fn tables_that_meet_below_are_refreshed_together() {
        assert_eq!(
            grouped(&[("p", &["a"]), ("q", &["a"]), ("c", &["p", "q"]), ("alone", &["a"])]),
            [vec![0, 1, 2], vec![3]]
        );
        // What stands above a parent must be at the same LSN too.
        assert_eq!(
            grouped(&[("top", &["a"]), ("p", &["top"]), ("q", &["b"]), ("c", &["p", "q"])]),
            [vec![0, 1, 2, 3]]
        );
        // Two such tables with a common parent.
        assert_eq!(
            grouped(&[
                ("p", &[]),
                ("q", &[]),
                ("r", &[]),
                ("c", &["q", "r"]),
                ("d", &["p", "q"])
            ]),
            [vec![0, 1, 2, 3, 4]]
        );
    }

    #[test]
    fn a_chain_is_not_held_together() {
        assert_eq!(
            grouped(&[("p", &["a"]), ("c", &["p", "a"]), ("d", &["c"])]),
            [vec![0], vec![1], vec![2]]
        );
    }

    #[test]
    fn a_foreign_table_met_twice_is_read_once() {
        assert_eq!(
            grouped(&[("p", &["foreign"]), ("q", &["p"]), ("c", &["q", "foreign"])]),
            [vec![0, 1, 2]]
        );
        assert_eq!(grouped(&[("p", &["foreign"]), ("c", &["foreign"])]), [vec![0], vec![1]]);
    }

    #[test]
    fn a_round_begins_with_those_whose_lag_allows_it() {
        let s = Duration::from_secs;
        let w = |pause, due_in: Option<u64>, lag| Wanting {
            pause: s(pause),
            due_in: due_in.map(s),
            lag: s(lag),
        };
        assert_eq!(begins(&[]), Begins::In(None));
        assert_eq!(begins(&[w(0, None, 0)]), Begins::In(None));
        assert_eq!(begins(&[w(0, Some(5), 60), w(0, Some(3), 30)]), Begins::In(Some(s(3))));
        assert_eq!(
            begins(&[w(0, Some(0), 0), w(9, Some(5), 60)]),
            Begins::Now { lag: s(0) }
        );
        assert_eq!(begins(&[w(0, Some(0), 60), w(9, Some(5), 30)]), Begins::In(Some(s(9))));
        assert_eq!(
            begins(&[w(0, Some(0), 60), w(0, Some(5), 30)]),
            Begins::Now { lag: s(60) }
        );
    }
}
