//! What a step of a join reads: rows of a side, or only whether there is one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;

use super::super::access::Access;
use super::super::arrangement::{Arranged, Arrangement};
use super::super::rows;
use super::{Join, JoinKind};

/// Is a key that changed on a side.
#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) bytes: Vec<u8>,
    pub(super) left: Half,
    pub(super) right: Half,
}

/// Is what is known of one side of a key.
#[derive(Debug, Default)]
pub(super) struct Half {
    /// Holds numbers of the side's rows, those that changed first.
    pub(super) rows: Vec<u32>,
    /// Says whether the rows that did not change are among them.
    pub(super) loaded: bool,
    /// Says whether the side had a row, and has one.
    pub(super) present: (bool, bool),
    changed: bool,
}

/// Is rows of one side: those that changed, and then those that were read.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) rows: RecordBatch,
    /// Holds old and new weights. Of a row whose key was not loaded, the old one stands for 0.
    pub(super) weights: Vec<(i64, i64)>,
    pub(super) changed: usize,
    real: Vec<bool>,
}

impl Side {
    /// Is the old weight of a row that changed, if it was read.
    pub(super) fn known(&self, at: usize) -> Option<i64> {
        self.real[at].then(|| self.weights[at].0)
    }
}

/// Finds the keys that changed on a side, in order.
pub(super) fn touched(left: &Arranged, right: &Arranged) -> Vec<Key> {
    let mut keys: BTreeMap<&[u8], Key> = BTreeMap::new();
    for at in 0..left.weights.len() {
        let half = &mut keys.entry(left.entries.key(at)).or_default().left;
        half.rows.push(at as u32);
        half.changed = true;
    }
    for at in 0..right.weights.len() {
        let half = &mut keys.entry(right.entries.key(at)).or_default().right;
        half.rows.push(at as u32);
        half.changed = true;
    }
    let named = keys.into_iter().map(|(bytes, mut key)| {
        key.bytes = bytes.to_vec();
        key
    });
    named.collect()
}

/// Chooses a side of a key.
type Choose = for<'k> fn(&'k mut Key) -> &'k mut Half;

/// Reads of both sides what the changed keys need.
pub(super) fn load(
    join: &Join,
    keys: &mut [Key],
    left: &Arranged,
    right: &Arranged,
    access: &mut Access<'_>,
) -> Result<(Side, Side)> {
    let kind = join.kind;
    let each = kind.pairs() || join.residual.is_some();
    let each_left_status = kind.left_status() && join.residual.is_some();
    let each_right_status = kind.right_status() && join.residual.is_some();
    let need_right = |key: &Key| (key.left.changed && each) || (key.right.changed && each_left_status);
    let right_side = side(
        &join.right,
        keys,
        |key| &mut key.right,
        right,
        need_right,
        kind.left_status(),
        access,
    )?;
    let semi = matches!(kind, JoinKind::Semi | JoinKind::Anti | JoinKind::Mark);
    let need_left = |key: &Key| {
        let flipped = semi && key.right.present.0 != key.right.present.1;
        (key.right.changed && (each || flipped)) || (key.left.changed && each_right_status)
    };
    let left_side = side(
        &join.left,
        keys,
        |key| &mut key.left,
        left,
        need_left,
        kind.right_status(),
        access,
    )?;
    Ok((left_side, right_side))
}

fn side(
    arrangement: &Arrangement,
    keys: &mut [Key],
    choose: Choose,
    arranged: &Arranged,
    need: impl Fn(&Key) -> bool,
    presence: bool,
    access: &mut Access<'_>,
) -> Result<Side> {
    let wanted: Vec<usize> = (0..keys.len()).filter(|at| need(&keys[*at])).collect();
    let side = read(arrangement, keys, &wanted, choose, arranged, access)?;
    if presence {
        for at in wanted {
            let half = choose(&mut keys[at]);
            let weights = || half.rows.iter().map(|row| side.weights[*row as usize]);
            half.present = (weights().any(|(old, _)| old > 0), weights().any(|(_, new)| new > 0));
        }
        look(arrangement, keys, choose, arranged, access)?;
    }
    Ok(side)
}

/// Reads all rows of some keys of a side.
fn read(
    arrangement: &Arrangement,
    keys: &mut [Key],
    wanted: &[usize],
    choose: Choose,
    arranged: &Arranged,
    access: &mut Access<'_>,
) -> Result<Side> {
    let prefixes: Vec<Vec<u8>> = wanted.iter().map(|at| arrangement.prefix(&keys[*at].bytes)).collect();
    let slices: Vec<&[u8]> = prefixes.iter().map(Vec::as_slice).collect();
    let loaded = arrangement.load(&slices, access)?;
    let changed = arranged.weights.len();
    let mut weights: Vec<(i64, i64)> = arranged.weights.iter().map(|weight| (0, *weight)).collect();
    let mut real = vec![false; changed];
    for at in wanted {
        let half = choose(&mut keys[*at]);
        half.loaded = true;
        half.rows.iter().for_each(|row| real[*row as usize] = true);
    }
    let places = arranged.places();
    let mut others = super::super::arrangement::Entries::default();
    for (at, weight) in loaded.weights.iter().enumerate() {
        let entry = loaded.entries.entry(at);
        match places.get(entry) {
            Some(row) => weights[*row] = (*weight, weight + arranged.weights[*row]),
            None => {
                let key = &mut keys[wanted[loaded.prefixes[at] as usize]];
                choose(key).rows.push(weights.len() as u32);
                others.push(entry, loaded.entries.prefix(at).len());
                weights.push((*weight, *weight));
            }
        }
    }
    let rows = match others.len() {
        0 => arranged.rows.clone(),
        _ => {
            let others = ChangeBatch::of(arrangement.decode(&others)?, 0);
            rows::concat(&arrangement.schema, &[arranged.changes(), others])?.rows
        }
    };
    access.grow(rows.get_array_memory_size())?;
    Ok(Side {
        rows,
        weights,
        changed,
        real,
    })
}

/// Finds out of keys whose rows were not read whether there was a row, and is one.
fn look(
    arrangement: &Arrangement,
    keys: &mut [Key],
    choose: Choose,
    arranged: &Arranged,
    access: &mut Access<'_>,
) -> Result<()> {
    let open: Vec<usize> = (0..keys.len()).filter(|at| !choose(&mut keys[*at]).loaded).collect();
    let prefixes: Vec<Vec<u8>> = open.iter().map(|at| arrangement.prefix(&keys[*at].bytes)).collect();
    let slices: Vec<&[u8]> = prefixes.iter().map(Vec::as_slice).collect();
    for at in &open {
        let half = choose(&mut keys[*at]);
        // A row that comes is there afterwards, whatever was there before.
        half.present.1 = half.rows.iter().any(|row| arranged.weights[*row as usize] > 0);
    }
    let places = arranged.places();
    access.scan_weights(&slices, "a join", |prefix, entry, weight| {
        let half = choose(&mut keys[open[prefix]]);
        half.present.0 = true;
        let added = places.get(entry).map_or(0, |row| arranged.weights[*row]);
        half.present.1 |= weight + added > 0;
        Ok(match half.present.1 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })
}
