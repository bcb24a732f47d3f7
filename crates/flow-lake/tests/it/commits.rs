//! Commits: all or nothing, once, and never lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use flow_core::{Attempt, Epoch, Lsn, Remedial, Remedy, TableName};
use flow_lake::{CommitOutcome, LakeError, Look, OPERATION_ID, SealInput, Sealed};

use crate::fixture::{
    Warehouse, append, commit, ids, operation, progress, reload, seal, small_batch, small_schema, small_table,
};

/// Stores and restores, as the engine does across a restart.
fn through_json(sealed: &Sealed) -> Sealed {
    let json = serde_json::to_string(sealed).expect("stored");
    let back: Sealed = serde_json::from_str(&json).expect("restored");
    assert_eq!(&back, sealed);
    back
}

#[tokio::test]
async fn two_tables_become_visible_together_or_not_at_all() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let a = small_table(lake, "a").await;
    let b = small_table(lake, "b").await;
    let both = [
        seal(lake, &a, "op-1", &[small_batch(0..10)], Vec::new()).await,
        seal(lake, &b, "op-1", &[small_batch(10..20)], Vec::new()).await,
    ];
    // Another writer moves `b` first.
    append(&warehouse.reopen(), &b, "other", 20..22).await;
    let mut with_advance = progress("op-1");
    with_advance.advance = Some((Lsn(50), Epoch(5)));
    let outcome = lake.commit(&both, &with_advance).await.expect("answers");
    let CommitOutcome::Conflict { tables } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(tables, [b.name().clone()]);
    assert_eq!(reload(lake, &a).await.current_snapshot_id(), None);
    assert_eq!(ids(lake, &b).await, [20, 21]);
    assert_eq!(lake.source_progress("shop").await.expect("answers"), None);
    assert_eq!(lake.look(&both[0]).await.expect("looks"), Look::BaseUnchanged);
    assert_eq!(lake.look(&both[1]).await.expect("looks"), Look::BaseMoved);

    // The next attempt stands on the base as it is.
    let b = reload(lake, &b).await;
    let both = [
        seal(lake, &a, "op-1-again", &[small_batch(0..10)], Vec::new()).await,
        seal(lake, &b, "op-1-again", &[small_batch(10..12)], Vec::new()).await,
    ];
    let outcome = lake.commit(&both, &with_advance).await.expect("answers");
    assert!(matches!(outcome, CommitOutcome::Committed), "{outcome:?}");
    assert_eq!(ids(lake, &a).await, (0..10).collect::<Vec<_>>());
    assert_eq!(ids(lake, &b).await, [10, 11, 20, 21]);
    assert_eq!(
        lake.source_progress("shop").await.expect("answers"),
        Some((Lsn(50), Epoch(5)))
    );
}

#[tokio::test]
async fn a_crash_before_the_catalog_is_finished_by_the_same_snapshot() {
    let warehouse = Warehouse::new();
    let table = small_table(&warehouse.lake, "t").await;
    let table = append(&warehouse.lake, &table, "op-0", 0..5).await;
    let sealed = seal(&warehouse.lake, &table, "op-1", &[small_batch(5..9)], Vec::new()).await;
    let stored = through_json(&sealed);

    // The metadata file is there whole, torn, or not at all; the catalog never heard of it.
    for damage in ["none", "torn", "gone"] {
        match damage {
            "torn" => fs::write(&sealed.metadata_location, b"{\"format-ver").expect("torn"),
            "gone" => fs::remove_file(&sealed.metadata_location).expect("removed"),
            _ => {}
        }
        let lake = warehouse.reopen();
        assert_eq!(
            lake.look(&stored).await.expect("looks"),
            Look::BaseUnchanged,
            "{damage}"
        );
        assert_eq!(ids(&lake, &table).await, [0, 1, 2, 3, 4], "{damage}");
    }
    let lake = warehouse.reopen();
    commit(&lake, "op-1", std::slice::from_ref(&stored)).await;
    let after = reload(&lake, &table).await;
    assert_eq!(after.current_snapshot_id(), Some(sealed.snapshot_id));
    assert_eq!(after.metadata_location(), sealed.metadata_location);
    assert_eq!(ids(&warehouse.reopen(), &table).await, (0..9).collect::<Vec<_>>());
}

#[tokio::test]
async fn sending_again_after_an_unknown_outcome_changes_nothing() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let sealed = seal(lake, &table, "op-1", &[small_batch(0..4)], Vec::new()).await;
    commit(lake, "op-1", std::slice::from_ref(&sealed)).await;
    let found = Look::Found {
        snapshot_id: sealed.snapshot_id,
    };
    for lake in [lake.clone(), warehouse.reopen()] {
        assert_eq!(lake.look(&through_json(&sealed)).await.expect("looks"), found);
        commit(&lake, "op-1", std::slice::from_ref(&sealed)).await;
        assert_eq!(ids(&lake, &table).await, [0, 1, 2, 3]);
    }
    // Also when others have moved on since.
    let table = append(&warehouse.reopen(), &reload(lake, &table).await, "op-2", 4..6).await;
    assert_eq!(lake.look(&sealed).await.expect("looks"), found);
    commit(&warehouse.reopen(), "op-1", std::slice::from_ref(&sealed)).await;
    assert_eq!(ids(lake, &table).await, (0..6).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_look_finds_each_kind_of_marker() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let sealed = seal(lake, &table, "op-1", &[small_batch(0..4)], Vec::new()).await;
    commit(lake, "op-1", std::slice::from_ref(&sealed)).await;
    let found = Look::Found {
        snapshot_id: sealed.snapshot_id,
    };
    let forget = || {
        let catalog = rusqlite::Connection::open(lake.catalog_path()).expect("opens");
        catalog.execute_batch("DELETE FROM flow_commits").expect("forgotten");
    };
    // The snapshot, without the catalog's own record.
    forget();
    assert_eq!(lake.look(&sealed).await.expect("looks"), found);
    // The property, where the snapshot is not retained under its id or marker.
    let mut other = sealed.clone();
    other.snapshot_id += 1;
    other.attempt_id = "op-9-1".to_owned();
    assert_eq!(lake.look(&other).await.expect("looks"), Look::BaseMoved);
    let marker = BTreeMap::from([(OPERATION_ID.to_owned(), "op-9-1".to_owned())]);
    lake.set_properties(table.name(), marker).await.expect("set");
    let found = Look::Found {
        snapshot_id: other.snapshot_id,
    };
    assert_eq!(lake.look(&other).await.expect("looks"), found);
    // A table that is gone is not "base moved".
    let catalog = rusqlite::Connection::open(lake.catalog_path()).expect("opens");
    catalog.execute_batch("DELETE FROM iceberg_tables").expect("dropped");
    let error = lake.look(&sealed).await.expect_err("missing");
    assert_eq!(error.remedy(), Remedy::BlockTable);
    assert!(matches!(error, LakeError::Missing { .. }), "{error:?}");
}

#[tokio::test]
async fn racing_writers_lose_nothing() {
    const COMMITS: i64 = 15;
    let warehouse = Warehouse::new();
    let table = small_table(&warehouse.lake, "t").await;
    let mut writers = Vec::new();
    for writer in 0..2_i64 {
        let (lake, name) = (warehouse.reopen(), table.name().clone());
        writers.push(tokio::spawn(async move {
            let mut conflicts = 0;
            let mut attempt = 0;
            for n in 0..COMMITS {
                loop {
                    let table = lake.load(&name).await.expect("loads").expect("exists");
                    attempt += 1;
                    let id = format!("w{writer}-{attempt}");
                    let row = writer * COMMITS + n;
                    let sealed = seal(&lake, &table, &id, &[small_batch([row])], Vec::new()).await;
                    match lake.commit(&[sealed], &progress(&id)).await.expect("answers") {
                        CommitOutcome::Committed => break,
                        CommitOutcome::Conflict { .. } => conflicts += 1,
                        CommitOutcome::Unknown { error } => panic!("{error:?}"),
                    }
                }
            }
            conflicts
        }));
    }
    let mut conflicts = 0;
    for writer in writers {
        conflicts += writer.await.expect("ends");
    }
    assert!(conflicts > 0, "the writers never met: the test shows nothing");
    assert_eq!(
        ids(&warehouse.reopen(), &table).await,
        (0..2 * COMMITS).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_dropped_commit_is_found_by_a_look() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let mut table = small_table(lake, "t").await;
    for n in 0..10 {
        let id = format!("op-{n}");
        let sealed = seal(lake, &table, &id, &[small_batch([n])], Vec::new()).await;
        let all = [sealed.clone()];
        let progress = progress(&id);
        tokio::select! {
            biased;
            _ = async { for _ in 0..n { tokio::task::yield_now().await } } => {}
            outcome = lake.commit(&all, &progress) => assert!(matches!(outcome, Ok(CommitOutcome::Committed))),
        }
        // Whatever happened, sending it again settles it.
        commit(lake, &id, &all).await;
        table = reload(lake, &table).await;
        assert_eq!(table.current_snapshot_id(), Some(sealed.snapshot_id));
    }
    assert_eq!(ids(lake, &table).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_existing_table_is_not_touched() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    append(lake, &table, "op-1", 0..3).await;
    let error = lake
        .create_table(table.name(), &small_schema(), BTreeMap::new())
        .await
        .expect_err("exists");
    assert_eq!(error.remedy(), Remedy::Reconfigure);
    assert_eq!(error.code(), Some("F0305"));
    assert_eq!(ids(lake, &table).await, [0, 1, 2]);
    assert_eq!(lake.list().await.expect("listed"), [TableName::new("bronze", "t")]);
}

#[tokio::test]
async fn properties_and_markers_travel_with_the_commit() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let id = operation("op-1");
    let mut writer = lake.data_writer(&table, &id, Attempt(2), 0).expect("writer");
    writer.write(&small_batch(0..3)).await.expect("written");
    let added = writer.finish().await.expect("finished");
    assert!(
        added[0].path.ends_with("/data/op-1-2-0.parquet"),
        "a file is known by its attempt: {}",
        added[0].path
    );
    let input = SealInput {
        operation: &id,
        attempt: Attempt(2),
        added,
        deletes: Vec::new(),
        summary: BTreeMap::from([("flow.lsn".to_owned(), "0/2".to_owned())]),
        properties: BTreeMap::from([("flow.lsn".to_owned(), "0/2".to_owned())]),
        protected: BTreeSet::new(),
    };
    let sealed = lake.seal(&table, input).await.expect("sealed");
    commit(lake, "op-1", &[sealed]).await;
    let table = reload(&warehouse.reopen(), &table).await;
    assert_eq!(table.properties()["flow.lsn"], "0/2");
    assert_eq!(table.properties()[OPERATION_ID], "op-1-2");
    assert_eq!(table.current_operation_id(), Some("op-1-2"));
    assert!(!table.current_is_foreign());
    let state = BTreeMap::from([("flow.state".to_owned(), "blocked".to_owned())]);
    lake.set_properties(table.name(), state).await.expect("set");
    let table = reload(&warehouse.reopen(), &table).await;
    assert_eq!(table.properties()["flow.state"], "blocked");
    assert_eq!(table.properties()["flow.lsn"], "0/2");
    assert_eq!(ids(lake, &table).await, [0, 1, 2]);
}

#[tokio::test]
async fn a_published_position_only_grows() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let check = |want: Option<(Lsn, Epoch)>| async move {
        assert_eq!(warehouse_progress(lake).await, want);
    };
    check(None).await;
    lake.advance_source("shop", Lsn(100), Epoch(3)).await.expect("advanced");
    check(Some((Lsn(100), Epoch(3)))).await;
    lake.advance_source("shop", Lsn(99), Epoch(2)).await.expect("kept");
    check(Some((Lsn(100), Epoch(3)))).await;
    lake.advance_source("shop", Lsn(u64::MAX), Epoch(4))
        .await
        .expect("advanced");
    check(Some((Lsn(u64::MAX), Epoch(4)))).await;
}

async fn warehouse_progress(lake: &flow_lake::Lake) -> Option<(Lsn, Epoch)> {
    lake.source_progress("shop").await.expect("answers")
}

#[tokio::test]
async fn unsorted_deletes_are_refused() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let path: Arc<str> = "/x".into();
    for deletes in [
        vec![(path.clone(), 2), (path.clone(), 1)],
        vec![(path.clone(), 1), (path.clone(), 1)],
    ] {
        let id = operation("op-1");
        let error = lake
            .write_deletes(&table, &id, Attempt(1), 0, deletes)
            .await
            .expect_err("refused");
        assert_eq!(error.remedy(), Remedy::Crash);
    }
}
