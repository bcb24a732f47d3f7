//! Prints how fast the store journals, looks up and applies, in rows per second.
//!
//! `cargo run --release -p flow-store --example store_speed [DIR]`: a million rows of 256 bytes in
//! the index, epochs of 100,000 mixed changes (70 % update, 20 % insert, 10 % delete).

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::time::{Duration, Instant};

use flow_core::operation::Event;
use flow_core::transaction::TransactionMeta;
use flow_core::{Epoch, FileId, Generation, Lsn, OperationId, TableId, TableName};
use flow_store::{CompletionWrites, HotChange, IndexDelta, Kind, Location, NewShare, Store, StoreError, StoreOptions};

const ROWS: u64 = 1_000_000;
const EPOCH_ROWS: u64 = 100_000;
const EPOCHS: u64 = 5;
const ROW_BYTES: usize = 256;
const T: TableId = TableId(1);
const G: Generation = Generation(1);

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn key(n: u64) -> [u8; 8] {
    (n ^ (1 << 63)).to_be_bytes()
}

fn row(seed: u64) -> [u8; ROW_BYTES] {
    let mut row = [b'x'; ROW_BYTES];
    for (n, part) in row.chunks_mut(16).enumerate() {
        part[..8].copy_from_slice(&mix(seed + n as u64).to_le_bytes());
    }
    row
}

/// Is a moment on the wall and on this thread's processor time; the latter holds on a busy machine.
#[derive(Clone, Copy)]
struct Moment(Instant, Duration);

impl Moment {
    fn take() -> Moment {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let ran = text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        Moment(Instant::now(), Duration::from_nanos(ran))
    }

    fn elapsed(self) -> Took {
        let end = Moment::take();
        Took(end.0 - self.0, end.1 - self.1)
    }
}

/// Is a span on the wall and on the processor.
#[derive(Clone, Copy, Default)]
struct Took(Duration, Duration);

impl std::ops::Add for Took {
    type Output = Took;

    fn add(self, other: Took) -> Took {
        Took(self.0 + other.0, self.1 + other.1)
    }
}

fn report(what: &str, rows: u64, took: Took) {
    let each = |span: Duration| span.as_secs_f64() * 1e6 / rows as f64;
    println!(
        "{what:32} {rows:>8} rows  {:>10.0} rows/s  {:>6.3} µs/row  {:>6.3} µs/row on the processor",
        1e6 / each(took.0),
        each(took.0),
        each(took.1)
    );
}

fn location(n: u64) -> Location {
    Location {
        file: FileId(1 + n / EPOCH_ROWS),
        position: n % EPOCH_ROWS,
    }
}

fn copy(store: &Store) -> Result<(), StoreError> {
    let began = Moment::take();
    let mut writer = store.index().bulk(T, G);
    for n in 0..ROWS {
        writer.put(&key(n), location(n), Some(&row(n)))?;
    }
    writer.finish()?;
    report("bulk copy with row copies", ROWS, began.elapsed());
    Ok(())
}

/// Journals as many transactions of `changes` rows as make half a million rows, a sync every 2 MB.
fn journal(store: &Store, first: u64, changes: u64) -> Result<u64, StoreError> {
    let journal = store.journal();
    let rows = EPOCH_ROWS * EPOCHS;
    let chunk = row(1).repeat(changes as usize);
    let began = Moment::take();
    let mut unsynced = 0;
    for n in 0..rows / changes {
        let commit = first + n * 100;
        journal.stage_chunk(Lsn(commit), 0, &chunk)?;
        journal.stage_commit(&TransactionMeta {
            commit_lsn: Lsn(commit),
            end_lsn: Lsn(commit + 50),
            commit_time: 0,
            xid: 1,
            chunks: 1,
            changes,
            bytes: chunk.len() as u64,
        })?;
        unsynced += chunk.len();
        if unsynced > 2 << 20 {
            journal.sync()?;
            unsynced = 0;
        }
    }
    journal.sync()?;
    report(&format!("journal, {changes} rows each"), rows, began.elapsed());
    let began = Moment::take();
    let mut bytes = 0;
    for transaction in journal.transactions(Lsn(first - 1), journal.position()) {
        for chunk in journal.chunks(&transaction?) {
            bytes += chunk?.len() as u64;
        }
    }
    assert_eq!(bytes, rows * ROW_BYTES as u64, "every chunk is read");
    report(&format!("journal read, {changes} rows each"), rows, began.elapsed());
    journal.forget(journal.position())?;
    Ok(journal.position().0 + 50)
}

fn publish(store: &Store, epoch: u64) -> Result<Took, StoreError> {
    let changes: Vec<(u64, u64)> = (0..EPOCH_ROWS)
        .map(|n| match mix(epoch << 32 | n) % 10 {
            0..7 => (mix(n * 7 + epoch) % ROWS, 0),
            7..9 => (ROWS + epoch * EPOCH_ROWS + n, 0),
            _ => (mix(n * 11 + epoch) % ROWS, 1),
        })
        .collect();
    let keys: Vec<[u8; 8]> = changes.iter().map(|(n, _)| key(*n)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let began = Moment::take();
    let found = store.index().locate(T, G, &keys)?;
    let locate = began.elapsed();
    assert!(found.iter().flatten().count() > 0, "updates find their rows");
    let began = Moment::take();
    let hot = store.index().hot(T, G, &keys)?;
    let hot_took = began.elapsed();
    assert!(hot.iter().flatten().count() > 0, "updates find their rows");
    let rows: Vec<[u8; ROW_BYTES]> = (0..EPOCH_ROWS).map(|n| row(n * epoch)).collect();

    let operations = store.operations();
    let kind = Kind::Epoch {
        epoch: Epoch(epoch),
        from: Lsn(epoch - 1),
        to: Lsn(epoch),
        commit_time_us: 0,
    };
    let share = NewShare {
        target: TableName::new("bronze", "t"),
        table: Some(T),
        generation: G,
        base_snapshot: None,
    };
    let began = Moment::take();
    let mut operation = operations.begin(|seq| OperationId::new(format!("op-{seq}")), kind, vec![share])?;
    let begin = began.elapsed();
    let began = Moment::take();
    let mut delta = IndexDelta::new();
    let mut blocks = 0;
    for (at, ((n, delete), row)) in changes.iter().zip(&rows).enumerate() {
        let location = Location {
            file: FileId(1000 + epoch),
            position: at as u64,
        };
        match delete {
            0 => delta.put(&key(*n), location, HotChange::Keep(row)),
            _ => delta.remove(&key(*n), true),
        }
        if delta.is_full() {
            operations.stage_block(operation.seq(), 0, blocks, &delta)?;
            delta.clear();
            blocks += 1;
        }
    }
    operations.stage_block(operation.seq(), 0, blocks, &delta)?;
    operation.shares[0].blocks = blocks + 1;
    operation.shares[0].plan = Some(vec![0; 10_000]);
    operation.step(0, Event::Seal).expect("allowed");
    let stage = began.elapsed();
    let began = Moment::take();
    operations.seal(&operation)?;
    let seal = began.elapsed();
    operation.step(0, Event::Committed).expect("allowed");
    let began = Moment::take();
    operations.proof(&operation)?;
    while operations.apply_block(&mut operation, 0)? {}
    operations.complete(operation, &CompletionWrites::default())?;
    let apply = began.elapsed();
    report("  locate", EPOCH_ROWS, locate);
    report("  hot rows", EPOCH_ROWS, hot_took);
    report("  stage blocks", EPOCH_ROWS, stage);
    report("  apply and complete", EPOCH_ROWS, apply);
    println!("  begin {:?}, seal {:?}", begin.0, seal.0);
    Ok(locate + stage + apply)
}

fn main() -> Result<(), StoreError> {
    let dir = std::env::args_os().nth(1);
    let temporary = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(StoreOptions {
        dir: dir.map_or_else(|| temporary.path().join("state"), Into::into),
        memory_bytes: 256 << 20,
    })?;
    let mut next = 1000;
    for changes in [1, 10, 1000] {
        next = journal(&store, next, changes)?;
    }
    copy(&store)?;
    let mut took = Took::default();
    for epoch in 1..=EPOCHS {
        println!("epoch {epoch}");
        took = took + publish(&store, epoch)?;
    }
    report("locate + stage + apply, all", EPOCH_ROWS * EPOCHS, took);
    for (family, bytes) in store.sizes()? {
        println!("{family:16} {bytes:>12} bytes");
    }
    Ok(())
}
