//! What an operation does to a dynamic table's state, as compact blocks.
//!
//! A block is a varint count and then entries in order: tag (1 byte), key (length-prefixed), and for
//! a put the value (length-prefixed).

use bytes::Bytes;
use flow_core::codec::{Malformed, Reader, put_prefixed, put_varint};

use crate::delta::BLOCK_BYTES;

const REMOVE: u8 = 0;
const PUT: u8 = 1;

/// Appends one block of as many entries as fill it; returns how many.
pub(crate) fn encode(out: &mut Vec<u8>, entries: &[(Bytes, Option<Bytes>)]) -> usize {
    let bytes = |(key, value): &(Bytes, Option<Bytes>)| key.len() + value.as_ref().map_or(0, Bytes::len);
    let mut size = 0;
    let count = entries
        .iter()
        .take_while(|entry| {
            let begun = size < BLOCK_BYTES;
            size += bytes(entry);
            begun
        })
        .count();
    put_varint(out, count as u64);
    for (key, value) in &entries[..count] {
        out.push(if value.is_some() { PUT } else { REMOVE });
        put_prefixed(out, key);
        if let Some(value) = value {
            put_prefixed(out, value);
        }
    }
    count
}

/// Is what a block does to one key; `None` removes it.
pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Reads a whole block back.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Change<'_>>, Malformed> {
    let mut reader = Reader::new(bytes);
    let count = reader.varint("entry count")?;
    let mut out = Vec::new();
    for _ in 0..count {
        let tag = reader.u8("entry tag")?;
        let key = reader.prefixed("entry key")?;
        let value = match tag {
            REMOVE => None,
            PUT => Some(reader.prefixed("entry value")?),
            _ => return Err(reader.malformed("entry tag")),
        };
        out.push((key, value));
    }
    match reader.is_empty() {
        true => Ok(out),
        false => Err(reader.malformed("block end")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &[u8], value: Option<&[u8]>) -> (Bytes, Option<Bytes>) {
        (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice))
    }

    #[test]
    fn what_is_put_in_comes_out_and_every_cut_is_an_error() {
        let entries = [entry(b"a", Some(b"1")), entry(b"", None), entry(b"c", Some(b""))];
        let mut bytes = Vec::new();
        assert_eq!(encode(&mut bytes, &entries), 3);
        let lent: Vec<Change<'_>> = entries.iter().map(|(k, v)| (&k[..], v.as_deref())).collect();
        assert_eq!(decode(&bytes).expect("a block"), lent);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut {cut}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err());
    }

    #[test]
    fn a_block_ends_at_its_size_and_holds_one_entry_at_least() {
        let entries = vec![entry(b"key", Some(&vec![7; BLOCK_BYTES / 2])); 5];
        let mut bytes = Vec::new();
        assert_eq!(encode(&mut bytes, &entries), 2);
        let large = [entry(b"key", Some(&vec![7; BLOCK_BYTES * 2])), entry(b"l", None)];
        bytes.clear();
        assert_eq!(encode(&mut bytes, &large), 1);
        assert_eq!(decode(&bytes).expect("a block").len(), 1);
    }
}
