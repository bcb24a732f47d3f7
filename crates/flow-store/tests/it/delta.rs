//! The index delta's encoding, against a list of what was put in.

use flow_store::{BLOCK_BYTES, DeltaEntries, DeltaEntry, IndexDelta};
use proptest::prelude::*;

use crate::support::at;

type Entry = (Vec<u8>, Option<(u64, u64, Option<Vec<u8>>)>);

fn build(entries: &[Entry]) -> IndexDelta {
    let mut delta = IndexDelta::new();
    for (key, put) in entries {
        match put {
            Some((file, position, hot)) => delta.put(key, at(*file, *position), hot.as_deref()),
            None => delta.remove(key),
        }
    }
    delta
}

fn read(bytes: &[u8]) -> Option<Vec<Entry>> {
    let entries = DeltaEntries::new(bytes).ok()?;
    let owned = entries.map(|entry| {
        Some(match entry.ok()? {
            DeltaEntry::Put { key, location, hot } => {
                let put = (location.file.0, location.position, hot.map(<[u8]>::to_vec));
                (key.to_vec(), Some(put))
            }
            DeltaEntry::Remove { key } => (key.to_vec(), None),
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
                prop::option::of((any::<u64>(), any::<u64>(), prop::option::of(prop::collection::vec(any::<u8>(), 0..300)))),
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
    let hot = Some(b"row".to_vec());
    let delta = build(&[(b"a".to_vec(), Some((1, 300, hot))), (b"b".to_vec(), None)]);
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
        delta.put(b"some key", at(1, entries), Some(&[7; 100]));
        entries += 1;
    }
    assert_eq!(delta.len(), entries);
    assert!(delta.bytes() >= BLOCK_BYTES && delta.bytes() < BLOCK_BYTES + 200);
    delta.clear();
    assert!(delta.is_empty() && !delta.is_full());
    assert_eq!(delta, IndexDelta::new());
}
