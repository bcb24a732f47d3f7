//! The journal: order, visibility, forgetting, torn logs.

use flow_core::transaction::TransactionMeta;
use flow_core::{Lsn, Remedial, Remedy};
use flow_store::{Journal, Staged, Store, StoreError};

use crate::support::{meta, open, temp};

fn stage(journal: &Journal, n: u64, chunks: &[&[u8]]) {
    for (number, chunk) in chunks.iter().enumerate() {
        let staged = journal
            .stage_chunk(Lsn(n * 100), number as u32, chunk)
            .expect("written");
        assert_eq!(staged, Staged::Written);
    }
    assert_eq!(
        journal.stage_commit(&meta(n, chunks)).expect("written"),
        Staged::Written
    );
}

fn ends(journal: &Journal, after: u64, up_to: u64) -> Vec<u64> {
    let all = journal.transactions(Lsn(after), Lsn(up_to));
    all.map(|transaction| transaction.expect("readable").end_lsn.0)
        .collect()
}

fn content(journal: &Journal, transaction: &TransactionMeta) -> Vec<Vec<u8>> {
    let chunks = journal.chunks(transaction);
    chunks.map(|chunk| chunk.expect("readable").to_vec()).collect()
}

fn crash(result: Result<impl std::fmt::Debug, StoreError>) -> StoreError {
    let error = result.expect_err("refused");
    assert_eq!(error.remedy(), Remedy::Crash);
    error
}

#[test]
fn transactions_are_seen_after_sync_in_order_with_their_chunks() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    stage(&journal, 1, &[b"one", b"two"]);
    stage(&journal, 2, &[]);
    stage(&journal, 3, &[b"three"]);
    assert_eq!(journal.position(), Lsn::ZERO);
    assert_eq!(journal.staged(), Lsn(350));
    assert_eq!(ends(&journal, 0, u64::MAX), [0; 0], "nothing is visible before sync");
    assert_eq!(journal.sync().expect("synced"), Lsn(350));
    assert_eq!(ends(&journal, 0, u64::MAX), [150, 250, 350]);
    assert_eq!(ends(&journal, 150, 349), [250]);
    assert_eq!(ends(&journal, 150, 350), [250, 350]);
    assert_eq!(content(&journal, &meta(1, &[b"one", b"two"])), [b"one", b"two"]);
    assert_eq!(journal.bytes(), 11);
    drop((journal, store));
    let journal = open(dir.path()).journal();
    assert_eq!(journal.position(), Lsn(350));
    assert_eq!(ends(&journal, 0, u64::MAX), [150, 250, 350]);
    assert_eq!(journal.bytes(), 11);
}

#[test]
fn more_transactions_than_a_page_come_out_once_each() {
    let dir = temp();
    let journal = open(dir.path()).journal();
    for n in 1..=3000 {
        stage(&journal, n, &[b"x"]);
    }
    journal.sync().expect("synced");
    let expected: Vec<u64> = (1..=3000).map(|n| n * 100 + 50).collect();
    assert_eq!(ends(&journal, 0, u64::MAX), expected);
}

#[test]
fn an_lsn_maps_to_one_transaction_for_ever() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    stage(&journal, 1, &[b"one"]);
    assert_eq!(journal.stage_chunk(Lsn(100), 0, b"one").expect("known"), Staged::Known);
    assert_eq!(journal.stage_commit(&meta(1, &[b"one"])).expect("known"), Staged::Known);
    let mut other = meta(1, &[b"one"]);
    other.xid += 1;
    assert!(matches!(
        crash(journal.stage_commit(&other)),
        StoreError::Corrupt { .. }
    ));
    journal.advance(Lsn(1000)).expect("written");
    journal.sync().expect("synced");
    let late = journal.stage_commit(&meta(5, &[]));
    assert!(
        matches!(crash(late), StoreError::OutOfOrder { .. }),
        "5 was said not to be missing"
    );
    journal.forget(Lsn(1000)).expect("forgotten");
    assert_eq!(journal.stage_commit(&meta(5, &[])).expect("before all"), Staged::Known);
}

#[test]
fn chunks_must_be_those_the_commit_counts() {
    let dir = temp();
    let journal = open(dir.path()).journal();
    let staged = |number, chunk: &[u8]| journal.stage_chunk(Lsn(100), number, chunk);
    crash(staged(1, b"no first"));
    staged(0, b"first").expect("written");
    crash(staged(2, b"a gap"));
    crash(journal.stage_chunk(Lsn(200), 1, b"of another"));
    crash(journal.stage_commit(&meta(1, &[b"first", b"second"])));
    // A transaction that is sent again begins again, and may be cut into other chunks.
    staged(0, b"fir").expect("written");
    staged(1, b"st").expect("written");
    staged(0, b"first").expect("written");
    journal.stage_commit(&meta(1, &[b"first"])).expect("written");
    journal.sync().expect("synced");
    assert_eq!(content(&journal, &meta(1, &[b"first"])), [b"first"]);
}

#[test]
fn keepalives_move_the_position_and_survive() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    journal.advance(Lsn(500)).expect("written");
    assert_eq!(journal.position(), Lsn::ZERO);
    assert_eq!(journal.sync().expect("synced"), Lsn(500));
    journal.advance(Lsn(400)).expect("no step back");
    journal.sync().expect("synced");
    assert_eq!(journal.position(), Lsn(500));
    journal.advance(Lsn(600)).expect("written");
    journal.sync().expect("synced");
    assert_eq!(journal.position(), Lsn(600));
    crash(journal.stage_commit(&meta(5, &[])));
    drop((journal, store));
    assert_eq!(open(dir.path()).journal().position(), Lsn(600));
}

#[test]
fn a_transaction_that_never_ended_is_dropped_and_may_come_again() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    stage(&journal, 1, &[b"one"]);
    for number in 0..5 {
        journal.stage_chunk(Lsn(200), number, b"half").expect("written");
    }
    journal.drop_partial().expect("written");
    stage(&journal, 2, &[b"whole"]);
    for number in 0..5 {
        journal.stage_chunk(Lsn(300), number, b"half").expect("written");
    }
    journal.sync().expect("synced");
    drop((journal, store));
    let journal = open(dir.path()).journal();
    assert_eq!(ends(&journal, 0, u64::MAX), [150, 250]);
    stage(&journal, 3, &[b"whole"]);
    journal.sync().expect("synced");
    assert_eq!(content(&journal, &meta(2, &[b"whole"])), [b"whole"]);
    assert_eq!(content(&journal, &meta(3, &[b"whole"])), [b"whole"]);
}

#[test]
fn forgotten_never_passes_synced_and_never_returns() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    for n in 1..=4 {
        stage(&journal, n, &[b"0123456789"]);
    }
    crash(journal.forget(Lsn(150)));
    journal.sync().expect("synced");
    journal.forget(Lsn(250)).expect("forgotten");
    journal.forget(Lsn(150)).expect("nothing to do");
    assert_eq!(journal.forgotten(), Lsn(250));
    assert_eq!(ends(&journal, 0, u64::MAX), [350, 450]);
    assert_eq!(journal.bytes(), 20);
    crash(journal.forget(Lsn(451)));
    drop((journal, store));
    let journal = open(dir.path()).journal();
    assert_eq!(journal.forgotten(), Lsn(250));
    assert_eq!(ends(&journal, 0, u64::MAX), [350, 450]);
    assert_eq!(journal.bytes(), 20);
}

/// Counts the bytes that the journal's families take on disk and in memory.
fn journal_size(store: &Store) -> u64 {
    let sizes = store.sizes().expect("an answer");
    let journal = sizes.iter().filter(|(family, _)| family.name().starts_with("journal"));
    journal.map(|(_, bytes)| bytes).sum()
}

#[test]
fn forgetting_gives_the_disk_back_without_rewriting() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    let mut seed = 1;
    let mut chunk = Vec::new();
    let mut most = 0;
    for n in 1..=400 {
        chunk.clear();
        while chunk.len() < 256 * 1024 {
            seed = crate::support::mix(seed);
            chunk.extend_from_slice(&seed.to_le_bytes());
        }
        stage(&journal, n, &[&chunk]);
        if n % 8 == 0 {
            journal.sync().expect("synced");
            journal.forget(Lsn((n - 2) * 100 + 50)).expect("forgotten");
            most = most.max(journal_size(&store));
        }
    }
    let written = 400 * 256 * 1024;
    assert!(most < written / 2, "{most} bytes held of {written} written");
    assert_eq!(journal.bytes(), 2 * 256 * 1024);
    assert_eq!(ends(&journal, 0, u64::MAX), [39_950, 40_050]);
    assert_eq!(content(&journal, &meta(400, &[&chunk])), [chunk]);
}

#[test]
fn a_torn_log_leaves_whole_transactions_from_the_first_on() {
    let dir = temp();
    let store = open(dir.path());
    let journal = store.journal();
    for n in 1..=40 {
        stage(&journal, n, &[b"one", b"two", b"three"]);
        journal.sync().expect("synced");
    }
    drop((journal, store));
    let database = dir.path().join("state/db");
    let logs = || {
        let entries = std::fs::read_dir(&database).expect("a directory");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect::<Vec<_>>()
    };
    // Opening leaves an empty log beside the one that holds the transactions.
    let size = |path: &std::path::PathBuf| std::fs::metadata(path).expect("a log").len();
    let log = logs().into_iter().max_by_key(size).expect("closing leaves the log");
    let whole = std::fs::read(&log).expect("readable");
    let mut seen = std::collections::BTreeSet::new();
    for cut in (0..whole.len()).step_by(whole.len() / 12) {
        let copy = temp();
        let to = copy.path().join("state/db");
        std::fs::create_dir_all(&to).expect("a directory");
        for entry in std::fs::read_dir(&database).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a file").to_owned();
            std::fs::copy(&path, to.join(name)).expect("copied");
        }
        std::fs::write(to.join(log.file_name().expect("a file")), &whole[..cut]).expect("written");
        let Ok(store) = Store::open(crate::support::options(copy.path())) else {
            assert!(cut < 200, "only the very first record makes a directory ours");
            continue;
        };
        let journal = store.journal();
        let ends = ends(&journal, 0, u64::MAX);
        let expected: Vec<u64> = (1..=ends.len() as u64).map(|n| n * 100 + 50).collect();
        assert_eq!(ends, expected);
        for n in 1..=ends.len() as u64 {
            assert_eq!(
                content(&journal, &meta(n, &[b"one", b"two", b"three"])),
                [&b"one"[..], b"two", b"three"]
            );
        }
        seen.insert(ends.len());
    }
    assert!(seen.len() > 5, "cuts left {seen:?} transactions");
}
