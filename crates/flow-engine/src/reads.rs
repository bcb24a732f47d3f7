//! Which snapshots dynamic tables reflect or are reading: they outlive the trimming of histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;

use flow_core::TableName;
use flow_core::frontier::Frontier;

/// Holds the snapshots each dynamic table needs, by the table that has them.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    by_reader: RwLock<BTreeMap<String, BTreeMap<String, BTreeSet<i64>>>>,
}

impl Reads {
    /// Says what a dynamic table needs from now on, in place of what it needed before.
    pub(crate) fn set<'a>(&self, reader: &(impl ToString + ?Sized), frontiers: impl IntoIterator<Item = &'a Frontier>) {
        let mut needed: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for (table, snapshot) in frontiers.into_iter().flat_map(|frontier| &frontier.0) {
            needed.entry(table.clone()).or_default().extend(snapshot);
        }
        let mut by_reader = self.by_reader.write().expect("a thread that held the reads panicked");
        by_reader.insert(reader.to_string(), needed);
    }

    /// Says that a dynamic table is gone and needs nothing.
    pub(crate) fn forget(&self, reader: &TableName) {
        let mut by_reader = self.by_reader.write().expect("a thread that held the reads panicked");
        by_reader.remove(&reader.to_string());
    }

    /// Says whether a dynamic table reads a table.
    pub(crate) fn reads(&self, table: &TableName) -> bool {
        let table = table.to_string();
        let by_reader = self.by_reader.read().expect("a thread that held the reads panicked");
        by_reader.values().any(|needed| needed.contains_key(&table))
    }

    /// Lists the snapshots of a table that somebody needs.
    pub(crate) fn of(&self, table: &TableName) -> BTreeSet<i64> {
        let table = table.to_string();
        let by_reader = self.by_reader.read().expect("a thread that held the reads panicked");
        let needed = by_reader.values().filter_map(|needed| needed.get(&table));
        needed.flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_what_any_reader_needs() {
        let reads = Reads::default();
        let name = |name: &str| TableName::new("n", name);
        let frontier = |id| Frontier(BTreeMap::from([("n.a".to_owned(), Some(id)), ("n.b".to_owned(), None)]));
        reads.set(&name("p"), [&frontier(1), &frontier(2)]);
        reads.set(&name("q"), [&frontier(3)]);
        assert_eq!(reads.of(&name("a")), BTreeSet::from([1, 2, 3]));
        assert_eq!(reads.of(&name("b")), BTreeSet::new());
        reads.set(&name("p"), [&frontier(2)]);
        assert_eq!(reads.of(&name("a")), BTreeSet::from([2, 3]));
        reads.forget(&name("q"));
        assert_eq!(reads.of(&name("a")), BTreeSet::from([2]));
    }
}
