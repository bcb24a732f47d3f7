//! Folds rows into what they add to their groups.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::DataType;
use datafusion::common::Result;
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;

use super::super::arrangement::evaluate;
use super::super::faults::{damaged, store, too_many};
use super::super::linear::passes;
use super::cells::{Cell, Group};
use super::{Aggregate, Function, Kind};
use crate::aggregates::for_each_value;
use crate::exactness::float_key;

/// Is what a group, or a value, takes beside its bytes.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// Is what rows add to their groups.
#[derive(Debug, Default)]
pub(in super::super) struct Gathered {
    places: HashMap<Vec<u8>, usize>,
    pub(super) groups: Vec<(Vec<u8>, Group)>,
    /// Holds, for each aggregate that keeps values, what is added to their weights, and their group.
    pub(super) values: Vec<HashMap<Vec<u8>, (usize, i64)>>,
    /// Counts the bytes held.
    pub(in super::super) bytes: usize,
    /// Says that the values of MIN and MAX are kept elsewhere: only the first one is noted.
    building: bool,
}

/// Chooses groups by their hash: those whose hash ends in `share`, of 2^`bits` shares.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Share {
    pub(in super::super) bits: u32,
    pub(in super::super) share: u64,
}

impl Share {
    fn holds(self, key: &[u8]) -> bool {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        hash & ((1 << self.bits) - 1) == self.share
    }
}

impl Gathered {
    /// Is nothing yet, and will not hold the values of MIN and MAX.
    pub(in super::super) fn without_firsts() -> Gathered {
        Gathered {
            building: true,
            ..Gathered::default()
        }
    }

    /// Counts the groups.
    pub(in super::super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Finds a group, or makes it.
    pub(super) fn group(&mut self, aggregate: &Aggregate, key: &[u8]) -> usize {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.groups.len();
        let group = Group::empty(aggregate);
        let cells: usize = group
            .cells
            .iter()
            .map(|cell| size_of::<Cell>() + cell.heap_size())
            .sum();
        self.bytes += 2 * key.len() + cells + ENTRY_OVERHEAD_BYTES;
        self.places.insert(key.to_vec(), place);
        self.groups.push((key.to_vec(), group));
        place
    }
}

impl Aggregate {
    /// Folds rows into what they add to their groups, or to those of a share.
    pub(in super::super) fn gather(
        &self,
        changes: &ChangeBatch,
        share: Option<Share>,
        gathered: &mut Gathered,
    ) -> Result<()> {
        gathered.values.resize_with(self.functions.len(), HashMap::new);
        let keys = evaluate(&self.keys, &changes.rows)?;
        let mut arguments = Vec::with_capacity(self.functions.len());
        for function in &self.functions {
            arguments.push(function.inputs(&changes.rows)?);
        }
        let bytes = self.key.encode(&keys)?;
        let mut places = Vec::with_capacity(changes.weights.len());
        for (row, weight) in changes.weights.iter().enumerate() {
            let key = bytes.row(row);
            places.push(match share.is_none_or(|share| share.holds(key)) {
                false => None,
                true => {
                    let place = gathered.group(self, key);
                    let rows = &mut gathered.groups[place].1.rows;
                    *rows = rows.checked_add(*weight).ok_or_else(too_many)?;
                    Some(place)
                }
            });
        }
        for (at, inputs) in arguments.iter().enumerate() {
            self.fold(at, inputs, &places, &changes.weights, gathered)?;
        }
        Ok(())
    }

    fn fold(
        &self,
        at: usize,
        inputs: &Inputs,
        places: &[Option<usize>],
        weights: &[i64],
        gathered: &mut Gathered,
    ) -> Result<()> {
        let function = &self.functions[at];
        let counts = |row: usize| places[row].filter(|_| inputs.counts(row));
        match &function.kind {
            Kind::Count => {
                for (row, weight) in weights.iter().enumerate() {
                    if let Some(place) = counts(row)
                        && let Cell::Count(count) = &mut gathered.groups[place].1.cells[at]
                    {
                        *count = count.checked_add(*weight).ok_or_else(too_many)?;
                    }
                }
            }
            Kind::Exact(_) => {
                let groups = &mut gathered.groups;
                for_each_value(inputs.first()?, |row, value| {
                    if let Some(place) = counts(row)
                        && let Cell::Exact(state) = &mut groups[place].1.cells[at]
                    {
                        state.add(value, weights[row]);
                    }
                })?;
            }
            Kind::Logical { .. } => {
                let values = inputs.first()?.as_boolean();
                for (row, weight) in weights.iter().enumerate() {
                    if let Some(place) = counts(row)
                        && let Cell::Logical(yes, no) = &mut gathered.groups[place].1.cells[at]
                    {
                        *(if values.value(row) { yes } else { no }) += weight;
                    }
                }
            }
            Kind::First if gathered.building => {
                let bytes = function.values.encode(std::slice::from_ref(inputs.first()?))?;
                for row in 0..weights.len() {
                    if let Some(place) = counts(row)
                        && let Cell::First(first) = &mut gathered.groups[place].1.cells[at]
                        && first.as_deref().is_none_or(|first| bytes.row(row) < first)
                    {
                        *first = Some(bytes.row(row).to_vec());
                    }
                }
            }
            Kind::First | Kind::CountDistinct | Kind::ExactDistinct(_) => {
                let bytes = function.values.encode(std::slice::from_ref(inputs.first()?))?;
                for (row, weight) in weights.iter().enumerate() {
                    if let Some(place) = counts(row) {
                        let entry = self.value_key(at, &gathered.groups[place].0, bytes.row(row));
                        let length = entry.len();
                        let values = &mut gathered.values[at];
                        let before = values.len();
                        let sum = &mut values.entry(entry).or_insert((place, 0)).1;
                        *sum = sum.checked_add(*weight).ok_or_else(too_many)?;
                        if values.len() > before {
                            gathered.bytes += length + ENTRY_OVERHEAD_BYTES;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Says whether values of MIN or MAX are kept.
    pub(in super::super) fn has_firsts(&self) -> bool {
        self.functions
            .iter()
            .any(|function| matches!(function.kind, Kind::First))
    }

    /// Writes the values of MIN and MAX of whole rows.
    pub(in super::super) fn fill_firsts(&self, rows: &RecordBatch, builder: &mut dyn StateBuilder) -> Result<()> {
        let keys = evaluate(&self.keys, rows)?;
        let mut encoded = Vec::new();
        for (at, function) in self.functions.iter().enumerate() {
            if let Kind::First = function.kind {
                let inputs = function.inputs(rows)?;
                let values = function.values.encode(std::slice::from_ref(inputs.first()?))?;
                encoded.push((at, inputs, values));
            }
        }
        let key = self.key.encode(&keys)?;
        for (at, inputs, values) in &encoded {
            for row in (0..rows.num_rows()).filter(|row| inputs.counts(*row)) {
                let entry = self.value_key(*at, key.row(row), values.row(row));
                builder.add(&entry, 1).map_err(store)?;
            }
        }
        Ok(())
    }

    /// Makes the state key of a value of an aggregate.
    pub(super) fn value_key(&self, at: usize, key: &[u8], value: &[u8]) -> Vec<u8> {
        let [high, low] = self.node.to_be_bytes();
        [&[high, low, 1 + at as u8], key, value].concat()
    }

    /// Makes the state key of a group.
    pub(super) fn group_key(&self, key: &[u8]) -> Vec<u8> {
        let [high, low] = self.node.to_be_bytes();
        [&[high, low, 0], key].concat()
    }
}

/// Is an aggregate's arguments over a batch, and which rows its FILTER lets through.
struct Inputs {
    columns: Vec<ArrayRef>,
    filter: Option<BooleanArray>,
}

impl Inputs {
    fn counts(&self, row: usize) -> bool {
        let passes = self.filter.as_ref().is_none_or(|filter| filter.value(row));
        passes && self.columns.iter().all(|column| column.is_valid(row))
    }

    fn first(&self) -> Result<&ArrayRef> {
        self.columns.first().ok_or_else(|| damaged("an aggregate"))
    }
}

impl Function {
    fn inputs(&self, rows: &RecordBatch) -> Result<Inputs> {
        let mut columns = evaluate(&self.arguments, rows)?;
        if matches!(self.kind, Kind::First | Kind::ExactDistinct(_)) {
            columns.iter_mut().for_each(|column| *column = comparable(column));
        }
        let filter = self.filter.as_ref().map(|filter| passes(filter, rows)).transpose()?;
        Ok(Inputs { columns, filter })
    }
}

/// Makes floats that are equal the same bits, as the exact aggregates do.
fn comparable(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(float_key)),
        DataType::Float32 => {
            let key = |value: f32| float_key(value.into()) as f32;
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(key))
        }
        _ => column.clone(),
    }
}
