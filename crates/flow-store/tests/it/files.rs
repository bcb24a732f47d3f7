//! The file register.

use flow_core::{FileId, Generation, TableId};
use flow_store::FileRecord;

use crate::support::{open, temp};

fn record(n: u64) -> FileRecord {
    FileRecord {
        path: format!("file:///warehouse/bronze/orders/data/op-{n}-1-0.parquet"),
        table: Some(TableId(1)),
        generation: Generation(1),
        rows: n,
        bytes: n * 10,
    }
}

#[test]
fn numbers_are_never_given_twice_across_opens() {
    let dir = temp();
    let mut last = FileId(0);
    for _ in 0..3 {
        let store = open(dir.path());
        for _ in 0..5 {
            let file = store.files().next_id().expect("a number");
            assert!(file > last, "{file} after {last}");
            last = file;
        }
        let many = store.files().allocate(10_000).expect("numbers");
        assert!(many.start > last);
        assert_eq!(many.end.0 - many.start.0, 10_000);
        last = FileId(many.end.0 - 1);
    }
}

#[test]
fn records_return_from_memory_and_from_disk_and_go() {
    let dir = temp();
    let store = open(dir.path());
    let files: Vec<_> = (1..=5).map(|n| (FileId(n), record(n))).collect();
    store.files().register(&files).expect("written");
    assert_eq!(
        store.files().path(FileId(3)).expect("read").as_deref(),
        Some(&*record(3).path)
    );
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.files().get(FileId(5)).expect("read"), Some(record(5)));
    assert_eq!(
        store.files().path(FileId(5)).expect("read").as_deref(),
        Some(&*record(5).path)
    );
    assert_eq!(store.files().list(FileId(2), 2).expect("read"), files[1..3]);
    store.files().remove(&[FileId(5)]).expect("written");
    assert_eq!(store.files().path(FileId(5)).expect("read"), None);
    assert_eq!(store.files().path(FileId(77)).expect("read"), None);
}

#[test]
fn paths_stay_right_while_the_memory_turns_over() {
    let dir = temp();
    let store = open(dir.path());
    let files: Vec<_> = (1..=40_000).map(|n| (FileId(n), record(n))).collect();
    store.files().register(&files).expect("written");
    for n in (1..=40_000).step_by(997) {
        let path = store.files().path(FileId(n)).expect("read");
        assert_eq!(path.as_deref(), Some(&*record(n).path));
    }
}
