//! Floats as PostgreSQL prints them: the shortest digits that return the same value, plain or with
//! an exponent by the same limits (`float8out` with `extra_float_digits` ≥ 1, `d2s.c`, `f2s.c`).

use std::io::Write;

/// Writes a `double precision`.
pub(super) fn render_double(value: f64, out: &mut Vec<u8>) {
    if !special(value, out) {
        layout(&format!("{value:e}"), 15, out);
    }
}

/// Writes a `real`.
pub(super) fn render_single(value: f32, out: &mut Vec<u8>) {
    if !special(f64::from(value), out) {
        layout(&format!("{value:e}"), 6, out);
    }
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
