//! Prints how fast dynamic tables' state is built, read and moved, in entries per second.
//!
//! `cargo run --release -p flow-store --example state_speed [ENTRIES [DIR]]`: rows of one side of a
//! join, four to a key, and weights by digest, each a number of entries that is four million where
//! none is given.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bytes::Bytes;
use flow_core::Generation;
use flow_core::operation::Event;
use flow_core::state::{StateBuilder, StateDelta, StateReader, encode_weight};
use flow_core::{OperationId, TableName};
use flow_store::{CompletionWrites, Kind, NewShare, StateId, Store, StoreOptions};

const ROWS_PER_KEY: u64 = 4;
const VALUE_BYTES: usize = 60;
const ID: StateId = StateId {
    number: 1,
    generation: Generation(1),
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn join_prefix(key: u64) -> Vec<u8> {
    [&[1][..], &mix(key).to_be_bytes()].concat()
}

fn join_key(row: u64) -> Vec<u8> {
    [&join_prefix(row / ROWS_PER_KEY)[..], &row.to_be_bytes()].concat()
}

fn weight_key(row: u64) -> Vec<u8> {
    [&[2][..], &mix(row).to_be_bytes(), &mix(row + 1).to_be_bytes()].concat()
}

fn value(seed: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'x'; VALUE_BYTES];
    for (n, part) in value.chunks_mut(20).enumerate() {
        part[..8].copy_from_slice(&mix(seed + n as u64).to_le_bytes());
    }
    value
}

fn report(what: &str, entries: u64, took: Duration) {
    let each = took.as_secs_f64() * 1e6 / entries as f64;
    println!(
        "{what:32} {entries:>9} entries  {:>10.0} a second  {each:>7.3} µs each",
        1e6 / each
    );
}

fn build(store: &Store, entries: u64) -> Outcome<()> {
    let began = Instant::now();
    let mut builder = store.states().builder(ID);
    for n in 0..entries {
        builder.put(&join_key(n), &value(n))?;
        builder.add(&weight_key(n), 1)?;
    }
    builder.finish()?;
    report("build", 2 * entries, began.elapsed());
    println!("{:32} {:>9} bytes", "size", store.states().size_bytes(ID));
    Ok(())
}

fn read(store: &Store, entries: u64, asked: u64) -> Outcome<()> {
    let reader = store.states().reader(ID);
    let numbers = || (0..asked).map(|n| mix(n) % entries);
    let keys: Vec<Vec<u8>> = numbers().map(weight_key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let began = Instant::now();
    let found = reader.get(&keys)?;
    report("  get weights", asked, began.elapsed());
    assert!(found.iter().all(Option::is_some), "all are there");
    let missing: Vec<Vec<u8>> = numbers().map(|n| weight_key(n + entries)).collect();
    let missing: Vec<&[u8]> = missing.iter().map(|key| &key[..]).collect();
    let began = Instant::now();
    assert!(reader.get(&missing)?.iter().all(Option::is_none), "none is there");
    report("  get what is not there", asked, began.elapsed());
    let mut prefixes: Vec<Vec<u8>> = numbers().map(|n| join_prefix(n / ROWS_PER_KEY)).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    let prefixes: Vec<&[u8]> = prefixes.iter().map(|prefix| &prefix[..]).collect();
    let began = Instant::now();
    let mut rows = 0;
    reader.scan(&prefixes, &mut |_, _, _| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    report(
        "  scan prefixes, four rows each",
        prefixes.len() as u64,
        began.elapsed(),
    );
    assert!(rows >= prefixes.len() as u64, "every key has rows");
    Ok(())
}

fn apply(store: &Store, entries: u64, changed: u64) -> Outcome<()> {
    let mut delta: Vec<(Bytes, Option<Bytes>)> = Vec::new();
    for n in 0..changed / 2 {
        let row = mix(n + 7) % entries;
        delta.push((
            join_key(row).into(),
            (n % 3 > 0).then(|| Bytes::copy_from_slice(&value(row + 1))),
        ));
        delta.push((weight_key(row).into(), Some(Bytes::copy_from_slice(&encode_weight(2)))));
    }
    delta.sort_by(|a, b| a.0.cmp(&b.0));
    delta.dedup_by(|a, b| a.0 == b.0);
    let count = delta.len() as u64;
    let share = NewShare {
        target: TableName::new("gold", "t"),
        table: None,
        generation: Generation(0),
        base_snapshot: None,
    };
    let operations = store.operations();
    let kind = Kind::Refresh { name: "gold.t".into() };
    let mut operation = operations.begin(|seq| OperationId::new(format!("op-{seq}")), kind, vec![share])?;
    let began = Instant::now();
    operation.shares[0].blocks = operations.stage_state(operation.seq(), 0, 0, &StateDelta(delta))?;
    operation.shares[0].state = Some(ID);
    operation.shares[0].plan = Some(Vec::new());
    operation.step(0, Event::Seal).expect("allowed");
    report("  stage", count, began.elapsed());
    operations.seal(&operation)?;
    operation.step(0, Event::Committed).expect("allowed");
    let began = Instant::now();
    while operations.apply_block(&mut operation, 0)? {}
    operations.complete(operation, &CompletionWrites::default())?;
    report("  apply and complete", count, began.elapsed());
    Ok(())
}

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let entries = args.next().map_or(Ok(4_000_000), |text| text.parse())?;
    let temporary = tempfile::tempdir()?;
    let store = Store::open(StoreOptions {
        dir: args.next().map_or_else(|| temporary.path().join("state"), Into::into),
        memory_bytes: 256 << 20,
    })?;
    build(&store, entries)?;
    for changed in [1000, 10_000, 100_000] {
        println!("{changed} changed");
        read(&store, entries, changed)?;
        apply(&store, entries, changed)?;
    }
    Ok(())
}
