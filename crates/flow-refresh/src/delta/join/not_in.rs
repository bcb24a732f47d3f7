//! NOT IN over a subquery: an anti join that knows of NULL.
//!
//! Over nothing, NOT IN is true of every row, NULL too. If a NULL is among the values, it is true of
//! no row. Else it is true of rows whose value is not NULL and not among them. While the case stays,
//! the change is that of an anti join; when it becomes another, all rows are looked at again.
//!
//! Beside both sides' rows, the number of values and of NULL among them is kept, in part 2.

use datafusion::common::Result;
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;

use super::super::access::Access;
use super::super::arrangement::Arranged;
use super::super::faults::{damaged, negative, store, too_many};
use super::super::rows;
use super::Join;

/// Is an anti join that knows of NULL; its join drops no row whose key is NULL.
#[derive(Debug)]
pub(in super::super) struct NotIn {
    pub(in super::super) join: Join,
    pub(in super::super) counts_key: [u8; 3],
}

/// Counts the values on the right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Counts {
    all: i64,
    null: i64,
}

/// Says of which rows NOT IN is true.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Every,
    None,
    Others,
}

impl Counts {
    fn case(self) -> Case {
        match self {
            Counts { all: 0, .. } => Case::Every,
            Counts { null: 0, .. } => Case::Others,
            _ => Case::None,
        }
    }

    fn add(&mut self, weight: i64, null: bool) -> Result<()> {
        self.all = self.all.checked_add(weight).ok_or_else(too_many)?;
        if null {
            self.null = self.null.checked_add(weight).ok_or_else(too_many)?;
        }
        Ok(())
    }

    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.all.to_le_bytes());
        bytes[8..].copy_from_slice(&self.null.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Counts> {
        let (all, null) = bytes.split_first_chunk::<8>()?;
        let null: [u8; 8] = null.try_into().ok()?;
        Some(Counts {
            all: i64::from_le_bytes(*all),
            null: i64::from_le_bytes(null),
        })
    }
}

impl NotIn {
    /// Computes the change from the changes of both sides.
    pub(in super::super) fn step(
        &self,
        left: &ChangeBatch,
        right: &ChangeBatch,
        access: &mut Access<'_>,
    ) -> Result<ChangeBatch> {
        let (left, right) = (self.join.left.arrange(left)?, self.join.right.arrange(right)?);
        let (old, new) = self.count(&right, access)?;
        let given = match (old.case(), new.case()) {
            (Case::Others, Case::Others) => return self.others(&left, &right, access),
            (Case::Every, Case::Every) => left.changes(),
            (Case::None, Case::None) => rows::none(&self.join.left.schema),
            (old, new) => self.again(&left, &right, (old, new), access)?,
        };
        self.join.left.write(&left, |_| None, access)?;
        self.join.right.write(&right, |_| None, access)?;
        let rows = rows::batch(&self.join.schema, given.rows.columns().to_vec(), given.weights.len())?;
        Ok(ChangeBatch {
            rows,
            weights: given.weights,
        })
    }

    /// Counts the values before and after.
    fn count(&self, right: &Arranged, access: &mut Access<'_>) -> Result<(Counts, Counts)> {
        let read = access.get(&[&self.counts_key])?.pop().flatten();
        let old = match read {
            None => Counts::default(),
            Some(bytes) => Counts::decode(&bytes).ok_or_else(|| damaged("NOT IN"))?,
        };
        let mut new = old;
        for (weight, null) in right.weights.iter().zip(&right.null_key) {
            new.add(*weight, *null)?;
        }
        match new {
            Counts { all, null } if all < 0 || null < 0 => return Err(negative()),
            new if new == old => {}
            Counts { all: 0, .. } => access.remove(&self.counts_key)?,
            new => access.put(&self.counts_key, new.encode().to_vec())?,
        }
        Ok((old, new))
    }

    /// Computes the change while the values are some and none of them is NULL.
    fn others(&self, left: &Arranged, right: &Arranged, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let alone = left.only(|at| left.null_key[at])?;
        self.join.left.write(&alone, |_| None, access)?;
        let alone = right.only(|at| right.null_key[at])?;
        self.join.right.write(&alone, |_| None, access)?;
        let left = left.only(|at| !left.null_key[at])?;
        let right = right.only(|at| !right.null_key[at])?;
        self.join.step_met(&left, &right, access)
    }

    /// Looks at all rows, under the old case and under the new one.
    fn again(
        &self,
        left: &Arranged,
        right: &Arranged,
        (old, new): (Case, Case),
        access: &mut Access<'_>,
    ) -> Result<ChangeBatch> {
        let all_left = self.join.left.load(&[self.join.left.head()], access)?;
        let all_right = self.join.right.load(&[self.join.right.head()], access)?;
        let was = ChangeBatch {
            rows: self.join.left.decode(&all_left.entries)?,
            weights: all_left.weights,
        };
        let before = ChangeBatch {
            rows: self.join.right.decode(&all_right.entries)?,
            weights: all_right.weights,
        };
        access.grow(was.rows.get_array_memory_size() + before.rows.get_array_memory_size())?;
        let is = rows::concat(&self.join.left.schema, &[was.clone(), left.changes()])?;
        let after = rows::concat(&self.join.right.schema, &[before.clone(), right.changes()])?;
        let given = self.under(new, is, after)?;
        let mut gone = self.under(old, was, before)?;
        gone.weights.iter_mut().for_each(|weight| *weight = -*weight);
        rows::concat(&self.join.left.schema, &[given, gone])
    }

    /// Is what a whole left side gives over a whole right side.
    fn under(&self, case: Case, left: ChangeBatch, right: ChangeBatch) -> Result<ChangeBatch> {
        match case {
            Case::Every => return Ok(left),
            Case::None => return Ok(rows::none(&self.join.left.schema)),
            Case::Others => {}
        }
        let left = self.join.left.arrange(&left)?;
        let right = self.join.right.arrange(&right)?;
        let values = (0..right.weights.len()).map(|at| right.entries.key(at));
        let values: std::collections::HashSet<&[u8]> = values.collect();
        let kept = left.only(|at| !left.null_key[at] && !values.contains(left.entries.key(at)))?;
        Ok(kept.changes())
    }

    /// Adds rows of the right side to counts that are built.
    pub(in super::super) fn fill_counts(&self, counts: &mut Counts, rows: &arrow_array::RecordBatch) -> Result<()> {
        let arranged = self.join.right.arrange(&ChangeBatch::of(rows.clone(), 1))?;
        let mut values = arranged.weights.iter().zip(&arranged.null_key);
        values.try_for_each(|(weight, null)| counts.add(*weight, *null))
    }

    /// Writes counts that are built.
    pub(in super::super) fn put_counts(&self, counts: Counts, builder: &mut dyn StateBuilder) -> Result<()> {
        match counts.all {
            0 => Ok(()),
            _ => builder.put(&self.counts_key, &counts.encode()).map_err(store),
        }
    }
}
