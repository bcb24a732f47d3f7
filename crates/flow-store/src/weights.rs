//! How RocksDB adds weights up, where nobody waits for it.
//!
//! A weight is a value of eight bytes ([`flow_core::state::encode_weight`]), wrapped with its checksum
//! like any other: a checksum costs less than the entry's own comparison in the write buffer, and so
//! a sum that was damaged in memory or in a merge does not pass either.

use flow_core::state::{decode_weight, encode_weight};
use rocksdb::MergeOperands;

use crate::layout::Family;
use crate::record;

/// Is the name under which RocksDB's files know the merging. It is on disk.
pub(crate) const NAME: &str = "flow.weights";

/// Adds up what a key has and what is added to it. `None`, which RocksDB reports as corruption, if a
/// value is damaged or no weight, or the sum is past what a weight holds.
pub(crate) fn add(key: &[u8], stands: Option<&[u8]>, added: &MergeOperands) -> Option<Vec<u8>> {
    sum(key, stands.into_iter().chain(added.iter()))
}

fn sum<'a>(key: &[u8], values: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut total = 0_i64;
    for value in values {
        let body = record::open(Family::State, key, value).ok()?;
        total = total.checked_add(decode_weight(body)?)?;
    }
    Some(record::seal(key, &encode_weight(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_weights_again_and_bad_values_are_none() {
        let weight = |n: i64| record::seal(b"k", &encode_weight(n));
        let total = |values: &[Vec<u8>]| sum(b"k", values.iter().map(|value| &value[..]));
        assert_eq!(total(&[]), Some(weight(0)));
        assert_eq!(total(&[weight(5), weight(-7), weight(1)]), Some(weight(-1)));
        assert_eq!(total(&[weight(i64::MAX), weight(1)]), None);
        assert_eq!(total(&[weight(1), record::seal(b"k", b"no weight")]), None);
        assert_eq!(total(&[record::seal(b"other", &encode_weight(1))]), None);
        let mut damaged = weight(1);
        damaged[2] ^= 1;
        assert_eq!(total(&[damaged]), None);
    }
}
