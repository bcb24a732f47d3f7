//! Looking at a lake leaves it, and the place where there is none, as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use flow_core::lake::SnapshotReader;
use flow_core::{Epoch, Lsn, Remedial, Remedy, TableName};
use flow_lake::{Lake, LakeError, LakeOptions, probe};
use futures::TryStreamExt;

use crate::fixture::{TestClock, Warehouse, append, small_table};

fn look(options: &LakeOptions) -> Result<Option<Lake>, LakeError> {
    Lake::open_existing(options.clone(), Arc::new(TestClock::default()))
}

/// Lists everything below a directory with its content.
fn everything(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).expect("is a directory") {
        let path = entry.expect("is listed").path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(everything(&path));
            found.insert(name, Vec::new());
        } else {
            found.insert(name, fs::read(&path).expect("is readable"));
        }
    }
    found
}

#[tokio::test]
async fn where_no_catalog_is_none_is_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = LakeOptions::new(dir.path().join("mistyped/warehouse"));
    assert!(look(&options).expect("answers").is_none());
    probe(&options).expect("could be made");
    assert_eq!(everything(dir.path()), BTreeMap::new());

    let other = dir.path().join("other.db");
    let options = LakeOptions {
        catalog_path: other.clone(),
        ..options
    };
    fs::write(&other, []).expect("is writable");
    assert!(look(&options).expect("answers").is_none(), "an empty database");
    assert!(fs::read(&other).expect("is there").is_empty());
    fs::write(&other, [b'x'; 4096]).expect("is writable");
    let error = look(&options).expect_err("is no database");
    assert_eq!((error.remedy(), error.code()), (Remedy::Reconfigure, Some("F0301")));
}

#[test]
fn a_place_that_cannot_hold_a_lake_is_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("file");
    fs::write(&file, "mine").expect("is writable");
    let error = probe(&LakeOptions::new(file.join("warehouse"))).expect_err("a file is no directory");
    assert_eq!(error.remedy(), Remedy::Reconfigure, "{error}");
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    // Nobody, root neither, makes files there.
    let error = probe(&LakeOptions::new("/proc/self/warehouse")).expect_err("cannot be made");
    assert!(error.to_string().contains("/proc/self"), "{error}");
    assert_eq!(fs::read(&file).expect("is there"), b"mine");
    assert_eq!(fs::read_dir(dir.path()).expect("is there").count(), 1);
}

#[tokio::test]
async fn to_read_a_lake_changes_nothing() {
    let Warehouse { dir, clock: _, lake } = Warehouse::new();
    let table = small_table(&lake, "t").await;
    append(&lake, &table, "op-0", 0..3).await;
    let options = LakeOptions::new(lake.warehouse());
    drop((lake, table));
    let before = everything(dir.path());

    let lake = look(&options).expect("opens").expect("is there");
    let name = TableName::new("bronze", "t");
    assert_eq!(lake.list().await.expect("lists"), std::slice::from_ref(&name));
    let snapshot = lake.cut().await.expect("reads")[&name].expect("a snapshot");
    let rows = lake.scan(&name, snapshot, None).await.expect("reads");
    let rows: Vec<_> = rows.try_collect().await.expect("reads");
    assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 3);
    let error = lake.advance_source("s", Lsn(9), Epoch(1)).await;
    assert_eq!(error.expect_err("is for reading").code(), Some("F0301"));
    drop(lake);
    probe(&options).expect("can be written");
    assert!(everything(dir.path()) == before, "reading changed a file");
}
