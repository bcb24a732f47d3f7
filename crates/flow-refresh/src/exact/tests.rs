//! Order never shows, and the rounding is the one rounding of the true sum.

use super::*;

/// Draws numbers without a random source: SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn finite(&mut self) -> f64 {
        loop {
            let value = f64::from_bits(self.next());
            if value.is_finite() && value.abs() < 1e300 {
                return value;
            }
        }
    }
}

fn sum_of(values: &[f64]) -> Result<f64, OutOfRange> {
    let mut sum = FloatSum::default();
    values.iter().for_each(|v| sum.add(*v, 1));
    sum.sum()
}

#[test]
fn known_sums() {
    let check = |values: &[f64], expected: f64| {
        let sum = sum_of(values).expect("in range");
        assert_eq!(sum.to_bits(), expected.to_bits(), "{values:?} gave {sum}");
    };
    check(&[], 0.0);
    check(&[-0.0, -0.0], -0.0);
    check(&[-0.0, 0.0], 0.0);
    check(&[1.0, -1.0], 0.0);
    check(&[1e100, 1.0, -1e100], 1.0);
    check(&[0.1; 10], 1.0);
    check(&[f64::MAX, f64::MAX, -f64::MAX], f64::MAX);
    check(&[5e-324, 5e-324], 1e-323);
    check(
        &[f64::MIN_POSITIVE, -5e-324],
        f64::from_bits(f64::MIN_POSITIVE.to_bits() - 1),
    );
    check(&[9_007_199_254_740_992.0, 1.0], 9_007_199_254_740_992.0);
    check(&[9_007_199_254_740_992.0, 1.0, 5e-324], 9_007_199_254_740_994.0);
    check(&[9_007_199_254_740_994.0, 1.0], 9_007_199_254_740_996.0);
    check(&[f64::INFINITY, 1.0], f64::INFINITY);
    assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).expect("a NaN").is_nan());
    assert!(sum_of(&[f64::NAN, 1.0]).expect("a NaN").is_nan());
    assert_eq!(sum_of(&[f64::MAX, f64::MAX]), Err(OutOfRange));
}

#[test]
fn integers_add_as_integers() {
    let mut draw = Draw(1);
    for _ in 0..200 {
        let terms: Vec<i64> = (0..50).map(|_| (draw.next() >> 12) as i64 - (1 << 51)).collect();
        let expected = terms.iter().map(|t| i128::from(*t)).sum::<i128>();
        let sum = sum_of(&terms.iter().map(|t| *t as f64).collect::<Vec<_>>()).expect("in range");
        assert_eq!(sum, expected as f64);
    }
}

#[test]
fn order_grouping_and_bytes_do_not_show() {
    let mut draw = Draw(2);
    for round in 0..100 {
        let mut values: Vec<f64> = (0..40).map(|_| draw.finite()).collect();
        let extra: Vec<f64> = (0..10).map(|_| draw.finite()).collect();
        let mut straight = Moments::default();
        values.iter().for_each(|v| straight.add(*v, 1));
        // Backwards, with terms added and taken back, in two parts that travel as bytes.
        values.reverse();
        let mut parts = [Moments::default(), Moments::default()];
        for (i, value) in values.iter().enumerate() {
            parts[i % 2].add(*value, 1);
        }
        extra.iter().for_each(|v| parts[0].add(*v, 1));
        extra.iter().for_each(|v| parts[0].add(*v, -1));
        let mut bytes = Vec::new();
        parts[0].encode(&mut bytes);
        let mut merged = Moments::decode(&mut &bytes[..]).expect("own bytes");
        merged.merge(&parts[1]);
        assert_eq!(straight.first.sum(), merged.first.sum(), "round {round}");
        assert_eq!(straight.first.mean(), merged.first.mean(), "round {round}");
        assert_eq!(straight.variance(false), merged.variance(false), "round {round}");
        assert_eq!(straight.variance(true), merged.variance(true), "round {round}");
    }
}

#[test]
fn known_moments() {
    let moments = |values: &[f64]| {
        let mut moments = Moments::default();
        values.iter().for_each(|v| moments.add(*v, 1));
        moments
    };
    let check = |values: &[f64], population: bool, expected: Option<f64>| {
        assert_eq!(moments(values).variance(population), Ok(expected), "{values:?}");
    };
    check(&[], true, None);
    check(&[7.0], false, None);
    check(&[7.0], true, Some(0.0));
    check(&[1.0, 2.0, 3.0, 4.0], false, Some(5.0 / 3.0));
    check(&[1.0, 2.0, 3.0, 4.0], true, Some(1.25));
    check(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0], false, Some(30.0));
    check(&[0.1, 0.1, 0.1], false, Some(0.0));
    check(&[1e-200, -1e-200], true, Some(0.0));
    assert!(matches!(moments(&[f64::INFINITY, 1.0]).variance(true), Ok(Some(v)) if v.is_nan()));
    assert_eq!(moments(&[1e300, -1e300]).variance(true), Err(OutOfRange));
    assert_eq!(moments(&[f64::MAX, f64::MAX]).first.mean(), Ok(Some(f64::MAX)));
    assert_eq!(moments(&[1.0, 2.0]).first.mean(), Ok(Some(1.5)));
}

#[test]
fn foreign_bytes_are_refused() {
    let mut bytes = Vec::new();
    let mut sum = FloatSum::default();
    sum.add(1.5, 1);
    sum.encode(&mut bytes);
    for cut in 0..bytes.len() {
        assert!(FloatSum::decode(&mut &bytes[..cut]).is_none(), "{cut}");
    }
    bytes[40] = 0xff;
    bytes[41] = 0xff;
    assert!(FloatSum::decode(&mut &bytes[..]).is_none());
}
