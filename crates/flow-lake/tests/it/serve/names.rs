//! Names and places: what lists show, what a name may be, where a table may lie.

use flow_lake::{Page, Refusal, Reply, Snapshots, View, table_name};
use serde_json::{Value, json};

use super::{Answer, Served, document, mine, own, refusal, request, schema};
use crate::fixture::append;

#[tokio::test]
async fn namespaces_nest_and_have_properties() {
    let served = Served::new().await;
    let catalog = &served.catalog;
    served.create_namespace(&["a", "b", "c"]).await.expect("made");
    let list = async |parent: &[&str]| {
        let parent = parent.iter().map(|level| (*level).to_owned()).collect();
        document(&catalog.namespaces(View::Live, parent, Page::default()).await)["namespaces"].clone()
    };
    assert_eq!(list(&[]).await, json!([["a"], ["bronze"], ["mine"]]));
    assert_eq!(list(&["a"]).await, json!([["a", "b"]]));
    assert_eq!(list(&["a", "b", "c"]).await, json!([]));
    for (levels, expect) in [
        (&["a"][..], Refusal::Exists),
        (&["a", "b"], Refusal::Exists),
        (&[], Refusal::BadRequest),
        (&["x.y"], Refusal::BadRequest),
        (&["x", ""], Refusal::BadRequest),
        (&["_flow_x"], Refusal::Forbidden),
        (&["x\u{1f}"], Refusal::BadRequest),
    ] {
        assert_eq!(refusal(&served.create_namespace(levels).await), expect, "{levels:?}");
    }
    let a = || vec!["a".to_owned()];
    let update = |body: Value| catalog.update_namespace(View::Live, a(), request(body));
    let answer = document(&update(json!({"updates": {"k": "v", "l": "w"}})).await);
    assert_eq!(answer, json!({"updated": ["k", "l"], "removed": [], "missing": []}));
    let answer = document(&update(json!({"removals": ["k", "z"]})).await);
    assert_eq!(answer, json!({"updated": [], "removed": ["k"], "missing": ["z"]}));
    let both = update(json!({"removals": ["k"], "updates": {"k": "v"}}));
    assert_eq!(refusal(&both.await), Refusal::Unprocessable);
    let own = update(json!({"updates": {"exists": "no"}}));
    assert_eq!(refusal(&own.await), Refusal::BadRequest);
    let shown = document(&catalog.namespace(View::Live, a()).await);
    assert_eq!(shown, json!({"namespace": ["a"], "properties": {"l": "w"}}));
    let drop = |levels: &[&str]| {
        let levels = levels.iter().map(|level| (*level).to_owned()).collect();
        catalog.drop_namespace(View::Live, levels, request(json!({})))
    };
    assert_eq!(refusal(&drop(&["a"]).await), Refusal::NotEmpty);
    assert_eq!(refusal(&drop(&["bronze"]).await), Refusal::NotEmpty);
    assert_eq!(refusal(&drop(&["none"]).await), Refusal::NoNamespace);
    for levels in [&["a", "b", "c"][..], &["a", "b"], &["a"]] {
        drop(levels).await.expect("dropped");
    }
    assert_eq!(list(&[]).await, json!([["bronze"], ["mine"]]));
}

/// Walks all pages of a list of five hundred names each; gives the names and the pages' sizes.
async fn pages<F: Future<Output = Answer>>(key: &str, list: impl Fn(Page) -> F) -> (Vec<Value>, Vec<usize>) {
    let (mut token, mut names, mut sizes) = (String::new(), Vec::new(), Vec::new());
    loop {
        let page = Page {
            token: Some(token),
            size: Some(500),
        };
        let page = document(&list(page).await);
        let more = page[key].as_array().expect("a list").clone();
        sizes.push(more.len());
        names.extend(more);
        match page["next-page-token"].as_str() {
            Some(next) => token = next.to_owned(),
            None => return (names, sizes),
        }
    }
}

#[tokio::test]
async fn a_thousand_names_come_in_pages() {
    let served = Served::new().await;
    let file = rusqlite::Connection::open(served.warehouse.lake.catalog_path()).expect("opens");
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1099)";
    file.execute_batch(&format!(
        "INSERT INTO iceberg_namespace_properties {numbers} SELECT 'flow', format('many.n%04d', i), 'exists', 'true' FROM n;
         INSERT INTO iceberg_tables {numbers} SELECT 'flow', 'mine', format('t%04d', i), '/x', NULL, 'TABLE' FROM n;"
    ))
    .expect("inserted");
    let catalog = &served.catalog;
    let tables = |page: Page| catalog.tables(View::Live, vec!["mine".into()], page);
    let (names, sizes) = pages("identifiers", tables).await;
    assert_eq!(sizes, [500, 500, 100]);
    assert_eq!(names[1099], json!({"namespace": ["mine"], "name": "t1099"}));
    let below = |page: Page| catalog.namespaces(View::Live, vec!["many".into()], page);
    let (names, sizes) = pages("namespaces", below).await;
    assert_eq!(sizes, [500, 500, 100]);
    assert_eq!(names[1099], json!(["many", "n1099"]));
    // Who asks for no page gets everything; no page has more than a thousand names.
    let first = Some(String::new());
    for (token, size, expect) in [
        (None, None, 1100),
        (first.clone(), None, 1000),
        (first, Some(5000), 1000),
    ] {
        let answer = tables(Page { token, size }).await;
        let names = document(&answer)["identifiers"].as_array().expect("a list").len();
        assert_eq!(names, expect);
    }
    let none = Page {
        token: None,
        size: Some(0),
    };
    assert_eq!(refusal(&tables(none).await), Refusal::BadRequest);
    let none = catalog.tables(View::Live, vec!["none".into()], Page::default());
    assert_eq!(refusal(&none.await), Refusal::NoNamespace);
}

#[tokio::test]
async fn tables_are_renamed_registered_and_dropped() {
    let served = Served::new().await;
    let catalog = &served.catalog;
    let made = document(&served.create("t").await);
    served.create("taken").await.expect("made");
    let rename = |namespace: &str, name: &str| {
        let source = json!({"namespace": ["mine"], "name": "t"});
        let to = json!({"namespace": [namespace], "name": name});
        catalog.rename_table(View::Live, request(json!({"source": source, "destination": to})))
    };
    assert_eq!(refusal(&rename("mine", "taken").await), Refusal::Exists);
    assert_eq!(refusal(&rename("none", "u").await), Refusal::NoNamespace);
    assert_eq!(refusal(&rename("mine", "_flow_x").await), Refusal::Forbidden);
    rename("mine", "u").await.expect("renamed");
    assert_eq!(refusal(&rename("mine", "v").await), Refusal::NoTable);
    assert_eq!(document(&served.load(&mine("u")).await), made);

    let drop = |name: &str, purge: bool| catalog.drop_table(View::Live, mine(name), purge, request(json!({})));
    drop("u", false).await.expect("dropped");
    assert_eq!(refusal(&drop("u", false).await), Refusal::NoTable);
    let place = std::path::PathBuf::from(made["metadata"]["location"].as_str().expect("a place"));
    assert!(place.join("metadata").is_dir(), "its files stay");
    let register = |location: &Value| {
        let change = request(json!({"name": "again", "metadata-location": location}));
        catalog.register_table(View::Live, vec!["mine".into()], change)
    };
    assert_eq!(refusal(&register(&json!("/etc/passwd")).await), Refusal::BadRequest);
    let broken = place.join("metadata/broken.metadata.json");
    std::fs::write(&broken, "{}").expect("written");
    assert_eq!(refusal(&register(&json!(broken)).await), Refusal::BadRequest);
    assert_eq!(document(&register(&made["metadata-location"]).await), made);
    drop("again", true).await.expect("purged");
    assert!(!place.exists(), "its files are gone");
    assert_eq!(served.pointers().await.len(), 2);
}

#[tokio::test]
async fn places_are_inside_the_warehouse_and_apart() {
    let served = Served::new().await;
    let warehouse = served.warehouse.lake.warehouse().to_str().expect("UTF-8").to_owned();
    let outside = served.warehouse.dir.path().join("outside");
    std::fs::create_dir(&outside).expect("made");
    std::os::unix::fs::symlink(&outside, format!("{warehouse}/link")).expect("linked");
    let inner = document(&served.create("t").await)["metadata"]["location"]
        .as_str()
        .expect("a place")
        .to_owned();
    let before = served.pointers().await;
    for place in [
        "/etc".to_owned(),
        "relative".to_owned(),
        "s3://bucket/t".to_owned(),
        format!("hdfs:{warehouse}/x"),
        format!("file://host{warehouse}/x"),
        warehouse.clone(),
        format!("{warehouse}/"),
        format!("{warehouse}/../outside"),
        format!("{warehouse}/a/./b"),
        format!("{warehouse}//a"),
        format!("{warehouse}x/a"),
        format!("{warehouse}/link/t"),
        format!("{warehouse}/bronze/orders"),
        format!("{warehouse}/bronze/orders/deeper"),
        format!("{warehouse}/bronze"),
        inner,
    ] {
        let create = json!({"name": "new", "schema": schema(), "location": place});
        let answer = served.create_with(create).await;
        assert_eq!(refusal(&answer), Refusal::BadRequest, "{place}");
        let move_there = json!({"requirements": [], "updates": [{"action": "set-location", "location": place}]});
        let own_place = place == before["mine.t"].rsplit_once("/metadata/").expect("a file").0;
        if !own_place {
            assert_eq!(
                refusal(&served.commit(&mine("t"), move_there).await),
                Refusal::BadRequest,
                "{place}"
            );
        }
    }
    assert_eq!(served.pointers().await, before);
    assert_eq!(std::fs::read_dir(&outside).expect("is there").count(), 0);
    for place in [
        format!("{warehouse}/chosen/one"),
        format!("file://{warehouse}/chosen/two/"),
    ] {
        let name = place
            .trim_end_matches('/')
            .rsplit_once('/')
            .expect("a path")
            .1
            .to_owned();
        let create = json!({"name": name, "schema": schema(), "location": place});
        document(&served.create_with(create).await);
    }
}

#[tokio::test]
async fn a_loaded_table_is_known_by_its_tag() {
    let served = Served::new().await;
    let catalog = &served.catalog;
    let load = |snapshots, known: Vec<String>| catalog.table(View::Live, own(), snapshots, known);
    let tag_of = |answer: Answer| match answer {
        Ok(Reply::Table { tag, .. } | Reply::Unchanged { tag }) => tag,
        other => panic!("{other:?}"),
    };
    let all = tag_of(load(Snapshots::All, Vec::new()).await);
    let refs = tag_of(load(Snapshots::Refs, Vec::new()).await);
    assert_ne!(all, refs);
    let known = vec!["other".to_owned(), all.clone()];
    assert_eq!(
        load(Snapshots::All, known.clone()).await.expect("known"),
        Reply::Unchanged { tag: all.clone() }
    );
    assert!(matches!(
        load(Snapshots::Refs, known.clone()).await,
        Ok(Reply::Table { .. })
    ));
    let lake = &served.warehouse.lake;
    let table = lake.load(&own()).await.expect("loads").expect("is there");
    append(lake, &table, "op-2", 3..6).await;
    let answer = load(Snapshots::All, known).await;
    assert_eq!(
        document(&answer)["metadata"]["snapshots"]
            .as_array()
            .expect("a list")
            .len(),
        2
    );
    assert_ne!(tag_of(answer), all);
    let refs = document(&load(Snapshots::Refs, Vec::new()).await);
    assert_eq!(refs["metadata"]["snapshots"].as_array().expect("a list").len(), 1);
    assert_eq!(
        refs["metadata"]["snapshots"][0]["snapshot-id"],
        refs["metadata"]["current-snapshot-id"]
    );
    let missing = catalog.table(View::Live, table_name(&["a.b".into()], "t"), Snapshots::All, Vec::new());
    assert_eq!(refusal(&missing.await), Refusal::NoTable);
}
