//! Histories stay short and lose no live row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use flow_core::Attempt;
use flow_core::lake::SnapshotReader;
use flow_lake::SealInput;
use serde_json::json;
use std::sync::Arc;

use crate::fixture::{
    Readers, Warehouse, append, commit, ids, ids_at, operation, progress, reload, seal, small_batch, small_table,
};

#[tokio::test]
async fn merged_and_trimmed_tables_keep_every_live_row() {
    let warehouse = Warehouse::with(|options| {
        options.keep_snapshots = 5;
        options.keep_for = Duration::ZERO;
    });
    let lake = &warehouse.lake;
    let mut table = small_table(lake, "t").await;
    let mut previous: Option<Arc<str>> = None;
    let commits = 60;
    for n in 0..commits {
        // Each commit adds ten rows and deletes two of the commit before.
        let deletes = previous
            .iter()
            .flat_map(|file| [(file.clone(), 3), (file.clone(), 7)])
            .collect();
        let id = format!("op-{n}");
        let sealed = seal(lake, &table, &id, &[small_batch(n * 10..n * 10 + 10)], deletes).await;
        commit(lake, &id, &[sealed]).await;
        previous = Some(format!("{}/data/{id}-1-0.parquet", table.location()).into());
        table = reload(lake, &table).await;
    }
    let last = (commits - 1) * 10;
    let want: Vec<i64> = (0..commits * 10)
        .filter(|id| *id >= last || (id % 10 != 3 && id % 10 != 7))
        .collect();
    assert_eq!(ids(lake, &table).await, want);
    assert_eq!(ids(&warehouse.reopen(), &table).await, want);
    let snapshots = table.main_snapshots();
    assert_eq!(snapshots.len(), 5);
    for (back, snapshot) in snapshots.iter().rev().enumerate() {
        let rows = ids_at(lake, &table, snapshot.snapshot_id()).await.len();
        assert_eq!(rows, want.len() - back * 8, "{back} snapshots back");
    }

    let mut readers = Readers::start();
    let name = table.name().to_string();
    let rows = readers.rows(lake, &table, &[]);
    let mut seen: Vec<i64> = rows
        .iter()
        .map(|row| row[0].as_ref().expect("key").parse().expect("id"))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, want);
    let description = readers.ask(&json!({"do": "describe", "catalog": lake.catalog_path(), "table": name}));
    let summary = &description["summary"];
    assert_eq!(summary["total-records"], json!((commits * 10).to_string()));
    assert_eq!(
        summary["total-position-deletes"],
        json!(((commits - 1) * 2).to_string())
    );
    assert_eq!(summary["total-data-files"], json!(commits.to_string()));
    assert_eq!(summary["total-delete-files"], json!((commits - 1).to_string()));
    assert_eq!(description["snapshots"], json!(5));
    let manifests = readers.ask(&json!({
        "do": "sql",
        "query": format!("SELECT count(DISTINCT manifest_path) FROM iceberg_metadata('{}')", table.metadata_location()),
    }));
    let count: usize = manifests["rows"][0][0]
        .as_str()
        .expect("a number")
        .parse()
        .expect("a number");
    assert!(
        count < 60,
        "{count} manifests after {commits} commits: nothing was merged"
    );
}

#[tokio::test]
async fn protected_snapshots_outlive_trimming() {
    let warehouse = Warehouse::with(|options| {
        options.keep_snapshots = 1;
        options.keep_for = Duration::ZERO;
    });
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let mut table = append(lake, &table, "op-0", 0..1).await;
    let pinned = table.current_snapshot_id().expect("a snapshot");
    for n in 1..5_i64 {
        let id = operation(&format!("op-{n}"));
        let mut writer = lake.data_writer(&table, &id, Attempt(1), 0).expect("writer");
        writer.write(&small_batch([n])).await.expect("written");
        let input = SealInput {
            operation: &id,
            attempt: Attempt(1),
            added: writer.finish().await.expect("finished"),
            deletes: Vec::new(),
            summary: BTreeMap::new(),
            properties: BTreeMap::new(),
            protected: BTreeSet::from([pinned]),
        };
        let sealed = lake.seal(&table, input).await.expect("sealed");
        lake.commit(&[sealed], &progress(id.as_str())).await.expect("committed");
        table = reload(lake, &table).await;
    }
    let kept: Vec<i64> = table.main_snapshots().iter().map(|s| s.snapshot_id()).collect();
    assert_eq!(kept, [pinned, table.current_snapshot_id().expect("current")]);
    assert_eq!(ids_at(lake, &table, pinned).await, [0]);
    assert_eq!(ids(lake, &table).await, [0, 1, 2, 3, 4]);
    let info = SnapshotReader::load(lake, table.name())
        .await
        .expect("loads")
        .expect("exists");
    assert_eq!(info.snapshots.iter().map(|s| s.snapshot_id).collect::<Vec<_>>(), kept);
}

#[tokio::test]
async fn only_metadata_that_left_the_log_long_ago_is_deleted() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    let short_log = [("write.metadata.previous-versions-max".to_owned(), "2".to_owned())];
    let mut table = lake
        .set_properties(table.name(), BTreeMap::from(short_log))
        .await
        .expect("set");
    let mut locations = vec![table.metadata_location().to_owned()];
    for n in 0..5 {
        table = append(lake, &table, &format!("op-{n}"), [n]).await;
        locations.push(table.metadata_location().to_owned());
    }
    let there = |location: &String| Path::new(location).exists();
    assert_eq!(
        lake.clean_metadata().await.expect("cleaned"),
        0,
        "an hour has not passed"
    );
    warehouse.clock.add(Duration::from_secs(3601));
    let expired = lake.clean_metadata().await.expect("cleaned");
    // Of seven files, the current one and the two in its log stay.
    assert_eq!(expired, 4);
    assert_eq!(locations.iter().filter(|l| there(l)).count(), 3);
    assert!(locations.iter().rev().take(3).all(there));
    assert_eq!(lake.clean_metadata().await.expect("cleaned"), 0);
    assert_eq!(ids(&warehouse.reopen(), &table).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_clock_that_goes_back_does_not_stop_commits() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let table = small_table(lake, "t").await;
    warehouse.clock.add(Duration::from_secs(24 * 3600));
    let table = append(lake, &table, "op-0", [0]).await;
    let lake = warehouse.reopen();
    // A day back: the same lake with the real time.
    let other = flow_lake::Lake::open(
        flow_lake::LakeOptions::new(lake.warehouse()),
        Arc::new(crate::fixture::TestClock::default()),
    )
    .expect("opens");
    let table = append(&other, &table, "op-1", [1]).await;
    let times: Vec<i64> = table.main_snapshots().iter().map(|s| s.timestamp_ms()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert_eq!(ids(&other, &table).await, [0, 1]);
}
