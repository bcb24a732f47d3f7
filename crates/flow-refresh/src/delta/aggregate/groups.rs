//! The touched groups: as they were, as they are, and what that changes.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;

use super::super::access::Access;
use super::super::faults::{damaged, negative, store, too_many};
use super::super::rows;
use super::cells::{Cell, Group};
use super::{Aggregate, Gathered, Kind};
use crate::aggregates::for_each_value;

/// Is a touched group with its key.
struct Touched {
    key: Vec<u8>,
    old: Option<Group>,
    new: Group,
}

/// Is a value of a group: its state key, and its weight before and after.
struct Weighed {
    group: usize,
    entry: Vec<u8>,
    old: i64,
    new: i64,
}

impl Aggregate {
    /// Adds to the groups' state; gives the rows that go and those that come.
    pub(super) fn merge(&self, gathered: Gathered, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let mut touched = self.read(gathered.groups, access)?;
        for (at, values) in gathered.values.into_iter().enumerate() {
            if !values.is_empty() {
                let weighed = self.weigh(values, access)?;
                self.follow(at, weighed, &mut touched, access)?;
            }
        }
        for group in &touched {
            let (key, old) = (self.group_key(&group.key), group.old.as_ref());
            match group.new.rows {
                ..0 => return Err(negative()),
                0 if old.is_some() => access.remove(&key)?,
                0 => {}
                _ => access.put(&key, group.new.encode())?,
            }
        }
        self.rows(&touched, access.beginning)
    }

    /// Reads the groups, and adds the cells that need no values.
    fn read(&self, groups: Vec<(Vec<u8>, Group)>, access: &mut Access<'_>) -> Result<Vec<Touched>> {
        let keys: Vec<Vec<u8>> = groups.iter().map(|(key, _)| self.group_key(key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let read = access.get(&keys)?;
        let pairs = groups.into_iter().zip(read).map(|((key, added), bytes)| {
            let old = bytes.map(|bytes| Group::decode(self, &bytes)).transpose()?;
            let mut new = old.clone().unwrap_or_else(|| Group::empty(self));
            new.rows = new.rows.checked_add(added.rows).ok_or_else(too_many)?;
            for (cell, added) in new.cells.iter_mut().zip(&added.cells) {
                cell.add(added)?;
            }
            Ok(Touched { key, old, new })
        });
        pairs.collect()
    }

    /// Reads the weights of values, and writes them.
    fn weigh(&self, values: HashMap<Vec<u8>, (usize, i64)>, access: &mut Access<'_>) -> Result<Vec<Weighed>> {
        let mut values: Vec<(Vec<u8>, (usize, i64))> =
            values.into_iter().filter(|(_, (_, added))| *added != 0).collect();
        values.sort_unstable();
        let keys: Vec<&[u8]> = values.iter().map(|(entry, _)| entry.as_slice()).collect();
        let olds = access.weights(&keys, "an aggregate")?;
        let weighed = values.into_iter().zip(olds).map(|((entry, (group, added)), old)| {
            let new = access.add(&entry, old, added)?;
            Ok(Weighed { group, entry, old, new })
        });
        weighed.collect()
    }

    /// Brings an aggregate's cells in line with its values, which come in order.
    fn follow(&self, at: usize, weighed: Vec<Weighed>, touched: &mut [Touched], access: &mut Access<'_>) -> Result<()> {
        match self.functions[at].kind {
            Kind::First => self.firsts(at, weighed, touched, access),
            _ => self.distinct(at, &weighed, touched),
        }
    }

    /// Adds values that appeared, and takes back those that went.
    fn distinct(&self, at: usize, weighed: &[Weighed], touched: &mut [Touched]) -> Result<()> {
        let crossed: Vec<&Weighed> = weighed
            .iter()
            .filter(|value| (value.old > 0) != (value.new > 0))
            .collect();
        let step = |value: &Weighed| if value.new > 0 { 1 } else { -1 };
        let function = &self.functions[at];
        if let Kind::CountDistinct = function.kind {
            for value in crossed {
                touched[value.group].new.cells[at].add(&Cell::Count(step(value)))?;
            }
            return Ok(());
        }
        let starts: Vec<usize> = crossed.iter().map(|value| 3 + touched[value.group].key.len()).collect();
        let bytes = crossed.iter().zip(starts).map(|(value, start)| &value.entry[start..]);
        let column = function.values.decode(bytes)?;
        let column = column.first().ok_or_else(|| damaged("an aggregate"))?;
        for_each_value(column, |row, value| {
            let place = crossed[row].group;
            if let Cell::Exact(state) = &mut touched[place].new.cells[at] {
                state.add(value, step(crossed[row]));
            }
        })
    }

    /// Finds the first values: where the first one went, the state tells the next.
    fn firsts(&self, at: usize, weighed: Vec<Weighed>, touched: &mut [Touched], access: &mut Access<'_>) -> Result<()> {
        let mut by_group: BTreeMap<usize, Vec<Weighed>> = BTreeMap::new();
        for value in weighed {
            by_group.entry(value.group).or_default().push(value);
        }
        let mut searched: Vec<(Vec<u8>, usize)> = Vec::new();
        for (group, values) in &by_group {
            let Touched { key, new, .. } = &mut touched[*group];
            let start = 3 + key.len();
            let least = values.iter().find(|value| value.new > 0);
            let least = least.map(|value| value.entry[start..].to_vec());
            let Cell::First(first) = &mut new.cells[at] else {
                continue;
            };
            let gone = |first: &Vec<u8>| {
                values
                    .iter()
                    .any(|value| value.new == 0 && value.entry[start..] == **first)
            };
            if first.as_ref().is_some_and(gone) {
                searched.push((self.value_key(at, key, &[]), *group));
                *first = least;
            } else {
                *first = match (first.take(), least) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        searched.sort_unstable();
        let prefixes: Vec<&[u8]> = searched.iter().map(|(prefix, _)| prefix.as_slice()).collect();
        let removed: std::collections::HashSet<&[u8]> = by_group
            .values()
            .flatten()
            .filter(|value| value.new == 0)
            .map(|value| value.entry.as_slice())
            .collect();
        access.scan(&prefixes, |prefix, entry, _| {
            if removed.contains(entry) {
                return Ok(ControlFlow::Continue(()));
            }
            let value = entry[prefixes[prefix].len()..].to_vec();
            if let Cell::First(first) = &mut touched[searched[prefix].1].new.cells[at] {
                *first = Some(first.take().map_or(value.clone(), |least| least.min(value)));
            }
            Ok(ControlFlow::Break(()))
        })
    }

    /// Gives the old rows of groups as going and the new ones as coming.
    fn rows(&self, touched: &[Touched], beginning: bool) -> Result<ChangeBatch> {
        let empty = Group::empty(self);
        let global = self.is_global();
        let mut keys = Vec::new();
        let mut groups = Vec::new();
        let mut weights = Vec::new();
        for group in touched {
            let is = (group.new.rows > 0 || global).then_some(&group.new);
            let was = match &group.old {
                None if global && !beginning => Some(&empty),
                old => old.as_ref(),
            };
            for (one, weight) in [(was, -1), (is, 1)] {
                if let Some(one) = one {
                    keys.push(group.key.as_slice());
                    groups.push(one);
                    weights.push(weight);
                }
            }
        }
        let rows = self.batch(&keys, &groups)?;
        // Groups whose row stayed as it was cancel.
        rows::consolidate(&rows::RowCodec::of(&self.schema)?, ChangeBatch { rows, weights })
    }

    fn batch(&self, keys: &[&[u8]], groups: &[&Group]) -> Result<RecordBatch> {
        let mut columns = self.key.decode(keys.iter().copied())?;
        for (at, function) in self.functions.iter().enumerate() {
            let cells: Vec<&Cell> = groups.iter().map(|group| &group.cells[at]).collect();
            columns.push(function.results(&cells)?);
        }
        rows::batch(&self.schema, columns, groups.len())
    }

    /// Writes groups and values that are built from nothing.
    pub(super) fn put_all(&self, gathered: Gathered, builder: &mut dyn StateBuilder) -> Result<()> {
        let mut touched: Vec<Touched> = gathered
            .groups
            .into_iter()
            .map(|(key, new)| Touched { key, old: None, new })
            .collect();
        for (at, values) in gathered.values.into_iter().enumerate() {
            let mut weighed: Vec<Weighed> = Vec::with_capacity(values.len());
            for (entry, (group, new)) in values {
                builder.add(&entry, new).map_err(store)?;
                weighed.push(Weighed {
                    group,
                    entry,
                    old: 0,
                    new,
                });
            }
            if !weighed.is_empty() {
                self.distinct(at, &weighed, &mut touched)?;
            }
        }
        for group in touched.iter().filter(|group| group.new.rows > 0) {
            let key = self.group_key(&group.key);
            builder.put(&key, &group.new.encode()).map_err(store)?;
        }
        Ok(())
    }
}
