//! SUM, AVG, VAR, STDDEV, and MIN and MAX of floats, so that order never shows and nothing wraps.
//!
//! They take the engine's names and result types, and stand in for its own functions after types
//! have been resolved. Integers and decimals add in wide integers and are checked once, at the end;
//! floats add in [`crate::exact`].

mod groups;
mod state;

use std::any::Any;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};

use groups::ExactGroups;
use state::states;
pub(crate) use state::{State, for_each_value};

/// Begins the names under which the engine knows the exact aggregates.
const NAME_PREFIX: &str = "exact_";

/// Names what is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Sum,
    Mean,
    Variance { population: bool },
    Deviation { population: bool },
    Least,
    Greatest,
}

/// Is one aggregate over one argument type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExactAggregate {
    name: String,
    kind: Kind,
    argument: DataType,
    result: DataType,
    signature: Signature,
}

/// Is the exact stand-in for an aggregate of the engine; `None` where the engine's own is exact.
///
/// The engine's MIN and MAX are exact but for floats, and but for frames that move: there they keep
/// a value that has left the frame when only NULL is in it.
pub(crate) fn replacement(
    name: &str,
    argument: &DataType,
    result: &DataType,
    moving: bool,
) -> Option<Arc<AggregateUDF>> {
    let float = matches!(argument, DataType::Float32 | DataType::Float64);
    let number = argument.is_integer() || float || matches!(argument, DataType::Decimal128(_, _));
    let ordered = number
        || matches!(
            argument,
            DataType::Date32 | DataType::Time64(TimeUnit::Microsecond) | DataType::Timestamp(TimeUnit::Microsecond, _)
        );
    let kind = match name {
        "sum" if number => Kind::Sum,
        "avg" | "mean" if number => Kind::Mean,
        "var" | "var_samp" if number => Kind::Variance { population: false },
        "var_pop" if number => Kind::Variance { population: true },
        "stddev" | "stddev_samp" if number => Kind::Deviation { population: false },
        "stddev_pop" if number => Kind::Deviation { population: true },
        "min" if float || (moving && ordered) => Kind::Least,
        "max" if float || (moving && ordered) => Kind::Greatest,
        _ => return None,
    };
    Some(Arc::new(AggregateUDF::from(ExactAggregate {
        name: format!("{NAME_PREFIX}{name}"),
        kind,
        argument: argument.clone(),
        result: result.clone(),
        signature: Signature::user_defined(Volatility::Immutable),
    })))
}

impl ExactAggregate {
    /// Is the name in SQL.
    fn called(&self) -> &str {
        self.name.strip_prefix(NAME_PREFIX).unwrap_or(&self.name)
    }

    /// Finds the exact aggregate behind a function of the engine.
    pub(crate) fn of(function: &AggregateUDF) -> Option<&ExactAggregate> {
        function.inner().as_any().downcast_ref()
    }

    /// Says whether it is MIN or MAX, and whether it is MAX.
    pub(crate) fn extreme(&self) -> Option<bool> {
        match self.kind {
            Kind::Least => Some(false),
            Kind::Greatest => Some(true),
            _ => None,
        }
    }
}

impl AggregateUDFImpl for ExactAggregate {
    fn as_any(&self) -> &dyn Any {
        self
    }

    /// Is not the engine's own name: it has a rewrite that takes SUM for what adds up in parts.
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [argument] if *argument == self.argument => Ok(arguments.to_vec()),
            _ => internal_err!("{} was resolved for {}", self.called(), self.argument),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.result.clone())
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let state = State::new(self, arguments.is_distinct, false);
        let aggregate = self.clone();
        Ok(Box::new(ExactAccumulator { aggregate, state }))
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let state = State::new(self, arguments.is_distinct, true);
        let aggregate = self.clone();
        Ok(Box::new(ExactAccumulator { aggregate, state }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let name = format_state_name(arguments.name, "exact");
        Ok(vec![Arc::new(Field::new(name, DataType::Binary, true))])
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ExactGroups::new(self.clone(), arguments.is_distinct)))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

#[derive(Debug)]
struct ExactAccumulator {
    aggregate: ExactAggregate,
    state: State,
}

impl ExactAccumulator {
    fn step(&mut self, values: &[ArrayRef], take_back: bool) -> Result<()> {
        let [values] = values else {
            return internal_err!("{} takes one argument", self.aggregate.called());
        };
        let weight = if take_back { -1 } else { 1 };
        for_each_value(values, |_, value| self.state.add(value, weight))
    }
}

impl Accumulator for ExactAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.step(values, false)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.step(values, true)
    }

    fn supports_retract_batch(&self) -> bool {
        self.state.takes_back()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.state.evaluate(&self.aggregate)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state.heap_size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut bytes = Vec::new();
        self.state.encode(&mut bytes);
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let column = states(values)?;
        for row in 0..column.len() {
            if column.is_valid(row) {
                self.state.merge(column.value(row))?;
            }
        }
        Ok(())
    }
}
