//! Configurations and what is said about them, with exact places.

use std::path::Path;
use std::time::Duration;

use flow_core::TableName;
use flow_engine::options::{AckMode, HotRows, SourcePattern};

use super::*;

const MINIMAL: &str = "[source]\nconnection_env = \"FLOW_POSTGRES_URL\"\n[[tables]]\nsource = \"public.orders\"\n";
const PASSWORD: &str = "hunter2";

fn environment(name: &str) -> Option<String> {
    match name {
        "FLOW_POSTGRES_URL" => Some(format!("postgres://flow:{PASSWORD}@localhost/shop")),
        "FLOW_HTTP_TOKEN" => Some("s3cret-token".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Config, ConfigError> {
    parse(text, Path::new("/etc/flow/flow.toml"), Purpose::Service, &environment)
}

/// Checks that `text` is refused with exactly `lines`, each without the file's name.
#[track_caller]
fn refuses(text: &str, lines: &[&str]) {
    let error = read(text).expect_err("should be refused");
    let shown = error.to_string();
    let found: Vec<_> = shown
        .lines()
        .map(|line| line.strip_prefix("/etc/flow/flow.toml").expect("names the file"))
        .collect();
    assert_eq!(found, lines, "of\n{text}");
    assert!(!shown.contains(PASSWORD));
}

/// Checks one problem that an addition to the minimal configuration causes; lines count from the addition.
#[track_caller]
fn refuses_after_minimal(addition: &str, line: &str) {
    let text = format!("{MINIMAL}{addition}");
    let first_line = MINIMAL.lines().count();
    let (number, rest) = line.split_once(':').expect("line:column: message");
    let number: usize = number.parse().expect("a line number");
    refuses(&text, &[&format!(":{}:{rest}", number + first_line)]);
}

#[test]
fn a_minimal_file_has_all_defaults() {
    let config = read(MINIMAL).expect("is complete");
    assert_eq!(config.state_dir, Path::new("/etc/flow/state"));
    assert_eq!(config.warehouse, Path::new("/etc/flow/warehouse"));
    assert_eq!(config.catalog_path, Path::new("/etc/flow/warehouse/catalog.db"));
    assert_eq!(config.transformations, Path::new("/etc/flow/transformations"));
    assert_eq!(config.source.id, None);
    assert_eq!(config.source.slot, "embrasure_flow");
    assert_eq!(config.source.publication, "embrasure_flow");
    assert_eq!(config.source.ack_mode, AckMode::Materialized);
    assert_eq!(config.source.heartbeat, Duration::from_secs(10));
    assert_eq!(config.source.retry_for, Duration::from_secs(300));
    assert_eq!(config.source.copy_sessions, 4);
    assert_eq!(config.publish.interval, Duration::from_millis(500));
    assert_eq!(config.publish.max_rows, 100_000);
    assert_eq!(config.publish.max_bytes, 64 << 20);
    assert_eq!(config.keep_for, Duration::from_secs(3600));
    assert_eq!(config.keep_snapshots, 200);
    assert_eq!(config.limits.memory_bytes, 512 << 20);
    assert_eq!(config.limits.min_free_bytes, 1 << 30);
    assert_eq!(config.limits.blocked_journal_max_bytes, 10 << 30);
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:9464");
    assert!(config.http.token.is_none());
    let [table] = config.tables.as_slice() else {
        panic!("one table")
    };
    assert_eq!(table.source, SourcePattern::Table(TableName::new("public", "orders")));
    assert_eq!(
        (table.target.as_ref(), table.append_only, table.hot_rows),
        (None, false, HotRows::Auto)
    );
}

#[test]
fn every_option_is_read() {
    let text = r#"
state_dir = "/var/lib/flow/../flow/state"
[source]
id = "shop"
connection_env = "FLOW_POSTGRES_URL"
slot = "s1"
publication = "My Pub"
ack_mode = "journaled"
heartbeat = "1s"
retry_for = "0s"
copy_sessions = 2
[catalog]
type = "embedded"
warehouse = "file:///data/lake"
path = "../catalog/c.db"
[storage]
[publish]
interval = "2s"
max_rows = 10
max_bytes = "1MiB"
keep_for = "2h"
keep_snapshots = 50
[limits]
memory = "1GiB"
min_free_bytes = "0B"
blocked_journal_max = "5MiB"
[http]
listen = "0.0.0.0:0"
token_env = "FLOW_HTTP_TOKEN"
[dynamic_tables]
dir = "sql"
[[tables]]
source = 'public."Mixed.Case"'
target = "bronze.mixed"
primary_key = ["a", "b"]
columns = ["b", "a", "c"]
append_only = true
format_version = 2
deletes = "position"
hot_rows = false
types = { c = "decimal(38,9)", a = "string" }
[[tables]]
source = "sales.*"
hot_rows = true
"#;
    let config = read(text).expect("is right");
    assert_eq!(config.state_dir, Path::new("/var/lib/flow/state"));
    assert_eq!(config.warehouse, Path::new("/data/lake"));
    assert_eq!(config.catalog_path, Path::new("/etc/catalog/c.db"));
    assert_eq!(config.source.id.as_deref(), Some("shop"));
    assert_eq!(config.source.ack_mode, AckMode::Journaled);
    assert_eq!(config.http.token.as_ref().map(Secret::expose), Some("s3cret-token"));
    assert_eq!(
        config.tables[0].source,
        SourcePattern::Table(TableName::new("public", "Mixed.Case"))
    );
    assert_eq!(config.tables[0].target, Some(TableName::new("bronze", "mixed")));
    assert_eq!(config.tables[0].types["c"], "decimal(38,9)");
    assert_eq!(config.tables[0].hot_rows, HotRows::None);
    assert_eq!(config.tables[1].source, SourcePattern::Schema("sales".into()));
    assert_eq!(config.tables[1].hot_rows, HotRows::All);
    let shown = format!("{config:?}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn all_problems_are_reported_at_once_in_file_order() {
    refuses(
        "stat_dir = \"x\"\n[source]\nslot = \"Bad-Slot\"\nheartbeat = \"fast\"\n[publish]\n  intervall = \"1s\"\nmax_rows = \"many\"\n[nonsense]\n",
        &[
            ":1:1: stat_dir: unknown key; did you mean 'state_dir'?",
            ":2:1: source.connection_env: is required: the name of the environment variable that holds the connection URL",
            ":3:8: source.slot: must have 1 to 63 characters of a-z, 0-9 and _ only, as PostgreSQL wants it",
            ":4:13: source.heartbeat: 'fast' is not a duration; write a whole number and ms, s, m, h or d, such as \"500ms\" or \"10s\"",
            ":6:3: publish.intervall: unknown key; did you mean 'interval'?",
            ":7:12: publish.max_rows: must be a whole number, not string",
            ":8:2: nonsense: unknown key",
            ": tables: at least one [[tables]] block is needed; 'embrasure-flow discover' prints them",
        ],
    );
}

#[test]
fn syntax_errors_have_places() {
    let error = read("[source]\nslot = \n[http\nlisten = 5\n").expect_err("no TOML");
    let places: Vec<_> = error
        .problems
        .iter()
        .map(|problem| problem.place.map(|place| place.0))
        .collect();
    assert_eq!(places.first(), Some(&Some(2)), "{error}");
    assert!(places.len() >= 2, "{error}");
    let error = read("[source]\nslot = \"a\"\nslot = \"b\"\n").expect_err("a key twice");
    assert_eq!(error.problems[0].place, Some((3, 1)), "{error}");
}

#[test]
fn single_problems() {
    let check = refuses_after_minimal;
    check(
        "[publish]\ninterval = \"1ms\"\n",
        "2:12: publish.interval: must be between \"50ms\" and \"1h\"",
    );
    check(
        "[publish]\ninterval = 5\n",
        "2:12: publish.interval: must be a duration in quotes, such as \"10s\", not integer",
    );
    check(
        "[limits]\nmemory = \"64\"\n",
        "2:10: limits.memory: '64' is not a size; write a whole number and B, KiB, MiB, GiB or TiB, such as \"64MiB\"",
    );
    check(
        "[publish]\nkeep_snapshots = 0\n",
        "2:18: publish.keep_snapshots: must be between 10 and 10000",
    );
    check(
        "[publish]\nmax_rows = -1\n",
        "2:12: publish.max_rows: must be a whole number from 0",
    );
    check(
        "[catalog]\ntype = \"rest\"\n",
        "2:8: catalog.type: REST catalogs are not in this version; write \"embedded\"",
    );
    check(
        "[catalog]\ntype = \"hive\"\n",
        "2:8: catalog.type: must be \"embedded\" or \"rest\"",
    );
    check(
        "[catalog]\nuri = \"http://x\"\n",
        "2:7: catalog.uri: belongs to REST catalogs, which are not in this version",
    );
    check(
        "[catalog]\nwarehouse = \"s3://bucket/x\"\n",
        "2:13: catalog.warehouse: 's3://' is not in this version; it writes to local directories only",
    );
    check(
        "[catalog]\nwarehouse = \"file://host/x\"\n",
        "2:13: catalog.warehouse: must be file:// and an absolute path, such as file:///var/lib/flow",
    );
    check(
        "[catalog]\npath = \"state/catalog.db\"\n",
        "2:8: catalog.path: must not be inside state_dir, because a lost state_dir is rebuilt from the catalog",
    );
    check(
        "[catalog]\npath = \"x/../state/deep/catalog.db\"\n",
        "2:8: catalog.path: must not be inside state_dir, because a lost state_dir is rebuilt from the catalog",
    );
    check(
        "[catalog]\nwarehouse = \"state\"\n",
        "2:13: catalog.warehouse: must not be inside state_dir, which is a cache that may be lost",
    );
    check(
        "[storage]\n\"s3.endpoint\" = \"http://x\"\n",
        "2:1: storage.s3.endpoint: belongs to object stores, which are not in this version",
    );
    check(
        "[http]\nlisten = \"0.0.0.0:80\"\n",
        "2:10: http.listen: is not a loopback address, so http.token_env is required",
    );
    check(
        "[http]\nlisten = \"localhost\"\n",
        "2:10: http.listen: 'localhost' is not an address and port; write \"127.0.0.1:9464\" or \"[::1]:9464\"",
    );
    check(
        "[http]\ntoken_env = \"NOT_SET\"\n",
        "2:13: http.token_env: environment variable NOT_SET is not set",
    );
    check(
        "[http]\ntoken_env = \"EMPTY\"\n",
        "2:13: http.token_env: environment variable EMPTY is not set",
    );
    check(
        "[http]\ncut_retention = \"1h\"\n",
        "2:17: http.cut_retention: cuts handed out to readers are not in this version",
    );
}

#[test]
fn problems_of_table_blocks() {
    let check = |keys: &str, line: &str| refuses_after_minimal(&format!("[[tables]]\n{keys}"), line);
    check("target = \"a.b\"\n", "1:1: tables[1].source: is required");
    check(
        "source = \"orders\"\n",
        "2:10: tables[1].source: 'orders' is not schema.table",
    );
    check(
        "source = \"public.Orders\"\n",
        "2:10: tables[1].source: 'Orders' has upper-case letters outside quotes, which PostgreSQL folds; write 'orders' or '\"Orders\"'",
    );
    check(
        "source = \"public.orders\"\ntarget = \"a.b\"\n",
        "2:10: tables[1].source: is the source of tables[0] (line 4) already",
    );
    check(
        "source = \"public.x\"\ntarget = \"public.orders\"\n",
        "3:10: tables[1].target: 'public.orders' is the target of tables[0] (line 4) already",
    );
    check(
        "source = \"public.x\"\ntarget = \"x\"\n",
        "3:10: tables[1].target: 'x' is not namespace.table",
    );
    check(
        "source = \"public.x\"\ntarget = 'a.\"../../x\"'\n",
        "3:10: tables[1].target: '../../x' has a character that a table's folder cannot have",
    );
    check(
        "source = \"public.*\"\ntarget = \"a.b\"\n",
        "3:10: tables[1].target: a whole schema takes the default targets; write one block for each table to choose others",
    );
    check(
        "source = \"public.*\"\ncolumns = [\"a\"]\n",
        "3:11: tables[1].columns: is for one table; write a block for the table it is meant for",
    );
    check(
        "source = \"a.x\"\nformat_version = 3\n",
        "3:18: tables[1].format_version: this version writes Iceberg format version 2 only",
    );
    check(
        "source = \"a.x\"\ndeletes = \"equality\"\n",
        "3:11: tables[1].deletes: equality deletes are not in this version; write \"position\"",
    );
    check(
        "source = \"a.x\"\npartition_by = [\"day(t)\"]\n",
        "3:16: tables[1].partition_by: partitioning is not in this version",
    );
    check(
        "source = \"a.x\"\nprimary_key = [\"a\"]\ncolumns = [\"b\"]\n",
        "3:15: tables[1].primary_key: column 'a' is not among columns",
    );
    check(
        "source = \"a.x\"\nprimary_key = [\"a\", \"a\"]\n",
        "3:15: tables[1].primary_key: names 'a' twice",
    );
    check(
        "source = \"a.x\"\nprimary_key = []\n",
        "3:15: tables[1].primary_key: must name a column, or be left out",
    );
    check(
        "source = \"a.x\"\ntypes = { a = \"decimal(39,1)\" }\n",
        "3:9: tables[1].types: column 'a': 'decimal(39,1)' is not \"string\", \"time\" or \"decimal(p,s)\" with 1 ≤ p ≤ 38 and s ≤ p",
    );
    check(
        "source = \"a.x\"\nhot_rows = \"some\"\n",
        "3:12: tables[1].hot_rows: must be \"auto\", true or false",
    );
    check("source = 5\n", "2:10: tables[1].source: must be a string, not integer");
}

#[test]
fn no_secret_is_repeated() {
    let url = format!("postgres://flow:{PASSWORD}@localhost/shop");
    let misplaced =
        format!("[source]\nconnection_env = \"{url}\"\nconnection = \"{url}\"\n[[tables]]\nsource = \"a.b\"\n");
    refuses(
        &misplaced,
        &[
            ":2:18: source.connection_env: must be the name of an environment variable, not the secret itself",
            ":3:1: source.connection: unknown key",
        ],
    );
    refuses(
        &MINIMAL.replace("FLOW_POSTGRES_URL", "NOT_SET"),
        &[":2:18: source.connection_env: environment variable NOT_SET is not set"],
    );
}

#[test]
fn commands_ask_for_what_they_need() {
    let no_tables = "[source]\nconnection_env = \"FLOW_POSTGRES_URL\"\n";
    let for_purpose = |text: &str, purpose| parse(text, Path::new("/x/flow.toml"), purpose, &environment);
    assert!(for_purpose(no_tables, Purpose::Service).is_err());
    assert!(for_purpose(no_tables, Purpose::Discover).is_ok());
    assert!(for_purpose(&MINIMAL.replace("FLOW_POSTGRES_URL", "NOT_SET"), Purpose::Discover).is_err());
    let text = MINIMAL.replace("FLOW_POSTGRES_URL", "NOT_SET");
    let config = parse(&text, Path::new("/x/flow.toml"), Purpose::Local, &environment).expect("needs none");
    assert!(config.source.connection.is_none());
    let config = for_purpose(&text, Purpose::Plan).expect("asks for no secret");
    assert!(config.source.connection.is_none());
    let config = for_purpose(MINIMAL, Purpose::Plan).expect("takes a secret that is there");
    assert!(config.source.connection.is_some());
    assert!(for_purpose(no_tables, Purpose::Plan).is_err());
}

#[test]
fn symbolic_links_do_not_hide_the_state_directory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(dir.path().join("state")).expect("is fresh");
    std::os::unix::fs::symlink(dir.path().join("state"), dir.path().join("link")).expect("is fresh");
    let text = format!("{MINIMAL}[catalog]\npath = \"link/catalog.db\"\n");
    let error = parse(&text, &dir.path().join("flow.toml"), Purpose::Service, &environment).expect_err("inside");
    assert_eq!(error.problems[0].key, "catalog.path");
}

#[test]
fn the_examples_are_right() {
    for (file, text) in [
        ("examples/flow.toml", include_str!("../../../../examples/flow.toml")),
        ("new", include_str!("../command/new/flow.toml")),
    ] {
        let config = read(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(!config.tables.is_empty());
    }
}

#[test]
fn the_complete_example_names_every_option() {
    let text = include_str!("../../../../examples/flow.toml");
    for (section, _, fields) in document::section_docs() {
        for field in fields
            .iter()
            .filter(|field| !field.text.contains("not in this version"))
        {
            let named = text.lines().any(|line| {
                line.trim_start_matches(['#', ' '])
                    .starts_with(&format!("{} =", field.key))
            });
            assert!(named, "examples/flow.toml does not name {section}.{}", field.key);
        }
    }
}
