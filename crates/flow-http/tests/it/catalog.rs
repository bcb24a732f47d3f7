//! The catalog's routes over HTTP: codes, headers and the form of every refusal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flow_core::clock::{Clock, UnixMicros};
use flow_core::{Column, ColumnType, TableName, TableSchema};
use flow_engine::Status;
use flow_lake::{Lake, LakeOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{Running, ask, start_with};

/// Stands still.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now_us(&self) -> UnixMicros {
        1_700_000_000_000_000
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

struct Served {
    _dir: TempDir,
    running: Running,
}

impl Served {
    /// Serves a catalog with an own table `bronze.orders` and a namespace `mine`.
    async fn start(token: Option<&str>) -> Served {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let lake = Lake::open(LakeOptions::new(dir.path().join("warehouse")), Arc::new(Still)).expect("opens");
        let mut schema = TableSchema {
            columns: vec![Column {
                name: "id".to_owned(),
                field_id: 0,
                element_id: None,
                column_type: ColumnType::Long,
                required: true,
                source_type: String::new(),
            }],
            key: vec![0],
        };
        schema.assign_field_ids();
        let name = TableName::new("bronze", "orders");
        let own = lake.create_table(&name, &schema, Default::default());
        own.await.expect("made");
        let catalog = lake.serve().expect("serves");
        let running = start_with(Status::default(), token, Some(catalog)).await;
        let served = Served { _dir: dir, running };
        if token.is_none() {
            let made = served
                .post("/v1/flow/namespaces", &json!({"namespace": ["mine"]}))
                .await;
            assert_eq!(made.0, 200, "{made:?}");
        }
        served
    }

    fn address(&self) -> SocketAddr {
        self.running.address
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let (code, _, body) = self.ask("GET", path, "", "").await;
        (code, serde_json::from_str(&body).expect("JSON"))
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (code, _, body) = self.ask("POST", path, "", &body.to_string()).await;
        let empty = code == 204;
        (
            code,
            if empty {
                Value::Null
            } else {
                serde_json::from_str(&body).expect("JSON")
            },
        )
    }

    async fn ask(&self, method: &str, path: &str, header: &str, body: &str) -> (u16, String, String) {
        ask(self.address(), method, &format!("/iceberg{path}"), header, body).await
    }

    /// Expects a refusal in the protocol's form.
    async fn refused(&self, method: &str, path: &str, body: &str, expect: (u16, &str)) {
        let (code, head, text) = self.ask(method, path, "", body).await;
        let what = format!("{method} {path} {body}: {code} {text}");
        assert_eq!(code, expect.0, "{what}");
        assert!(head.contains("content-type: application/json"), "{what}");
        let document: Value = serde_json::from_str(&text).expect(&what);
        let error = &document["error"];
        assert_eq!(error["type"], expect.1, "{what}");
        assert_eq!(error["code"], expect.0, "{what}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
    }
}

fn schema() -> Value {
    json!({"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long", "required": false}]})
}

#[tokio::test]
async fn the_configuration_names_prefix_and_routes() {
    let served = Served::start(None).await;
    for path in ["/v1/config", "/v1/config?warehouse=flow", "/v1/config?warehouse="] {
        let (code, config) = served.get(path).await;
        assert_eq!(code, 200, "{path}");
        assert_eq!(config["overrides"], json!({"prefix": "flow"}));
        assert_eq!(config["defaults"], json!({}));
        assert_eq!(config["idempotency-key-lifetime"], "PT30M");
        let routes = config["endpoints"].as_array().expect("a list");
        for route in routes {
            // Each is served: whatever it answers, it is not "no such route".
            let (method, path) = route.as_str().and_then(|route| route.split_once(' ')).expect("a route");
            let path = path
                .replace("{prefix}", "flow")
                .replace("{namespace}", "x")
                .replace("{table}", "y");
            let (code, _, body) = served.ask(method, &path, "", "{}").await;
            assert!(
                code != 405 && !body.contains("NoSuchEndpoint"),
                "{route}: {code} {body}"
            );
        }
    }
}

/// Lists requests that are refused: method, path, body, status code and type. `$CREATE` is a body that
/// makes table `t`, `$RENAME` one that renames a table which is not there.
const REFUSED: &str = r#"
GET    | /v1/config?warehouse=x                                    |         | 404 NoSuchWarehouseException
GET    | /v1/x/namespaces                                          |         | 404 NoSuchWarehouseException
GET    | /v1/flow/namespaces?pageSize=x                            |         | 400 BadRequestException
GET    | /v1/flow/namespaces?pageToken=&pageSize=0                 |         | 400 BadRequestException
GET    | /v1/flow/namespaces?parent=x                              |         | 404 NoSuchNamespaceException
POST   | /v1/flow/namespaces                                       | {       | 400 BadRequestException
POST   | /v1/flow/namespaces                     | {"namespace": ["mine"]}   | 409 AlreadyExistsException
POST   | /v1/flow/namespaces                     | {"namespace": ["_flow_"]} | 403 ForbiddenException
GET    | /v1/flow/namespaces/x                                     |         | 404 NoSuchNamespaceException
GET    | /v1/flow/namespaces/%FF                                   |         | 400 BadRequestException
DELETE | /v1/flow/namespaces/x                                     |         | 404 NoSuchNamespaceException
DELETE | /v1/flow/namespaces/bronze                                |         | 409 NamespaceNotEmptyException
POST   | /v1/flow/namespaces/mine/properties | {"removals": ["a"], "updates": {"a": "b"}} | 422 UnprocessableEntityException
POST   | /v1/flow/namespaces/x/properties                          | {}      | 404 NoSuchNamespaceException
GET    | /v1/flow/namespaces/x/tables                              |         | 404 NoSuchNamespaceException
POST   | /v1/flow/namespaces/x/tables                              | $CREATE | 404 NoSuchNamespaceException
POST   | /v1/flow/namespaces/mine/tables                           | $CREATE | 409 AlreadyExistsException
POST   | /v1/flow/namespaces/mine/tables                           | {}      | 400 BadRequestException
POST   | /v1/flow/namespaces/mine/register                         | {}      | 400 BadRequestException
GET    | /v1/flow/namespaces/mine/tables/x                         |         | 404 NoSuchTableException
GET    | /v1/flow/namespaces/x/tables/x                            |         | 404 NoSuchTableException
GET    | /v1/flow/namespaces/mine/tables/t?snapshots=few           |         | 400 BadRequestException
POST   | /v1/flow/namespaces/mine/tables/x | {"requirements": [], "updates": []} | 404 NoSuchTableException
POST   | /v1/flow/namespaces/mine/tables/t | {"requirements": [{"type": "assert-create"}], "updates": []} | 409 CommitFailedException
POST   | /v1/flow/namespaces/mine/tables/t | {"requirements": [], "updates": [{"action": "fly"}]} | 400 BadRequestException
POST   | /v1/flow/namespaces/bronze/tables/orders | {"requirements": [], "updates": []} | 403 ForbiddenException
POST   | /v1/flow/namespaces/bronze/tables/orders | {"requirements": [{"type": "assert-create"}], "updates": []} | 403 ForbiddenException
DELETE | /v1/flow/namespaces/bronze/tables/orders                  |         | 403 ForbiddenException
DELETE | /v1/flow/namespaces/mine/tables/x                         |         | 404 NoSuchTableException
DELETE | /v1/flow/namespaces/mine/tables/t?purgeRequested=maybe    |         | 400 BadRequestException
POST   | /v1/flow/namespaces/mine/tables/x/metrics                 | {}      | 404 NoSuchTableException
POST   | /v1/flow/tables/rename                                    | $RENAME | 404 NoSuchTableException
POST   | /v1/flow/transactions/commit                              | {}      | 400 BadRequestException
GET    | /v1/flow/views                                            |         | 404 NoSuchEndpointException
GET    | /v2                                                       |         | 404 NoSuchEndpointException
PATCH  | /v1/flow/namespaces/bronze/tables/orders                  |         | 405 UnsupportedOperationException
POST   | /v1/config                                                |         | 405 UnsupportedOperationException
"#;

#[tokio::test]
async fn every_refusal_has_the_protocols_form() {
    let served = Served::start(None).await;
    let create = json!({"name": "t", "schema": schema()}).to_string();
    let tables = "/v1/flow/namespaces/mine/tables";
    assert_eq!(served.ask("POST", tables, "", &create).await.0, 200);
    let rename =
        r#"{"source": {"namespace": ["mine"], "name": "none"}, "destination": {"namespace": ["mine"], "name": "u"}}"#;
    for line in REFUSED.lines().filter(|line| !line.is_empty()) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [method, path, body, expect] = cells.try_into().expect("four cells");
        let body = body.replace("$CREATE", &create).replace("$RENAME", rename);
        let (code, kind) = expect.split_once(' ').expect("a code and a type");
        let expect = (code.parse().expect("a number"), kind);
        served.refused(method, path, &body, expect).await;
    }
}

#[tokio::test]
async fn bodies_have_a_limit_keys_are_kept_and_python_is_understood() {
    let served = Served::start(None).await;
    let create = json!({"name": "t", "schema": schema()}).to_string();
    let tables = "/v1/flow/namespaces/mine/tables";
    let mine = "/v1/flow/namespaces/mine/tables/t";
    assert_eq!(served.ask("POST", tables, "", &create).await.0, 200);
    let large = " ".repeat((16 << 20) + 1);
    served
        .refused("POST", mine, &large, (413, "PayloadTooLargeException"))
        .await;
    let key = "Idempotency-Key: 01980000-0000-7000-8000-000000000001\r\n";
    let nothing = r#"{"requirements": [], "updates": []}"#;
    let other = r#"{"requirements": [{"type": "assert-create"}], "updates": []}"#;
    let answers = [
        served.ask("POST", mine, key, nothing).await.0,
        served.ask("POST", mine, key, nothing).await.0,
        served.ask("POST", mine, key, other).await.0,
    ];
    assert_eq!(answers, [200, 200, 422]);
    let python = format!("{mine}?purgeRequested=False");
    assert_eq!(served.ask("DELETE", &python, "", "").await.0, 204);
}

#[tokio::test]
async fn existence_has_no_body_and_no_answer_is_repeated_for_a_known_state() {
    let served = Served::start(None).await;
    for (path, expect) in [
        ("/v1/flow/namespaces/bronze", 204),
        ("/v1/flow/namespaces/x", 404),
        ("/v1/flow/namespaces/bronze/tables/orders", 204),
        ("/v1/flow/namespaces/bronze/tables/x", 404),
    ] {
        let (code, _, body) = served.ask("HEAD", path, "", "").await;
        assert_eq!((code, body.as_str()), (expect, ""), "{path}");
    }
    let orders = "/v1/flow/namespaces/bronze/tables/orders";
    let (code, head, body) = served.ask("GET", orders, "", "").await;
    assert_eq!(code, 200);
    let table: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(table["config"], json!({}));
    let file = std::fs::read(table["metadata-location"].as_str().expect("a file")).expect("is there");
    assert_eq!(table["metadata"], serde_json::from_slice::<Value>(&file).expect("JSON"));
    let tag = head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .expect("a tag");
    for (header, expect) in [
        (format!("If-None-Match: {tag}\r\n"), 304),
        (format!("If-None-Match: \"x\", W/{tag}\r\n"), 304),
        ("If-None-Match: \"x\"\r\n".to_owned(), 200),
    ] {
        let (code, _, body) = served.ask("GET", orders, &header, "").await;
        assert_eq!(code, expect, "{header}");
        assert_eq!(body.is_empty(), expect == 304);
    }
    let (code, _, _) = served
        .ask(
            "GET",
            &format!("{orders}?snapshots=refs"),
            &format!("If-None-Match: {tag}\r\n"),
            "",
        )
        .await;
    assert_eq!(code, 200, "another form has another tag");
}

#[tokio::test]
async fn namespaces_are_written_with_the_unit_separator() {
    let served = Served::start(None).await;
    let (code, _) = served
        .post("/v1/flow/namespaces", &json!({"namespace": ["a", "b c"]}))
        .await;
    assert_eq!(code, 200);
    let create = json!({"name": "t/ü", "schema": schema()});
    assert_eq!(
        served.post("/v1/flow/namespaces/a%1Fb%20c/tables", &create).await.0,
        200
    );
    assert_eq!(
        served
            .ask("HEAD", "/v1/flow/namespaces/a%1Fb%20c/tables/t%2F%C3%BC", "", "")
            .await
            .0,
        204
    );
    let (_, list) = served.get("/v1/flow/namespaces?parent=a").await;
    assert_eq!(list, json!({"namespaces": [["a", "b c"]]}));
    let (_, list) = served.get("/v1/flow/namespaces/a%1Fb%20c/tables?pageToken=").await;
    assert_eq!(
        list,
        json!({"identifiers": [{"namespace": ["a", "b c"], "name": "t/ü"}]})
    );
}

#[tokio::test]
async fn the_token_guards_every_route() {
    let served = Served::start(Some("letmein")).await;
    for path in [
        "/v1/config",
        "/v1/flow/namespaces",
        "/v1/flow/namespaces/bronze/tables/orders",
        "/none",
    ] {
        served.refused("GET", path, "", (401, "NotAuthorizedException")).await;
        let wrong = served.ask("GET", path, "Authorization: Bearer letmeou\r\n", "").await;
        assert_eq!(wrong.0, 401, "{path}");
        let right = served.ask("GET", path, "Authorization: Bearer letmein\r\n", "").await;
        assert_eq!(right.0, if path == "/none" { 404 } else { 200 }, "{path}");
    }
}
