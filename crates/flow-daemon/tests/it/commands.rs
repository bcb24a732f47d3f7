//! Commands that need no PostgreSQL.

use std::process::Command;

use crate::folder::{Folder, finish};

const MINIMAL: &str = "\
[source]
connection_env = \"FLOW_POSTGRES_URL\"
[http]
listen = \"127.0.0.1:0\"
[[tables]]
source = \"public.orders\"
";

fn bare(arguments: &[&str]) -> crate::folder::Finished {
    finish(Command::new(env!("CARGO_BIN_EXE_embrasure-flow")).args(arguments))
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    bare(&[]).expect(2, &["Usage"]);
    bare(&["no-such-command"]).expect(2, &["no-such-command"]);
    bare(&["refresh"]).expect(2, &["NAME"]);
    bare(&["run", "--create-publication"]).expect(2, &["--init"]);
    for command in [
        "new", "check", "discover", "init", "run", "status", "plan", "dag", "apply", "refresh", "suspend", "resume",
        "query", "history",
    ] {
        let help = bare(&[command, "--help"]).expect(0, &[]);
        assert!(
            help.out.contains("Example:") && help.out.contains("embrasure-flow "),
            "{help:?}"
        );
    }
    let version = bare(&["--version"]).expect(0, &[]);
    assert_eq!(version.out, format!("embrasure-flow {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn new_writes_what_check_accepts_and_never_overwrites() {
    let folder = Folder::new(MINIMAL);
    let made = folder.run(&["new", "lake"]).expect(0, &[]);
    assert_eq!(made.out, "lake/flow.toml\nlake/transformations/example.sql\n");
    let file = folder.path("lake/flow.toml");
    let mut check = Command::new(env!("CARGO_BIN_EXE_embrasure-flow"));
    check
        .arg("--config")
        .arg(&file)
        .arg("check")
        .env("FLOW_POSTGRES_URL", &folder.url);
    finish(&mut check).expect(0, &[]);
    std::fs::write(&file, "mine").expect("is writable");
    folder
        .run(&["new", "lake"])
        .expect(78, &["lake/flow.toml exists already; it was not changed"]);
    assert_eq!(std::fs::read_to_string(&file).expect("is there"), "mine");
}

#[test]
fn every_problem_of_the_configuration_is_told_with_its_place() {
    let folder = Folder::new(
        "[source]\nconnection_env = \"FLOW_TEST_NOT_SET\"\n[publish]\nintervall = \"1s\"\ninterval = \"soon\"\n\
         [[tables]]\nsource = \"public.t\"\n[[tables]]\nsource = \"public.u\"\ntarget = \"public.t\"\n",
    );
    for (command, with_secret) in [
        (&["check"][..], true),
        (&["init"], true),
        (&["run"], true),
        (&["discover"], true),
        (&["plan"], false),
        (&["dag"], false),
        (&["query", "SELECT 1"], false),
    ] {
        let told = folder.run(command).expect(
            78,
            &[
                "error[F0501]",
                "flow.toml:4:1: publish.intervall: unknown key; did you mean 'interval'?",
                "flow.toml:5:12: publish.interval: 'soon' is not a duration",
                "flow.toml:10:10: tables[1].target: 'public.t' is the target of tables[0] (line 7) already",
            ],
        );
        let secret = "flow.toml:2:18: source.connection_env: environment variable FLOW_TEST_NOT_SET is not set";
        assert_eq!(told.err.contains(secret), with_secret, "{told:?}");
        assert_eq!(told.out, "", "machine output only on stdout");
    }
    assert!(
        !folder.path("state").exists() && !folder.path("warehouse").exists(),
        "nothing was made"
    );
}

#[test]
fn a_missing_or_unreadable_configuration_is_78() {
    let folder = Folder::new(MINIMAL);
    std::fs::write(folder.path("flow.toml"), [0xff, 0xfe]).expect("is writable");
    folder.run(&["check"]).expect(78, &["is not UTF-8 text"]);
    std::fs::remove_file(folder.path("flow.toml")).expect("is there");
    folder
        .run(&["check"])
        .expect(78, &["flow.toml", "no such file", "embrasure-flow new"]);
    folder.run(&["status"]).expect(78, &["no such file"]);
}

#[test]
fn a_bad_connection_url_is_not_repeated() {
    let mut folder = Folder::new(MINIMAL);
    folder.url = format!("postgres://flow:{}@127.0.0.1:notaport/shop", crate::folder::PASSWORD);
    folder
        .run(&["check"])
        .expect(78, &["error[F0101]: environment variable FLOW_POSTGRES_URL"]);
}

/// Has the configuration of [`MINIMAL`] without its secret.
fn without_secret() -> Folder {
    let folder = Folder::new(&MINIMAL.replace("FLOW_POSTGRES_URL", "FLOW_TEST_NOT_SET"));
    std::fs::create_dir(folder.path("transformations")).expect("is fresh");
    folder
}

fn transformation(folder: &Folder, sql: &str) {
    std::fs::write(folder.path("transformations/x.sql"), sql).expect("is writable");
}

/// Makes the table `public.orders` in the folder's catalog, as capture does.
fn capture_orders(folder: &Folder) {
    let column = flow_core::Column {
        name: "id".into(),
        field_id: 0,
        element_id: None,
        column_type: flow_core::ColumnType::Long,
        required: true,
        source_type: "bigint".into(),
    };
    let mut schema = flow_core::TableSchema {
        columns: vec![column],
        key: vec![0],
    };
    schema.assign_field_ids();
    let options = flow_lake::LakeOptions::new(folder.path("warehouse"));
    let lake = flow_lake::Lake::open(options, std::sync::Arc::new(flow_testkit::clock::ManualClock::at(0)));
    let name = flow_core::TableName::new("public", "orders");
    let properties = [("flow.source-table".to_owned(), "public.orders".to_owned())].into();
    let lake = lake.expect("is made");
    let made = lake.create_table(&name, &schema, properties);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(made).expect("is made");
}

#[test]
fn to_look_makes_nothing_and_needs_no_secret() {
    let folder = without_secret();
    transformation(&folder, "CREATE DYNAMIC TABLE gold.one AS SELECT 1 AS one;");
    folder.run(&["plan"]).expect(
        0,
        &[
            "tables not copied yet are unknown to this plan",
            "source.connection_env",
        ],
    );
    folder.run(&["dag"]).expect(0, &[]);
    folder
        .run(&["query", "SELECT 1"])
        .expect(78, &["error[F0022]", "there is no catalog at", "warehouse/catalog.db"]);
    folder.run(&["history", "gold.one"]).expect(78, &["no table gold.one"]);
    // A captured table's name is taken before the table is there.
    transformation(&folder, "CREATE DYNAMIC TABLE public.orders AS SELECT 1 AS one;");
    folder.run(&["plan"]).expect(78, &["error[F0405]", "x.sql:1:"]);
    assert!(
        !folder.path("state").exists() && !folder.path("warehouse").exists(),
        "nothing was made"
    );
    capture_orders(&folder);
    let rows = folder.run(&[
        "query",
        "--format",
        "csv",
        "SELECT count(*) AS n, '' AS a, NULL AS b FROM public.orders",
    ]);
    assert_eq!(rows.expect(0, &[]).out, "n,a,b\r\n0,\"\",\r\n");
}

#[test]
fn plan_refuses_the_names_that_run_refuses() {
    let folder = without_secret();
    capture_orders(&folder);
    transformation(
        &folder,
        "CREATE DYNAMIC TABLE gold.n AS SELECT count(*) AS n FROM public.orders;",
    );
    let fine = folder.run(&["plan"]).expect(0, &[]);
    assert!(fine.err.is_empty(), "all is known without PostgreSQL: {fine:?}");
    transformation(&folder, "CREATE DYNAMIC TABLE public.orders AS SELECT 1 AS one;");
    let taken = "public.orders is already the target of a captured table";
    folder.run(&["plan"]).expect(78, &["error[F0405]", taken]);
    for source in ["public.*", "public.other"] {
        let text = MINIMAL.replace("FLOW_POSTGRES_URL", "FLOW_TEST_NOT_SET");
        let text = text.replace("public.orders", source);
        std::fs::write(folder.path("flow.toml"), text).expect("is writable");
        folder.run(&["plan"]).expect(78, &["error[F0405]", taken]);
    }
}

#[test]
fn check_says_whether_a_catalog_can_be_made_and_makes_none() {
    let folder = Folder::new(MINIMAL);
    let checked = folder.run(&["check", "--catalog"]).expect(0, &[]);
    assert!(
        checked
            .out
            .contains("warehouse/catalog.db is not there and can be made"),
        "{checked:?}"
    );
    assert!(!folder.path("warehouse").exists(), "nothing was made");
    std::fs::write(folder.path("warehouse"), "a file").expect("is writable");
    folder
        .run(&["check", "--catalog"])
        .expect(78, &["error[F0302]", "warehouse"]);
    std::fs::remove_file(folder.path("warehouse")).expect("is there");
    capture_orders(&folder);
    let checked = folder.run(&["check", "--catalog"]).expect(0, &[]);
    assert!(
        checked.out.contains("is there and can be written; it holds 1 table\n"),
        "{checked:?}"
    );
    let text = MINIMAL.replace("public.orders\"", "public.lines\"\ntarget = \"public.orders\"");
    std::fs::write(folder.path("flow.toml"), text).expect("is writable");
    let checked = folder.run(&["check", "--catalog"]);
    assert_eq!(checked.code, Some(78), "{checked:?}");
    let taken = "PROBLEM  public.lines: target: the catalog has a table public.orders that does not come from this one";
    assert!(checked.out.contains(taken), "{checked:?}");
}

#[test]
fn status_of_a_stopped_service_is_3() {
    let folder = Folder::new(&MINIMAL.replace("FLOW_POSTGRES_URL", "FLOW_TEST_NOT_SET"));
    let never = folder.run(&["status", "--json"]).expect(3, &[]);
    let document: serde_json::Value = serde_json::from_str(&never.out).expect("JSON");
    assert_eq!(
        (document["state"].as_str(), document["ready"].as_bool()),
        (Some("stopped"), Some(false))
    );
    assert!(!folder.path("state").exists(), "to look changes nothing");
    let mut last = document;
    last["state"] = "streaming".into();
    last["ready"] = true.into();
    last["version"] = "0.1.0".into();
    last["source"]["id"] = "shop".into();
    last["source"]["published_lsn"] = "0/1A".into();
    last["problems"] = serde_json::json!([
        {"code": "F0401", "file": "x.sql", "line": 3, "column": 8, "message": "expected AS"}
    ]);
    std::fs::create_dir(folder.path("state")).expect("is fresh");
    std::fs::write(folder.path("state/status.json"), last.to_string()).expect("is writable");
    let shown = folder.run(&["status", "--json"]).expect(3, &[]);
    let document: serde_json::Value = serde_json::from_str(&shown.out).expect("JSON");
    assert_eq!(document["state"], "stopped");
    assert_eq!(document["source"]["published_lsn"], "0/1A");
    let text = folder.run(&["status"]).expect(3, &[]).out;
    assert!(
        text.starts_with("state      stopped, not ready\nsource     shop"),
        "{text}"
    );
    assert!(text.contains("\nproblem [F0401] x.sql:3:8: expected AS\n"), "{text}");
    std::fs::write(folder.path("state/status.json"), "{").expect("is writable");
    folder.run(&["status"]).expect(1, &["status file"]);
}

#[test]
fn names_are_checked_before_anything_is_opened() {
    let folder = Folder::new(MINIMAL);
    folder
        .run(&["refresh", "orders"])
        .expect(2, &["'orders' is not namespace.table"]);
    folder
        .run(&["suspend", "gold.*"])
        .expect(2, &["one table must be named"]);
    folder.run(&["history", "a..b"]).expect(2, &["empty part"]);
    folder.run(&["discover", "public.*"]).expect(2, &["--schema public"]);
    folder.run(&["history", "gold.q"]).expect(78, &["no table gold.q"]);
    assert!(
        !folder.path("state").exists() && !folder.path("warehouse").exists(),
        "nothing was made"
    );
}

#[test]
fn generated_documentation_goes_to_stdout() {
    let page = bare(&["docs", "configuration"]).expect(0, &[]);
    assert_eq!(page.out, include_str!("../../../../docs/configuration.md"));
}
