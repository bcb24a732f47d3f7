//! The index delta's encoding, against a list of what was put in.

use flow_store::{BLOCK_BYTES, DeltaEntries, DeltaEntry, HotChange, IndexDelta};
use proptest::prelude::*;

use crate::support::at;

/// Is a key with what is put, and the copy: nothing, kept, or dropped.
type Entry = (Vec<u8>, Result<(u64, u64, Result<Vec<u8>, bool>), bool>);

fn build(entries: &[Entry]) -> IndexDelta {
    let mut delta = IndexDelta::new();
    for (key, put) in entries {
        match put {
            Ok((file, position, hot)) => {
                let hot = match hot {
                    Ok(row) => HotChange::Keep(row),
                    Err(true) => HotChange::Drop,
                    Err(false) => HotChange::None,
                };
                delta.put(key, at(*file, *position), hot);
            }
            Err(hot) => delta.remove(key, *hot),
        }
    }
    delta
}

fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    let entries = DeltaEntries::new(bytes).ok()?;
    let owned = entries.map(|entry| {
        Some(match entry.ok()? {
            DeltaEntry::Put { key, location, hot } => {
                let hot = match hot {
                    HotChange::Keep(row) => Ok(row.to_vec()),
                    HotChange::Drop => Err(true),
                    HotChange::None => Err(false),
                };
                (key.to_vec(), Ok((location.file.0, location.position, hot)))
            }
            DeltaEntry::Remove { key, hot } => (key.to_vec(), Err(hot)),
        })
    });
    owned.collect()
}

fn bytes_of(delta: &IndexDelta) -> Vec<u8> {
    let mut out = Vec::new();
    delta.encode(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_put_in_comes_out(
        entries in prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..40),
                prop::result::maybe_ok(
                    (
                        any::<u64>(),
                        any::<u64>(),
                        prop::result::maybe_ok(prop::collection::vec(any::<u8>(), 0..300), any::<bool>()),
                    ),
                    any::<bool>(),
                ),
            ),
            0..20,
        ),
    ) {
        let delta = build(&entries);
        prop_assert_eq!(delta.len(), entries.len() as u64);
        let bytes = bytes_of(&delta);
        prop_assert_eq!(read(&bytes), Some(entries));
        prop_assert_eq!(IndexDelta::decode(&bytes), Ok(delta));
    }

    #[test]
    fn any_bytes_are_a_block_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let good = DeltaEntries::new(&bytes).map(|entries| entries.filter(Result::is_ok).count());
        prop_assert!(good.is_err() || good.is_ok_and(|count| count <= bytes.len()));
    }
}

#[test]
fn every_cut_and_every_addition_is_an_error() {
    let hot = Ok(b"row".to_vec());
    let delta = build(&[(b"a".to_vec(), Ok((1, 300, hot))), (b"b".to_vec(), Err(true))]);
    let bytes = bytes_of(&delta);
    for cut in 0..bytes.len() {
        assert_eq!(read(&bytes[..cut]), None, "cut {cut}");
        assert!(IndexDelta::decode(&bytes[..cut]).is_err());
    }
    let mut long = bytes;
    long.push(0);
    assert_eq!(read(&long), None);
}

#[test]
fn a_block_fills_at_its_size_and_is_reusable() {
    let mut delta = IndexDelta::new();
    let mut entries = 0;
    while !delta.is_full() {
        delta.put(b"some key", at(1, entries), HotChange::Keep(&[7; 100]));
        entries += 1;
    }
    assert_eq!(delta.len(), entries);
    assert!(delta.bytes() >= BLOCK_BYTES && delta.bytes() < BLOCK_BYTES + 200);
    delta.clear();
    assert!(delta.is_empty() && !delta.is_full());
    assert_eq!(delta, IndexDelta::new());
}
