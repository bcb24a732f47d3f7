//! Joins of every kind, by key.
//!
//! Both sides are kept in order of the join key. A step looks only at keys that changed on a side:
//!
//! 1. [`sides::touched`] finds those keys.
//! 2. [`sides::load`] reads the rows of a side where the other side changed, and else only whether
//!    there is one, where that decides.
//! 3. [`pairs::matched`] pairs rows, of which one at least changed: the change of a pair's weight is
//!    the product of the new weights less that of the old. Where a side's rows were not read, the
//!    change is linear in what changed there, so it stands for the whole side.
//! 4. Rows whose partners came or went give the change of outer, semi and anti joins.
//!
//! A key that holds NULL meets nothing, unless the plan says that NULL meets NULL; such rows are not
//! kept, because they never change what others give.

mod not_in;
mod pairs;
mod sides;

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use flow_core::changes::ChangeBatch;

pub(super) use not_in::NotIn;
use sides::Side;

use super::KEYS_AT_ONCE;
use super::access::Access;
use super::arrangement::{Arranged, Arrangement};
use super::faults::too_many;
use super::rows;

/// Says what a join gives. The sides of a plan's right joins are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and left rows without partner.
    Left,
    /// Pairs, and rows of both sides without partner.
    Full,
    /// Left rows with a partner.
    Semi,
    /// Left rows without one.
    Anti,
    /// Left rows, and whether they have a partner.
    Mark,
}

impl JoinKind {
    /// Says whether pairs are given.
    fn pairs(self) -> bool {
        matches!(self, JoinKind::Inner | JoinKind::Left | JoinKind::Full)
    }

    /// Says whether it matters if a left row has a partner.
    fn left_status(self) -> bool {
        self != JoinKind::Inner
    }

    /// Says whether it matters if a right row has one.
    fn right_status(self) -> bool {
        self == JoinKind::Full
    }
}

/// Is a join's layout and condition.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) kind: JoinKind,
    pub(super) left: Arrangement,
    pub(super) right: Arrangement,
    /// Says that NULL meets NULL.
    pub(super) null_equal: bool,
    /// Is what pairs must fulfil beside the key, over left and right columns.
    pub(super) residual: Option<Arc<dyn PhysicalExpr>>,
    /// Holds left and right columns.
    pub(super) both: SchemaRef,
    /// Is what the plan's join gives.
    pub(super) schema: SchemaRef,
    /// Says that the plan's right side stands left here.
    pub(super) exchanged: bool,
}

/// Is rows of one or both sides with the changes of their weights.
#[derive(Default)]
struct Found {
    /// Holds pairs.
    pairs: (Vec<u32>, Vec<u32>, Vec<i64>),
    /// Holds left rows that have partners.
    with: (Vec<u32>, Vec<i64>),
    /// Holds left rows that have none.
    without: (Vec<u32>, Vec<i64>),
    /// Holds right rows that have none.
    right_without: (Vec<u32>, Vec<i64>),
}

impl Join {
    /// Says whether both sides are read whole when the other changes.
    pub(super) fn has_no_key(&self) -> bool {
        self.left.is_keyless()
    }

    /// Computes the change of the join from the changes of its sides.
    pub(super) fn step(&self, left: &ChangeBatch, right: &ChangeBatch, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let (left, right) = (self.left.arrange(left)?, self.right.arrange(right)?);
        let meets = |arranged: &Arranged| arranged.only(|at| self.null_equal || !arranged.null_key[at]);
        let (met_left, met_right) = (meets(&left)?, meets(&right)?);
        let mut parts = vec![self.step_met(&met_left, &met_right, access)?];
        if !self.null_equal {
            let alone = left.only(|at| left.null_key[at])?;
            parts.push(self.left_without_partner(&alone.rows, alone.weights)?);
            if self.kind.right_status() {
                let alone = right.only(|at| right.null_key[at])?;
                parts.push(self.right_without_partner(&alone.rows, alone.weights)?);
            }
        }
        let out = rows::concat(&self.schema, &parts)?;
        access.grow(out.rows.get_array_memory_size())?;
        Ok(out)
    }

    /// Computes the change of rows whose keys can meet, and writes both sides' state.
    fn step_met(&self, left: &Arranged, right: &Arranged, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let keys = sides::touched(left, right);
        if keys.len() <= KEYS_AT_ONCE {
            return self.step_keys(keys, left, right, access);
        }
        let mut parts = Vec::with_capacity(keys.len().div_ceil(KEYS_AT_ONCE));
        for part in keys.chunks(KEYS_AT_ONCE) {
            let left = left.take(part.iter().flat_map(|key| key.left.rows.iter().copied()).collect())?;
            let right = right.take(part.iter().flat_map(|key| key.right.rows.iter().copied()).collect())?;
            let change = self.step_keys(sides::touched(&left, &right), &left, &right, access)?;
            access.settle(change.rows.get_array_memory_size())?;
            parts.push(change);
        }
        rows::concat(&self.schema, &parts)
    }

    /// Computes the change of some keys' rows, and writes both sides' state.
    fn step_keys(
        &self,
        mut keys: Vec<sides::Key>,
        left: &Arranged,
        right: &Arranged,
        access: &mut Access<'_>,
    ) -> Result<ChangeBatch> {
        let (left_side, right_side) = sides::load(self, &mut keys, left, right, access)?;
        let found = pairs::matched(self, &keys, &left_side, &right_side, access)?;
        self.left.write(left, |at| left_side.known(at), access)?;
        self.right.write(right, |at| right_side.known(at), access)?;
        let parts = self.give(&left_side, &right_side, found)?;
        rows::concat(&self.schema, &parts)
    }

    fn give(&self, left: &Side, right: &Side, found: Found) -> Result<Vec<ChangeBatch>> {
        let mut parts = Vec::new();
        if self.kind.pairs() {
            let (l, r, weights) = found.pairs;
            let (l, r) = (rows::take(&left.rows, l)?, rows::take(&right.rows, r)?);
            let rows = self.columns(l.columns().to_vec(), r.columns().to_vec(), weights.len())?;
            parts.push(ChangeBatch { rows, weights });
        }
        let (at, weights) = found.with;
        match self.kind {
            JoinKind::Semi => {
                let rows = rows::take(&left.rows, at)?;
                let rows = rows::batch(&self.schema, rows.columns().to_vec(), weights.len())?;
                parts.push(ChangeBatch { rows, weights });
            }
            JoinKind::Mark => parts.push(self.marked(&rows::take(&left.rows, at)?, weights, true)?),
            _ => {}
        }
        let (at, weights) = found.without;
        parts.push(self.left_without_partner(&rows::take(&left.rows, at)?, weights)?);
        if self.kind.right_status() {
            let (at, weights) = found.right_without;
            parts.push(self.right_without_partner(&rows::take(&right.rows, at)?, weights)?);
        }
        Ok(parts)
    }

    /// Is what left rows without partner give.
    fn left_without_partner(&self, left: &RecordBatch, weights: Vec<i64>) -> Result<ChangeBatch> {
        let count = weights.len();
        let rows = match self.kind {
            JoinKind::Inner | JoinKind::Semi => return Ok(rows::none(&self.schema)),
            JoinKind::Anti => rows::batch(&self.schema, left.columns().to_vec(), count)?,
            JoinKind::Mark => return self.marked(left, weights, false),
            JoinKind::Left | JoinKind::Full => {
                self.columns(left.columns().to_vec(), nulls(&self.right.schema, count), count)?
            }
        };
        Ok(ChangeBatch { rows, weights })
    }

    fn right_without_partner(&self, right: &RecordBatch, weights: Vec<i64>) -> Result<ChangeBatch> {
        let count = weights.len();
        let rows = self.columns(nulls(&self.left.schema, count), right.columns().to_vec(), count)?;
        Ok(ChangeBatch { rows, weights })
    }

    fn marked(&self, left: &RecordBatch, weights: Vec<i64>, mark: bool) -> Result<ChangeBatch> {
        let mut columns = left.columns().to_vec();
        columns.push(Arc::new(BooleanArray::from(vec![mark; weights.len()])));
        let rows = rows::batch(&self.schema, columns, weights.len())?;
        Ok(ChangeBatch { rows, weights })
    }

    /// Puts columns of both sides together in the order of the plan's join.
    fn columns(&self, mut left: Vec<ArrayRef>, mut right: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
        if self.exchanged {
            std::mem::swap(&mut left, &mut right);
        }
        left.append(&mut right);
        rows::batch(&self.schema, left, count)
    }
}

fn nulls(schema: &SchemaRef, count: usize) -> Vec<ArrayRef> {
    let fields = schema.fields().iter();
    fields.map(|field| new_null_array(field.data_type(), count)).collect()
}

/// Multiplies weights.
fn times(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or_else(too_many)
}
