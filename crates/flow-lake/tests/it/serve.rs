//! The catalog as other programs change it: what is done, what is refused, and that a refusal
//! changes nothing.

mod bodies;
mod names;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use flow_core::TableName;
use flow_lake::{Refusal, Reply, Request, ServeError, ServedCatalog, Snapshots, View};
use serde_json::{Value, json};

use crate::fixture::{Warehouse, append, small_schema, small_table};

/// Is a lake with an own table, `bronze.orders`, and the catalog served over it.
struct Served {
    warehouse: Warehouse,
    catalog: ServedCatalog,
}

type Answer = Result<Reply, ServeError>;

impl Served {
    async fn new() -> Served {
        let warehouse = Warehouse::new();
        let own = small_table(&warehouse.lake, "orders").await;
        append(&warehouse.lake, &own, "op-1", 0..3).await;
        let catalog = warehouse.lake.serve().expect("serves");
        let served = Served { warehouse, catalog };
        served.create_namespace(&["mine"]).await.expect("made");
        served
    }

    async fn create_namespace(&self, levels: &[&str]) -> Answer {
        let change = request(json!({ "namespace": levels }));
        self.catalog.create_namespace(View::Live, change).await
    }

    async fn create(&self, name: &str) -> Answer {
        self.create_with(json!({"name": name, "schema": schema()})).await
    }

    async fn create_with(&self, body: Value) -> Answer {
        let change = request(body);
        self.catalog.create_table(View::Live, vec!["mine".into()], change).await
    }

    async fn load(&self, name: &TableName) -> Answer {
        let load = self.catalog.table(View::Live, name.clone(), Snapshots::All, Vec::new());
        load.await
    }

    async fn commit(&self, name: &TableName, body: Value) -> Answer {
        let change = request(body);
        self.catalog.commit_table(View::Live, name.clone(), change).await
    }

    async fn transact(&self, changes: &[(&TableName, Value)]) -> Answer {
        let changes: Vec<Value> = changes
            .iter()
            .map(|(name, change)| {
                let mut change = change.clone();
                change["identifier"] = json!({"namespace": [name.schema], "name": name.name});
                change
            })
            .collect();
        let change = request(json!({ "table-changes": changes }));
        self.catalog.commit_transaction(View::Live, change).await
    }

    /// Is everything that the catalog shows: a refusal must leave it as it is.
    async fn pointers(&self) -> BTreeMap<String, String> {
        let lake = &self.warehouse.lake;
        let mut pointers = BTreeMap::new();
        for name in lake.list().await.expect("lists") {
            let table = lake.load(&name).await.expect("loads").expect("is there");
            pointers.insert(name.to_string(), table.metadata_location().to_owned());
        }
        pointers
    }
}

fn request(body: Value) -> Request {
    Request {
        key: None,
        target: "POST /v1".to_owned(),
        body: body.to_string().into(),
    }
}

fn mine(name: &str) -> TableName {
    TableName::new("mine", name)
}

fn own() -> TableName {
    TableName::new("bronze", "orders")
}

fn schema() -> Value {
    json!({"type": "struct", "schema-id": 0, "fields": [
        {"id": 1, "name": "id", "type": "long", "required": false},
        {"id": 2, "name": "tags", "required": false,
         "type": {"type": "list", "element-id": 3, "element": "string", "element-required": false}},
    ]})
}

fn document(answer: &Answer) -> Value {
    match answer {
        Ok(Reply::Table { json, .. } | Reply::Json(json)) => serde_json::from_slice(json).expect("JSON"),
        other => panic!("no document: {other:?}"),
    }
}

fn refusal(answer: &Answer) -> Refusal {
    match answer {
        Ok(reply) => panic!("not refused: {reply:?}"),
        Err(error) => error.refusal,
    }
}

/// Adds a snapshot on what `table` shows, as a client's append does.
fn append_body(table: &Value) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    let metadata = &table["metadata"];
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let current = metadata["current-snapshot-id"].as_i64().filter(|id| *id > 0);
    let snapshot = json!({
        "snapshot-id": id,
        "parent-snapshot-id": current,
        "sequence-number": metadata["last-sequence-number"].as_i64().expect("a number") + 1,
        "timestamp-ms": metadata["last-updated-ms"].as_i64().expect("a time") + 1,
        "manifest-list": format!("{}/metadata/snap-{id}.avro", metadata["location"].as_str().expect("a place")),
        "summary": {"operation": "append"},
        "schema-id": 0,
    });
    json!({
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": current},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": id},
        ],
    })
}

fn set_property(key: &str, value: &str) -> Value {
    json!({"requirements": [], "updates": [{"action": "set-properties", "updates": {key: value}}]})
}

#[tokio::test]
async fn nobody_else_changes_an_own_table() {
    let served = Served::new().await;
    served.create("t").await.expect("made");
    let before = served.pointers().await;
    let loaded = document(&served.load(&own()).await);
    let stale =
        json!({"requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 7}], "updates": []});
    let create = json!({"requirements": [{"type": "assert-create"}], "updates": []});
    let commits = [append_body(&loaded), stale, create, set_property("a", "b")];
    for body in commits {
        let answer = served.commit(&own(), body.clone()).await;
        assert_eq!(refusal(&answer), Refusal::Forbidden, "{body}");
        let both = [(&mine("t"), set_property("a", "b")), (&own(), body)];
        assert_eq!(refusal(&served.transact(&both).await), Refusal::Forbidden);
    }
    for purge in [false, true] {
        let drop = served.catalog.drop_table(View::Live, own(), purge, request(json!({})));
        assert_eq!(refusal(&drop.await), Refusal::Forbidden);
    }
    let source = json!({"namespace": ["bronze"], "name": "orders"});
    let rename = request(json!({"source": source, "destination": {"namespace": ["mine"], "name": "o"}}));
    assert_eq!(
        refusal(&served.catalog.rename_table(View::Live, rename).await),
        Refusal::Forbidden
    );
    let register = request(json!({"name": "copy", "metadata-location": before["bronze.orders"]}));
    let registered = served.catalog.register_table(View::Live, vec!["mine".into()], register);
    assert_eq!(refusal(&registered.await), Refusal::Forbidden);
    assert_eq!(served.pointers().await, before);
}

#[tokio::test]
async fn own_tables_of_an_earlier_version_are_known_by_their_property() {
    let warehouse = Warehouse::new();
    let properties = BTreeMap::from([("flow.source-id".to_owned(), "shop".to_owned())]);
    let table = warehouse.lake.create_table(&own(), &small_schema(), properties).await;
    table.expect("made");
    let file = rusqlite::Connection::open(warehouse.lake.catalog_path()).expect("opens");
    file.execute_batch("DROP TABLE flow_tables").expect("dropped");
    drop(file);
    let catalog = warehouse.reopen().serve().expect("serves");
    let answer = catalog
        .commit_table(View::Live, own(), request(set_property("a", "b")))
        .await;
    assert_eq!(refusal(&answer), Refusal::Forbidden);
}

#[tokio::test]
async fn a_commit_is_done_or_leaves_nothing() {
    let served = Served::new().await;
    let created = document(&served.create("t").await);
    let t = mine("t");
    let append = append_body(&created);
    let committed = document(&served.commit(&t, append.clone()).await);
    assert_ne!(committed["metadata-location"], created["metadata-location"]);
    assert_eq!(document(&served.load(&t).await), committed);

    let before = served.pointers().await;
    let folder = std::path::Path::new(created["metadata"]["location"].as_str().expect("a place")).join("metadata");
    let files = || std::fs::read_dir(&folder).expect("is there").count();
    let files_before = files();
    let check = async |body: Value, expect: Refusal| {
        let answer = served.commit(&t, body.clone()).await;
        assert_eq!(refusal(&answer), expect, "{body} {answer:?}");
    };
    let mut stale = append_body(&created);
    check(stale.clone(), Refusal::Conflict).await;
    stale["updates"][0]["action"] = json!("add-wings");
    check(stale, Refusal::BadRequest).await;
    check(
        json!({"requirements": [{"type": "assert-moon-phase"}], "updates": []}),
        Refusal::BadRequest,
    )
    .await;
    check(json!({"updates": []}), Refusal::BadRequest).await;
    check(
        json!({"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 9}]}),
        Refusal::BadRequest,
    )
    .await;
    check(
        json!({"requirements": [], "updates": [{"action": "assign-uuid", "uuid": uuid::Uuid::new_v4()}]}),
        Refusal::BadRequest,
    )
    .await;
    for key in ["flow.source-id", "flow.operation-id"] {
        check(set_property(key, "x"), Refusal::BadRequest).await;
        let mut spoofed = append_body(&committed);
        spoofed["updates"][0]["snapshot"]["summary"][key] = json!("x");
        check(spoofed, Refusal::BadRequest).await;
    }
    assert_eq!(
        refusal(&served.commit(&mine("none"), set_property("a", "b")).await),
        Refusal::NoTable
    );
    assert_eq!(served.pointers().await, before);
    assert_eq!(files(), files_before);
    // What changes nothing is done, and is no new state.
    let nothing = json!({"requirements": [], "updates": []});
    assert_eq!(document(&served.commit(&t, nothing).await), committed);
}

#[tokio::test]
async fn a_commit_that_took_effect_is_never_a_conflict() {
    let served = Served::new().await;
    let t = mine("t");
    let created = document(&served.create("t").await);
    let first = append_body(&created);
    let committed = document(&served.commit(&t, first.clone()).await);
    assert_eq!(document(&served.commit(&t, first.clone()).await), committed);
    let second = append_body(&committed);
    let later = document(&served.commit(&t, second.clone()).await);
    assert_eq!(
        document(&served.commit(&t, first.clone()).await),
        later,
        "another one is on top"
    );
    let gone = first["updates"][0]["snapshot"]["snapshot-id"].clone();
    let expire = json!({"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [gone]}]});
    let expired = document(&served.commit(&t, expire).await);
    assert_eq!(
        document(&served.commit(&t, first.clone()).await),
        expired,
        "its snapshot is gone"
    );
    // In a transaction, the table that shows it speaks for the one that shows nothing.
    let u = mine("u");
    let other = document(&served.create("u").await);
    let mut property = set_property("a", "b");
    property["requirements"] = json!([{"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3}]);
    let add = json!({"action": "add-schema", "schema": {"type": "struct", "schema-id": 1, "fields":
        [{"id": 4, "name": "x", "type": "int", "required": false}]}});
    property["updates"].as_array_mut().expect("a list").push(add);
    let both = [(&t, append_body(&expired)), (&u, property)];
    served.transact(&both).await.expect("done");
    assert_ne!(document(&served.load(&u).await), other);
    let before = served.pointers().await;
    served.transact(&both).await.expect("done already");
    assert_eq!(served.pointers().await, before);
    // Another snapshot under a known id is no repetition.
    let mut forged = first;
    forged["updates"][0]["snapshot"]["snapshot-id"] = second["updates"][0]["snapshot"]["snapshot-id"].clone();
    forged["updates"][0]["snapshot"]["manifest-list"] = json!(format!(
        "{}/metadata/forged.avro",
        created["metadata"]["location"].as_str().expect("a place")
    ));
    assert_eq!(refusal(&served.commit(&t, forged).await), Refusal::Conflict);
    // One of its tables is dropped: the other still speaks for both.
    let (first, second) = (document(&served.load(&t).await), document(&served.load(&u).await));
    let both = [(&t, append_body(&first)), (&u, append_body(&second))];
    served.transact(&both).await.expect("done");
    let drop = served
        .catalog
        .drop_table(View::Live, t.clone(), false, request(json!({})));
    drop.await.expect("dropped");
    served.transact(&both).await.expect("done already");
}

#[tokio::test]
async fn a_staged_table_is_there_once_it_is_committed() {
    let served = Served::new().await;
    let t = mine("t");
    let before = served.pointers().await;
    let body = json!({"name": "t", "schema": schema(), "stage-create": true, "properties": {"format-version": "3"}});
    let staged = document(&served.create_with(body).await);
    assert!(staged.get("metadata-location").is_none());
    assert_eq!(served.pointers().await, before);
    let metadata = &staged["metadata"];
    let mut create = append_body(&staged);
    create["requirements"] = json!([{"type": "assert-create"}]);
    let snapshot = &mut create["updates"][0]["snapshot"];
    (snapshot["first-row-id"], snapshot["added-rows"]) = (json!(0), json!(5));
    // Field ids are those of the files that the client wrote: they stay, gaps and all.
    let mut fields = schema();
    fields["fields"][0]["id"] = json!(7);
    let mut updates = vec![
        json!({"action": "assign-uuid", "uuid": metadata["table-uuid"]}),
        json!({"action": "upgrade-format-version", "format-version": 3}),
        json!({"action": "add-schema", "schema": fields, "last-column-id": 7}),
        json!({"action": "set-current-schema", "schema-id": -1}),
        json!({"action": "add-spec", "spec": {"spec-id": 0, "fields":
            [{"source-id": 7, "transform": "bucket[4]", "name": "b", "field-id": 1000}]}}),
        json!({"action": "set-default-spec", "spec-id": -1}),
        json!({"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}}),
        json!({"action": "set-default-sort-order", "sort-order-id": -1}),
        json!({"action": "set-location", "location": metadata["location"]}),
        json!({"action": "set-properties", "updates": {"a": "b"}}),
    ];
    updates.extend(create["updates"].as_array().expect("a list").clone());
    create["updates"] = json!(updates);
    let made = document(&served.commit(&t, create.clone()).await);
    for (key, value) in [
        ("table-uuid", metadata["table-uuid"].clone()),
        ("location", metadata["location"].clone()),
        ("format-version", json!(3)),
        ("next-row-id", json!(5)),
        ("last-column-id", json!(7)),
        ("last-partition-id", json!(1000)),
        ("default-spec-id", json!(0)),
        ("properties", json!({"a": "b"})),
    ] {
        assert_eq!(made["metadata"][key], value, "{key}");
    }
    assert_eq!(made["metadata"]["schemas"][0]["fields"][0]["id"], 7);
    assert_eq!(
        document(&served.commit(&t, create.clone()).await),
        made,
        "the same once more"
    );
    create["updates"][0]["uuid"] = json!(uuid::Uuid::new_v4());
    assert_eq!(
        refusal(&served.commit(&t, create).await),
        Refusal::Conflict,
        "another table"
    );
}

#[tokio::test]
async fn a_transaction_changes_all_its_tables_or_none() {
    let served = Served::new().await;
    let (t, u) = (mine("t"), mine("u"));
    let first = document(&served.create("t").await);
    let second = document(&served.create("u").await);
    let stale = append_body(&second);
    let second = document(&served.commit(&u, append_body(&second)).await);
    let before = served.pointers().await;
    for changes in [
        [(&t, append_body(&first)), (&u, stale)],
        [(&t, append_body(&first)), (&mine("none"), set_property("a", "b"))],
        [(&t, append_body(&first)), (&t, set_property("a", "b"))],
        [(&t, append_body(&first)), (&u, set_property("write.data.path", "/etc"))],
    ] {
        let answer = served.transact(&changes).await;
        let refusal = refusal(&answer);
        assert!(refusal != Refusal::Broken && refusal != Refusal::Busy, "{answer:?}");
        assert_eq!(served.pointers().await, before);
    }
    let done = served
        .transact(&[(&t, append_body(&first)), (&u, append_body(&second))])
        .await;
    assert_eq!(done.expect("done"), Reply::Nothing);
    let after = served.pointers().await;
    assert!(before["mine.t"] != after["mine.t"] && before["mine.u"] != after["mine.u"]);
}

#[tokio::test]
async fn a_key_repeats_its_answer() {
    let served = Served::new().await;
    let catalog = &served.catalog;
    let keyed = |key: &str, body: Value| Request {
        key: Some(key.to_owned()),
        ..request(body)
    };
    let [one, two] = [
        "01980000-0000-7000-8000-000000000001",
        "01980000-0000-7000-8000-000000000002",
    ];
    let create = json!({"name": "t", "schema": schema()});
    let levels = vec!["mine".to_owned()];
    let make = |key: &str, body: &Value| catalog.create_table(View::Live, levels.clone(), keyed(key, body.clone()));
    let made = document(&make(one, &create).await);
    assert_eq!(document(&make(one, &create).await), made);
    assert_eq!(document(&make(&one.to_uppercase(), &create).await), made);
    let other = json!({"name": "u", "schema": schema()});
    assert_eq!(refusal(&make(one, &other).await), Refusal::Unprocessable);
    // A refusal stays one, also when its cause is gone.
    assert_eq!(refusal(&make(two, &create).await), Refusal::Exists);
    let drop = catalog.drop_table(View::Live, mine("t"), false, request(json!({})));
    assert_eq!(drop.await.expect("dropped"), Reply::Nothing);
    assert_eq!(refusal(&make(two, &create).await), Refusal::Exists);
    assert_eq!(refusal(&make("key", &other).await), Refusal::BadRequest);
    assert_eq!(served.pointers().await.len(), 1);
    // What is forgotten is done anew.
    served.warehouse.clock.add(std::time::Duration::from_secs(3601));
    served.warehouse.lake.clean_metadata().await.expect("cleans");
    document(&make(two, &create).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_creators_one_wins_and_no_commit_is_lost() {
    let served = Served::new().await;
    let attempts = (0..16).map(|_| {
        let catalog = served.catalog.clone();
        let body = request(json!({"name": "t", "schema": schema()}));
        tokio::spawn(async move { catalog.create_table(View::Live, vec!["mine".into()], body).await })
    });
    let answers = futures::future::join_all(attempts).await;
    let (won, lost): (Vec<Answer>, Vec<Answer>) =
        answers.into_iter().map(|a| a.expect("ends")).partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    assert!(lost.iter().all(|answer| refusal(answer) == Refusal::Exists));
    let t = mine("t");
    let commits = (0..16).map(|n| {
        let (catalog, t) = (served.catalog.clone(), t.clone());
        let body = request(set_property(&format!("k{n}"), "v"));
        tokio::spawn(async move { catalog.commit_table(View::Live, t, body).await })
    });
    let mut done = 0;
    for answer in futures::future::join_all(commits).await {
        match answer.expect("ends") {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.refusal, Refusal::Conflict),
        }
    }
    let table = document(&served.load(&t).await);
    assert_eq!(table["metadata"]["properties"].as_object().expect("a map").len(), done);
    let place = table["metadata"]["location"].as_str().expect("a place");
    let files = std::fs::read_dir(format!("{place}/metadata"))
        .expect("is there")
        .count();
    assert_eq!(files, done + 1, "what lost the race leaves no file");
}
