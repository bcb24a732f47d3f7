//! Directories of every version that was ever written still open, or are refused with the right remedy.
//!
//! A fixture is the list of a directory's records. `FLOW_STORE_WRITE_FIXTURE=1` writes the present
//! version's anew; it must then be committed under its version's name.

use std::path::{Path, PathBuf};

use flow_core::operation::{Event, Phase};
use flow_core::state::encode_weight;
use flow_core::{Attempt, Epoch, FileId, Generation, Lsn, Remedial, Remedy, TableId};
use flow_store::{
    CompletionWrites, FORMAT_VERSION, Family, FileRecord, HotChange, IndexDelta, InitState, Kind, LedgerPosition,
    Store, StoreError,
};

use crate::lifecycle::write_raw;
use crate::records::{refresh, run, stamp};
use crate::state::{delta, dynamic_share, get};
use crate::support::{at, epoch, id, identity, meta, open, options, row_at, share, table, temp};

/// Is in the package's folder, where cargo runs its tests.
fn path(version: u32) -> PathBuf {
    PathBuf::from(format!("tests/fixtures/v{version}.json"))
}

fn file() -> FileRecord {
    FileRecord {
        path: "file:///warehouse/bronze/orders/data/op-1-1-0.parquet".into(),
        table: Some(TableId(1)),
        generation: Generation(1),
        rows: 3,
        bytes: 1000,
    }
}

const LEDGER: LedgerPosition = LedgerPosition {
    last_epoch: Epoch(1),
    published_lsn: Lsn(200),
};

/// Writes one record of each kind.
fn fill(store: &Store) {
    store.set_identity(&identity()).expect("written");
    store.facts().set_init(&InitState::Done).expect("written");
    store
        .facts()
        .set_publication(&serde_json::json!({"oid": 1}))
        .expect("written");
    let id_of = store.tables().next_id().expect("a number");
    store.tables().put(&table(id_of.0)).expect("written");
    let number = store.files().next_id().expect("a number");
    store.files().register(&[(number, file())]).expect("written");
    let journal = store.journal();
    for n in 1..=3 {
        journal.stage_chunk(Lsn(n * 100), 0, b"changes").expect("written");
        journal.stage_commit(&meta(n, &[b"changes"])).expect("written");
    }
    journal.sync().expect("synced");
    journal.forget(Lsn(150)).expect("forgotten");
    journal.advance(Lsn(400)).expect("written");
    journal.sync().expect("synced");
    for (n, key) in [(1, b"first"), (2, b"later")] {
        let mut operation = store.operations().begin(id, epoch(n), vec![share(1)]).expect("written");
        let mut delta = IndexDelta::new();
        delta.put(key, at(1, n), HotChange::Keep(&[5; 100]));
        store
            .operations()
            .stage_block(operation.seq(), 0, 0, &delta)
            .expect("written");
        operation.shares[0].plan = Some(b"plan".to_vec());
        operation.shares[0].blocks = 1;
        operation.step(0, Event::Seal).expect("allowed");
        store.operations().seal(&operation).expect("durable");
        if n == 1 {
            operation.step(0, Event::Committed).expect("allowed");
            while store.operations().apply_block(&mut operation, 0).expect("applied") {}
            let ledger = Some(LEDGER);
            let writes = CompletionWrites {
                ledger,
                ..CompletionWrites::default()
            };
            store.operations().complete(operation, &writes).expect("written");
        }
    }
    store.refreshes().put("gold.a", &refresh(1)).expect("written");
    store.refreshes().push_run("gold.a", &run(1)).expect("written");
    assert_eq!(store.states().next_number().expect("a number"), 1);
    let change = delta(&[(b"group", Some(b"state"))]);
    store
        .refreshes()
        .put_with_state("gold.b", &refresh(2), None, &change)
        .expect("written");
    let kind = Kind::Refresh { name: "gold.b".into() };
    let operations = store.operations();
    let mut operation = operations.begin(id, kind, vec![dynamic_share()]).expect("written");
    let change = delta(&[(b"group", None), (b"weight", Some(&encode_weight(-2)))]);
    let blocks = operations.stage_state(operation.seq(), 0, 0, &change).expect("written");
    operation.shares[0].blocks = blocks;
    operation.shares[0].state = Some(stamp(2).id);
    operation.shares[0].plan = Some(b"plan".to_vec());
    operation.step(0, Event::Seal).expect("allowed");
    operations.seal(&operation).expect("durable");
    store.sync().expect("synced");
}

/// Reads every record that `fill` writes.
fn check(store: &Store) {
    assert_eq!(store.identity().expect("readable"), Some(identity()));
    assert_eq!(store.facts().init().expect("readable"), Some(InitState::Done));
    assert_eq!(
        store.facts().publication().expect("readable"),
        Some(serde_json::json!({"oid": 1}))
    );
    assert_eq!(store.facts().ledger().expect("readable"), LEDGER);
    assert_eq!(store.tables().all().expect("readable"), [table(1)]);
    assert_eq!(store.tables().next_id().expect("a number"), TableId(2));
    assert_eq!(store.files().get(FileId(1)).expect("readable"), Some(file()));
    assert!(store.files().next_id().expect("a number") > FileId(1));
    let journal = store.journal();
    assert_eq!((journal.forgotten(), journal.position()), (Lsn(150), Lsn(400)));
    let kept: Vec<_> = journal
        .transactions(Lsn::ZERO, Lsn(400))
        .map(|t| t.expect("readable"))
        .collect();
    assert_eq!(kept, [meta(2, &[b"changes"]), meta(3, &[b"changes"])]);
    assert_eq!(
        journal.chunks(&kept[0]).next().expect("one").expect("readable"),
        "changes"
    );
    let keys: [&[u8]; 2] = [b"first", b"later"];
    let found = |store: &Store| {
        store
            .index()
            .locate(TableId(1), Generation(1), &keys)
            .expect("readable")
    };
    assert_eq!(found(store), [Some(row_at(at(1, 1), true)), None]);
    let hot = store.index().hot(TableId(1), Generation(1), &keys).expect("readable");
    assert_eq!(hot[0].as_deref(), Some(&[5; 100][..]));
    let mut open = store.operations().open_operations().expect("readable");
    assert_eq!(open.len(), 2);
    let mut refreshing = open.remove(1);
    let mut operation = open.remove(0);
    assert_eq!(
        (operation.seq(), operation.id().as_str(), operation.kind()),
        (2, "op-2", &epoch(2))
    );
    assert_eq!(operation.shares[0].phase(), Phase::Sealed { attempt: Attempt(1) });
    assert_eq!(operation.shares[0].plan.as_deref(), Some(&b"plan"[..]));
    operation.step(0, Event::MarkerFound).expect("allowed");
    assert!(store.operations().apply_block(&mut operation, 0).expect("applied"));
    assert_eq!(
        found(store),
        [Some(row_at(at(1, 1), true)), Some(row_at(at(1, 2), true))]
    );
    assert_eq!(
        store.refreshes().all().expect("readable"),
        [("gold.a".to_owned(), refresh(1)), ("gold.b".to_owned(), refresh(2))]
    );
    let values = |store: &Store| get(&store.states().reader(stamp(2).id), &[b"group", b"weight"]);
    assert_eq!(values(store), [Some(b"state".to_vec()), None]);
    refreshing.step(0, Event::MarkerFound).expect("allowed");
    while store.operations().apply_block(&mut refreshing, 0).expect("applied") {}
    assert_eq!(values(store), [None, Some(encode_weight(-2).to_vec())]);
    assert_eq!(store.states().next_number().expect("a number"), 2);
    assert_eq!(store.refreshes().history("gold.a").expect("readable"), [run(1)]);
}

type Record = (String, String, String);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal");
    pairs.map(byte).collect()
}

/// Lists a closed directory's records.
fn dump(dir: &Path) -> Vec<Record> {
    let names: Vec<_> = Family::ALL.iter().map(|family| family.name()).collect();
    let path = dir.join("state/db");
    let raw = rocksdb::DB::open_cf_for_read_only(&rocksdb::Options::default(), path, &names, false).expect("opens");
    let mut out = Vec::new();
    for name in names {
        let handle = raw.cf_handle(name).expect("opened");
        for row in raw.iterator_cf(handle, rocksdb::IteratorMode::Start) {
            let (key, value) = row.expect("readable");
            out.push((name.to_owned(), hex(&key), hex(&value)));
        }
    }
    out
}

/// Makes a directory from a list of records.
fn restore(dir: &Path, records: &[Record]) {
    let family = |name: &str| {
        *Family::ALL
            .iter()
            .find(|family| family.name() == name)
            .expect("a known family")
    };
    let rows: Vec<_> = records
        .iter()
        .map(|(name, key, value)| (family(name), unhex(key), unhex(value)))
        .collect();
    write_raw(dir, &rows);
}

#[test]
fn every_version_opens() {
    if std::env::var_os("FLOW_STORE_WRITE_FIXTURE").is_some() {
        let dir = temp();
        fill(&open(dir.path()));
        let text = serde_json::to_string_pretty(&dump(dir.path())).expect("serialisable");
        std::fs::write(path(FORMAT_VERSION), text + "\n").expect("written");
    }
    for version in 1..=FORMAT_VERSION {
        let text = std::fs::read_to_string(path(version)).expect("a fixture for every version");
        let records: Vec<Record> = serde_json::from_str(&text).expect("a list of records");
        let dir = temp();
        restore(dir.path(), &records);
        check(&open(dir.path()));
    }
}

#[test]
fn what_is_written_is_what_the_fixture_says() {
    let dir = temp();
    fill(&open(dir.path()));
    let text = std::fs::read_to_string(path(FORMAT_VERSION)).expect("a fixture");
    let expected: Vec<Record> = serde_json::from_str(&text).expect("a list of records");
    assert_eq!(
        dump(dir.path()),
        expected,
        "changed bytes need a new version and a new fixture"
    );
}

#[test]
fn another_format_is_the_users_to_change() {
    let refuse = |dir: &Path, says: &str| {
        let error = Store::open(options(dir)).expect_err("refused");
        assert!(matches!(&error, StoreError::Format { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!((error.remedy(), error.code()), (Remedy::Reconfigure, Some("F0203")));
    };
    let dir = temp();
    let mut record = vec![1];
    record.extend_from_slice((FORMAT_VERSION + 1).to_string().as_bytes());
    let sum = crc32fast::hash(&[&b"format"[..], &record].concat());
    record.extend_from_slice(&sum.to_le_bytes());
    write_raw(dir.path(), &[(Family::Facts, b"format".to_vec(), record)]);
    refuse(dir.path(), &(FORMAT_VERSION + 1).to_string());

    let dir = temp();
    drop(open(dir.path()));
    let names = Family::ALL.iter().map(|family| family.name());
    let path = dir.path().join("state/db");
    let mut raw = rocksdb::DB::open_cf(&rocksdb::Options::default(), path, names).expect("opens");
    raw.create_cf("arrangement", &rocksdb::Options::default())
        .expect("made");
    drop(raw);
    refuse(dir.path(), "arrangement");
}

#[test]
fn records_without_a_format_are_corruption() {
    let dir = temp();
    write_raw(
        dir.path(),
        &[(Family::Tables, 1u32.to_be_bytes().to_vec(), b"x".to_vec())],
    );
    let error = Store::open(options(dir.path())).expect_err("refused");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}
