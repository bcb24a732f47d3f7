//! Tables beside their commits: one cut of all, removing an empty one, and shapes that others change.

use std::collections::BTreeMap;

use flow_core::{Remedial, Remedy, TableName};
use flow_lake::{LakeError, Look};
use serde_json::{Value, json};

use crate::fixture::{Warehouse, append, commit, ids, progress, reload, seal, small_batch, small_table};

#[tokio::test]
async fn a_cut_has_every_table_once_and_all_at_one_moment() {
    const COMMITS: i64 = 30;
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    assert!(lake.cut().await.expect("reads").is_empty());
    let (mut a, mut b) = (small_table(lake, "a").await, small_table(lake, "b").await);
    let names = [a.name().clone(), b.name().clone()];
    let cut = lake.cut().await.expect("reads");
    assert_eq!(cut, BTreeMap::from(names.clone().map(|name| (name, None))));

    // Another process reads cuts while both tables move together.
    let reader = warehouse.reopen();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let reading = tokio::spawn(async move {
        let mut seen = Vec::new();
        while stopped.try_recv().is_err() {
            seen.push(reader.cut().await.expect("reads"));
        }
        seen
    });
    let mut made = vec![(None, None)];
    for n in 0..COMMITS {
        let id = format!("op-{n}");
        let both = [
            seal(lake, &a, &id, &[small_batch([n])], Vec::new()).await,
            seal(lake, &b, &id, &[small_batch([n])], Vec::new()).await,
        ];
        commit(lake, &id, &both).await;
        (a, b) = (reload(lake, &a).await, reload(lake, &b).await);
        made.push((a.current_snapshot_id(), b.current_snapshot_id()));
    }
    stop.send(()).expect("still reading");
    let seen = reading.await.expect("no panic");
    assert!(seen.len() > 2, "{} cuts", seen.len());
    for cut in &seen {
        let pair = (cut[&names[0]], cut[&names[1]]);
        assert!(made.contains(&pair), "{pair:?} was never the state of the lake");
    }
    let last = lake.cut().await.expect("reads");
    assert_eq!((last[&names[0]], last[&names[1]]), *made.last().expect("made"));
}

#[tokio::test]
async fn an_unreadable_table_is_no_cut() {
    let warehouse = Warehouse::new();
    let table = small_table(&warehouse.lake, "t").await;
    std::fs::remove_file(table.metadata_location()).expect("removed");
    let error = warehouse.reopen().cut().await.expect_err("unreadable");
    assert_eq!(error.remedy(), Remedy::BlockTable, "{error:?}");
}

#[tokio::test]
async fn only_an_empty_table_that_did_not_move_is_removed() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let empty = small_table(lake, "t").await;
    // It moves: what is asked for is not what stands there.
    let properties = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let moved = lake.set_properties(empty.name(), properties).await.expect("set");
    assert!(!lake.drop_empty(&empty).await.expect("answers"));
    assert_eq!(reload(lake, &empty).await.uuid(), empty.uuid());

    assert!(lake.drop_empty(&moved).await.expect("answers"));
    assert!(lake.load(empty.name()).await.expect("loads").is_none());
    assert!(lake.list().await.expect("lists").is_empty());
    assert!(!lake.drop_empty(&moved).await.expect("answers"), "gone already");

    // The name is free, and the table of that name is another one.
    let again = small_table(lake, "t").await;
    assert_ne!(again.uuid(), empty.uuid());
    let filled = append(lake, &again, "op-1", 0..3).await;
    for table in [&filled, &again] {
        let outcome = lake.drop_empty(table).await;
        match table.current_snapshot_id() {
            Some(_) => assert!(matches!(outcome, Err(LakeError::Unsupported { .. })), "{outcome:?}"),
            // As an earlier look showed it, empty: it moved since.
            None => assert!(!outcome.expect("answers")),
        }
    }
    assert_eq!(ids(lake, &again).await, [0, 1, 2]);
}

/// Puts changed metadata into the catalog, as another program's commit does.
fn edit(warehouse: &Warehouse, name: &TableName, location: &str, change: impl FnOnce(&mut Value)) {
    let mut metadata: Value =
        serde_json::from_slice(&std::fs::read(location).expect("read")).expect("metadata is JSON");
    change(&mut metadata);
    let next = location.replace("/00", "/77");
    std::fs::write(&next, metadata.to_string()).expect("written");
    let catalog = rusqlite::Connection::open(warehouse.lake.catalog_path()).expect("opens");
    let sql = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ? AND metadata_location = ?";
    let changed = catalog.execute(sql, [next.as_str(), &name.name, location]);
    assert_eq!(changed.expect("updates"), 1);
}

#[tokio::test]
async fn a_shape_that_another_program_changed_is_named() {
    let warehouse = Warehouse::new();
    let lake = &warehouse.lake;
    let check = async |table: &str, change: fn(&mut Value), expected: Option<&str>| {
        let made = small_table(lake, table).await;
        let made = append(lake, &made, &format!("op-{table}"), 0..3).await;
        assert_eq!(made.foreign_shape(), None);
        edit(&warehouse, made.name(), made.metadata_location(), change);
        let changed = reload(lake, &made).await;
        assert_eq!(changed.current_snapshot_id(), made.current_snapshot_id());
        let shape = changed.foreign_shape();
        assert_eq!(shape.is_some(), expected.is_some(), "{table}: {shape:?}");
        let expected = expected.unwrap_or_default();
        assert!(shape.unwrap_or_default().contains(expected), "{table}: no {expected}");
    };
    let nothing: fn(&mut Value) = |_| {};
    check("nothing", nothing, None).await;
    check("property", |m| m["properties"]["owner"] = json!("somebody"), None).await;
    let column = |m: &mut Value| {
        let mut schema = m["schemas"][0].clone();
        schema["schema-id"] = json!(1);
        let field = json!({"id": 3, "name": "theirs", "required": false, "type": "string"});
        schema["fields"].as_array_mut().expect("fields").push(field);
        m["schemas"].as_array_mut().expect("schemas").push(schema);
        m["current-schema-id"] = json!(1);
        m["last-column-id"] = json!(3);
    };
    check("column", column, Some("schema")).await;
    let partition = |m: &mut Value| {
        let field = json!({"name": "id", "transform": "identity", "source-id": 1, "field-id": 1000});
        let spec = json!({"spec-id": 1, "fields": [field]});
        m["partition-specs"].as_array_mut().expect("specs").push(spec);
        m["default-spec-id"] = json!(1);
        m["last-partition-id"] = json!(1000);
    };
    check("partition", partition, Some("partitioned")).await;
    let version = |m: &mut Value| {
        m["format-version"] = json!(3);
        m["next-row-id"] = json!(0);
    };
    check("version", version, Some("format version is 3")).await;
}

#[tokio::test]
async fn a_sealed_snapshot_whose_base_is_damaged_conflicts() {
    for torn in [false, true] {
        let warehouse = Warehouse::new();
        let table = small_table(&warehouse.lake, "t").await;
        let table = append(&warehouse.lake, &table, "op-0", 0..3).await;
        let sealed = seal(&warehouse.lake, &table, "op-1", &[small_batch(3..5)], Vec::new()).await;
        match torn {
            true => std::fs::write(table.metadata_location(), b"{\"format-ver").expect("torn"),
            false => std::fs::remove_file(table.metadata_location()).expect("removed"),
        }
        let lake = warehouse.reopen();
        let outcome = lake.commit(std::slice::from_ref(&sealed), &progress("op-1")).await;
        let conflict = matches!(outcome, Ok(flow_lake::CommitOutcome::Conflict { .. }));
        assert!(conflict, "{outcome:?}");
        let error = lake.look(&sealed).await.expect_err("unreadable");
        assert_eq!(error.remedy(), Remedy::BlockTable, "{error:?}");
        // The process that sealed it still has it all in memory.
        assert_eq!(warehouse.lake.look(&sealed).await.expect("looks"), Look::BaseUnchanged);
    }
}
