//! State of dynamic tables against an ordered map, through restarts and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use flow_core::operation::{Event, Phase};
use flow_core::state::{StateBuilder, StateDelta, StateReader, decode_weight, encode_weight};
use flow_core::{Generation, Remedy, TableName};
use flow_store::{
    BLOCK_BYTES, CompletionWrites, Family, Kind, NewShare, OperationRecord, PinnedState, RefreshCompletion, StateId,
    Store,
};
use proptest::prelude::*;

use crate::lifecycle::write_raw;
use crate::records::{refresh, run, stamp};
use crate::support::{id, mix, open, temp};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const HERE: StateId = state(7, 2);

const fn state(number: u32, generation: u32) -> StateId {
    StateId {
        number,
        generation: Generation(generation),
    }
}

pub(crate) fn delta(changes: &[(&[u8], Option<&[u8]>)]) -> StateDelta {
    let own = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    StateDelta(changes.iter().map(|(key, value)| (own(key), value.map(own))).collect())
}

pub(crate) fn dynamic_share() -> NewShare {
    NewShare {
        target: TableName::new("gold", "b"),
        table: None,
        generation: Generation(0),
        base_snapshot: None,
    }
}

pub(crate) fn get(reader: &PinnedState, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let found = reader.get(keys).expect("readable");
    found
        .into_iter()
        .map(|value| value.map(|value| value.to_vec()))
        .collect()
}

/// Reads everything under a prefix.
fn under(reader: &PinnedState, prefix: &[u8]) -> Model {
    let mut out = Model::new();
    let mut take = |number: usize, key: &[u8], value: &[u8]| {
        assert_eq!(number, 0);
        assert!(out.insert(key.to_vec(), value.to_vec()).is_none(), "each key once");
        ControlFlow::Continue(())
    };
    reader.scan(&[prefix], &mut take).expect("readable");
    out
}

fn all(store: &Store, id: StateId) -> Model {
    under(&store.states().reader(id), b"")
}

/// Begins a refresh and stages its delta.
fn staged(store: &Store, change: &StateDelta) -> OperationRecord {
    let operations = store.operations();
    let kind = Kind::Refresh { name: "gold.b".into() };
    let mut operation = operations.begin(id, kind, vec![dynamic_share()]).expect("written");
    let blocks = operations.stage_state(operation.seq(), 0, 0, change).expect("written");
    operation.shares[0].blocks = blocks;
    operation.shares[0].state = Some(HERE);
    operation.shares[0].plan = Some(b"plan".to_vec());
    operation
}

fn seal(store: &Store, operation: &mut OperationRecord) {
    operation.step(0, Event::Seal).expect("allowed");
    store.operations().seal(operation).expect("durable");
}

fn complete(store: &Store, operation: OperationRecord, n: u64) {
    let refresh = RefreshCompletion {
        name: "gold.b".into(),
        record: refresh(n),
        run: Some(run(n)),
    };
    let writes = CompletionWrites {
        refresh: Some(refresh),
        ..CompletionWrites::default()
    };
    store.operations().complete(operation, &writes).expect("written");
}

fn apply(store: &Store, change: &StateDelta) {
    let mut operation = staged(store, change);
    seal(store, &mut operation);
    operation.step(0, Event::Committed).expect("allowed");
    while store.operations().apply_block(&mut operation, 0).expect("applied") {}
    complete(store, operation, 2);
}

/// Is something done to state.
#[derive(Clone, Debug)]
enum Action {
    Put(Vec<u8>, Vec<u8>),
    Add(u8, i64),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, 0xff]), 0..4)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (key(), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(key, value)| Action::Put(key, value)),
        (0_u8..6, -5_i64..5).prop_map(|(key, weight)| Action::Add(key, weight)),
    ]
}

/// Puts what a builder is told into the model too. Keys that are added to begin with `w`.
fn build(store: &Store, id: StateId, actions: &[Action], model: &mut Model) {
    let mut builder = store.states().builder(id);
    for action in actions {
        match action {
            Action::Put(key, value) => {
                builder.put(key, value).expect("written");
                model.insert(key.clone(), value.clone());
            }
            Action::Add(key, weight) => {
                let key = vec![b'w', *key];
                builder.add(&key, *weight).expect("written");
                let stands = model.get(&key).and_then(|value| decode_weight(value)).unwrap_or(0);
                model.insert(key, encode_weight(stands + weight).to_vec());
            }
        }
    }
    assert_eq!(builder.finish().expect("durable"), actions.len() as u64);
}

fn check_against(store: &Store, model: &Model) {
    let reader = store.states().reader(HERE);
    assert_eq!(&under(&reader, b""), model);
    let prefixes: [&[u8]; 7] = [b"", &[0], &[0, 1], &[1], &[0xff], &[0xff, 0xff], b"w"];
    for prefix in prefixes {
        let wanted = model.iter().filter(|(key, _)| key.starts_with(prefix));
        let wanted: Model = wanted.map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(under(&reader, prefix), wanted, "{prefix:?}");
    }
    // All prefixes in one walk, in order and against it; a break ends one prefix only.
    for order in [0..7, 7..14] {
        let at = |n: usize| if n < 7 { n } else { 13 - n };
        let asked: Vec<&[u8]> = order.map(|n| prefixes[at(n)]).collect();
        let mut firsts = BTreeMap::new();
        let mut first = |number: usize, key: &[u8], _: &[u8]| {
            assert!(firsts.insert(number, key.to_vec()).is_none(), "a break ends a prefix");
            ControlFlow::Break(())
        };
        reader.scan(&asked, &mut first).expect("readable");
        for (number, prefix) in asked.iter().enumerate() {
            let wanted = model.keys().find(|key| key.starts_with(prefix));
            assert_eq!(firsts.get(&number), wanted, "{prefix:?}");
        }
    }
    // Neighbours in one walk, each whole.
    let neighbours: [&[u8]; 6] = [&[0], &[0, 0xff], &[1], &[2], &[0xff], b"w"];
    let mut found: BTreeMap<usize, Model> = BTreeMap::new();
    let mut take = |number: usize, key: &[u8], value: &[u8]| {
        found.entry(number).or_default().insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    reader.scan(&neighbours, &mut take).expect("readable");
    for (number, prefix) in neighbours.iter().enumerate() {
        assert_eq!(
            found.remove(&number).unwrap_or_default(),
            under(&reader, prefix),
            "{prefix:?}"
        );
    }
    let mut keys: Vec<&[u8]> = model.keys().map(|key| &key[..]).collect();
    keys.extend([&b"missing"[..], &[], &[0xff, 0xff, 0xff, 0xff]]);
    keys.reverse();
    let wanted: Vec<_> = keys.iter().map(|key| model.get(*key).cloned()).collect();
    assert_eq!(get(&reader, &keys), wanted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn state_is_an_ordered_map(
        built in prop::collection::vec(action(), 0..60),
        changes in prop::collection::vec(
            prop::collection::btree_map(key(), prop::option::of(prop::collection::vec(any::<u8>(), 0..20)), 0..12),
            0..6,
        ),
    ) {
        let dir = temp();
        let mut store = open(dir.path());
        let mut model = Model::new();
        build(&store, HERE, &built, &mut model);
        check_against(&store, &model);
        for (n, change) in changes.iter().enumerate() {
            let lent: Vec<_> = change.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
            let before = store.states().reader(HERE);
            if n % 2 == 0 {
                apply(&store, &delta(&lent));
            } else {
                let put = store.refreshes().put_with_state("gold.b", &refresh(2), Some(&run(2)), &delta(&lent));
                put.expect("written");
            }
            assert_eq!(under(&before, b""), model, "a reader stays at its moment");
            drop(before);
            for (key, value) in change {
                match value {
                    Some(value) => drop(model.insert(key.clone(), value.clone())),
                    None => drop(model.remove(key)),
                }
            }
            check_against(&store, &model);
            if n == 2 {
                drop(store);
                store = open(dir.path());
                check_against(&store, &model);
            }
        }
    }
}

#[test]
fn weights_add_up_across_builders_flushes_and_compactions() {
    const KEYS: u64 = 3000;
    let dir = temp();
    let mut model = Model::new();
    for round in 0..4 {
        // Each round is flushed; a reopened store has them in files only.
        let store = open(dir.path());
        let adds: Vec<_> = (0..KEYS)
            .map(|n| Action::Add((mix(n + round) % 200) as u8, (mix(n * 3 + round) % 7) as i64 - 3))
            .collect();
        build(&store, HERE, &adds, &mut model);
        assert_eq!(all(&store, HERE), model);
    }
    // Compacting is RocksDB's own business; a long history of one key must not change its sum.
    let store = open(dir.path());
    for _ in 0..40 {
        let mut builder = store.states().builder(HERE);
        (0..100).try_for_each(|n| builder.add(b"hot", n)).expect("written");
        builder.finish().expect("durable");
    }
    let weight = get(&store.states().reader(HERE), &[b"hot"])
        .remove(0)
        .expect("is there");
    assert_eq!(decode_weight(&weight), Some(40 * 4950));
    // What is put over a sum replaces it, and is added to again.
    let mut builder = store.states().builder(HERE);
    builder.put(b"hot", &encode_weight(1)).expect("written");
    builder.add(b"hot", 2).expect("written");
    builder.finish().expect("durable");
    let weight = get(&store.states().reader(HERE), &[b"hot"])
        .remove(0)
        .expect("is there");
    assert_eq!(decode_weight(&weight), Some(3));
}

/// Is a delta of several blocks.
fn long_delta(byte: u8) -> (StateDelta, Model) {
    let keys = (0_u32..40).map(u32::to_be_bytes);
    let entries = keys.map(|key| (key.to_vec(), vec![byte; BLOCK_BYTES / 16]));
    let model: Model = entries.collect();
    let lent: Vec<_> = model.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
    (delta(&lent), model)
}

#[test]
fn a_refresh_survives_a_restart_at_every_step() {
    let dir = temp();
    let reopen = |store: Store| {
        drop(store);
        open(dir.path())
    };
    let only = |store: &Store| store.operations().open_operations().expect("readable").remove(0);
    let mut store = open(dir.path());
    let (first, old) = long_delta(1);
    apply(&store, &first);
    assert_eq!(all(&store, HERE), old);

    let (change, new) = long_delta(2);
    let begun = staged(&store, &change);
    assert!(begun.shares[0].blocks > 2, "{}", begun.shares[0].blocks);
    store.sync().expect("synced");
    store = reopen(store);
    // Staged and not sealed: the record knows of no block, and the refresh is given up.
    let mut abandoned = only(&store);
    assert_eq!((abandoned.shares[0].blocks, abandoned.shares[0].state), (0, None));
    abandoned.step(0, Event::SetAside).expect("allowed");
    let nothing = CompletionWrites::default();
    store.operations().complete(abandoned, &nothing).expect("written");
    assert_eq!(all(&store, HERE), old);

    let mut operation = staged(&store, &change);
    seal(&store, &mut operation);
    store = reopen(store);
    let mut operation = only(&store);
    assert_eq!(operation.shares[0].state, Some(HERE));
    assert_eq!(all(&store, HERE), old, "sealed is not applied");
    operation.step(0, Event::MarkerFound).expect("allowed");
    let blocks = operation.shares[0].blocks;
    for block in 1..=blocks {
        assert!(store.operations().apply_block(&mut operation, 0).expect("applied"));
        store.sync().expect("synced");
        store = reopen(store);
        operation = only(&store);
        let Phase::Committed { applied, .. } = operation.shares[0].phase() else {
            panic!("{:?}", operation.shares[0].phase());
        };
        assert_eq!(applied, block, "the cursor moved with the block");
        let stands = all(&store, HERE);
        let moved = stands.iter().filter(|(key, value)| new[*key] == **value).count();
        assert!(
            moved > 0 && (moved < new.len()) == (block < blocks),
            "{moved} after block {block}"
        );
    }
    assert!(!store.operations().apply_block(&mut operation, 0).expect("at the end"));
    complete(&store, operation, 4);
    store.sync().expect("synced");
    store = reopen(store);
    assert_eq!(all(&store, HERE), new);
    assert_eq!(store.refreshes().get("gold.b").expect("readable"), Some(refresh(4)));
    assert_eq!(store.operations().open_operations().expect("readable"), []);
}

#[test]
fn a_replanned_refresh_forgets_its_delta() {
    let dir = temp();
    let store = open(dir.path());
    let (change, _) = long_delta(1);
    let mut operation = staged(&store, &change);
    seal(&store, &mut operation);
    operation.step(0, Event::Conflict).expect("allowed");
    assert_eq!((operation.shares[0].blocks, operation.shares[0].state), (0, None));
}

#[test]
fn states_do_not_see_each_other_and_go_alone() {
    let dir = temp();
    let store = open(dir.path());
    let states = store.states();
    assert_eq!(states.generations().expect("readable"), []);
    let ids = [state(1, u32::MAX), state(2, 0), state(2, 1), state(2, 2), state(3, 0)];
    for (n, id) in ids.iter().enumerate() {
        let mut builder = states.builder(*id);
        for key in 0..2000_u32 {
            builder.put(&key.to_be_bytes(), &[n as u8; 50]).expect("written");
        }
        builder.finish().expect("durable");
    }
    assert_eq!(states.generations().expect("readable"), ids);
    assert!(states.size_bytes(ids[2]) > 1000);
    let before = states.reader(ids[2]);
    states.drop_generation(ids[2]).expect("written");
    assert_eq!(under(&states.reader(ids[2]), b""), Model::new());
    drop(before);
    for (n, id) in ids.iter().enumerate().filter(|(n, _)| *n != 2) {
        let rows = all(&store, *id);
        assert_eq!(rows.len(), 2000);
        assert!(rows.values().all(|value| value[..] == [n as u8; 50]));
    }
    let mut builder = states.builder(ids[2]);
    builder.add(b"again", 5).expect("written");
    builder.finish().expect("durable");
    assert_eq!(all(&store, ids[2]).len(), 1, "a dropped state may be filled again");
    let kept = BTreeSet::from([ids[0], ids[3]]);
    let dropped = states.drop_others(&kept).expect("written");
    assert_eq!(dropped, [ids[1], ids[2], ids[4]]);
    drop((states, store));
    let states = open(dir.path()).states();
    assert_eq!(states.generations().expect("readable"), [ids[0], ids[3]]);
    assert_eq!(
        (
            states.next_number().expect("a number"),
            states.next_number().expect("a number")
        ),
        (1, 2)
    );
}

#[test]
fn an_unfinished_state_is_no_state() {
    let dir = temp();
    let store = open(dir.path());
    let mut builder = store.states().builder(HERE);
    builder.put(b"key", b"value").expect("written");
    drop((builder, store));
    assert_eq!(open(dir.path()).states().generations().expect("readable"), []);
}

#[test]
fn a_reader_outlives_its_store_handle() {
    let dir = temp();
    let store = open(dir.path());
    apply(&store, &delta(&[(b"a", Some(b"1"))]));
    let reader = store.states().reader(HERE);
    drop(store);
    assert_eq!(get(&reader, &[b"a"]), [Some(b"1".to_vec())]);
    drop(reader);
    open(dir.path());
}

#[test]
fn damaged_state_asks_to_be_built_again() {
    let prefix = [7_u32.to_be_bytes(), 2_u32.to_be_bytes()].concat();
    let keyed = |key: &[u8]| [&prefix[..], key].concat();
    let dir = temp();
    apply(&open(dir.path()), &delta(&[(b"a", Some(b"1")), (b"c", Some(b"3"))]));
    write_raw(dir.path(), &[(Family::State, keyed(b"b"), b"nonsense".to_vec())]);
    let store = open(dir.path());
    let reader = store.states().reader(HERE);
    assert_eq!(get(&reader, &[b"c", b"a"]), [Some(b"3".to_vec()), Some(b"1".to_vec())]);
    let visit = &mut |_: usize, _: &[u8], _: &[u8]| ControlFlow::Continue(());
    for error in [
        reader.get(&[b"a", b"b"]).expect_err("damaged"),
        reader.scan(&[b""], visit).expect_err("damaged"),
    ] {
        assert_eq!(error.remedy, Remedy::Replan, "{error:?}");
        assert!(!format!("{error:?}").contains("nonsense"));
    }
}

#[test]
fn stamps_return_and_records_without_one_are_read() {
    let dir = temp();
    let store = open(dir.path());
    let (with, without) = (refresh(2), refresh(1));
    assert_eq!((with.state.clone(), without.state.clone()), (Some(stamp(2)), None));
    let json = serde_json::to_string(&without).expect("serialisable");
    assert!(!json.contains("state"), "{json}");
    store.refreshes().put("gold.a", &with).expect("written");
    store.refreshes().put("gold.b", &without).expect("written");
    drop(store);
    let refreshes = open(dir.path()).refreshes();
    assert_eq!(refreshes.get("gold.a").expect("readable"), Some(with));
    assert_eq!(refreshes.get("gold.b").expect("readable"), Some(without));
}

#[test]
#[should_panic(expected = "each key once, in order")]
fn a_delta_out_of_order_is_not_staged() {
    let dir = temp();
    staged(&open(dir.path()), &delta(&[(b"b", None), (b"a", None)]));
}
