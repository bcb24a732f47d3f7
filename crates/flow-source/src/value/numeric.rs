//! `numeric` in its binary form: base-10000 digits, weight, sign and display scale.
//!
//! Source: PostgreSQL's `numeric_send` and `get_str_from_var`.

use super::ValueError;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const POSITIVE_INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;

/// Is a parsed numeric, borrowing its digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numeric<'a> {
    /// Holds base-10000 digits, two bytes each, big-endian, most significant first.
    digits: &'a [u8],
    /// Is the power of 10000 of the first digit.
    weight: i32,
    sign: u16,
    /// Counts decimal digits after the point.
    scale: usize,
}

impl<'a> Numeric<'a> {
    /// Checks the form.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, ValueError> {
        const BAD: ValueError = ValueError::Malformed("numeric");
        let (head, digits) = bytes.split_first_chunk::<8>().ok_or(BAD)?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (count, weight, sign, scale) = (word(0), word(2) as i16, word(4), word(6));
        if digits.len() != usize::from(count) * 2 || scale > 0x3fff {
            return Err(BAD);
        }
        if ![0, NEGATIVE, NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY].contains(&sign) {
            return Err(BAD);
        }
        if digits.chunks_exact(2).any(|d| u16::from_be_bytes([d[0], d[1]]) > 9999) {
            return Err(BAD);
        }
        Ok(Numeric {
            digits,
            weight: i32::from(weight),
            sign,
            scale: usize::from(scale),
        })
    }

    fn digit(&self, index: i32) -> u16 {
        let at = usize::try_from(index).ok().map(|i| i * 2);
        match at.and_then(|at| self.digits.get(at..at + 2)) {
            Some(pair) => u16::from_be_bytes([pair[0], pair[1]]),
            None => 0,
        }
    }

    fn special(&self) -> Option<&'static str> {
        match self.sign {
            NAN => Some("NaN"),
            POSITIVE_INFINITY => Some("Infinity"),
            NEGATIVE_INFINITY => Some("-Infinity"),
            _ => None,
        }
    }

    /// Writes the number as PostgreSQL does: every digit of its display scale.
    pub(super) fn render(&self, out: &mut Vec<u8>) {
        if let Some(name) = self.special() {
            out.extend_from_slice(name.as_bytes());
            return;
        }
        if self.sign == NEGATIVE {
            out.push(b'-');
        }
        if self.weight < 0 {
            out.push(b'0');
        }
        for index in 0..=self.weight {
            put_group(out, self.digit(index), index == 0);
        }
        if self.scale > 0 {
            out.push(b'.');
            let end = out.len() + self.scale;
            let mut index = self.weight + 1;
            // Groups between the point and the first digit are zero.
            for _ in 0..(-1 - self.weight).max(0) {
                if out.len() < end {
                    out.extend_from_slice(b"0000");
                }
            }
            index = index.max(0);
            while out.len() < end {
                put_group(out, self.digit(index), false);
                index += 1;
            }
            out.truncate(end);
        }
    }

    /// Is the number times `10^scale`, if it is whole and has at most `precision` digits.
    pub(super) fn unscaled(&self, precision: u8, scale: u8) -> Result<i128, ValueError> {
        if self.special().is_some() {
            return Err(ValueError::Unfit("NaN or infinity in a decimal"));
        }
        const TOO_LARGE: ValueError = ValueError::Unfit("a number with more digits than its decimal has");
        let scale = i32::from(scale);
        let mut value: i128 = 0;
        let count = (self.digits.len() / 2) as i32;
        for index in 0..count {
            let digit = i128::from(self.digit(index));
            // The group's lowest decimal place, as a power of ten.
            let place = (self.weight - index) * 4 + scale;
            if place >= 0 {
                if digit != 0 {
                    let factor = u32::try_from(place)
                        .ok()
                        .and_then(|p| 10i128.checked_pow(p))
                        .ok_or(TOO_LARGE)?;
                    value = digit
                        .checked_mul(factor)
                        .and_then(|d| value.checked_add(d))
                        .ok_or(TOO_LARGE)?;
                }
            } else if place > -4 {
                let divisor = 10i128.pow(place.unsigned_abs());
                if digit % divisor != 0 {
                    return Err(ValueError::Unfit(
                        "a number with more digits after the point than its decimal has",
                    ));
                }
                value = value.checked_add(digit / divisor).ok_or(TOO_LARGE)?;
            } else if digit != 0 {
                return Err(ValueError::Unfit(
                    "a number with more digits after the point than its decimal has",
                ));
            }
        }
        if value >= 10i128.pow(u32::from(precision.min(38))) {
            return Err(TOO_LARGE);
        }
        Ok(if self.sign == NEGATIVE { -value } else { value })
    }
}

/// Writes four decimal digits, without leading zeros for the first group of a number.
fn put_group(out: &mut Vec<u8>, group: u16, first: bool) {
    let digits = [group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|d| b'0' + d as u8);
    let skip = match first {
        true => digits.iter().take(3).take_while(|d| **d == b'0').count(),
        false => 0,
    };
    out.extend_from_slice(&digits[skip..]);
}
