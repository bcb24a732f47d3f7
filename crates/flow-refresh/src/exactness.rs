//! What exact computing shares: its error, one bit pattern per float, rounded division.

use arrow_buffer::i256;
use datafusion::common::DataFusionError;

/// Says that a value cannot be computed exactly. Holds no row value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Inexact(pub(crate) String);

/// Makes the engine's error out of ours.
pub(crate) fn inexact(message: impl Into<String>) -> DataFusionError {
    DataFusionError::External(Box::new(Inexact(message.into())))
}

/// Makes floats that PostgreSQL holds for equal the same bits: one zero, one NaN, the greatest.
pub(crate) fn float_key(value: f64) -> f64 {
    if value.is_nan() {
        f64::from_bits(0x7ff8_0000_0000_0000)
    } else if value == 0.0 {
        0.0
    } else {
        value
    }
}

/// Divides and rounds half away from zero; `None` on division by zero or overflow.
pub(crate) fn divide_rounded(dividend: i256, divisor: i256) -> Option<i256> {
    let quotient = dividend.checked_div(divisor)?;
    let rest = dividend.checked_rem(divisor)?;
    let (rest, half) = (rest.checked_abs()?, divisor.checked_abs()?);
    let away = rest >= half.checked_sub(rest)?;
    if !away || rest == i256::ZERO {
        return Some(quotient);
    }
    let positive = (dividend < i256::ZERO) == (divisor < i256::ZERO);
    quotient.checked_add(if positive { i256::ONE } else { i256::MINUS_ONE })
}
