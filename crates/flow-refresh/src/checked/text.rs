//! Values to and from text as PostgreSQL writes and reads them.
//!
//! What is read is narrower than what PostgreSQL reads: a text in another form is an error, never
//! another value.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, Decimal128Array, Float32Array, Float64Array, StringArray};
use arrow_schema::{DataType, TimeUnit};
use datafusion::common::{Result, internal_err};
use flow_core::clock::civil_from_days;

use super::inexact;

const DAY_MICROS: i64 = 86_400_000_000;

/// Gives the date and what stands at the very end for years before the first.
fn date_text(days: i64) -> (String, &'static str) {
    match civil_from_days(days) {
        (year, month, day) if year > 0 => (format!("{year:04}-{month:02}-{day:02}"), ""),
        (year, month, day) => (format!("{:04}-{month:02}-{day:02}", 1 - year), " BC"),
    }
}

fn time_text(micros: i64) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    let text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match rest {
        0 => text,
        rest => format!("{text}.{rest:06}").trim_end_matches('0').to_owned(),
    }
}

/// Writes dates, times and timestamps as PostgreSQL does with `DateStyle = ISO` in UTC.
pub(super) fn write_moments(array: &ArrayRef) -> Result<StringArray> {
    Ok(match array.data_type() {
        DataType::Date32 => {
            let dates = array.as_primitive::<Date32Type>().iter();
            let text = |days: i32| {
                let (date, era) = date_text(i64::from(days));
                date + era
            };
            dates.map(|days| days.map(text)).collect()
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            let times = array.as_primitive::<Time64MicrosecondType>().iter();
            times.map(|micros| micros.map(time_text)).collect()
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let zone = if zone.is_some() { "+00" } else { "" };
            let moments = array.as_primitive::<TimestampMicrosecondType>().iter();
            let text = |micros: i64| {
                let (date, era) = date_text(micros.div_euclid(DAY_MICROS));
                format!("{date} {}{zone}{era}", time_text(micros.rem_euclid(DAY_MICROS)))
            };
            moments.map(|micros| micros.map(text)).collect()
        }
        other => return internal_err!("{other} is no moment"),
    })
}

/// Says whether a text follows a pattern, in which 9 stands for a digit.
fn follows(text: &str, pattern: &str) -> bool {
    let fits = |(c, p): (char, char)| if p == '9' { c.is_ascii_digit() } else { c == p };
    text.chars().count() == pattern.chars().count() && text.chars().zip(pattern.chars()).all(fits)
}

/// Says whether a text is a time of day with at most six digits after the second.
fn is_time(text: &str) -> bool {
    let (clock, fraction) = match text.split_once('.') {
        Some((clock, fraction)) => (clock, Some(fraction)),
        None => (text, None),
    };
    let digits = |digits: &str| (1..=6).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    follows(clock, "99:99:99") && &clock[..2] <= "23" && &clock[6..] <= "59" && fraction.is_none_or(digits)
}

/// Takes a zone off the end of a timestamp.
fn without_zone(text: &str) -> &str {
    if let Some(text) = text.strip_suffix('Z') {
        return text;
    }
    let Some(at) = text.rfind(['+', '-']).filter(|at| *at > 10) else {
        return text;
    };
    match ["+99", "+99:99", "+9999", "-99", "-99:99", "-9999"]
        .iter()
        .any(|pattern| follows(&text[at..], pattern))
    {
        true => &text[..at],
        false => text,
    }
}

/// Says whether a text is in the one form of a date, a time or a timestamp that is read. A zone
/// before a timestamp without one would be ignored by PostgreSQL and is refused.
fn is_moment(text: &str, to: &DataType) -> bool {
    match to {
        DataType::Date32 => follows(text, "9999-99-99"),
        DataType::Time64(_) => is_time(text),
        DataType::Timestamp(_, zone) => {
            let text = if zone.is_some() { without_zone(text) } else { text };
            match text.split_once([' ', 'T']) {
                Some((date, time)) => follows(date, "9999-99-99") && is_time(time),
                None => follows(text, "9999-99-99"),
            }
        }
        _ => false,
    }
}

/// Refuses texts that are no moments in the form that is read.
pub(super) fn check_moments(texts: &StringArray, to: &DataType) -> Result<()> {
    match texts.iter().flatten().all(|text| is_moment(text, to)) {
        true => Ok(()),
        false => Err(inexact(format!(
            "a text is no {}: dates and times are read as 2024-12-31 and 23:59:59",
            crate::kind::Kind::of(to).name()
        ))),
    }
}

/// Is a number as written: its digits, and how far to the left of their end the point is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    negative: bool,
    digits: String,
    exponent: i32,
}

impl Written {
    /// Reads `-12.5e3`; `None` if the text is anything else.
    pub(crate) fn read(text: &str) -> Option<Written> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Written {
            negative: mantissa.starts_with('-'),
            exponent: exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?,
            digits: digits.trim_start_matches('0').to_owned(),
        })
    }

    /// Counts the digits after the point.
    pub(crate) fn scale(&self) -> usize {
        usize::try_from(-self.exponent).unwrap_or(0)
    }

    /// Is the number times 10^scale, rounded half away from zero; `None` beyond 38 digits.
    pub(crate) fn scaled(&self, scale: i8) -> Option<i128> {
        let shift = self.exponent.checked_add(i32::from(scale))?;
        let magnitude = if self.digits.is_empty() {
            0
        } else if shift >= 0 {
            let zeros = usize::try_from(shift).ok().filter(|zeros| *zeros <= 38)?;
            format!("{}{}", self.digits, "0".repeat(zeros)).parse::<i128>().ok()?
        } else {
            let cut = usize::try_from(shift.unsigned_abs()).ok()?;
            match self.digits.len().checked_sub(cut) {
                None => 0,
                Some(kept) => {
                    let up = i128::from(self.digits.as_bytes()[kept] >= b'5');
                    let kept = if kept == 0 { "0" } else { &self.digits[..kept] };
                    kept.parse::<i128>().ok()?.checked_add(up)?
                }
            }
        };
        Some(if self.negative { -magnitude } else { magnitude })
    }
}

fn decimals(values: impl Iterator<Item = Option<Option<Written>>>, to: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(precision, scale) = to else {
        return internal_err!("{to} is no decimal");
    };
    let values = values.map(|value| match value {
        None => Ok(None),
        Some(written) => written
            .and_then(|written| written.scaled(*scale))
            .map(Some)
            .ok_or_else(|| inexact(format!("a value does not fit numeric({precision},{scale})"))),
    });
    let values = values.collect::<Result<Decimal128Array>>()?;
    let values = values.with_precision_and_scale(*precision, *scale)?;
    values
        .validate_decimal_precision(*precision)
        .map_err(|_| inexact(format!("a value does not fit numeric({precision},{scale})")))?;
    Ok(Arc::new(values))
}

/// Reads decimals.
pub(super) fn read_decimals(texts: &StringArray, to: &DataType) -> Result<ArrayRef> {
    decimals(texts.iter().map(|text| text.map(|text| Written::read(text.trim()))), to)
}

/// Makes decimals of floats as PostgreSQL does: by the 15 significant digits of a double and the 6
/// of a real.
pub(super) fn floats_to_decimals(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().iter();
            decimals(
                values.map(|value| value.map(|v| Written::read(&format!("{v:.14e}")))),
                to,
            )
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>().iter();
            decimals(
                values.map(|value| value.map(|v| Written::read(&format!("{v:.5e}")))),
                to,
            )
        }
        other => internal_err!("{other} is no float"),
    }
}

/// Makes floats of decimals, each the nearest there is.
pub(super) fn decimals_to_floats(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = array.data_type() else {
        return internal_err!("{} is no decimal", array.data_type());
    };
    let texts = array.as_primitive::<Decimal128Type>().iter();
    let texts = texts.map(|value| value.map(|value| format!("{value}e{}", -i32::from(*scale))));
    read_floats(&texts.collect(), to)
}

/// Reads floats; a number beyond the largest or below the smallest is an error, as in PostgreSQL.
pub(super) fn read_floats(texts: &StringArray, to: &DataType) -> Result<ArrayRef> {
    let failed = || {
        inexact(format!(
            "a text is no {}, or beyond it",
            crate::kind::Kind::of(to).name()
        ))
    };
    let read = |text: &str| -> Result<f64> {
        let text = text.trim();
        let value: f64 = match to {
            DataType::Float32 => text.parse::<f32>().map(f64::from).map_err(|_| failed())?,
            _ => text.parse().map_err(|_| failed())?,
        };
        match Written::read(text) {
            Some(written) if value.is_infinite() || (value == 0.0 && !written.digits.is_empty()) => Err(failed()),
            _ => Ok(value),
        }
    };
    let values = texts.iter().map(|text| text.map(read).transpose());
    let values = values.collect::<Result<Vec<Option<f64>>>>()?;
    Ok(match to {
        DataType::Float32 => Arc::new(Float32Array::from_iter(
            values.into_iter().map(|value| value.map(|value| value as f32)),
        )),
        _ => Arc::new(Float64Array::from_iter(values)),
    })
}

/// Makes reals of doubles; one beyond the largest or below the smallest is an error.
pub(super) fn doubles_to_reals(array: &ArrayRef) -> Result<ArrayRef> {
    let values = array.as_primitive::<Float64Type>().iter().map(|value| match value {
        None => Ok(None),
        Some(value) => {
            let real = value as f32;
            match (real.is_infinite() && value.is_finite()) || (real == 0.0 && value != 0.0) {
                true => Err(inexact("a value does not fit real")),
                false => Ok(Some(real)),
            }
        }
    });
    Ok(Arc::new(values.collect::<Result<Float32Array>>()?))
}

/// Maps each letter to one, as PostgreSQL does in a UTF-8 locale: ß has no upper case.
pub(super) fn change_case(array: &ArrayRef, upper: bool) -> StringArray {
    let change = if upper { upper_letter } else { lower_letter };
    let texts = array.as_string::<i32>().iter();
    texts
        .map(|text| text.map(|text| text.chars().map(change).collect::<String>()))
        .collect()
}

fn upper_letter(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        // Letters with an iota below have one upper case letter, and several in Unicode's full mapping.
        _ => match u32::from(c) {
            code @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => char::from_u32(code + 8).unwrap_or(c),
            code @ (0x1fb3 | 0x1fc3 | 0x1ff3) => char::from_u32(code + 9).unwrap_or(c),
            _ => c,
        },
    }
}

fn lower_letter(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ if c == 'İ' => 'i',
        _ => c,
    }
}
