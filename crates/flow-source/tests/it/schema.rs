//! Definitions that change, and values that do not fit: one table blocks, the others go on.

use flow_source::publication_rows;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_definitions_block_their_table_only() {
    let changes = [
        ("ALTER TABLE a RENAME v TO w", "F0131 column w is where v was"),
        ("ALTER TABLE a ADD w int", "F0131 column w was added"),
        ("ALTER TABLE a DROP v", "F0131 column v is no longer sent"),
        ("ALTER TABLE a DROP v, ADD w text", "F0131 column w is where v was"),
        (
            "ALTER TABLE a ALTER v TYPE varchar(9)",
            "F0131 column v is no longer text",
        ),
        ("ALTER TABLE a RENAME TO c", "F0131 the table was renamed to public.c"),
        (
            "ALTER TABLE a REPLICA IDENTITY NOTHING",
            "F0131 the replica identity is no longer the key",
        ),
    ];
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        for (ddl, reason) in changes {
            exec(
                &client,
                "DROP TABLE IF EXISTS a, b, c; CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY)",
            )
            .await;
            let (tables, mut stream) = begin(&options, &[request("a"), request("b")]).await;
            exec(&client, "INSERT INTO a VALUES (1)").await;
            assert_eq!(
                show_all(&next_change(&mut stream).await, &tables),
                ["insert 1 id=1 v=null"]
            );
            let table = if ddl.contains("TO c") { "c" } else { "a" };
            exec(
                &client,
                &format!("BEGIN; INSERT INTO b VALUES (1); {ddl}; INSERT INTO {table} VALUES (2); COMMIT"),
            )
            .await;
            let got = show_all(&next_change(&mut stream).await, &tables);
            assert_eq!(got, ["insert 2 id=1".to_owned(), format!("block 1 {reason}")], "{ddl}");
            exec(
                &client,
                &format!("INSERT INTO {table} VALUES (3); INSERT INTO b VALUES (2)"),
            )
            .await;
            // Each transaction says it again, for a table whose copy takes the place of the earlier ones.
            let got = show_all(&next_change(&mut stream).await, &tables);
            assert_eq!(got, [format!("block 1 {reason}"), "insert 2 id=2".to_owned()], "{ddl}");
            drop(stream);
            exec(&client, "DROP PUBLICATION flow_test").await;
            drop_slot_patiently(&options).await;
        }
    }
}

async fn drop_slot_patiently(options: &flow_source::SourceOptions) {
    soon("dropping the slot", async {
        while flow_source::drop_slot(options).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_not_on_the_wire_are_found_in_the_catalog() {
    for version in versions() {
        let server = Server::start(&version, "", &[]);
        let (client, options) = (server.client().await, server.options());
        let harmless = [
            "VACUUM FULL a",
            "ALTER TABLE a ALTER v SET STATISTICS 7",
            "ALTER PUBLICATION flow_test ADD TABLE b",
            "TRUNCATE a",
            "CREATE INDEX ON a (v)",
        ];
        let harmful = [
            ("ALTER PUBLICATION flow_test SET (publish = 'insert')", "operations"),
            (
                "ALTER PUBLICATION flow_test DROP TABLE a; ALTER PUBLICATION flow_test ADD TABLE a",
                "taken out",
            ),
            ("ALTER PUBLICATION flow_test DROP TABLE a", "taken out"),
            ("DROP PUBLICATION flow_test", "dropped"),
            ("DROP TABLE a", "dropped"),
            ("ALTER TABLE a DROP v, ADD v int", "columns"),
            ("ALTER TABLE a ALTER v TYPE int USING v + 1", "rewritten"),
        ];
        let fresh = "DROP PUBLICATION IF EXISTS flow_test; DROP TABLE IF EXISTS a, b;
             CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY);
             INSERT INTO a VALUES (1, 1); CREATE PUBLICATION flow_test FOR TABLE a";
        for (sql, expected) in harmless.iter().map(|sql| (*sql, "")).chain(harmful) {
            exec(&client, fresh).await;
            let before = publication_rows(&options).await.expect("answers");
            let oid = before.relations[0].oid;
            assert!(before.compare(&before, &[oid]).is_empty());
            exec(&client, sql).await;
            let after = publication_rows(&options).await.expect("answers");
            let change = after.compare(&before, &[oid]);
            let reason = change.affected.first().map_or("", |affected| &affected.reason);
            assert!(
                reason.contains(expected) && reason.is_empty() == expected.is_empty(),
                "{version}: {sql}: {reason}"
            );
        }
    }
}
