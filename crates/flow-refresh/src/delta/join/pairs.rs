//! Which rows meet, and what that changes.

use arrow_array::RecordBatch;
use datafusion::common::Result;

use super::super::access::Access;
use super::super::faults::too_many;
use super::super::{linear, rows};
use super::sides::{Half, Key, Side};
use super::{Found, Join, times};

/// Is how many pairs are tested at once.
const PAIRS_MAX: usize = 1 << 15;

/// Is what one pair takes.
const PAIR_BYTES: usize = 16;

/// Collects pairs, and counts the partners of each row.
struct Meeting<'a> {
    join: &'a Join,
    left: &'a Side,
    right: &'a Side,
    open: (Vec<u32>, Vec<u32>),
    pairs: (Vec<u32>, Vec<u32>, Vec<i64>),
    /// Holds of each row the weight of its partners, before and after.
    left_partners: Vec<(i64, i64)>,
    right_partners: Vec<(i64, i64)>,
}

/// Finds what changes: pairs, and rows that have partners or have none.
pub(super) fn matched(join: &Join, keys: &[Key], left: &Side, right: &Side, access: &Access<'_>) -> Result<Found> {
    let filtered = join.residual.is_some();
    let mut meeting = Meeting {
        join,
        left,
        right,
        open: Default::default(),
        pairs: Default::default(),
        left_partners: vec![(0, 0); if filtered { left.weights.len() } else { 0 }],
        right_partners: vec![(0, 0); if filtered { right.weights.len() } else { 0 }],
    };
    if join.kind.pairs() || filtered {
        for key in keys {
            meeting.key(key, access)?;
        }
        meeting.test(access)?;
    }
    let Meeting {
        pairs,
        left_partners,
        right_partners,
        ..
    } = meeting;
    let mut found = Found {
        pairs,
        ..Found::default()
    };
    for key in keys {
        if join.kind.left_status() {
            status(
                &key.left,
                &key.right,
                left,
                filtered.then_some(&left_partners),
                |at, with, without| {
                    push(&mut found.with, at, with);
                    push(&mut found.without, at, without);
                },
            );
        }
        if join.kind.right_status() {
            status(
                &key.right,
                &key.left,
                right,
                filtered.then_some(&right_partners),
                |at, _, without| push(&mut found.right_without, at, without),
            );
        }
    }
    Ok(found)
}

fn push((rows, weights): &mut (Vec<u32>, Vec<i64>), row: u32, weight: i64) {
    if weight != 0 {
        rows.push(row);
        weights.push(weight);
    }
}

/// Gives for each row of a key how its weight with and without partners changes.
fn status(
    half: &Half,
    other: &Half,
    side: &Side,
    partners: Option<&Vec<(i64, i64)>>,
    mut give: impl FnMut(u32, i64, i64),
) {
    for row in &half.rows {
        let (old, new) = side.weights[*row as usize];
        let (had, has) = match partners {
            Some(partners) => {
                let (had, has) = partners[*row as usize];
                (had > 0, has > 0)
            }
            None => other.present,
        };
        let with = if has { new } else { 0 } - if had { old } else { 0 };
        give(*row, with, new - old - with);
    }
}

impl Meeting<'_> {
    /// Meets the rows of one key.
    fn key(&mut self, key: &Key, access: &Access<'_>) -> Result<()> {
        // Partners are counted over all pairs; else one of a pair must have changed.
        let every = self.join.residual.is_some() && self.join.kind.left_status();
        let (changed_left, changed_right) = (self.left.changed as u32, self.right.changed as u32);
        for left in &key.left.rows {
            for right in &key.right.rows {
                if !every && *left >= changed_left && *right >= changed_right {
                    break;
                }
                self.open.0.push(*left);
                self.open.1.push(*right);
            }
            if self.open.0.len() >= PAIRS_MAX {
                self.test(access)?;
            }
        }
        Ok(())
    }

    /// Takes the open pairs that fulfil the condition.
    fn test(&mut self, access: &Access<'_>) -> Result<()> {
        let (left, right) = std::mem::take(&mut self.open);
        access.grow(left.len() * PAIR_BYTES)?;
        let mask = match &self.join.residual {
            None => None,
            Some(condition) => Some(linear::passes(condition, &self.both(&left, &right)?)?),
        };
        for (at, (l, r)) in left.into_iter().zip(right).enumerate() {
            if mask.as_ref().is_some_and(|mask| !mask.value(at)) {
                continue;
            }
            let (left, right) = (self.left.weights[l as usize], self.right.weights[r as usize]);
            if mask.is_some() {
                count(&mut self.left_partners[l as usize], right)?;
                count(&mut self.right_partners[r as usize], left)?;
            }
            let weight = times(left.1, right.1)?
                .checked_sub(times(left.0, right.0)?)
                .ok_or_else(too_many)?;
            if weight != 0 && self.join.kind.pairs() {
                self.pairs.0.push(l);
                self.pairs.1.push(r);
                self.pairs.2.push(weight);
            }
        }
        Ok(())
    }

    fn both(&self, left: &[u32], right: &[u32]) -> Result<RecordBatch> {
        let mut columns = rows::take(&self.left.rows, left.to_vec())?.columns().to_vec();
        columns.extend_from_slice(rows::take(&self.right.rows, right.to_vec())?.columns());
        rows::batch(&self.join.both, columns, left.len())
    }
}

fn count(partners: &mut (i64, i64), weights: (i64, i64)) -> Result<()> {
    partners.0 = partners.0.checked_add(weights.0).ok_or_else(too_many)?;
    partners.1 = partners.1.checked_add(weights.1).ok_or_else(too_many)?;
    Ok(())
}
