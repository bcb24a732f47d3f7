//! What one aggregate keeps of one group.

use arrow_array::{ArrayRef, BooleanArray, Int64Array};
use datafusion::common::{Result, ScalarValue};

use super::super::faults::{damaged, negative, too_many};
use super::{Aggregate, Function, Kind};
use crate::aggregates::State;

/// Is what one aggregate keeps of one group, or what is added to it.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Count(i64),
    Exact(State),
    /// Counts true and false.
    Logical(i64, i64),
    /// Is the first value; unknown in what is added.
    First(Option<Vec<u8>>),
}

/// Is a group, or what is added to it.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) rows: i64,
    pub(super) cells: Vec<Cell>,
}

impl Cell {
    fn empty(kind: &Kind) -> Cell {
        match kind {
            Kind::Count | Kind::CountDistinct => Cell::Count(0),
            Kind::Exact(exact) | Kind::ExactDistinct(exact) => Cell::Exact(State::new(exact, false, false)),
            Kind::Logical { .. } => Cell::Logical(0, 0),
            Kind::First => Cell::First(None),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Cell::Count(count) => out.extend_from_slice(&count.to_le_bytes()),
            Cell::Exact(state) => state.encode(out),
            Cell::Logical(yes, no) => {
                out.extend_from_slice(&yes.to_le_bytes());
                out.extend_from_slice(&no.to_le_bytes());
            }
            Cell::First(first) => out.extend_from_slice(first.as_deref().unwrap_or_default()),
        }
    }

    /// Adds what another cell of the same kind encoded.
    fn merge(&mut self, bytes: &[u8]) -> Option<()> {
        let number = |bytes: &[u8]| Some(i64::from_le_bytes(bytes.try_into().ok()?));
        match self {
            Cell::Count(count) => *count = count.checked_add(number(bytes)?)?,
            Cell::Exact(state) => state.merge(bytes).ok()?,
            Cell::Logical(yes, no) => {
                let (more_yes, more_no) = bytes.split_at_checked(8)?;
                *yes = yes.checked_add(number(more_yes)?)?;
                *no = no.checked_add(number(more_no)?)?;
            }
            // A value is never encoded as no bytes.
            Cell::First(first) => *first = (!bytes.is_empty()).then(|| bytes.to_vec()),
        }
        Some(())
    }

    /// Adds another cell of the same kind.
    pub(super) fn add(&mut self, added: &Cell) -> Result<()> {
        match (&mut *self, added) {
            (Cell::Count(count), Cell::Count(more)) => *count = count.checked_add(*more).ok_or_else(too_many)?,
            (Cell::Logical(yes, no), Cell::Logical(more_yes, more_no)) => {
                *yes = yes.checked_add(*more_yes).ok_or_else(too_many)?;
                *no = no.checked_add(*more_no).ok_or_else(too_many)?;
            }
            (Cell::Exact(_), added) => {
                let mut bytes = Vec::new();
                added.encode(&mut bytes);
                self.merge(&bytes).ok_or_else(|| damaged("an aggregate"))?;
            }
            _ => {}
        }
        let below = match self {
            Cell::Count(count) => *count < 0,
            Cell::Logical(yes, no) => *yes < 0 || *no < 0,
            Cell::Exact(_) | Cell::First(_) => false,
        };
        if below { Err(negative()) } else { Ok(()) }
    }

    pub(super) fn heap_size(&self) -> usize {
        match self {
            Cell::Exact(state) => state.heap_size(),
            Cell::First(first) => first.as_ref().map_or(0, Vec::len),
            Cell::Count(_) | Cell::Logical(_, _) => 0,
        }
    }
}

impl Group {
    /// Is a group without rows.
    pub(super) fn empty(aggregate: &Aggregate) -> Group {
        let cells = aggregate.functions.iter();
        Group {
            rows: 0,
            cells: cells.map(|function| Cell::empty(&function.kind)).collect(),
        }
    }

    /// Is the group as bytes: rows, and each cell with its length before it.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.rows.to_le_bytes().to_vec();
        for cell in &self.cells {
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            cell.encode(&mut out);
            let length = (out.len() - at - 4) as u32;
            out[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        out
    }

    /// Reads what [`Group::encode`] wrote.
    pub(super) fn decode(aggregate: &Aggregate, bytes: &[u8]) -> Result<Group> {
        let mut group = Group::empty(aggregate);
        group.read(bytes).ok_or_else(|| damaged("an aggregate"))?;
        Ok(group)
    }

    fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let (rows, mut rest) = bytes.split_first_chunk::<8>()?;
        self.rows = i64::from_le_bytes(*rows);
        for cell in &mut self.cells {
            let (length, tail) = rest.split_first_chunk::<4>()?;
            let (own, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            cell.merge(own)?;
            rest = tail;
        }
        (rest.is_empty() && self.rows > 0).then_some(())
    }
}

impl Function {
    /// Makes the result column of groups.
    pub(super) fn results(&self, cells: &[&Cell]) -> Result<ArrayRef> {
        match &self.kind {
            Kind::First => {
                let none = arrow_array::new_null_array(&self.result, 1);
                let none = self.values.encode(&[none])?;
                let rows = cells.iter().map(|cell| match cell {
                    Cell::First(Some(first)) => first.as_slice(),
                    _ => none.row(0),
                });
                let column = self.values.decode(rows)?;
                column.into_iter().next().ok_or_else(|| damaged("an aggregate"))
            }
            Kind::Count | Kind::CountDistinct => {
                let counts = cells.iter().map(|cell| match cell {
                    Cell::Count(count) => *count,
                    _ => 0,
                });
                Ok(std::sync::Arc::new(Int64Array::from_iter_values(counts)))
            }
            Kind::Logical { all } => {
                let results = cells.iter().map(|cell| match cell {
                    Cell::Logical(0, 0) => None,
                    Cell::Logical(yes, no) => Some(if *all { *no == 0 } else { *yes > 0 }),
                    _ => None,
                });
                Ok(std::sync::Arc::new(BooleanArray::from_iter(results)))
            }
            Kind::Exact(exact) | Kind::ExactDistinct(exact) => {
                let results = cells.iter().map(|cell| match cell {
                    Cell::Exact(state) => state.evaluate(exact),
                    _ => ScalarValue::try_from(&self.result),
                });
                let results = results.collect::<Result<Vec<_>>>()?;
                match results.is_empty() {
                    true => Ok(arrow_array::new_empty_array(&self.result)),
                    false => ScalarValue::iter_to_array(results),
                }
            }
        }
    }
}
