//! Opening, owning, refusing: another process, another owner, another format, bad bytes, a full disk.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flow_core::state::StateReader;
use flow_core::{FileId, Generation, Lsn, Remedial, Remedy, TableId};
use flow_store::{Family, Identity, StateId, Store, StoreError};

use crate::support::{CHILD_DIR, child, epoch, id, identity, meta, open, options, share, table, temp};

#[test]
fn the_directory_is_for_its_owner_and_one_store() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let dir = temp();
    let store = open(dir.path());
    shared(&store);
    let mode = dir.path().join("state").metadata().expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let second = Store::open(options(dir.path())).expect_err("refused");
    assert!(matches!(second, StoreError::Busy { .. }), "{second}");
    assert_eq!((second.remedy(), second.code()), (Remedy::Retry, Some("F0201")));
    assert!(second.to_string().contains(&format!("pid {}", std::process::id())));
    let clone = store.clone();
    drop(store);
    assert!(Store::open(options(dir.path())).is_err(), "a clone holds it");
    drop(clone);
    open(dir.path());
}

#[test]
fn another_process_is_refused_until_this_one_ends() {
    let dir = temp();
    let mut holder = child("lifecycle::holder", dir.path(), "");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(holder.stdout.take().expect("piped"));
    while !line.contains("holding") {
        line.clear();
        let read = std::io::BufRead::read_line(&mut output, &mut line).expect("readable");
        assert!(read > 0, "the holder ended early");
    }
    let refused = Store::open(options(dir.path())).expect_err("refused");
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    open(dir.path());
}

/// Holds a store until it is killed; does nothing when it is not a child.
#[test]
fn holder() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let _store = open(Path::new(&dir));
    println!("holding");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_directory_keeps_its_owner() {
    let dir = temp();
    let store = open(dir.path());
    assert!(store.is_empty().expect("readable"));
    assert_eq!(store.identity().expect("readable"), None);
    store.set_identity(&identity()).expect("written");
    store.set_identity(&identity()).expect("the same again");
    assert!(!store.is_empty().expect("readable"));
    let differ: [fn(&mut Identity); 5] = [
        |other| other.source_id.push('x'),
        |other| other.system_identifier += 1,
        |other| other.slot.push('x'),
        |other| other.database.push('x'),
        |other| other.source_uid.replace_range(0..1, "f"),
    ];
    for change in differ {
        let mut other = identity();
        change(&mut other);
        let error = store.set_identity(&other).expect_err("refused");
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!((error.remedy(), error.code()), (Remedy::Reconfigure, Some("F0204")));
    }
    drop(store);
    assert_eq!(open(dir.path()).identity().expect("readable"), Some(identity()));
}

#[test]
fn empty_means_untouched() {
    for touch in [
        |store: &Store| store.tables().put(&table(1)),
        |store: &Store| store.journal().advance(Lsn(1)),
        |store: &Store| store.facts().set_init(&flow_store::InitState::Intended),
    ] {
        let dir = temp();
        let store = open(dir.path());
        assert!(store.is_empty().expect("readable"));
        touch(&store).expect("written");
        assert!(!store.is_empty().expect("readable"));
    }
}

#[test]
fn a_path_that_is_no_directory_is_the_users_to_change() {
    let dir = temp();
    std::fs::write(dir.path().join("state"), "a file").expect("written");
    let error = Store::open(options(dir.path())).expect_err("refused");
    assert_eq!((error.remedy(), error.code()), (Remedy::Reconfigure, Some("F0202")));
}

#[test]
fn free_space_and_sizes_are_told() {
    let dir = temp();
    let store = open(dir.path());
    assert!(store.free_bytes().expect("an answer") > 0);
    let before = store.sizes().expect("an answer");
    assert_eq!(before.len(), Family::ALL.len());
    store
        .journal()
        .stage_chunk(Lsn(100), 0, &[1; 3 << 20])
        .expect("written");
    let after = store.sizes().expect("an answer");
    let grown = |family| {
        let of = |sizes: &[(Family, u64)]| sizes.iter().find(|(f, _)| *f == family).map_or(0, |(_, bytes)| *bytes);
        of(&after) - of(&before)
    };
    assert!(grown(Family::JournalChunk) >= 3 << 20);
    assert_eq!(grown(Family::Index), 0);
}

/// Writes raw values under the keys of a closed store.
pub(crate) fn write_raw(dir: &Path, values: &[(Family, Vec<u8>, Vec<u8>)]) {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let names = Family::ALL.iter().map(|family| family.name());
    std::fs::create_dir_all(dir.join("state")).expect("a directory");
    let raw = rocksdb::DB::open_cf(&options, dir.join("state/db"), names).expect("opens");
    for (family, key, value) in values {
        let handle = raw.cf_handle(family.name()).expect("opened");
        raw.put_cf(handle, key, value).expect("written");
    }
}

const STATE: StateId = StateId {
    number: 1,
    generation: Generation(1),
};

#[test]
fn bad_bytes_are_errors_that_name_family_and_key() {
    let bad = [
        (Family::Tables, 1u32.to_be_bytes().to_vec()),
        (Family::Files, 1u64.to_be_bytes().to_vec()),
        (Family::Index, [1u32.to_be_bytes(), 1u32.to_be_bytes()].concat()),
        (Family::Hot, [1u32.to_be_bytes(), 1u32.to_be_bytes()].concat()),
        (Family::State, [1u32.to_be_bytes(), 1u32.to_be_bytes()].concat()),
        (Family::JournalTxn, 150u64.to_be_bytes().to_vec()),
        (Family::Operation, b"no operation".to_vec()),
        (Family::Refresh, b"gold.a".to_vec()),
        (
            Family::RefreshRun,
            b"gold.a\x00\x00\x00\x00\x00\x00\x00\x00\x00".to_vec(),
        ),
        (Family::Facts, b"ledger".to_vec()),
    ];
    for (family, key) in bad {
        let dir = temp();
        drop(open(dir.path()));
        write_raw(dir.path(), &[(family, key.clone(), b"nonsense".to_vec())]);
        let outcome = Store::open(options(dir.path())).and_then(|store| {
            store.tables().all()?;
            store.files().path(FileId(1))?;
            store.index().locate(TableId(1), Generation(1), &[b""])?;
            store.index().hot(TableId(1), Generation(1), &[b""])?;
            store.operations().open_operations()?;
            let read = store.states().reader(STATE).get(&[b""]);
            read.map_err(|error| *error.source.downcast::<StoreError>().expect("the store's"))?;
            store.refreshes().all()?;
            store.refreshes().history("gold.a")?;
            store.facts().ledger().map(drop)
        });
        let error = outcome.expect_err("found");
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        match &error {
            StoreError::Corrupt { family: named, key, .. } => assert_eq!((*named, key), (family, &hex)),
            other => panic!("{family}: {other}"),
        }
        assert_eq!((error.remedy(), error.code()), (Remedy::Crash, Some("F0206")));
        assert!(!error.to_string().contains("nonsense"), "the value is not shown");
    }
}

#[test]
fn missing_chunks_and_blocks_are_corruption() {
    let dir = temp();
    let store = open(dir.path());
    let gone = store
        .journal()
        .chunks(&meta(7, &[b"never staged"]))
        .next()
        .expect("one chunk is counted");
    assert!(matches!(gone, Err(StoreError::Corrupt { .. })));
    let mut operation = store.operations().begin(id, epoch(1), vec![share(1)]).expect("written");
    operation.shares[0].blocks = 1;
    operation.step(0, flow_core::operation::Event::Seal).expect("allowed");
    operation
        .step(0, flow_core::operation::Event::Committed)
        .expect("allowed");
    let gone = store.operations().apply_block(&mut operation, 0);
    assert!(matches!(gone, Err(StoreError::Corrupt { .. })));
}

/// A file size limit makes the log's writes fail as a full disk would.
#[test]
fn after_a_failed_write_nothing_is_written() {
    let dir = temp();
    drop(open(dir.path()));
    let limited = child(
        "lifecycle::writer_at_the_limit",
        dir.path(),
        "trap '' XFSZ; ulimit -f 4096;",
    );
    let output = limited.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("poisoned after"), "{text}");
    let journal = open(dir.path()).journal();
    let synced: u64 = text
        .lines()
        .filter_map(|line| line.split_once("poisoned after ")?.1.trim().parse().ok())
        .next()
        .expect("a number");
    assert!(journal.position() >= Lsn(synced * 100 + 50));
    let found = journal.transactions(Lsn::ZERO, journal.position());
    let found: Vec<u64> = found
        .map(|transaction| transaction.expect("readable").end_lsn.0)
        .collect();
    let expected: Vec<u64> = (1..=found.len() as u64).map(|n| n * 100 + 50).collect();
    assert_eq!(found, expected);
}

/// Writes until it cannot, then sees that every later write is refused.
#[test]
fn writer_at_the_limit() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else {
        return;
    };
    let store = open(Path::new(&dir));
    let journal = store.journal();
    let chunk = [7; 100_000];
    let mut synced = 0;
    let failed = (1..1000).find_map(|n| {
        let written = journal
            .stage_chunk(Lsn(n * 100), 0, &chunk)
            .and_then(|_| journal.stage_commit(&meta(n, &[&chunk])))
            .and_then(|_| journal.sync());
        match written {
            Ok(_) => {
                synced = n;
                None
            }
            Err(error) => Some(error),
        }
    });
    let failed = failed.expect("the limit is reached");
    assert!(matches!(failed, StoreError::Write { .. }), "{failed}");
    assert_eq!((failed.remedy(), failed.code()), (Remedy::Crash, Some("F0207")));
    let position = journal.position();
    for refused in [
        store.tables().put(&table(1)),
        journal.advance(Lsn(1 << 40)),
        store.sync(),
        store.files().next_id().map(drop),
        store.index().bulk(TableId(1), Generation(1)).finish().map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Poisoned)), "{refused:?}");
    }
    assert_eq!(journal.position(), position, "nothing more becomes visible");
    println!("poisoned after {synced}");
}
