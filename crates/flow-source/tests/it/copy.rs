//! The hand-off between copy and stream, under writers; filters; a snapshot that went away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flow_core::key::encode_key;
use flow_core::transaction::{Change, Old};
use flow_core::{Lsn, Remedial, Remedy};
use flow_source::{CaptureTable, SourceError, SourceEvent, Stream, create_slot, open_copy_session};

use crate::harness::*;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(row: &[u8], table: &CaptureTable) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key(row, &table.schema, &mut key).expect("a key");
    key
}

/// Applies a change as strictly as a table would.
fn apply(state: &mut State, change: &Change, table: &CaptureTable) {
    match change {
        Change::Insert { new, .. } => assert_eq!(state.insert(key(new, table), new.to_vec()), None, "a row twice"),
        Change::Update { old, new, .. } => {
            let old_key = match old {
                Old::None => key(new, table),
                Old::Key(row) | Old::Full(row) => key(row, table),
            };
            assert!(state.remove(&old_key).is_some(), "an update of nothing");
            state.insert(key(new, table), new.to_vec());
        }
        Change::Delete { old, .. } => {
            let (Old::Key(row) | Old::Full(row)) = old else {
                panic!("no old row")
            };
            assert!(state.remove(&key(row, table)).is_some(), "a delete of nothing");
        }
        other => panic!("{other:?}"),
    }
}

/// Nobody may copy from another cluster than the one the state belongs to, however it was reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_asked_of_another_system() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, "CREATE TABLE a (id int PRIMARY KEY)").await;
        let report = flow_source::preflight(&options, &[], false).await.expect("answers");
        let mut known = options.clone();
        known.system_identifier = Some(report.system.system_identifier);
        flow_source::create_publication(&known, &[request("a")])
            .await
            .expect("a publication");
        let snapshot = create_slot(&known, None).await.expect("the same system");
        drop(
            open_copy_session(&known, &snapshot.name)
                .await
                .expect("the same system"),
        );
        let mut other = options.clone();
        other.system_identifier = Some(7);
        let refused = [
            flow_source::preflight(&other, &[], false).await.err(),
            flow_source::publication_rows(&other).await.err(),
            flow_source::create_publication(&other, &[]).await.err(),
            flow_source::slot_state(&other).await.err(),
            create_slot(&other, Some("flow_test_tmp")).await.err(),
            open_copy_session(&other, &snapshot.name).await.err(),
        ];
        for (index, error) in refused.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("question {index} was answered"));
            assert_eq!(
                (error.remedy(), error.code()),
                (Remedy::Resync, Some("F0114")),
                "{index}"
            );
        }
    }
}

/// What was agreed is what is copied: a table that was changed before or after the snapshot is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_changed_is_not_copied() {
    let make = "CREATE TABLE a (id int PRIMARY KEY, v int, w text); INSERT INTO a VALUES (1, 2, 'x')";
    let cases = [
        ("DROP TABLE a", "does not exist"),
        (
            "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, v int, w text)",
            "made again",
        ),
        ("ALTER TABLE a ALTER v TYPE bigint", "column v is no longer integer"),
        ("ALTER TABLE a RENAME v TO u", "does not exist"),
        (
            "ALTER TABLE a RENAME v TO u; ALTER TABLE a RENAME w TO v",
            "does not exist",
        ),
        ("ALTER TABLE a ALTER w TYPE varchar(9)", "column w is no longer text"),
    ];
    // These leave the definition and take the rows from whoever sees an older snapshot.
    let rewriting = ["TRUNCATE a", "ALTER TABLE a ALTER v TYPE int USING v + 1"];
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(&client, &format!("{make}; CREATE PUBLICATION flow_test FOR ALL TABLES")).await;
        let later = cases
            .iter()
            .map(|(sql, _)| (*sql, ""))
            .chain(rewriting.map(|sql| (sql, "written anew")));
        let before = cases.into_iter().map(|case| (case, false));
        let all = before.chain(later.map(|case| (case, true)));
        for (number, ((sql, expected), after_snapshot)) in all.enumerate() {
            exec(&client, &format!("DROP TABLE IF EXISTS a; {make}")).await;
            let mut tables = capture(&options, &[request("a")], Lsn::ZERO).await;
            if !after_snapshot {
                exec(&client, sql).await;
            }
            let slot = format!("flow_test_{number}");
            let snapshot = create_slot(&options, Some(&slot)).await.expect("a slot");
            let mut session = open_copy_session(&options, &snapshot.name).await.expect("a session");
            if after_snapshot {
                exec(&client, sql).await;
            }
            let copied = session.copy(&tables[0], |_| Ok::<(), SourceError>(())).await;
            let error = copied.expect_err(sql);
            assert!(matches!(error, SourceError::TableChanged { .. }), "{sql}: {error:?}");
            assert_eq!(error.remedy(), Remedy::Retry);
            assert!(error.to_string().contains(expected), "{sql}: {error}");
            // Agreed again and under another snapshot, it is copied.
            drop((session, snapshot));
            if !sql.ends_with("DROP TABLE a") {
                tables = capture(&options, &[request("a")], Lsn::ZERO).await;
                let slot = format!("flow_test_{number}_again");
                let again = create_slot(&options, Some(&slot)).await.expect("a slot");
                copy_state(&options, &tables[0], &again.name).await;
            }
        }
    }
}

async fn copy_state(options: &flow_source::SourceOptions, table: &CaptureTable, snapshot: &str) -> State {
    let mut session = open_copy_session(options, snapshot).await.expect("a session");
    let mut state = State::new();
    session
        .copy(table, |mut row| -> Result<(), SourceError> {
            let row = encoded(&mut row)?;
            assert_eq!(state.insert(key(&row, table), row), None);
            Ok(())
        })
        .await
        .expect("a copy");
    state
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_and_stream_meet_exactly_under_writers() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY, n int);
             INSERT INTO a SELECT i, 0 FROM generate_series(1, 2000) i; INSERT INTO b SELECT * FROM a",
        )
        .await;
        let done = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for seed in 0..4 {
            let (done, client) = (done.clone(), server.client().await);
            writers.push(tokio::spawn(async move {
                let mut round = 0;
                while !done.load(Ordering::Relaxed) {
                    let (x, y) = ((round * 7 + seed) % 2000 + 1, 10_000 + seed * 100_000 + round);
                    let sql = format!(
                        "BEGIN; UPDATE a SET n = n - 1 WHERE id = {x}; UPDATE b SET n = n + 1 WHERE id = {x};
                         INSERT INTO a VALUES ({y}, 0); DELETE FROM a WHERE id = {y} - 5; COMMIT"
                    );
                    exec(&client, &sql).await;
                    round += 1;
                }
            }));
        }
        let requests = [request("a"), request("b")];
        flow_source::create_publication(&options, &requests)
            .await
            .expect("a publication");
        let permanent = create_slot(&options, None).await.expect("a slot");
        let mut tables = capture(&options, &requests, permanent.consistent_point).await;
        let mut states = vec![copy_state(&options, &tables[0], &permanent.name).await];
        let start = permanent.consistent_point;
        drop(permanent);
        // The second table is copied later, as after an interrupted init, under a temporary slot.
        let temporary = create_slot(&options, Some("flow_test_tmp")).await.expect("a slot");
        assert!(temporary.consistent_point > start);
        tables[1].skip_until = temporary.consistent_point;
        states.push(copy_state(&options, &tables[1], &temporary.name).await);
        drop(temporary);
        let mut stream = Stream::connect(&options, start, tables.clone())
            .await
            .expect("a stream");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        done.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("a writer");
        }
        let target = flow_source::server_lsn(&options).await.expect("answers");
        let mut position = Lsn::ZERO;
        while position < target {
            match soon("events", stream.next()).await.expect("the stream lives") {
                SourceEvent::Chunk { bytes, .. } => {
                    for change in flow_core::transaction::ChunkReader::new(&bytes) {
                        let change = change.expect("own chunk");
                        let index = change.table().0 as usize - 1;
                        apply(&mut states[index], &change, &tables[index]);
                    }
                }
                SourceEvent::Commit(meta) => {
                    assert!(meta.end_lsn > position, "out of order");
                    position = meta.end_lsn;
                }
                SourceEvent::Keepalive { wal_end } => position = wal_end,
                SourceEvent::Begin { .. } => {}
            }
        }
        for (table, state) in tables.iter().zip(&states) {
            let sql = format!("SELECT id, n FROM {} ORDER BY id", table.name.quoted());
            let rows = client.query(&sql, &[]).await.expect("answers");
            let expected: Vec<String> = rows
                .iter()
                .map(|row| format!("id={} n={}", row.get::<_, i32>(0), row.get::<_, i32>(1)))
                .collect();
            let got: Vec<String> = state.values().map(|row| show(row, &table.schema)).collect();
            assert_eq!(got, expected, "{version}: {}", table.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_obeys_the_filter_and_needs_its_snapshot() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        exec(
            &client,
            "CREATE SCHEMA \"odd.Schema\"; CREATE FUNCTION \"odd.Schema\".even(n int) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT n % 2 = 0';
             CREATE TABLE a (\"select\" int PRIMARY KEY, \"a\"\"b\" text, hidden text);
             INSERT INTO a SELECT i, 'x', 'secret' FROM generate_series(1, 10) i",
        )
        .await;
        if version == "14" {
            exec(&client, "CREATE PUBLICATION flow_test FOR TABLE a").await;
        } else {
            exec(
                &client,
                "CREATE PUBLICATION flow_test FOR TABLE a (\"select\", \"a\"\"b\") WHERE (\"select\" % 2 = 0)",
            )
            .await;
        }
        let snapshot = create_slot(&options, None).await.expect("a slot");
        let tables = capture(&options, &[request("a")], snapshot.consistent_point).await;
        let state = copy_state(&options, &tables[0], &snapshot.name).await;
        let first = state.values().next().map(|row| show(row, &tables[0].schema));
        if version == "14" {
            assert_eq!(state.len(), 10);
        } else {
            assert_eq!((state.len(), first.as_deref()), (5, Some("select=2 a\"b=x")));
        }
        let name = snapshot.name.clone();
        drop(snapshot);
        soon("the snapshot's end", async {
            loop {
                match open_copy_session(&options, &name).await {
                    Ok(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                    Err(error) => break assert!(matches!(error, SourceError::SnapshotGone), "{error:?}"),
                }
            }
        })
        .await;
        // The session goes with the server, and the copy says so.
        let temporary = create_slot(&options, Some("flow_test_tmp")).await.expect("a slot");
        let mut session = open_copy_session(&options, &temporary.name).await.expect("a session");
        server.run("kill");
        let copied = session.copy(&tables[0], |_| Ok::<(), SourceError>(())).await;
        assert_eq!(copied.expect_err("it is down").remedy(), Remedy::Retry);
    }
}
