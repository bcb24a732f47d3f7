//! Floats as PostgreSQL prints them: the shortest digits that lie strictly nearer to the value than
//! to any other, plain or with an exponent by the same limits (`float8out` with
//! `extra_float_digits` ≥ 1, `d2s.c`, `f2s.c`).
//!
//! Rust's shortest digits also take a decimal that lies exactly between two floats, where rounding
//! to even returns the value; PostgreSQL does not, so such a tie gets another digit.

use std::io::Write;

/// Writes a `double precision`.
pub(super) fn render_double(value: f64, out: &mut Vec<u8>) {
    if !special(value, out) {
        let bits = value.to_bits();
        let binary = Binary::new(bits & ((1 << 52) - 1), (bits >> 52 & 0x7ff) as i32, 52, 1075);
        let exact = |digits: usize| format!("{value:.digits$e}");
        let returns = |text: &str| text.parse() == Ok(value);
        layout(&shortest(format!("{value:e}"), 17, binary, exact, returns), 15, out);
    }
}

/// Writes a `real`.
pub(super) fn render_single(value: f32, out: &mut Vec<u8>) {
    if !special(f64::from(value), out) {
        let bits = u64::from(value.to_bits());
        let binary = Binary::new(bits & ((1 << 23) - 1), (bits >> 23 & 0xff) as i32, 23, 150);
        let exact = |digits: usize| format!("{value:.digits$e}");
        let returns = |text: &str| text.parse() == Ok(value);
        layout(&shortest(format!("{value:e}"), 9, binary, exact, returns), 6, out);
    }
}

/// Makes Rust's shortest digits PostgreSQL's. `exact` rounds the value to so many digits after the
/// point, half to even.
fn shortest(
    rust: String,
    digits_max: usize,
    binary: Binary,
    exact: impl Fn(usize) -> String,
    returns: impl Fn(&str) -> bool,
) -> String {
    let count = significant(&rust);
    // Where two decimals of this length are equally near, PostgreSQL takes the even one. At a power
    // of two the nearest of this length may be another float's.
    let even = exact(count - 1);
    let mut text = if returns(&even) { even } else { rust };
    for digits in count..digits_max {
        if !binary.is_tie(&text) {
            break;
        }
        text = exact(digits);
    }
    text
}

/// Counts the digits of `d.ddde±x`.
fn significant(scientific: &str) -> usize {
    let mantissa = scientific.split('e').next().unwrap_or("");
    mantissa.bytes().filter(u8::is_ascii_digit).count()
}

/// Is the size of a float: `mantissa × 2^exponent`.
#[derive(Clone, Copy)]
struct Binary {
    mantissa: u64,
    exponent: i32,
    /// Says that the float below is half as far away as the one above.
    uneven: bool,
}

impl Binary {
    fn new(fraction: u64, biased: i32, fraction_bits: u32, bias: i32) -> Self {
        match biased {
            0 => Binary {
                mantissa: fraction,
                exponent: 1 - bias,
                uneven: false,
            },
            _ => Binary {
                mantissa: fraction | 1 << fraction_bits,
                exponent: biased - bias,
                uneven: fraction == 0 && biased > 1,
            },
        }
    }

    /// Says whether a decimal lies exactly half way to a neighbouring float.
    fn is_tie(self, scientific: &str) -> bool {
        let above = (u128::from(self.mantissa) * 2 + 1, self.exponent - 1);
        let below = match self.uneven {
            true => (u128::from(self.mantissa) * 4 - 1, self.exponent - 2),
            false => ((u128::from(self.mantissa) * 2).saturating_sub(1), self.exponent - 1),
        };
        [above, below]
            .into_iter()
            .any(|(odd, exponent)| equals(scientific, odd, exponent))
    }
}

/// Says whether a decimal equals `odd × 2^exponent`, by comparing odd parts and powers of two. What
/// overflows is no tie: so few digits cannot reach it.
fn equals(scientific: &str, odd: u128, exponent: i32) -> bool {
    let (mantissa, ten) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let digits: u128 = mantissa
        .bytes()
        .filter(u8::is_ascii_digit)
        .fold(0, |all, digit| all * 10 + u128::from(digit - b'0'));
    let ten = ten.parse::<i32>().unwrap_or(0) - (significant(mantissa) as i32 - 1);
    if digits == 0 {
        return false;
    }
    let twos = digits.trailing_zeros() as i32;
    let Some(fives) = 5u128.checked_pow(ten.unsigned_abs()) else {
        return false;
    };
    let (left, right) = match ten >= 0 {
        true => ((digits >> twos).checked_mul(fives), Some(odd)),
        false => (Some(digits >> twos), odd.checked_mul(fives)),
    };
    left.is_some() && left == right && twos + ten == exponent
}

fn special(value: f64, out: &mut Vec<u8>) -> bool {
    let name: &[u8] = match value {
        v if v.is_nan() => b"NaN",
        f64::INFINITY => b"Infinity",
        f64::NEG_INFINITY => b"-Infinity",
        v if v == 0.0 && v.is_sign_negative() => b"-0",
        0.0 => b"0",
        _ => return false,
    };
    out.extend_from_slice(name);
    true
}

/// Lays out `d.ddde±x`: plain where the exponent is in `-4..limit`.
fn layout(scientific: &str, limit: i32, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    out.extend_from_slice(sign.as_bytes());
    if !(-4..limit).contains(&exponent) {
        out.extend_from_slice(mantissa.as_bytes());
        let mark = if exponent < 0 { '-' } else { '+' };
        write!(out, "e{mark}{:02}", exponent.abs()).expect("a vector takes every write");
        return;
    }
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-1 - exponent) as usize, b'0');
        out.extend_from_slice(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        out.extend_from_slice(&digits);
        out.resize(out.len() + whole - digits.len(), b'0');
    } else {
        out.extend_from_slice(&digits[..whole]);
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}
