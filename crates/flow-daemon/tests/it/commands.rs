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
    for command in [
        &["check"][..],
        &["init"],
        &["run"],
        &["discover"],
        &["plan"],
        &["dag"],
        &["query", "SELECT 1"],
    ] {
        let told = folder.run(command).expect(
            78,
            &[
                "error[F0501]",
                "flow.toml:2:18: source.connection_env: environment variable FLOW_TEST_NOT_SET is not set",
                "flow.toml:4:1: publish.intervall: unknown key; did you mean 'interval'?",
                "flow.toml:5:12: publish.interval: 'soon' is not a duration",
                "flow.toml:10:10: tables[1].target: 'public.t' is the target of tables[0] already",
            ],
        );
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
        .expect(78, &["environment variable FLOW_POSTGRES_URL"]);
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
