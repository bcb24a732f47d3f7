//! The functions that stand in for the engine's inexact expressions.

use std::any::Any;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, Decimal128Array, FixedSizeBinaryArray, Scalar, StringArray};
use arrow_buffer::i256;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::common::{Result, ScalarValue, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::kind::Kind;

use super::{divide_rounded, float_key, inexact, text};

/// Names a function; those that hold a type give that type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Checked {
    Add,
    Subtract,
    Multiply,
    Negate,
    DivideDecimals(DataType),
    Cast(DataType),
    FloatKey,
    RoundEven,
    SquareRoot,
    Upper,
    Lower,
    IsTrue,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedFunction {
    what: Checked,
    signature: Signature,
}

impl Checked {
    /// Gives a quotient the type it is cast to at once, so that it is rounded once; gives the
    /// expression back if it is no quotient.
    pub(super) fn quotient_as(expr: Expr, to: &DataType) -> std::result::Result<Expr, Expr> {
        let is_quotient = |function: &ScalarUDF| {
            let function = function.inner().as_any().downcast_ref::<CheckedFunction>();
            function.is_some_and(|function| matches!(function.what, Checked::DivideDecimals(_)))
        };
        match expr {
            Expr::ScalarFunction(function) if is_quotient(&function.func) => {
                Ok(Checked::DivideDecimals(to.clone()).call(function.args))
            }
            other => Err(other),
        }
    }

    /// Is the call of the function.
    pub(super) fn call(self, arguments: Vec<Expr>) -> Expr {
        let function = CheckedFunction {
            what: self,
            signature: Signature::user_defined(Volatility::Immutable),
        };
        Arc::new(ScalarUDF::from(function)).call(arguments)
    }
}

/// Casts with an error where a value does not fit.
const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: datafusion::arrow::util::display::FormatOptions::new(),
};

impl ScalarUDFImpl for CheckedFunction {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        match self.what {
            Checked::Add => "checked_add",
            Checked::Subtract => "checked_subtract",
            Checked::Multiply => "checked_multiply",
            Checked::Negate => "checked_negate",
            Checked::DivideDecimals(_) => "divide_rounded",
            Checked::Cast(_) => "cast_rounded",
            Checked::FloatKey => "float_key",
            Checked::RoundEven => "round_even",
            Checked::SquareRoot => "square_root",
            Checked::Upper => "upper_letters",
            Checked::Lower => "lower_letters",
            Checked::IsTrue => "is_true",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (&self.what, arguments) {
            (Checked::DivideDecimals(result) | Checked::Cast(result), _) => Ok(result.clone()),
            (Checked::Negate | Checked::FloatKey | Checked::RoundEven | Checked::SquareRoot, [argument]) => {
                Ok(argument.clone())
            }
            (Checked::Upper | Checked::Lower, [_]) => Ok(DataType::Utf8),
            (Checked::IsTrue, [_]) => Ok(DataType::Boolean),
            (Checked::Add | Checked::Subtract, [DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)]) => {
                let scale = *s1.max(s2);
                let whole = (*p1 as i8 - s1).max(*p2 as i8 - s2);
                let precision = (scale.saturating_add(whole).max(1) as u8).saturating_add(1).min(38);
                Ok(DataType::Decimal128(precision, scale))
            }
            (Checked::Multiply, [DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)]) => {
                let scale = s1.saturating_add(*s2);
                if scale > 38 {
                    return plan_err!("product of decimals has {scale} digits after the point: cast one to fewer");
                }
                Ok(DataType::Decimal128(p1.saturating_add(p2 + 1).min(38), scale))
            }
            (Checked::Add | Checked::Subtract | Checked::Multiply, [left, right]) if left == right => Ok(left.clone()),
            _ => internal_err!("{} got {arguments:?}", self.name()),
        }
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = arguments
            .arg_fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let nullable = self.what != Checked::IsTrue && arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalar = arguments
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = arguments.number_rows;
        let result: ArrayRef = match (&self.what, &arguments.args[..]) {
            (Checked::DivideDecimals(result), [left, right]) => {
                let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
                divide_decimals(&left, &right, result)?
            }
            (_, [left, right]) => self.arithmetic(left, right)?,
            (Checked::Negate, [value]) => numeric::neg(value.to_array(rows)?.as_ref())?,
            (Checked::FloatKey, [value]) => float_keys(&value.to_array(rows)?)?,
            (Checked::Cast(to), [value]) => cast(&value.to_array(rows)?, to)?,
            (Checked::RoundEven, [value]) => floats(&value.to_array(rows)?, |v| Ok(v.round_ties_even()))?,
            (Checked::SquareRoot, [value]) => floats(&value.to_array(rows)?, square_root)?,
            (Checked::IsTrue, [value]) => {
                let condition = cast_with_options(&value.to_array(rows)?, &DataType::Boolean, &STRICT)?;
                let condition = condition.as_boolean();
                let values = (0..condition.len()).map(|row| Some(condition.is_valid(row) && condition.value(row)));
                Arc::new(values.collect::<BooleanArray>())
            }
            (Checked::Upper | Checked::Lower, [value]) => {
                let texts = cast_with_options(&value.to_array(rows)?, &DataType::Utf8, &STRICT)?;
                Arc::new(text::change_case(&texts, self.what == Checked::Upper))
            }
            _ => return internal_err!("{} got {} arguments", self.name(), arguments.args.len()),
        };
        match scalar && !result.is_empty() {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

impl CheckedFunction {
    fn arithmetic(&self, left: &ColumnarValue, right: &ColumnarValue) -> Result<ArrayRef> {
        let datum = |value: &ColumnarValue| -> Result<Box<dyn Datum>> {
            Ok(match value {
                ColumnarValue::Array(array) => Box::new(array.clone()),
                ColumnarValue::Scalar(scalar) => Box::new(Scalar::new(scalar.to_array()?)),
            })
        };
        let (left, right) = (datum(left)?, datum(right)?);
        let result = match self.what {
            Checked::Add => numeric::add(left.as_ref(), right.as_ref()),
            Checked::Subtract => numeric::sub(left.as_ref(), right.as_ref()),
            Checked::Multiply => numeric::mul(left.as_ref(), right.as_ref()),
            _ => return internal_err!("{} takes one argument", self.name()),
        };
        Ok(result?)
    }
}

/// Says where the first digit to the base 10000 stands and what it is; zeros of a zero do not count.
fn leading_digit(value: i128, scale: i8) -> (i32, u128) {
    let magnitude = value.unsigned_abs();
    let Some(last) = magnitude.checked_ilog10() else {
        return (0, 0);
    };
    let exponent = last as i32 - i32::from(scale);
    let (weight, within) = (exponent.div_euclid(4), exponent.rem_euclid(4) as u32);
    let digit = match last >= within {
        true => magnitude / 10u128.pow(last - within),
        false => magnitude * 10u128.pow(within - last),
    };
    (weight, digit)
}

/// Counts the digits after the point that PostgreSQL gives a quotient: at least 16 significant ones
/// (`select_div_scale` in its `numeric.c`).
fn quotient_scale(left: (i128, i8), right: (i128, i8)) -> i32 {
    let (left_weight, left_digit) = leading_digit(left.0, left.1);
    let (right_weight, right_digit) = leading_digit(right.0, right.1);
    let weight = left_weight - right_weight - i32::from(left_digit <= right_digit);
    (16 - 4 * weight).max(i32::from(left.1)).max(i32::from(right.1)).max(0)
}

fn power(exponent: i32) -> Result<i256> {
    i256::from_i128(10)
        .checked_pow(exponent.unsigned_abs())
        .ok_or_else(|| inexact("division of decimals is beyond 76 digits"))
}

/// Divides as PostgreSQL does and rounds to a scale: first to PostgreSQL's own digits, then to those
/// asked for, both times half away from zero.
fn divide(left: (i128, i8), right: (i128, i8), scale: i8) -> Result<Option<i128>> {
    let own = quotient_scale(left, right);
    let shift = own - i32::from(left.1) + i32::from(right.1);
    let (mut dividend, mut divisor) = (i256::from_i128(left.0), i256::from_i128(right.0));
    let by = power(shift)?;
    let scaled = match shift >= 0 {
        true => dividend.checked_mul(by).map(|scaled| dividend = scaled),
        false => divisor.checked_mul(by).map(|scaled| divisor = scaled),
    };
    let quotient = scaled.and_then(|()| divide_rounded(dividend, divisor));
    let rest = own - i32::from(scale);
    let rounded = match rest > 0 {
        true => quotient
            .zip(Some(power(rest)?))
            .and_then(|(q, by)| divide_rounded(q, by)),
        false => quotient.zip(Some(power(rest)?)).and_then(|(q, by)| q.checked_mul(by)),
    };
    Ok(rounded.and_then(i256::to_i128))
}

/// Divides decimals to the scale of the result.
fn divide_decimals(left: &ArrayRef, right: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    let (DataType::Decimal128(_, s1), DataType::Decimal128(_, s2), DataType::Decimal128(precision, scale)) =
        (left.data_type(), right.data_type(), result)
    else {
        return internal_err!("divide_rounded got {} and {}", left.data_type(), right.data_type());
    };
    let (left, right) = (
        left.as_primitive::<Decimal128Type>(),
        right.as_primitive::<Decimal128Type>(),
    );
    let values = (0..left.len()).map(|row| {
        if left.is_null(row) || right.is_null(row) {
            return Ok(None);
        }
        if right.value(row) == 0 {
            return Err(inexact("division by zero"));
        }
        divide((left.value(row), *s1), (right.value(row), *s2), *scale)?
            .map(Some)
            .ok_or_else(|| inexact(format!("division of decimals is beyond {result}")))
    });
    let values = values.collect::<Result<Decimal128Array>>()?;
    let values = values.with_precision_and_scale(*precision, *scale)?;
    values
        .validate_decimal_precision(*precision)
        .map_err(|_| inexact(format!("division of decimals is beyond {result}")))?;
    Ok(Arc::new(values))
}

/// Computes over each float; for reals the function must give the same as for doubles.
fn floats(array: &ArrayRef, change: impl Fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float64 => Arc::new(
            array
                .as_primitive::<Float64Type>()
                .try_unary::<_, Float64Type, _>(change)?,
        ),
        DataType::Float32 => {
            let change = |value: f32| change(f64::from(value)).map(|value| value as f32);
            Arc::new(
                array
                    .as_primitive::<Float32Type>()
                    .try_unary::<_, Float32Type, _>(change)?,
            )
        }
        other => return internal_err!("{other} is no float"),
    })
}

fn square_root(value: f64) -> Result<f64> {
    match value < 0.0 {
        true => Err(inexact("square root of a negative number")),
        false => Ok(value.sqrt()),
    }
}

fn float_keys(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(float_key)),
        DataType::Float32 => {
            let key = |value: f32| float_key(f64::from(value)) as f32;
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(key))
        }
        _ => array.clone(),
    })
}

/// Casts as PostgreSQL does: fractions round (floats half to even, decimals half away from zero).
pub(super) fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let strict = |array: &dyn Array, to: &DataType| Ok(cast_with_options(array, to, &STRICT)?);
    match (array.data_type(), to) {
        (from, to) if Kind::of(from) == Kind::Text && *to != DataType::FixedSizeBinary(16) => {
            let texts = strict(array, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            match Kind::of(to) {
                Kind::Decimal => text::read_decimals(texts, to),
                Kind::Float => text::read_floats(texts, to),
                Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
                    text::check_moments(texts, to)?;
                    strict(texts, to)
                }
                _ => strict(texts, to),
            }
        }
        (DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(_, _), to) if Kind::of(to) == Kind::Text => {
            strict(&text::write_moments(array)?, to)
        }
        (from, DataType::Decimal128(_, _)) if from.is_floating() => text::floats_to_decimals(array, to),
        (DataType::Decimal128(_, _), to) if to.is_floating() => text::decimals_to_floats(array, to),
        (DataType::Float64, DataType::Float32) => text::doubles_to_reals(array),
        (DataType::Float64, to) if to.is_integer() => {
            let whole = array
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(f64::round_ties_even);
            strict(&whole, to)
        }
        (DataType::Float32, to) if to.is_integer() => {
            let whole = array
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(f32::round_ties_even);
            strict(&whole, to)
        }
        (DataType::Decimal128(_, _), to) if to.is_integer() => {
            let whole = strict(array, &DataType::Decimal128(38, 0))?;
            strict(&whole, to)
        }
        (DataType::FixedSizeBinary(16), to) => {
            let ids = array.as_fixed_size_binary();
            let texts: StringArray = (0..ids.len())
                .map(|row| ids.is_valid(row).then(|| uuid_text(ids.value(row))))
                .collect();
            strict(&texts, to)
        }
        (_, DataType::FixedSizeBinary(16)) => {
            let texts = strict(array, &DataType::Utf8)?;
            let texts = texts.as_string::<i32>();
            let ids = texts.iter().map(|text| text.map(parse_uuid).transpose());
            let ids = ids.collect::<Result<Vec<_>>>()?;
            let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(ids.into_iter(), 16)?;
            Ok(Arc::new(array))
        }
        _ => strict(array, to),
    }
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// Reads the forms PostgreSQL reads: hexadecimal digits, hyphens between groups of four, braces.
fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let inner = text
        .trim()
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'))
        .unwrap_or(text.trim());
    let mut digits = Vec::with_capacity(32);
    for (i, c) in inner.chars().enumerate() {
        match c.to_digit(16) {
            Some(digit) => digits.push(digit as u8),
            None if c == '-' && i > 0 && digits.len() % 4 == 0 => {}
            None => return Err(inexact("a text is no uuid")),
        }
    }
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    match (digits.len(), bytes.try_into()) {
        (32, Ok(bytes)) => Ok(bytes),
        _ => Err(inexact("a text is no uuid")),
    }
}
