//! The wrapping of every stored value: version (1 byte), body, CRC-32 of key, version and body (4 bytes).
//!
//! The key is part of the checksum, so that a value never passes under another's name.

use flow_core::codec::Malformed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::layout::Family;

/// Is the version that is written. Reading knows this one only; a changed body takes the next.
const VERSION: u8 = 1;
/// Is the length of what surrounds a body, in bytes.
pub(crate) const OVERHEAD: usize = 5;

fn checksum(key: &[u8], versioned: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(versioned);
    hasher.finalize()
}

/// Wraps a body that `fill` appends to `out`, which is cleared first.
pub(crate) fn seal_into(out: &mut Vec<u8>, key: &[u8], fill: impl FnOnce(&mut Vec<u8>)) {
    out.clear();
    out.push(VERSION);
    fill(out);
    let sum = checksum(key, out);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Wraps a body.
pub(crate) fn seal(key: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + OVERHEAD);
    seal_into(&mut out, key, |out| out.extend_from_slice(body));
    out
}

/// Wraps a value as JSON.
pub(crate) fn seal_json<T: Serialize>(key: &[u8], value: &T) -> Vec<u8> {
    seal(key, &serde_json::to_vec(value).expect("records have text keys only"))
}

/// Takes the body out of a wrapped value.
pub(crate) fn open<'a>(family: Family, key: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let wrapped = bytes.split_last_chunk::<4>();
    let Some((versioned, sum)) = wrapped.filter(|(versioned, _)| !versioned.is_empty()) else {
        return Err(StoreError::corrupt(family, key, "value is too short"));
    };
    if checksum(key, versioned) != u32::from_le_bytes(*sum) {
        return Err(StoreError::corrupt(family, key, "checksum does not match"));
    }
    if versioned[0] != VERSION {
        let what = format!("record version {} is not known", versioned[0]);
        return Err(StoreError::corrupt(family, key, what));
    }
    Ok(&versioned[1..])
}

/// Takes a JSON value out of its wrapping.
pub(crate) fn open_json<T: DeserializeOwned>(family: Family, key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    let body = open(family, key, bytes)?;
    // serde_json's message may quote the value: only its place is kept.
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("{:?} error at column {}", error.classify(), error.column());
        StoreError::corrupt(family, key, what)
    })
}

/// Says that a body broke a rule.
pub(crate) fn malformed(family: Family, key: &[u8]) -> impl FnOnce(Malformed) -> StoreError + '_ {
    move |error| StoreError::corrupt(family, key, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let sealed = seal(b"key", b"body");
        assert_eq!(open(Family::Facts, b"key", &sealed).expect("own record"), b"body");
        assert!(open(Family::Facts, b"kez", &sealed).is_err(), "another key");
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(open(Family::Facts, b"key", &bad).is_err(), "bit {bit}");
        }
        for cut in 0..sealed.len() {
            assert!(open(Family::Facts, b"key", &sealed[..cut]).is_err(), "cut {cut}");
        }
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut out = vec![VERSION + 1, b'x'];
        let sum = checksum(b"k", &out);
        out.extend_from_slice(&sum.to_le_bytes());
        let error = open(Family::Tables, b"k", &out).expect_err("unknown version");
        assert!(error.to_string().contains("version 2"), "{error}");
    }
}
