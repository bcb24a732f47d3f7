//! The row index: lookups, bulk filling, generations.

use flow_core::{Generation, TableId};

use crate::support::{at, mix, open, row_at, temp};

const T: TableId = TableId(3);
const G: Generation = Generation(1);

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn fill(store: &flow_store::Store, generation: Generation, rows: u64) {
    let mut writer = store.index().bulk(T, generation);
    for n in 0..rows {
        // Even keys have a copy, of a size that makes some of them blobs.
        let copy = vec![n as u8; (n % 200) as usize];
        let hot = n.is_multiple_of(2).then_some(&copy[..]);
        writer.put(&key(n), at(generation.0.into(), n), hot).expect("written");
    }
    assert_eq!(writer.rows(), rows);
    assert_eq!(writer.finish().expect("durable"), rows);
}

fn count(store: &flow_store::Store, generation: Generation, rows: u64) -> usize {
    let keys: Vec<_> = (0..rows).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = store.index().locate(T, generation, &keys).expect("read");
    let hot = store.index().hot(T, generation, &keys).expect("read");
    let count = found.iter().flatten().count();
    assert_eq!(hot.iter().flatten().count(), count.div_ceil(2));
    count
}

#[test]
fn many_keys_are_found_in_the_order_asked_and_missing_ones_are_none() {
    let dir = temp();
    let store = open(dir.path());
    fill(&store, G, 5000);
    let asked: Vec<u64> = (0..4000).map(|n| mix(n) % 10_000).collect();
    let keys: Vec<_> = asked.iter().map(|n| key(*n)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = store.index().locate(T, G, &keys).expect("read");
    let hot = store.index().hot(T, G, &keys).expect("read");
    for ((n, found), hot) in asked.iter().zip(&found).zip(&hot) {
        assert_eq!(
            *found,
            (*n < 5000).then(|| row_at(at(1, *n), n.is_multiple_of(2))),
            "key {n}"
        );
        let copy = (*n < 5000 && n.is_multiple_of(2)).then(|| vec![*n as u8; (*n % 200) as usize]);
        assert_eq!(hot.as_deref(), copy.as_deref(), "key {n}");
    }
    assert_eq!(store.index().locate(T, G, &[]).expect("read"), []);
}

#[test]
fn generations_and_tables_do_not_see_each_other() {
    let dir = temp();
    let store = open(dir.path());
    fill(&store, G, 3000);
    fill(&store, Generation(2), 1000);
    assert_eq!(count(&store, G, 3000), 3000);
    assert_eq!(count(&store, Generation(2), 3000), 1000);
    assert_eq!(count(&store, Generation(3), 10), 0);
    let other = store.index().locate(TableId(4), G, &[&key(1)]).expect("read");
    assert_eq!(other, [None]);
    store.index().drop_generation(T, G).expect("written");
    assert_eq!(count(&store, G, 3000), 0);
    assert_eq!(count(&store, Generation(2), 3000), 1000);
    fill(&store, G, 10);
    assert_eq!(count(&store, G, 3000), 10, "a dropped generation may be filled again");
}

#[test]
fn bulk_rows_are_durable_once_finished() {
    let dir = temp();
    let store = open(dir.path());
    fill(&store, G, 2000);
    let mut unfinished = store.index().bulk(T, Generation(2));
    unfinished.put(&key(1), at(9, 9), None).expect("written");
    drop((unfinished, store));
    let store = open(dir.path());
    assert_eq!(count(&store, G, 2000), 2000);
    assert_eq!(count(&store, Generation(2), 10), 0);
}

#[test]
fn writers_may_fill_one_generation_together() {
    let dir = temp();
    let store = open(dir.path());
    std::thread::scope(|scope| {
        for part in 0..4u64 {
            let index = store.index();
            scope.spawn(move || {
                let mut writer = index.bulk(T, G);
                for n in (part..8000).step_by(4) {
                    let copy = n.is_multiple_of(2).then_some(&b"copy"[..]);
                    writer.put(&key(n), at(1, n), copy).expect("written");
                }
                writer.finish().expect("durable");
            });
        }
    });
    assert_eq!(count(&store, G, 9000), 8000);
}

/// Is a key so long that a few ten thousand fill several runs.
fn long_key(n: u64) -> Vec<u8> {
    let mut key = n.to_be_bytes().to_vec();
    key.resize(1024, b'k');
    key
}

/// Fills a generation with long keys in this order, and finds every one where it was put last.
fn fill_and_find(order: impl Iterator<Item = u64> + Clone) {
    let dir = temp();
    let store = open(dir.path());
    let mut writer = store.index().bulk(T, G);
    for (position, n) in order.clone().enumerate() {
        writer.put(&long_key(n), at(1, position as u64), None).expect("written");
    }
    writer.finish().expect("durable");
    let left = std::fs::read_dir(dir.path().join("state/incoming")).expect("made at open");
    assert_eq!(left.count(), 0, "every file was taken in");
    drop(store);
    let store = open(dir.path());
    let last: std::collections::BTreeMap<u64, u64> = order.enumerate().map(|(at, n)| (n, at as u64)).collect();
    let keys: Vec<_> = last.keys().map(|n| long_key(*n)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = store.index().locate(T, G, &keys).expect("read");
    for ((n, position), found) in last.iter().zip(found) {
        assert_eq!(found, Some(row_at(at(1, *position), false)), "key {n}");
    }
}

#[test]
fn runs_in_the_order_of_their_keys_are_taken_in() {
    fill_and_find(0..50_000);
}

#[test]
fn runs_in_any_order_are_merged() {
    fill_and_find((0..50_000).rev());
    fill_and_find((0..20_000).chain((0..50_000).map(|n| mix(n) % 40_000)));
}

#[test]
fn a_key_put_again_keeps_the_last_place() {
    fill_and_find((0..40_000).map(|n| n / 2));
}

#[test]
fn what_a_killed_process_left_is_removed() {
    let dir = temp();
    drop(open(dir.path()));
    std::fs::write(dir.path().join("state/incoming/7.sst"), "half a file").expect("written");
    drop(open(dir.path()));
    assert!(!dir.path().join("state/incoming/7.sst").exists());
}

#[test]
fn the_estimate_is_near() {
    let dir = temp();
    let store = open(dir.path());
    fill(&store, G, 20_000);
    fill(&store, Generation(2), 10_000);
    let near = |estimate: u64, rows: u64| estimate.abs_diff(rows) < rows / 3;
    let estimate = store.index().count_estimate(T, G).expect("an answer");
    assert!(near(estimate, 20_000), "{estimate}");
    let estimate = store.index().count_estimate(T, Generation(2)).expect("an answer");
    assert!(near(estimate, 10_000), "{estimate}");
    assert_eq!(store.index().count_estimate(T, Generation(3)).expect("an answer"), 0);
}
