//! The same states, one for each group of a GROUP BY.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::ExactAggregate;
use super::state::{State, for_each_value, states};

/// Is how many bytes a state is taken to hold beside itself, where that is not counted.
const HEAP_BYTES_ASSUMED: usize = 48;

/// Holds the states of all groups.
#[derive(Debug)]
pub(super) struct ExactGroups {
    aggregate: ExactAggregate,
    empty: State,
    distinct_bytes: usize,
    groups: Vec<State>,
}

impl ExactGroups {
    pub(super) fn new(aggregate: ExactAggregate, distinct: bool) -> Self {
        let empty = State::new(&aggregate, distinct, false);
        ExactGroups {
            aggregate,
            empty,
            distinct_bytes: 0,
            groups: Vec::new(),
        }
    }
}

fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for ExactGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let [values] = values else {
            return internal_err!("an exact aggregate takes one argument");
        };
        self.groups.resize(total_num_groups, self.empty.clone());
        if matches!(self.empty, State::Values { .. }) {
            self.distinct_bytes += values.len() * 40;
        }
        let groups = &mut self.groups;
        for_each_value(values, |row, value| {
            if passes(opt_filter, row) {
                groups[group_indices[row]].add(value, 1);
            }
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        if groups.is_empty() {
            return Ok(arrow_array::new_empty_array(&self.aggregate.result));
        }
        let results = groups.iter().map(|state| state.evaluate(&self.aggregate));
        ScalarValue::iter_to_array(results.collect::<Result<Vec<_>>>()?)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.groups);
        let encoded = groups.iter().map(|state| {
            let mut bytes = Vec::new();
            state.encode(&mut bytes);
            bytes
        });
        Ok(vec![Arc::new(BinaryArray::from_iter_values(encoded))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let column = states(values)?;
        self.groups.resize(total_num_groups, self.empty.clone());
        for (row, group) in group_indices.iter().enumerate() {
            if column.is_valid(row) && passes(opt_filter, row) {
                if matches!(self.empty, State::Values { .. }) {
                    self.distinct_bytes += column.value(row).len() * 2;
                }
                self.groups[*group].merge(column.value(row))?;
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.groups.capacity() * (size_of::<State>() + HEAP_BYTES_ASSUMED) + self.distinct_bytes
    }
}
