//! Whatever a body holds, the request is done or refused: nothing breaks, and a refusal changes nothing.

use flow_lake::{Refusal, View};
use serde_json::{Value, json};

use super::{Served, append_body, document, mine, request, schema};
use crate::fixture::{Draw, property_budget};

fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("main"),
        json!("x\u{0}y"),
        json!("../../etc"),
        json!("s3://x/y"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!({"type": "struct", "fields": []}),
    ]
}

/// Lists the paths of all values in a document.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            let path = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
            found.push(path.clone());
            paths(value, &path, found);
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
            let path = format!("{at}/{index}");
            found.push(path.clone());
            paths(value, &path, found);
        }),
        _ => {}
    }
}

/// Changes one place of a document: a field goes, an item comes twice, or a value is another.
fn mutate(document: &mut Value, draw: &mut Draw) {
    let mut found = Vec::new();
    paths(document, "", &mut found);
    if found.is_empty() {
        return;
    }
    let path = &found[draw.below(found.len())];
    let (above, last) = path.rsplit_once('/').expect("a path");
    match (draw.below(3), document.pointer_mut(above)) {
        (0, Some(Value::Object(fields))) => {
            fields.remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        (1, Some(Value::Array(items))) => {
            let copy = items[last.parse::<usize>().expect("an index")].clone();
            items.push(copy);
        }
        _ => {
            let odd = odd_values();
            let place = document.pointer_mut(path).expect("is there");
            *place = odd[draw.below(odd.len())].clone();
        }
    }
}

#[tokio::test]
async fn any_body_is_done_or_refused() {
    let served = Served::new().await;
    let table = document(&served.create("t").await);
    let create = json!({
        "name": "new", "schema": schema(), "location": null, "stage-create": false,
        "partition-spec": {"spec-id": 0, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b", "field-id": 1000}]},
        "write-order": {"order-id": 1, "fields":
            [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]},
        "properties": {"a": "b"},
    });
    let mut commit = append_body(&table);
    commit["updates"].as_array_mut().expect("a list").extend([
        json!({"action": "add-schema", "schema": schema(), "last-column-id": 3}),
        json!({"action": "set-current-schema", "schema-id": -1}),
        json!({"action": "add-spec", "spec": {"fields": [{"source-id": 1, "transform": "day", "name": "d"}]}}),
        json!({"action": "set-default-spec", "spec-id": -1}),
        json!({"action": "add-sort-order", "sort-order": {"order-id": 1, "fields":
            [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}}),
        json!({"action": "remove-snapshots", "snapshot-ids": [7]}),
        json!({"action": "remove-properties", "removals": ["x"]}),
    ]);
    let mut staged = commit.clone();
    staged["requirements"] = json!([{"type": "assert-create"}]);
    let bodies = [create, commit, staged];
    let (begun, budget) = (tokio::time::Instant::now(), property_budget());
    let mut done = 0;
    for seed in 0.. {
        if begun.elapsed() > budget {
            break;
        }
        let mut draw = Draw(seed);
        let which = draw.below(bodies.len());
        let mut body = bodies[which].clone();
        for _ in 0..=draw.below(3) {
            mutate(&mut body, &mut draw);
        }
        let before = served.pointers().await;
        let change = request(body.clone());
        let answer = match which {
            0 => {
                served
                    .catalog
                    .create_table(View::Live, vec!["mine".into()], change)
                    .await
            }
            1 => served.catalog.commit_table(View::Live, mine("t"), change).await,
            _ => served.catalog.commit_table(View::Live, mine("new"), change).await,
        };
        match answer {
            Ok(_) => done += 1,
            Err(error) => {
                let sound = !matches!(error.refusal, Refusal::Broken | Refusal::Unknown | Refusal::Busy);
                assert!(sound, "seed {seed}: {error:?} for {body}");
                assert_eq!(served.pointers().await, before, "seed {seed}: {error:?} for {body}");
            }
        }
        // What was made goes again, so that the next one can be made.
        for name in ["new", "main"] {
            let drop = served
                .catalog
                .drop_table(View::Live, mine(name), true, request(json!({})));
            if let Err(error) = drop.await {
                assert_eq!(error.refusal, Refusal::NoTable, "seed {seed}: {error:?} for {body}");
            }
        }
    }
    assert!(done > 0, "some bodies stay sound");
}
