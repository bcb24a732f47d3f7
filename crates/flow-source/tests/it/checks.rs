//! Preflight and discovery: what can be captured, and what a user is told.

use flow_core::TableName;
use flow_source::{SourceError, discover, preflight};

use crate::harness::*;

/// Lists the failed checks as `name: message`.
async fn problems(
    options: &flow_source::SourceOptions,
    requests: &[flow_source::TableRequest],
    init: bool,
) -> Vec<String> {
    let report = preflight(options, requests, init).await.expect("answers");
    for check in report.problems() {
        assert!(!check.remedy_text.is_empty(), "{check:?}");
    }
    report
        .problems()
        .map(|check| format!("{}: {}", check.name, check.message))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_accepted_or_refused_with_a_reason() {
    let cases: &[(&str, &str)] = &[
        ("CREATE TABLE t (id int PRIMARY KEY, v text)", ""),
        ("CREATE TABLE t (v text)", "primary key: the table has no key"),
        (
            "CREATE TABLE t (v text); ALTER TABLE t REPLICA IDENTITY FULL",
            "primary key: the table has no key",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)",
            "replica identity: the primary key is deferrable",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE); ALTER TABLE t REPLICA IDENTITY FULL",
            "",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
            "primary key: the table has no key",
        ),
        (
            "CREATE TABLE t (id int NOT NULL, v text); CREATE UNIQUE INDEX u ON t (id); ALTER TABLE t REPLICA IDENTITY USING INDEX u",
            "",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, p point)",
            "types: column p: type point cannot be captured",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, p int4range)",
            "types: column p: type int4range cannot be captured",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, p interval[])",
            "types: column p: type interval cannot be captured",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, p bit(3))",
            "types: column p: type bit cannot be captured",
        ),
        (
            "CREATE TYPE pair AS (a int, b int); CREATE TABLE t (id int PRIMARY KEY, p pair)",
            "types: column p: type public.pair cannot be captured",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "table kind: it is partitioned",
        ),
        (
            "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE t (PRIMARY KEY (id)) INHERITS (p)",
            "table kind: it inherits",
        ),
        (
            "CREATE TABLE t (k jsonb PRIMARY KEY)",
            "primary key: key column k is jsonb",
        ),
        ("CREATE TABLE t (k numeric PRIMARY KEY)", ""),
        (
            "CREATE TABLE t (k bpchar PRIMARY KEY)",
            "primary key: key column k is bpchar",
        ),
        ("CREATE TABLE t (k char(4) PRIMARY KEY)", ""),
        ("CREATE TABLE t (k double precision PRIMARY KEY)", ""),
        (
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); CREATE TABLE t (k text COLLATE ci PRIMARY KEY)",
            "primary key: key column k has a nondeterministic collation",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)",
            "",
        ),
        (
            "CREATE TABLE t (id int, g int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)",
            "primary key:",
        ),
    ];
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, "CREATE SCHEMA public2").await;
        for (sql, expected) in cases {
            exec(&client, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
            if let Err(error) = client.batch_execute(sql).await {
                assert!(sql.contains("icu"), "{sql}: {error:?}");
                continue;
            }
            exec(&client, "DROP PUBLICATION IF EXISTS flow_test").await;
            let made = client.batch_execute("CREATE PUBLICATION flow_test FOR TABLE t").await;
            made.unwrap_or_else(|e| panic!("{sql}: {e:?}"));
            let got = problems(&options, &[request("t")], true).await;
            assert_eq!(got.is_empty(), expected.is_empty(), "{version}: {sql}: {got:?}");
            assert!(
                got.is_empty() || got[0].starts_with(expected),
                "{version}: {sql}: {got:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_checked_against_the_catalog() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL, v text, n numeric);
             CREATE TABLE f (id int PRIMARY KEY, k int NOT NULL, v text); ALTER TABLE f REPLICA IDENTITY FULL;
             CREATE TABLE nokey (v text); CREATE TABLE outside (id int PRIMARY KEY);
             CREATE PUBLICATION flow_test FOR TABLE t, f, nokey",
        )
        .await;
        let check = async |change: fn(&mut flow_source::TableRequest), name: &str, expected: &str| {
            let mut request = request(name);
            change(&mut request);
            let got = problems(&options, &[request], true).await;
            assert_eq!(got.is_empty(), expected.is_empty(), "{name}: {got:?}");
            assert!(got.is_empty() || got[0].starts_with(expected), "{name}: {got:?}");
        };
        let key = |names: &[&str]| Some(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        let _ = key;
        check(|_| {}, "missing", "table: there is no such table").await;
        check(|_| {}, "T", "table: there is no such table").await;
        check(|_| {}, "outside", "publication: the publication does not contain").await;
        check(|r| r.append_only = true, "nokey", "").await;
        check(|r| r.primary_key = Some(vec!["id".into()]), "t", "").await;
        check(|r| r.primary_key = Some(vec!["k".into()]), "t", "replica identity:").await;
        check(|r| r.primary_key = Some(vec!["k".into()]), "f", "").await;
        check(
            |r| r.primary_key = Some(vec!["v".into()]),
            "f",
            "primary key: key column v may be NULL",
        )
        .await;
        check(
            |r| r.primary_key = Some(vec!["x".into()]),
            "f",
            "primary key: there is no column x",
        )
        .await;
        check(
            |r| r.columns = Some(vec!["id".into()]),
            "f",
            "columns: the publication also sends k, v",
        )
        .await;
        check(
            |r| r.columns = Some(vec!["id".into(), "k".into(), "v".into(), "z".into()]),
            "f",
            "columns: the publication does not send z",
        )
        .await;
        check(|r| drop(r.types.insert("n".into(), "decimal(38,9)".into())), "t", "").await;
        check(
            |r| drop(r.types.insert("v".into(), "decimal(38,9)".into())),
            "t",
            "types: column v",
        )
        .await;
        check(
            |r| drop(r.types.insert("w".into(), "string".into())),
            "t",
            "types: types names column w",
        )
        .await;
        if version != "14" {
            exec(
                &client,
                "DROP PUBLICATION flow_test; CREATE PUBLICATION flow_test FOR TABLE f (id, k) WHERE (k > 0)",
            )
            .await;
            check(|r| r.columns = Some(vec!["id".into(), "k".into()]), "f", "").await;
            let found = discover(&options, Some("public")).await.expect("answers");
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].row_filter.as_deref(), Some("(k > 0)"));
            assert_eq!(found[0].published_columns(), [0, 1]);
        }
    }
}

/// Only what is stored can be sent, and only by a publication that says so (PostgreSQL 18).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_columns_are_captured_exactly_when_they_are_sent() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        let (virtual_column, sent) = match version.as_str() {
            "18" => (", c int GENERATED ALWAYS AS (v + 2) VIRTUAL", &[false, true][..]),
            _ => ("", &[false][..]),
        };
        for &sent in sent {
            let option = if sent {
                "WITH (publish_generated_columns = stored)"
            } else {
                ""
            };
            exec(
                &client,
                &format!(
                    "DROP PUBLICATION IF EXISTS flow_test; DROP TABLE IF EXISTS g;
                     CREATE TABLE g (id int PRIMARY KEY, v int, b int GENERATED ALWAYS AS (v + 1) STORED{virtual_column});
                     INSERT INTO g VALUES (1, 1); CREATE PUBLICATION flow_test FOR TABLE g {option}"
                ),
            )
            .await;
            let report = preflight(&options, &[request("g")], false).await.expect("answers");
            let left_out = report.checks.iter().find(|check| check.message.contains("left out"));
            let expected = match (sent, virtual_column) {
                (true, _) => Some("generated columns are not sent and are left out: c"),
                (false, "") => Some("generated columns are not sent and are left out: b"),
                (false, _) => Some("generated columns are not sent and are left out: b, c"),
            };
            assert_eq!(
                left_out.map(|check| check.message.as_str()),
                expected,
                "{version} {sent}"
            );
            let slot = format!("flow_test_{sent}");
            let mut options = options.clone();
            options.slot = slot;
            let snapshot = flow_source::create_slot(&options, None).await.expect("a slot");
            let tables = capture(&options, &[request("g")], snapshot.consistent_point).await;
            let columns: Vec<&str> = tables[0].schema.columns.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(columns, if sent { &["id", "v", "b"][..] } else { &["id", "v"] });
            let mut session = flow_source::open_copy_session(&options, &snapshot.name)
                .await
                .expect("a session");
            let mut copied = Vec::new();
            session
                .copy(&tables[0], |mut row| -> Result<(), SourceError> {
                    copied.push(show(&encoded(&mut row)?, &tables[0].schema));
                    Ok(())
                })
                .await
                .expect("a copy");
            drop(session);
            let mut stream = flow_source::Stream::connect(&options, snapshot.consistent_point, tables.clone())
                .await
                .expect("a stream");
            exec(&client, "INSERT INTO g VALUES (2, 1)").await;
            let streamed = show_all(&next_change(&mut stream).await, &tables);
            let rest = if sent { " v=1 b=2" } else { " v=1" };
            assert_eq!(copied, [format!("id=1{rest}")], "{version}");
            assert_eq!(streamed, [format!("insert 1 id=2{rest}")], "{version}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_and_the_role_are_checked() {
    for version in versions() {
        let server = Server::start(
            &version,
            "wal_level = replica\nmax_replication_slots = 1\nmax_wal_senders = 1",
            &[],
        );
        let (client, mut options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE ROLE weak LOGIN; CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE r (id int PRIMARY KEY);
             ALTER TABLE r ENABLE ROW LEVEL SECURITY; GRANT SELECT ON r TO weak; GRANT SELECT (id) ON t TO weak",
        )
        .await;
        options.conninfo.user = "weak".to_owned();
        let got = problems(&options, &[request("t"), request("r")], true).await;
        for expected in [
            "wal_level: wal_level is replica",
            "REPLICATION: role weak connects",
            "replication slots: 1 slots are free, 2 are needed",
            "wal senders: 1 WAL senders are free, 2 are needed",
            "publication: publication \"flow_test\" does not exist",
            "SELECT: the role may not read the table",
            "row-level security: row-level security would hide rows from the role",
        ] {
            assert!(got.iter().any(|p| p == expected), "{version}: {expected}: {got:#?}");
        }
        exec(
            &client,
            "CREATE PUBLICATION flow_test FOR TABLE t WITH (publish = 'insert')",
        )
        .await;
        let got = problems(&options, &[request("t")], true).await;
        let expected = "publication: publication \"flow_test\" does not send update, delete, truncate";
        assert!(got.iter().any(|p| p == expected), "{got:#?}");
        let report = preflight(&options, &[], true).await.expect("answers");
        assert!(report.system.version_num / 10_000 == version.parse::<u32>().unwrap_or(0));
        assert!(report.system.system_identifier > 0 && !report.system.server_lsn.is_zero());
        options.publication = "nope".to_owned();
        let missing = discover(&options, None).await;
        assert!(matches!(missing, Err(SourceError::PublicationMissing { .. })));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_are_found() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE SCHEMA \"odd.Schema\"; CREATE TABLE \"odd.Schema\".\"a.b \"\"C\" (\"ID\" int PRIMARY KEY, \"select\" text)",
        )
        .await;
        let name = TableName::new("odd.Schema", "a.b \"C");
        let requests = [flow_source::TableRequest::new(name)];
        let (tables, mut stream) = begin(&options, &requests).await;
        exec(&client, "INSERT INTO \"odd.Schema\".\"a.b \"\"C\" VALUES (1, 'x')").await;
        assert_eq!(
            show_all(&next_change(&mut stream).await, &tables),
            ["insert 1 ID=1 select=x"]
        );
    }
}
