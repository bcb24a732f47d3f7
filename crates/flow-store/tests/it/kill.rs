//! A writer is killed at random moments; what is found afterwards must continue what it had said.
//!
//! Journal contents, index deltas, row copies and state are functions of the transaction's, epoch's or
//! refresh's number, so the parent can tell what must be there. The writer says each fact on its standard
//! output after it became durable.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use flow_core::operation::{Event, Phase};
use flow_core::state::{StateDelta, StateReader};
use flow_core::{Epoch, Generation, Lsn, TableId};
use flow_store::{
    CompletionWrites, HotChange, IndexDelta, Kind, LedgerPosition, OperationRecord, RefreshCompletion, RefreshRecord,
    Store,
};

use crate::records::{refresh, stamp};
use crate::state::{Model, dynamic_share};
use crate::support::{CHILD_DIR, at, child, id, meta, mix, open, row_at, share, temp};

const ROUNDS: u64 = 12;
const KEYS: u64 = 300;
const T: TableId = TableId(1);
const G: Generation = Generation(1);
const DYNAMIC: &str = "gold.a";

fn chunks_of(n: u64) -> Vec<Vec<u8>> {
    let chunks = mix(n) % 4;
    (0..chunks)
        .map(|chunk| vec![(n + chunk) as u8; (mix(n + chunk) % 3000) as usize])
        .collect()
}

/// Says what an epoch does to a key: `None` nothing, `Some(false)` removes it, `Some(true)` puts it.
fn touches(epoch: u64, key: u64) -> Option<bool> {
    match mix(epoch * KEYS + key) % 5 {
        0 => Some(false),
        1 | 2 => Some(true),
        _ => None,
    }
}

fn copy_of(epoch: u64, key: u64) -> Vec<u8> {
    vec![(epoch ^ key) as u8; (mix(epoch + key) % 400) as usize]
}

/// Is what a refresh does to state: enough for several blocks.
fn state_of(refresh: u64) -> StateDelta {
    let change = |key: u64| {
        let put = touches(refresh + 1_000_000, key)?;
        let value = || Bytes::from(vec![(refresh ^ key) as u8; (mix(refresh + key) % 8000) as usize]);
        Some((Bytes::from(key.to_be_bytes().to_vec()), put.then(value)))
    };
    StateDelta((0..KEYS).filter_map(change).collect())
}

/// Is the record that refresh `n` leaves.
fn record_of(n: u64) -> RefreshRecord {
    RefreshRecord {
        state: Some(stamp(1)),
        ..refresh(n)
    }
}

fn refreshed(store: &Store) -> u64 {
    let record = store.refreshes().get(DYNAMIC).expect("readable");
    record.map_or(0, |record| record.epoch)
}

/// Publishes the next refresh, or moves state alone.
fn refresh_next(store: &Store) {
    let n = refreshed(store) + 1;
    if n.is_multiple_of(3) {
        let moved = store
            .refreshes()
            .put_with_state(DYNAMIC, &record_of(n), None, &state_of(n));
        moved.expect("durable");
        return say(&format!("refreshed {n}"));
    }
    let operations = store.operations();
    let kind = Kind::Refresh { name: DYNAMIC.into() };
    let mut operation = operations.begin(id, kind, vec![dynamic_share()]).expect("durable");
    let blocks = operations
        .stage_state(operation.seq(), 0, 0, &state_of(n))
        .expect("written");
    operation.shares[0].blocks = blocks;
    operation.shares[0].state = Some(stamp(1).id);
    operation.shares[0].plan = Some(n.to_be_bytes().to_vec());
    operation.step(0, Event::Seal).expect("allowed");
    operations.seal(&operation).expect("durable");
    say(&format!("refreshed {n}"));
    operation.step(0, Event::Committed).expect("allowed");
    apply_and_complete(store, operation);
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .expect("the parent listens");
}

/// Resolves what a killed writer left open, as recovery would: what is sealed counts as committed.
fn recover(store: &Store) {
    for mut operation in store.operations().open_operations().expect("readable") {
        match operation.shares[0].phase() {
            Phase::Building { .. } => {
                operation.step(0, Event::SetAside).expect("allowed");
                store
                    .operations()
                    .complete(operation, &CompletionWrites::default())
                    .expect("written");
            }
            Phase::Sealed { .. } => {
                operation.step(0, Event::MarkerFound).expect("allowed");
                apply_and_complete(store, operation);
            }
            Phase::Committed { .. } => apply_and_complete(store, operation),
            phase => panic!("{phase:?} is not stored"),
        }
    }
}

fn apply_and_complete(store: &Store, mut operation: OperationRecord) {
    store.operations().proof(&operation).expect("written");
    while store.operations().apply_block(&mut operation, 0).expect("applied") {}
    let mut writes = CompletionWrites::default();
    match operation.kind() {
        Kind::Epoch { epoch, to, .. } => {
            writes.ledger = Some(LedgerPosition {
                last_epoch: *epoch,
                published_lsn: *to,
            });
        }
        Kind::Refresh { name } => {
            let plan = operation.shares[0].plan.as_deref().expect("sealed");
            let n = u64::from_be_bytes(plan.try_into().expect("a number"));
            writes.refresh = Some(RefreshCompletion {
                name: name.clone(),
                record: record_of(n),
                run: None,
            });
        }
        Kind::Copy { .. } => panic!("no copy is written here"),
    }
    store.operations().complete(operation, &writes).expect("written");
}

fn publish(store: &Store, epoch: u64) {
    let kind = Kind::Epoch {
        epoch: Epoch(epoch),
        from: Lsn(epoch - 1),
        to: Lsn(epoch),
        commit_time_us: 0,
    };
    let mut operation = store.operations().begin(id, kind, vec![share(1)]).expect("durable");
    let file = store.files().next_id().expect("a number");
    say(&format!("file {file}"));
    let mut blocks = 0;
    let mut delta = IndexDelta::new();
    for key in 0..KEYS {
        match touches(epoch, key) {
            Some(true) => delta.put(
                &key.to_be_bytes(),
                at(epoch, key),
                HotChange::Keep(&copy_of(epoch, key)),
            ),
            Some(false) => delta.remove(&key.to_be_bytes(), true),
            None => {}
        }
        if delta.len() == 40 || key == KEYS - 1 {
            store
                .operations()
                .stage_block(operation.seq(), 0, blocks, &delta)
                .expect("written");
            delta.clear();
            blocks += 1;
        }
    }
    operation.shares[0].plan = Some(b"plan".to_vec());
    operation.shares[0].blocks = blocks;
    operation.step(0, Event::Seal).expect("allowed");
    store.operations().seal(&operation).expect("durable");
    say(&format!("sealed {epoch}"));
    operation.step(0, Event::Committed).expect("allowed");
    apply_and_complete(store, operation);
}

/// Journals and publishes until it is killed; does nothing when it is not a child.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let store = open(Path::new(&dir));
    recover(&store);
    let journal = store.journal();
    let mut next = journal.position().0 / 100 + 1;
    loop {
        for _ in 0..mix(next) % 20 {
            let chunks = chunks_of(next);
            let slices: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
            for (number, chunk) in slices.iter().enumerate() {
                journal
                    .stage_chunk(Lsn(next * 100), number as u32, chunk)
                    .expect("written");
            }
            journal.stage_commit(&meta(next, &slices)).expect("written");
            next += 1;
        }
        say(&format!("synced {}", journal.sync().expect("synced").0));
        if next.is_multiple_of(3) {
            journal
                .forget(Lsn(journal.position().0.saturating_sub(5000)))
                .expect("forgotten");
        }
        let ledger = store.facts().ledger().expect("readable");
        publish(&store, ledger.last_epoch.0 + 1);
        refresh_next(&store);
    }
}

/// Is what the parent has been told, over all rounds.
#[derive(Default)]
struct Told {
    synced: u64,
    sealed: u64,
    refreshed: u64,
    files: BTreeSet<u64>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        // The test harness writes its own words before the first line.
        let mut words = line.split(' ').rev();
        let (Some(number), Some(what)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next()) else {
            return;
        };
        match what {
            "synced" => {
                assert!(number >= self.synced, "the position went back");
                self.synced = number;
            }
            "sealed" => self.sealed = self.sealed.max(number),
            "refreshed" => self.refreshed = self.refreshed.max(number),
            "file" => assert!(self.files.insert(number), "file number {number} was given twice"),
            _ => {}
        }
    }
}

fn check_journal(store: &Store, told: &Told) {
    let journal = store.journal();
    assert!(journal.position().0 >= told.synced, "{} was synced", told.synced);
    assert!(journal.forgotten() <= journal.position());
    let mut expected = journal.forgotten().0 / 100 + 1;
    let mut bytes = 0;
    for transaction in journal.transactions(Lsn::ZERO, Lsn(u64::MAX)) {
        let transaction = transaction.expect("readable");
        let chunks = chunks_of(expected);
        let slices: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
        assert_eq!(transaction, meta(expected, &slices));
        let read: Vec<Vec<u8>> = journal
            .chunks(&transaction)
            .map(|c| c.expect("readable").to_vec())
            .collect();
        assert_eq!(read, chunks);
        bytes += transaction.bytes;
        expected += 1;
    }
    assert_eq!(
        (expected - 1) * 100 + 50,
        journal.position().0.max(50),
        "the journal ends at its position"
    );
    assert_eq!(bytes, journal.bytes());
}

fn check_index(store: &Store, told: &Told) {
    let last = store.facts().ledger().expect("readable").last_epoch.0;
    assert!(
        last >= told.sealed,
        "epoch {} was sealed, the ledger has {last}",
        told.sealed
    );
    let keys: Vec<_> = (0..KEYS).map(u64::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = store.index().locate(T, G, &keys).expect("readable");
    let hot = store.index().hot(T, G, &keys).expect("readable");
    for key in 0..KEYS {
        let by = (1..=last).rev().find(|epoch| touches(*epoch, key).is_some());
        let by = by.filter(|epoch| touches(*epoch, key) == Some(true));
        assert_eq!(
            found[key as usize],
            by.map(|epoch| row_at(at(epoch, key), true)),
            "key {key} after epoch {last}"
        );
        assert_eq!(
            hot[key as usize].as_deref(),
            by.map(|epoch| copy_of(epoch, key)).as_deref()
        );
    }
}

fn check_state(store: &Store, told: &Told) {
    let last = refreshed(store);
    assert!(
        last >= told.refreshed,
        "refresh {} was sealed, {last} is there",
        told.refreshed
    );
    let mut wanted = Model::new();
    for (key, value) in (1..=last).flat_map(|n| state_of(n).0) {
        match value {
            Some(value) => drop(wanted.insert(key.to_vec(), value.to_vec())),
            None => drop(wanted.remove(&key[..])),
        }
    }
    let mut found = Model::new();
    let mut take = |_: usize, key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    };
    let reader = store.states().reader(stamp(1).id);
    reader.scan(&[b""], &mut take).expect("readable");
    assert!(found == wanted, "state after refresh {last}");
}

#[test]
fn a_killed_writer_leaves_a_prefix_and_nothing_twice() {
    let dir = temp();
    let mut told = Told::default();
    for round in 0..ROUNDS {
        let mut writer = child("kill::writer", dir.path(), "");
        let mut output = BufReader::new(writer.stdout.take().expect("piped"));
        let mut line = String::new();
        // Lines come between durable steps; how far the writer is past one when it dies is chance.
        for _ in 0..2 + mix(round) % 60 {
            line.clear();
            let read = output.read_line(&mut line).expect("readable");
            assert!(read > 0, "the writer ended by itself");
            told.hear(line.trim_end());
        }
        (0..mix(round + 1000) % 2_000_000).for_each(|_| std::hint::spin_loop());
        writer.kill().expect("killed");
        writer.wait().expect("reaped");
        for line in output.lines() {
            told.hear(&line.expect("readable"));
        }
        let store = open(dir.path());
        check_journal(&store, &told);
        recover(&store);
        check_index(&store, &told);
        check_state(&store, &told);
        told.hear(&format!("file {}", store.files().next_id().expect("a number")));
    }
    assert!(told.synced > 0 && told.sealed > 0 && told.refreshed > 0);
}
