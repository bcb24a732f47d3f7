//! Other programs on the same catalog: they read, list, write, and are noticed.

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use flow_core::TableName;
use flow_core::lake::SnapshotReader;
use flow_lake::{CommitOutcome, Look};
use futures::TryStreamExt;
use serde_json::json;

use crate::fixture::{Readers, Warehouse, append, commit, ids, progress, reload, seal, small_batch, small_table};

#[tokio::test]
async fn pyiceberg_lists_reads_and_appends_and_we_conflict() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let catalog = lake.catalog_path().to_owned();
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", 0..3).await;
    let mut readers = Readers::start();
    let list = readers.ask(&json!({"do": "list", "catalog": catalog}));
    assert_eq!(list, json!({"namespaces": ["bronze"], "tables": ["bronze.t"]}));
    assert_eq!(readers.rows(lake, &table, &[]).len(), 3);

    let sealed = seal(lake, &table, "op-1", &[small_batch(3..5)], Vec::new()).await;
    readers.ask(&json!({"do": "append", "catalog": catalog, "table": "bronze.t"}));
    let outcome = lake
        .commit(std::slice::from_ref(&sealed), &progress("op-1"))
        .await
        .expect("answers");
    assert!(matches!(outcome, CommitOutcome::Conflict { .. }), "{outcome:?}");
    assert_eq!(lake.look(&sealed).await.expect("looks"), Look::BaseMoved);

    let foreign = reload(lake, &table).await;
    assert!(foreign.current_is_foreign());
    assert_eq!(
        foreign.foreign_snapshots(),
        [foreign.current_snapshot_id().expect("a snapshot")]
    );
    let sealed = seal(lake, &foreign, "op-2", &[small_batch(3..5)], Vec::new()).await;
    commit(lake, "op-2", &[sealed]).await;
    let table = reload(lake, &table).await;
    assert!(!table.current_is_foreign());
    assert_eq!(table.foreign_snapshots().len(), 1);
    let seen = ids(lake, &table).await;
    assert_eq!((seen.len(), seen.iter().filter(|id| **id >= 3).count()), (6, 2));
    assert_eq!(readers.rows(lake, &table, &[]).len(), 6);
}

#[tokio::test]
async fn racing_another_process_loses_nothing() {
    const OURS: i64 = 12;
    const THEIRS: usize = 12;
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let table = append(lake, &table, "op-0", [1000]).await;
    let mut readers = Readers::start();
    readers.ask(&json!({"do": "list", "catalog": lake.catalog_path()}));
    readers.send(&json!({"do": "append", "catalog": lake.catalog_path(), "table": "bronze.t", "times": THEIRS}));
    let mut conflicts = 0;
    for n in 0..OURS {
        for attempt in 0.. {
            let id = format!("op-{n}-{attempt}x");
            let base = reload(lake, &table).await;
            let sealed = seal(lake, &base, &id, &[small_batch([n])], Vec::new()).await;
            // Give the other process time to move the base, without waiting for it.
            if attempt == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(40)).await;
            }
            match lake.commit(&[sealed], &progress(&id)).await.expect("answers") {
                CommitOutcome::Committed => break,
                CommitOutcome::Conflict { .. } => conflicts += 1,
                CommitOutcome::Unknown { error } => panic!("{error:?}"),
            }
        }
    }
    readers.answer();
    let table = reload(lake, &table).await;
    let seen = ids(lake, &table).await;
    assert_eq!(
        seen.iter().filter(|id| **id < OURS).count(),
        OURS as usize,
        "{seen:?}, {conflicts} conflicts"
    );
    assert_eq!(seen.len(), OURS as usize + 1 + THEIRS, "{conflicts} conflicts");
    assert_eq!(readers.rows(lake, &table, &[]).len(), seen.len());
}

#[tokio::test]
async fn foreign_tables_are_read_at_any_snapshot() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    small_table(lake, "ours").await;
    let mut readers = Readers::start();
    let made = readers.ask(&json!({"do": "create", "catalog": lake.catalog_path(), "table": "bronze.theirs"}));
    let name = TableName::new("bronze", "theirs");
    let table = SnapshotReader::load(lake, &name).await.expect("loads").expect("exists");
    assert_eq!(
        table.snapshots.last().map(|s| json!(s.snapshot_id)),
        Some(made["snapshot"].clone())
    );
    for (snapshot, rows) in [(&table.snapshots[0], 2), (table.snapshots.last().expect("current"), 3)] {
        for projection in [None, Some(vec![2, 0]), Some(vec![3, 0]), Some(vec![])] {
            let width = projection.as_ref().map_or(4, Vec::len);
            let stream = lake.scan(&name, snapshot.snapshot_id, projection).await.expect("scan");
            let batches: Vec<_> = stream.try_collect().await.expect("batches");
            assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), rows);
            assert!(batches.iter().all(|b| b.num_columns() == width));
            if width == 4 {
                assert!(batches.iter().all(|b| b.schema() == table.schema));
            }
            // Each column has its own values, in whatever order they are asked for.
            for batch in &batches {
                let numbers = |name| Some(batch.column_by_name(name)?.as_primitive::<Int32Type>().values());
                if let (Some(n), Some(m)) = (numbers("n"), numbers("m")) {
                    assert!(n.iter().zip(m).all(|(n, m)| n * 10 == *m), "{n:?} {m:?}");
                }
            }
        }
    }
    let error = lake
        .scan_located(&name, table.snapshots[0].snapshot_id)
        .await
        .err()
        .expect("refused");
    assert_eq!(error.table, "bronze.theirs");
}
