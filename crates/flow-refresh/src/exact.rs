//! Sums of floats that do not depend on the order of their terms.
//!
//! A double is an integer times 2^-1074, so a wide enough integer adds any number of doubles
//! without rounding; the one rounding comes at the end (Kulisch's accumulator; compare R. Neal,
//! "Fast exact summation using small and large superaccumulators", 2015). Squares of doubles are
//! integers times 2^-2148 and are added the same way, which makes variance exact up to its division.
//!
//! [`Wide`] is the integer, [`FloatSum`] a sum, [`Moments`] a sum and a sum of squares. All can take
//! terms back, be merged, and travel as bytes.

mod wide;

#[cfg(test)]
mod tests;

pub(crate) use wide::Wide;

/// Says that a sum or mean of finite numbers is beyond the largest double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfRange;

/// Counts what no integer can hold, and what an empty sum cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Specials {
    count: i64,
    nan: i64,
    positive_infinite: i64,
    negative_infinite: i64,
    negative_zero: i64,
}

/// Is the exact sum of doubles.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloatSum {
    specials: Specials,
    sum: Wide,
}

/// Splits a finite double into sign, mantissa and position: ±mantissa · 2^(position − 1074).
fn split(value: f64) -> (bool, u64, u32) {
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as u32;
    let fraction = bits & ((1 << 52) - 1);
    let negative = bits >> 63 == 1;
    match exponent {
        0 => (negative, fraction, 0),
        _ => (negative, fraction | (1 << 52), exponent - 1),
    }
}

impl FloatSum {
    /// Adds a term as many times as its weight says; a negative weight takes it back.
    pub(crate) fn add(&mut self, value: f64, weight: i64) {
        let s = &mut self.specials;
        s.count += weight;
        if value.is_nan() {
            s.nan += weight;
        } else if value == f64::INFINITY {
            s.positive_infinite += weight;
        } else if value == f64::NEG_INFINITY {
            s.negative_infinite += weight;
        } else if value == 0.0 {
            if value.is_sign_negative() {
                s.negative_zero += weight;
            }
        } else {
            let (negative, mantissa, position) = split(value);
            self.sum
                .add_times(mantissa.into(), position, if negative { -weight } else { weight });
        }
    }

    /// Adds all terms of another sum.
    pub(crate) fn merge(&mut self, other: &FloatSum) {
        self.specials.count += other.specials.count;
        self.specials.nan += other.specials.nan;
        self.specials.positive_infinite += other.specials.positive_infinite;
        self.specials.negative_infinite += other.specials.negative_infinite;
        self.specials.negative_zero += other.specials.negative_zero;
        self.sum.merge(&other.sum);
    }

    /// Counts the terms.
    pub(crate) fn count(&self) -> i64 {
        self.specials.count
    }

    /// Is the sum where a NaN or an infinity decides it, as IEEE 754 and PostgreSQL say.
    fn special(&self) -> Option<f64> {
        let s = &self.specials;
        if s.nan > 0 || (s.positive_infinite > 0 && s.negative_infinite > 0) {
            Some(f64::NAN)
        } else if s.positive_infinite > 0 {
            Some(f64::INFINITY)
        } else if s.negative_infinite > 0 {
            Some(f64::NEG_INFINITY)
        } else if s.count > 0 && s.negative_zero == s.count {
            Some(-0.0)
        } else {
            None
        }
    }

    /// Rounds the sum once, to nearest, ties to even.
    pub(crate) fn sum(&self) -> Result<f64, OutOfRange> {
        match self.special() {
            Some(value) => Ok(value),
            None => finite(self.sum.to_f64(-1074)),
        }
    }

    /// Is the mean; the sum itself may be beyond the largest double. `None` without terms.
    pub(crate) fn mean(&self) -> Result<Option<f64>, OutOfRange> {
        match (self.specials.count, self.special()) {
            (0, _) => Ok(None),
            (_, Some(value)) => Ok(Some(value)),
            (count, None) => finite(self.sum.divided(count as f64, -1074)).map(Some),
        }
    }

    /// Counts the bytes held.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.sum.heap_size()
    }

    /// Appends the sum as bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let s = &self.specials;
        for counter in [
            s.count,
            s.nan,
            s.positive_infinite,
            s.negative_infinite,
            s.negative_zero,
        ] {
            out.extend_from_slice(&counter.to_le_bytes());
        }
        self.sum.encode(out);
    }

    /// Reads what [`FloatSum::encode`] wrote and moves past it; `None` if the bytes are not that.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<FloatSum> {
        let mut counter = || wide::take::<8>(bytes).map(i64::from_le_bytes);
        let specials = Specials {
            count: counter()?,
            nan: counter()?,
            positive_infinite: counter()?,
            negative_infinite: counter()?,
            negative_zero: counter()?,
        };
        let sum = Wide::decode(bytes)?;
        Some(FloatSum { specials, sum })
    }
}

fn finite(value: f64) -> Result<f64, OutOfRange> {
    if value.is_finite() { Ok(value) } else { Err(OutOfRange) }
}

/// Is an exact sum and an exact sum of squares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments {
    first: FloatSum,
    squares: Wide,
}

impl Moments {
    /// Adds a term as many times as its weight says; a negative weight takes it back.
    pub(crate) fn add(&mut self, value: f64, weight: i64) {
        self.first.add(value, weight);
        if value.is_finite() {
            let (_, mantissa, position) = split(value);
            let square = u128::from(mantissa) * u128::from(mantissa);
            self.squares.add_times(square, 2 * position, weight);
        }
    }

    /// Adds all terms of another.
    pub(crate) fn merge(&mut self, other: &Moments) {
        self.first.merge(&other.first);
        self.squares.merge(&other.squares);
    }

    /// Is the variance: (n Σx² − (Σx)²) / (n (n − 1)), or over n² for a population.
    /// `None` with too few terms. NaN if any term is NaN or infinite, as in PostgreSQL.
    pub(crate) fn variance(&self, population: bool) -> Result<Option<f64>, OutOfRange> {
        let n = self.first.count();
        if n < if population { 1 } else { 2 } {
            return Ok(None);
        }
        let s = &self.first.specials;
        if s.nan + s.positive_infinite + s.negative_infinite > 0 {
            return Ok(Some(f64::NAN));
        }
        let spread = self.squares.times(n.unsigned_abs()).minus(&self.first.sum.squared());
        let divisor = n as f64 * if population { n as f64 } else { (n - 1) as f64 };
        finite(spread.divided(divisor, -2148)).map(Some)
    }

    /// Counts the bytes held.
    pub(crate) fn size(&self) -> usize {
        self.first.size() + size_of::<Wide>() + self.squares.heap_size()
    }

    /// Appends both as bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.first.encode(out);
        self.squares.encode(out);
    }

    /// Reads what [`Moments::encode`] wrote; `None` if the bytes are not that.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Moments> {
        let first = FloatSum::decode(bytes)?;
        let squares = Wide::decode(bytes)?;
        Some(Moments { first, squares })
    }
}
