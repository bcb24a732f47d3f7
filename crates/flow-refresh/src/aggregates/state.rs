//! What one group has added up so far.

use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_buffer::i256;
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, internal_err};

use super::{ExactAggregate, Kind};
use crate::exact::{FloatSum, Moments};
use crate::exactness::inexact;

/// Is one argument, as wide as it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Integer(i128),
    Float(f64),
}

impl Value {
    fn float(self) -> f64 {
        match self {
            Value::Integer(value) => value as f64,
            Value::Float(value) => value,
        }
    }

    /// Is a key that sorts as PostgreSQL sorts: both zeros are one, NaN is one and the greatest.
    fn key(self) -> i128 {
        match self {
            Value::Integer(value) => value,
            Value::Float(value) => {
                let bits = crate::exactness::float_key(value).to_bits() as i64;
                i128::from(bits ^ (((bits >> 63) as u64) >> 1) as i64)
            }
        }
    }

    fn from_key(key: i128, float: bool) -> Value {
        if !float {
            return Value::Integer(key);
        }
        let bits = key as i64;
        Value::Float(f64::from_bits((bits ^ (((bits >> 63) as u64) >> 1) as i64) as u64))
    }
}

/// Is what one group has added up so far.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Integer {
        sum: i128,
        count: i64,
    },
    Decimal {
        sum: i256,
        count: i64,
    },
    Float(FloatSum),
    Moments(Box<Moments>),
    Extreme {
        best: Option<Value>,
        greatest: bool,
    },
    /// Holds each value with its count: for DISTINCT, and for MIN and MAX that take rows back.
    Values {
        values: BTreeMap<i128, i64>,
        float: bool,
    },
}

impl State {
    pub(crate) fn new(aggregate: &ExactAggregate, distinct: bool, sliding: bool) -> State {
        let float = aggregate.argument.is_floating();
        let extreme = matches!(aggregate.kind, Kind::Least | Kind::Greatest);
        if (distinct && !extreme) || (sliding && extreme) {
            return State::Values {
                values: BTreeMap::new(),
                float,
            };
        }
        match aggregate.kind {
            Kind::Least | Kind::Greatest => State::Extreme {
                best: None,
                greatest: aggregate.kind == Kind::Greatest,
            },
            Kind::Variance { .. } | Kind::Deviation { .. } => State::Moments(Box::default()),
            Kind::Sum | Kind::Mean if float => State::Float(FloatSum::default()),
            Kind::Sum | Kind::Mean => match aggregate.argument {
                DataType::Decimal128(_, _) => State::Decimal {
                    sum: i256::ZERO,
                    count: 0,
                },
                _ => State::Integer { sum: 0, count: 0 },
            },
        }
    }

    /// Says whether rows can be taken back.
    pub(super) fn takes_back(&self) -> bool {
        !matches!(self, State::Extreme { .. })
    }

    /// Adds a value as many times as its weight says; a negative weight takes it back.
    pub(crate) fn add(&mut self, value: Value, weight: i64) {
        match (self, value) {
            // 2^63 rows of 64 bits fit 127 bits, and of 128 bits fit 192: these sums cannot wrap.
            (State::Integer { sum, count }, Value::Integer(value)) => {
                *count += weight;
                *sum = sum.wrapping_add(value.wrapping_mul(i128::from(weight)));
            }
            (State::Decimal { sum, count }, Value::Integer(value)) => {
                *count += weight;
                let value = i256::from_i128(value);
                *sum = match weight {
                    1 => sum.wrapping_add(value),
                    -1 => sum.wrapping_sub(value),
                    _ => sum.wrapping_add(value.wrapping_mul(i256::from_i128(weight.into()))),
                };
            }
            (State::Float(sum), value) => sum.add(value.float(), weight),
            (State::Moments(moments), value) => moments.add(value.float(), weight),
            (State::Extreme { best, greatest }, value) => {
                let better = |old: Value| {
                    let (old, new) = (old.key(), value.key());
                    if *greatest { new > old } else { new < old }
                };
                if best.is_none_or(better) {
                    *best = Some(Value::from_key(value.key(), matches!(value, Value::Float(_))));
                }
            }
            (State::Values { values, .. }, value) => {
                let count = values.entry(value.key()).or_insert(0);
                *count += weight;
                if *count == 0 {
                    values.remove(&value.key());
                }
            }
            (State::Integer { .. } | State::Decimal { .. }, Value::Float(_)) => {
                unreachable!("an integer state is made for integer arguments")
            }
        }
    }

    /// Is the result.
    pub(crate) fn evaluate(&self, aggregate: &ExactAggregate) -> Result<ScalarValue> {
        let result = &aggregate.result;
        let overflow = || {
            inexact(format!(
                "{} of {} is beyond {result}",
                aggregate.called(),
                aggregate.argument
            ))
        };
        let float = |value: Result<Option<f64>, crate::exact::OutOfRange>| {
            let value = value.map_err(|_| overflow())?;
            float_scalar(value, result)
        };
        match self {
            State::Values { values, float } => self.evaluate_values(aggregate, values, *float),
            State::Extreme { best, .. } => extreme_scalar(*best, result),
            State::Integer { count: 0, .. } | State::Decimal { count: 0, .. } => ScalarValue::try_from(result),
            State::Integer { sum, count } => match aggregate.kind {
                Kind::Mean => float_scalar(Some(*sum as f64 / *count as f64), result),
                _ => integer_scalar(*sum, result).ok_or_else(overflow),
            },
            State::Decimal { sum, count } => decimal_scalar(*sum, *count, aggregate).ok_or_else(overflow),
            State::Float(sum) if sum.count() == 0 => ScalarValue::try_from(result),
            State::Float(sum) if aggregate.kind == Kind::Mean => float(sum.mean()),
            State::Float(sum) => float(sum.sum().map(Some)),
            State::Moments(moments) => match aggregate.kind {
                Kind::Deviation { population } => {
                    float(moments.variance(population).map(|variance| variance.map(f64::sqrt)))
                }
                Kind::Variance { population } => float(moments.variance(population)),
                _ => internal_err!("{} keeps no moments", aggregate.called()),
            },
        }
    }

    fn evaluate_values(
        &self,
        aggregate: &ExactAggregate,
        values: &BTreeMap<i128, i64>,
        float: bool,
    ) -> Result<ScalarValue> {
        let mut state = State::new(aggregate, false, false);
        values.keys().for_each(|key| state.add(Value::from_key(*key, float), 1));
        state.evaluate(aggregate)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            State::Integer { sum, count } => {
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&sum.to_le_bytes());
            }
            State::Decimal { sum, count } => {
                out.extend_from_slice(&count.to_le_bytes());
                out.extend_from_slice(&sum.to_le_bytes());
            }
            State::Float(sum) => sum.encode(out),
            State::Moments(moments) => moments.encode(out),
            State::Extreme { best, .. } => {
                if let Some(best) = best {
                    out.push(u8::from(matches!(best, Value::Float(_))));
                    out.extend_from_slice(&best.key().to_le_bytes());
                }
            }
            State::Values { values, .. } => {
                for (key, count) in values {
                    out.extend_from_slice(&key.to_le_bytes());
                    out.extend_from_slice(&count.to_le_bytes());
                }
            }
        }
    }

    /// Adds what another state of the same kind wrote.
    pub(crate) fn merge(&mut self, mut bytes: &[u8]) -> Result<()> {
        let bytes = &mut bytes;
        self.merge_bytes(bytes)
            .filter(|()| bytes.is_empty())
            .ok_or_else(|| DataFusionError::Internal("state of an aggregate is damaged".to_owned()))
    }

    fn merge_bytes(&mut self, bytes: &mut &[u8]) -> Option<()> {
        match self {
            State::Integer { sum, count } => {
                *count += i64::from_le_bytes(take(bytes)?);
                *sum = sum.wrapping_add(i128::from_le_bytes(take(bytes)?));
            }
            State::Decimal { sum, count } => {
                *count += i64::from_le_bytes(take(bytes)?);
                *sum = sum.wrapping_add(i256::from_le_bytes(take(bytes)?));
            }
            State::Float(sum) => sum.merge(&FloatSum::decode(bytes)?),
            State::Moments(moments) => moments.merge(&Moments::decode(bytes)?),
            State::Extreme { .. } => {
                if !bytes.is_empty() {
                    let [float] = take::<1>(bytes)?;
                    let key = i128::from_le_bytes(take(bytes)?);
                    self.add(Value::from_key(key, float == 1), 1);
                }
            }
            State::Values { values, .. } => {
                while !bytes.is_empty() {
                    let key = i128::from_le_bytes(take(bytes)?);
                    *values.entry(key).or_insert(0) += i64::from_le_bytes(take(bytes)?);
                }
            }
        }
        Some(())
    }

    pub(crate) fn heap_size(&self) -> usize {
        match self {
            State::Integer { .. } | State::Decimal { .. } | State::Extreme { .. } => 0,
            State::Float(sum) => sum.size() - size_of::<FloatSum>(),
            State::Moments(moments) => moments.size(),
            // A B-tree node keeps about two thirds of its slots filled.
            State::Values { values, .. } => values.len() * 40,
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(*head)
}

fn float_scalar(value: Option<f64>, result: &DataType) -> Result<ScalarValue> {
    match result {
        DataType::Float64 => Ok(ScalarValue::Float64(value)),
        // Only MIN and MAX of real give a real, and those are values that came in as real.
        DataType::Float32 => Ok(ScalarValue::Float32(value.map(|value| value as f32))),
        other => internal_err!("an exact float result cannot be {other}"),
    }
}

/// Is a value that came in, in its own type.
fn extreme_scalar(best: Option<Value>, result: &DataType) -> Result<ScalarValue> {
    let value = match best {
        None => return ScalarValue::try_from(result),
        Some(Value::Float(value)) => return float_scalar(Some(value), result),
        Some(Value::Integer(value)) => value,
    };
    let long = value as i64;
    Ok(match result {
        DataType::Int8 => ScalarValue::Int8(Some(value as i8)),
        DataType::Int16 => ScalarValue::Int16(Some(value as i16)),
        DataType::Int32 => ScalarValue::Int32(Some(value as i32)),
        DataType::Int64 => ScalarValue::Int64(Some(long)),
        DataType::UInt8 => ScalarValue::UInt8(Some(value as u8)),
        DataType::UInt16 => ScalarValue::UInt16(Some(value as u16)),
        DataType::UInt32 => ScalarValue::UInt32(Some(value as u32)),
        DataType::UInt64 => ScalarValue::UInt64(Some(value as u64)),
        DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(value), *precision, *scale),
        DataType::Date32 => ScalarValue::Date32(Some(value as i32)),
        DataType::Time64(_) => ScalarValue::Time64Microsecond(Some(long)),
        DataType::Timestamp(_, zone) => ScalarValue::TimestampMicrosecond(Some(long), zone.clone()),
        other => return internal_err!("no least or greatest {other}"),
    })
}

fn integer_scalar(value: i128, result: &DataType) -> Option<ScalarValue> {
    match result {
        DataType::Int64 => Some(ScalarValue::Int64(Some(i64::try_from(value).ok()?))),
        DataType::UInt64 => Some(ScalarValue::UInt64(Some(u64::try_from(value).ok()?))),
        _ => None,
    }
}

/// Is a decimal sum or mean; a mean is rounded half away from zero, as PostgreSQL's `numeric`.
fn decimal_scalar(sum: i256, count: i64, aggregate: &ExactAggregate) -> Option<ScalarValue> {
    let (DataType::Decimal128(_, from), DataType::Decimal128(precision, to)) = (&aggregate.argument, &aggregate.result)
    else {
        return None;
    };
    let ten = i256::from_i128(10);
    let mut value = sum;
    if aggregate.kind == Kind::Mean {
        value = value.checked_mul(ten.checked_pow(u32::try_from(to.checked_sub(*from)?).ok()?)?)?;
        value = crate::exactness::divide_rounded(value, i256::from_i128(i128::from(count)))?;
    }
    let limit = ten.checked_pow(u32::from(*precision))?;
    let fits = value.checked_abs()? < limit;
    let value = fits.then(|| value.to_i128()).flatten()?;
    Some(ScalarValue::Decimal128(Some(value), *precision, *to))
}

/// Takes the state column of a merge.
pub(super) fn states(values: &[ArrayRef]) -> Result<&BinaryArray> {
    match values {
        [column] => column
            .as_binary_opt::<i32>()
            .ok_or_else(|| DataFusionError::Internal("state of an aggregate is not binary".to_owned())),
        _ => internal_err!("an exact aggregate has one state column"),
    }
}

/// Hands every value that is not NULL to `each`, with its row.
pub(crate) fn for_each_value(array: &ArrayRef, mut each: impl FnMut(usize, Value)) -> Result<()> {
    fn rows<T: ArrowPrimitiveType>(array: &ArrayRef, mut each: impl FnMut(usize, T::Native)) {
        let array = array.as_primitive::<T>();
        match array.nulls() {
            None => array
                .values()
                .iter()
                .enumerate()
                .for_each(|(row, value)| each(row, *value)),
            Some(nulls) => nulls.valid_indices().for_each(|row| each(row, array.value(row))),
        }
    }
    match array.data_type() {
        DataType::Int8 => rows::<Int8Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Int16 => rows::<Int16Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Int32 => rows::<Int32Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Int64 => rows::<Int64Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::UInt8 => rows::<UInt8Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::UInt16 => rows::<UInt16Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::UInt32 => rows::<UInt32Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::UInt64 => rows::<UInt64Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Date32 => rows::<Date32Type>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Time64(_) => rows::<Time64MicrosecondType>(array, |row, v| each(row, Value::Integer(v.into()))),
        DataType::Timestamp(_, _) => {
            rows::<TimestampMicrosecondType>(array, |row, v| each(row, Value::Integer(v.into())));
        }
        DataType::Decimal128(_, _) => rows::<Decimal128Type>(array, |row, v| each(row, Value::Integer(v))),
        DataType::Float32 => rows::<Float32Type>(array, |row, v| each(row, Value::Float(v.into()))),
        DataType::Float64 => rows::<Float64Type>(array, |row, v| each(row, Value::Float(v))),
        other => return internal_err!("no exact aggregate over {other}"),
    }
    Ok(())
}
