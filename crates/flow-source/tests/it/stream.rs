//! Changes of every shape, transactions of every size, and what ends a stream.

use flow_core::{Lsn, Remedial, Remedy};
use flow_source::{SourceError, SourceEvent, Stream, slot_state};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_every_shape_arrive_as_postgresql_made_them() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE TABLE a (id int PRIMARY KEY, v text, big text);
             ALTER TABLE a ALTER big SET STORAGE EXTERNAL;
             CREATE TABLE f (id int PRIMARY KEY, v text); ALTER TABLE f REPLICA IDENTITY FULL;
             CREATE TABLE two (x int, v text, y int, PRIMARY KEY (y, x))",
        )
        .await;
        let (tables, mut stream) = begin(&options, &[request("a"), request("f"), request("two")]).await;
        let check = async |stream: &mut Stream, sql: &str, expected: &[&str]| {
            exec(&client, sql).await;
            let got = show_all(&next_change(stream).await, &tables);
            assert_eq!(got, expected, "{version}: {sql}");
        };
        let s = &mut stream;
        check(
            s,
            "INSERT INTO a VALUES (1, 'x', repeat('z', 9000))",
            &["insert 1 id=1 v=x big=zzzzzzzzzz…9000"],
        )
        .await;
        check(s, "UPDATE a SET v = NULL", &["update 1 - id=1 v=null big=unchanged"]).await;
        check(
            s,
            "UPDATE a SET id = 2",
            &["update 1 key(id=1 v=absent big=absent) id=2 v=null big=unchanged"],
        )
        .await;
        check(s, "DELETE FROM a", &["delete 1 key(id=2 v=absent big=absent)"]).await;
        check(
            s,
            "BEGIN; INSERT INTO f VALUES (1, 'q'); UPDATE f SET v = 'r'; DELETE FROM f; COMMIT",
            &[
                "insert 2 id=1 v=q",
                "update 2 full(id=1 v=q) id=1 v=r",
                "delete 2 full(id=1 v=r)",
            ],
        )
        .await;
        check(
            s,
            "BEGIN; INSERT INTO two VALUES (1, 'p', 2); UPDATE two SET x = 9; DELETE FROM two; COMMIT",
            &[
                "insert 3 x=1 v=p y=2",
                "update 3 key(x=1 v=absent y=2) x=9 v=p y=2",
                "delete 3 key(x=9 v=absent y=2)",
            ],
        )
        .await;
        check(
            s,
            "BEGIN; INSERT INTO a VALUES (5); SAVEPOINT s; INSERT INTO a VALUES (6); ROLLBACK TO s;
             SAVEPOINT t; INSERT INTO f VALUES (7); RELEASE t; COMMIT",
            &["insert 1 id=5 v=null big=null", "insert 2 id=7 v=null"],
        )
        .await;
        exec(&client, "BEGIN; INSERT INTO a VALUES (100); ROLLBACK").await;
        exec(&client, "BEGIN; INSERT INTO a VALUES (8); PREPARE TRANSACTION 'p'").await;
        check(s, "COMMIT PREPARED 'p'", &["insert 1 id=8 v=null big=null"]).await;
        check(s, "TRUNCATE a, f", &["truncate 1", "truncate 2"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_huge_transaction_passes_in_chunks() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, "CREATE TABLE a (id int PRIMARY KEY, v text)").await;
        let (_, mut stream) = begin(&options, &[request("a")]).await;
        exec(
            &client,
            "INSERT INTO a SELECT i, repeat('x', 200) FROM generate_series(1, 100000) i",
        )
        .await;
        let transaction = next_change(&mut stream).await;
        assert_eq!(transaction.changes.len(), 100_000);
        assert!(transaction.meta.chunks > 30, "{:?}", transaction.meta);
        assert!(transaction.largest_chunk < 600_000, "{}", transaction.largest_chunk);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_but_what_was_told() {
    for version in versions() {
        let server = Server::start(&version, "wal_sender_timeout = 2s", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, "CREATE TABLE a (id int PRIMARY KEY)").await;
        exec(&client, "CREATE DATABASE other").await;
        let (_, mut stream) = begin(&options, &[request("a")]).await;
        let before = slot_state(&options)
            .await
            .expect("answers")
            .expect("a slot")
            .confirmed_flush;
        exec(&client, "INSERT INTO a VALUES (1)").await;
        let first = next_change(&mut stream).await.meta.end_lsn;
        // Several server timeouts pass: keepalives are answered, and nothing is confirmed.
        let until = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
        while tokio::time::timeout_at(until, stream.next()).await.is_ok_and(|event| {
            event.expect("the stream lives");
            true
        }) {}
        let held = slot_state(&options).await.expect("answers").expect("a slot");
        assert_eq!(held.confirmed_flush, before);
        assert!(held.active_pid.is_some());
        let acknowledger = stream.acknowledger();
        acknowledger.acknowledge(first);
        acknowledger.acknowledge(Lsn(1));
        wait_confirmed(&options, first).await;
        // The WAL of another database moves the position without a change here.
        let other = options.conninfo.clone();
        let url = format!("host=127.0.0.1 port={} user=postgres dbname=other", other.port);
        let (busy, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("up");
        tokio::spawn(connection);
        exec(&busy, "CREATE TABLE t AS SELECT generate_series(1, 10000)").await;
        let row = client
            .query_one("SELECT pg_current_wal_lsn()::text", &[])
            .await
            .expect("answers");
        let target: Lsn = row.get::<_, String>(0).parse().expect("an LSN");
        loop {
            if let SourceEvent::Keepalive { wal_end } = soon("a keepalive", stream.next()).await.expect("lives")
                && wal_end >= target
            {
                acknowledger.acknowledge(wal_end);
                break wait_confirmed(&options, wal_end).await;
            }
        }
    }
}

async fn wait_confirmed(options: &flow_source::SourceOptions, lsn: Lsn) {
    soon("the confirmed position", async {
        loop {
            let state = slot_state(options).await.expect("answers").expect("a slot");
            assert!(state.confirmed_flush <= lsn, "more was confirmed than acknowledged");
            if state.confirmed_flush == lsn {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_loses_and_doubles_nothing() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let options = server.options();
        exec(&server.client().await, "CREATE TABLE a (id int PRIMARY KEY)").await;
        let (tables, mut stream) = begin(&options, &[request("a")]).await;
        let client = server.client().await;
        exec(&client, "INSERT INTO a VALUES (1)").await;
        let one = next_change(&mut stream).await;
        exec(&client, "INSERT INTO a VALUES (2)").await;
        server.run("kill");
        let error = loop {
            if let Err(error) = next_transaction(&mut stream).await {
                break error;
            }
        };
        assert_eq!(error.remedy(), Remedy::Retry, "{error:?}");
        let refused = Stream::connect(&options, one.meta.end_lsn, tables.clone()).await;
        assert_eq!(refused.expect_err("it is down").remedy(), Remedy::Retry);
        server.run("start");
        // The first transaction was captured and never acknowledged: by its LSN it does not return.
        let mut position = one.meta.end_lsn;
        let mut stream = connect_patiently(&options, position, &tables).await;
        let next = next_change(&mut stream).await;
        position = position.max(next.meta.end_lsn);
        let mut got = vec![show_all(&one, &tables), show_all(&next, &tables)];
        // An ordinary shutdown waits for its standbys; holding back must not hold it up for ever.
        exec(&server.client().await, "INSERT INTO a VALUES (3)").await;
        got.push(show_all(&next_change(&mut stream).await, &tables));
        let flat: Vec<String> = got.concat();
        assert_eq!(flat, ["insert 1 id=1", "insert 1 id=2", "insert 1 id=3"]);
        let stop = tokio::task::spawn_blocking(move || {
            server.run("stop");
            server
        });
        let error = soon("the end of the stream", async {
            loop {
                if let Err(error) = stream.next().await {
                    break error;
                }
            }
        })
        .await;
        assert_eq!(error.remedy(), Remedy::Retry, "{error:?}");
        drop(stream);
        let server = soon("the shutdown", stop).await.expect("the script ran");
        server.run("start");
        let mut stream = connect_patiently(&options, position, &tables).await;
        assert_eq!(show_all(&next_change(&mut stream).await, &tables), ["insert 1 id=3"]);
    }
}

pub(crate) async fn connect_patiently(
    options: &flow_source::SourceOptions,
    start: Lsn,
    tables: &[flow_source::CaptureTable],
) -> Stream {
    soon("connecting", async {
        loop {
            match Stream::connect(options, start, tables.to_vec()).await {
                Ok(stream) => return stream,
                Err(error) => assert_eq!(error.remedy(), Remedy::Retry, "{error:?}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_cannot_serve_are_told_apart() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, "CREATE TABLE a (id int PRIMARY KEY)").await;
        let missing = Stream::connect(&options, Lsn(1), Vec::new())
            .await
            .expect_err("no slot");
        assert!(matches!(missing, SourceError::SlotMissing { .. }), "{missing:?}");
        assert_eq!((missing.remedy(), missing.code()), (Remedy::Resync, Some("F0110")));
        let (tables, stream) = begin(&options, &[request("a")]).await;
        let start = slot_state(&options)
            .await
            .expect("answers")
            .expect("a slot")
            .confirmed_flush;
        let held = Stream::connect(&options, start, tables.clone())
            .await
            .expect_err("held");
        assert!(matches!(held, SourceError::SlotHeld { .. }), "{held:?}");
        let again = flow_source::create_slot(&options, None).await.expect_err("exists");
        assert!(matches!(again, SourceError::SlotExists { .. }), "{again:?}");
        drop(stream);
        drop(connect_patiently(&options, start, &tables).await);
        let mut other = options.clone();
        other.system_identifier = Some(7);
        let other = Stream::connect(&other, start, tables.clone())
            .await
            .expect_err("another system");
        assert_eq!(other.code(), Some("F0114"));
        soon("advancing", async {
            while client
                .execute(
                    "SELECT pg_replication_slot_advance('flow_test', pg_current_wal_lsn())",
                    &[],
                )
                .await
                .is_err()
            {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await;
        exec(&client, "INSERT INTO a VALUES (1)").await;
        let moved = Stream::connect(&options, Lsn(start.0 - 1), tables.clone())
            .await
            .expect_err("moved");
        assert_eq!((moved.remedy(), moved.code()), (Remedy::Resync, Some("F0111")));
        exec(&client, "DROP PUBLICATION flow_test").await;
        let state = slot_state(&options).await.expect("answers").expect("a slot");
        let gone = Stream::connect(&options, state.confirmed_flush, tables)
            .await
            .expect_err("gone");
        assert_eq!((gone.remedy(), gone.code()), (Remedy::Resync, Some("F0121")));
        assert!(flow_source::drop_slot(&options).await.expect("dropped"));
        assert!(!flow_source::drop_slot(&options).await.expect("was gone"));
    }
}
