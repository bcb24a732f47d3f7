//! A signed integer as wide as its terms need.
//!
//! Limbs hold 32 bits each in 64, so that a billion terms are added before a carry must run.
//! Only the limbs that terms touched exist: a sum of everyday numbers takes a few of them.

/// Is how many additions a limb surely holds before carries must run: each adds less than 2^32.
const ADDS_MAX: u32 = 1 << 30;

/// Bounds the limbs that bytes may claim: squares of doubles and a count need 140.
const LIMBS_MAX: usize = 200;

/// Is Σ limbs\[i\] · 2^(32 · (base + i)).
#[derive(Clone, Debug, Default)]
pub(crate) struct Wide {
    base: usize,
    limbs: Vec<i64>,
    adds: u32,
}

/// Takes the first `N` bytes.
pub(super) fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(*head)
}

impl Wide {
    /// Makes sure that the limbs from `low` to `high` exist.
    fn cover(&mut self, low: usize, high: usize) {
        if self.limbs.is_empty() {
            self.base = low;
        }
        if low < self.base {
            let missing = self.base - low;
            self.limbs.splice(0..0, std::iter::repeat_n(0, missing));
            self.base = low;
        }
        if high >= self.base + self.limbs.len() {
            self.limbs.resize(high - self.base + 1, 0);
        }
    }

    /// Adds ±mantissa · 2^position.
    pub(crate) fn add(&mut self, mantissa: u64, position: u32, negative: bool) {
        if mantissa == 0 {
            return;
        }
        let limb = (position / 32) as usize;
        let shifted = u128::from(mantissa) << (position % 32);
        self.cover(limb, limb + 2);
        let at = limb - self.base;
        for i in 0..3 {
            let part = ((shifted >> (32 * i)) & 0xffff_ffff) as i64;
            self.limbs[at + i] += if negative { -part } else { part };
        }
        self.adds += 1;
        if self.adds >= ADDS_MAX {
            self.carry();
        }
    }

    /// Adds mantissa · weight · 2^position.
    pub(crate) fn add_times(&mut self, mantissa: u128, position: u32, weight: i64) {
        let negative = weight < 0;
        let factor = weight.unsigned_abs();
        if factor == 1 {
            self.add(mantissa as u64, position, negative);
            self.add((mantissa >> 64) as u64, position + 64, negative);
            return;
        }
        for i in 0..4 {
            let part = (mantissa >> (32 * i)) as u32;
            for j in 0..2 {
                let digit = (factor >> (32 * j)) as u32;
                self.add(u64::from(part) * u64::from(digit), position + 32 * (i + j), negative);
            }
        }
    }

    /// Moves what exceeds 32 bits up; only the top limb keeps a sign.
    fn carry(&mut self) {
        let mut carry = 0;
        for limb in &mut self.limbs {
            let value = *limb + carry;
            *limb = value & 0xffff_ffff;
            carry = value >> 32;
        }
        while carry != 0 && carry != -1 {
            self.limbs.push(carry & 0xffff_ffff);
            carry >>= 32;
        }
        match self.limbs.last_mut() {
            Some(top) if carry == -1 => *top -= 1 << 32,
            _ => {}
        }
        self.adds = 1;
    }

    /// Adds another number.
    pub(crate) fn merge(&mut self, other: &Wide) {
        if other.limbs.is_empty() {
            return;
        }
        let mut other = other.clone();
        other.carry();
        if self.adds >= ADDS_MAX - 1 {
            self.carry();
        }
        self.cover(other.base, other.base + other.limbs.len() - 1);
        for (i, limb) in other.limbs.iter().enumerate() {
            self.limbs[other.base - self.base + i] += limb;
        }
        self.adds += 1;
    }

    /// Is sign and magnitude, limbs from the lowest, without zero limbs at the top.
    fn magnitude(&self) -> (bool, Vec<u32>) {
        let mut number = self.clone();
        number.carry();
        let negative = number.limbs.last().is_some_and(|top| *top < 0);
        if negative {
            number.limbs.iter_mut().for_each(|limb| *limb = -*limb);
            number.carry();
        }
        let mut limbs: Vec<u32> = number.limbs.iter().map(|limb| *limb as u32).collect();
        while limbs.last() == Some(&0) {
            limbs.pop();
        }
        (negative, limbs)
    }

    fn from_magnitude(negative: bool, base: usize, limbs: &[u32]) -> Wide {
        let signed = |limb: &u32| if negative { -i64::from(*limb) } else { i64::from(*limb) };
        Wide {
            base,
            limbs: limbs.iter().map(signed).collect(),
            adds: 1,
        }
    }

    /// Multiplies with a count.
    pub(crate) fn times(&self, factor: u64) -> Wide {
        let (negative, limbs) = self.magnitude();
        let product = multiply(&limbs, &[factor as u32, (factor >> 32) as u32]);
        Wide::from_magnitude(negative, self.base, &product)
    }

    /// Multiplies with itself; the unit is squared too.
    pub(crate) fn squared(&self) -> Wide {
        let (_, limbs) = self.magnitude();
        Wide::from_magnitude(false, 2 * self.base, &multiply(&limbs, &limbs))
    }

    /// Subtracts another number.
    pub(crate) fn minus(mut self, other: &Wide) -> Wide {
        let (negative, limbs) = other.magnitude();
        self.merge(&Wide::from_magnitude(!negative, other.base, &limbs));
        self
    }

    /// Rounds to 53 bits, ties to even: sign, mantissa, and the position of its lowest bit.
    fn rounded(&self) -> (bool, u64, usize) {
        let (negative, limbs) = self.magnitude();
        let Some(top) = limbs.last() else {
            return (false, 0, 0);
        };
        let bits = limbs.len() * 32 - top.leading_zeros() as usize;
        let drop = bits.saturating_sub(53);
        let bit = |at: usize| (limbs[at / 32] >> (at % 32)) & 1;
        let mut mantissa = (drop..bits).rev().fold(0, |all, at| (all << 1) | u64::from(bit(at)));
        if drop > 0 && bit(drop - 1) == 1 {
            let rest = (0..drop - 1).any(|at| bit(at) == 1);
            if rest || mantissa & 1 == 1 {
                mantissa += 1;
            }
        }
        (negative, mantissa, drop + 32 * self.base)
    }

    /// Rounds the number times 2^unit to the nearest double, ties to even; infinite if too large.
    pub(crate) fn to_f64(&self, unit: i32) -> f64 {
        let (negative, mantissa, position) = self.rounded();
        signed(scale(mantissa as f64, position as i32 + unit), negative)
    }

    /// Is the number times 2^unit, rounded to 53 bits and divided.
    pub(crate) fn divided(&self, divisor: f64, unit: i32) -> f64 {
        let (negative, mantissa, position) = self.rounded();
        signed(scale(mantissa as f64 / divisor, position as i32 + unit), negative)
    }

    /// Counts the bytes held beside the value itself.
    pub(crate) fn heap_size(&self) -> usize {
        self.limbs.capacity() * size_of::<i64>()
    }

    /// Appends the number as bytes: equal numbers give equal bytes, however they came about.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (negative, magnitude) = self.magnitude();
        let zeros = magnitude.iter().take_while(|limb| **limb == 0).count();
        let limbs = &magnitude[zeros..];
        let base = if limbs.is_empty() { 0 } else { self.base + zeros };
        out.extend_from_slice(&(base as u16).to_le_bytes());
        out.push(limbs.len() as u8);
        out.push(u8::from(negative && !limbs.is_empty()));
        for limb in limbs {
            out.extend_from_slice(&limb.to_le_bytes());
        }
    }

    /// Reads what [`Wide::encode`] wrote; `None` if the bytes are not that.
    pub(crate) fn decode(bytes: &mut &[u8]) -> Option<Wide> {
        let base = usize::from(u16::from_le_bytes(take(bytes)?));
        let [count, negative] = take(bytes)?;
        if usize::from(count) > LIMBS_MAX || base > LIMBS_MAX || negative > 1 {
            return None;
        }
        let limbs = (0..count)
            .map(|_| take(bytes).map(u32::from_le_bytes))
            .collect::<Option<Vec<_>>>()?;
        Some(Wide::from_magnitude(negative == 1, base, &limbs))
    }
}

fn signed(value: f64, negative: bool) -> f64 {
    if negative { -value } else { value }
}

/// Multiplies a value between 2^-80 and 2^53, or zero, with a power of two. Rounds once: the first
/// of the two steps stays among normal numbers.
fn scale(value: f64, exponent: i32) -> f64 {
    let power = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    match exponent {
        _ if value == 0.0 => value,
        ..-1140 => 0.0,
        2000.. => f64::INFINITY,
        _ => value * power(exponent / 2) * power(exponent - exponent / 2),
    }
}

/// Multiplies magnitudes, limbs from the lowest.
fn multiply(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut product = vec![0u32; a.len() + b.len()];
    for (i, x) in a.iter().enumerate() {
        let mut carry = 0u64;
        for (j, y) in b.iter().enumerate() {
            let value = u64::from(*x) * u64::from(*y) + u64::from(product[i + j]) + carry;
            product[i + j] = value as u32;
            carry = value >> 32;
        }
        product[i + b.len()] = carry as u32;
    }
    product
}
