//! `drain`: how fast a backlog of changes is published, against `pg_recvlogical` to /dev/null.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde_json::{Value, json};

use super::service::Installation;
use super::usage::{cpu_seconds_of_children, round};
use super::{Bench, ratio};
use crate::lane::{must, shown};

const GOAL: f64 = 0.4;
/// Changes of one transaction, 70 % updates, 20 % inserts, 10 % deletes.
const CHANGES_EACH: u64 = 100;

/// Measures.
pub(super) fn measure(bench: &Bench) -> Result<Value> {
    let (postgres, mutations) = (&bench.postgres, bench.options.mutations);
    postgres.make_table("load", bench.options.rows)?;
    let flow = Installation::new(bench, "flow", &["load"])?;
    flow.run(&["init"])?;
    // Both baseline slots begin where ours does: nothing is written in between.
    for slot in ["warm", "baseline"] {
        postgres.execute(&[&format!(
            "SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"
        )])?;
    }
    make_backlog(bench)?;
    let end = postgres.flush_lsn()?;

    let mut warm = receive(bench, "warm", &end);
    must(&mut warm)?;
    let mut command = receive(bench, "baseline", &end);
    let cpu_before = cpu_seconds_of_children()?;
    let start = Instant::now();
    must(&mut command)?;
    let baseline_seconds = start.elapsed().as_secs_f64();
    let baseline_cpu = cpu_seconds_of_children()? - cpu_before;

    let start = Instant::now();
    let mut service = flow.start(&["run"])?;
    let catalog = flow.catalog();
    bench.load(&["published", &catalog.to_string_lossy(), &end, "900"])?;
    let seconds = start.elapsed().as_secs_f64();
    service.must_live()?;
    let usage = service.usage()?;
    let content = bench.check_content(&flow, "public.load", "bronze.load", "*")?;
    service.stop()?;

    let rate = |seconds: f64| mutations as f64 / seconds;
    let mut ours =
        json!({ "command": flow.shown(&["run"]), "seconds": round(seconds), "rows_per_second": rate(seconds).round() });
    super::merge(&mut ours, usage.fields(mutations));
    Ok(json!({
        "table_rows": bench.options.rows,
        "mutations": mutations,
        "ours": ours,
        "baseline": {
            "command": shown(&command),
            "seconds": round(baseline_seconds),
            "rows_per_second": rate(baseline_seconds).round(),
            "cpu_seconds": round(baseline_cpu),
        },
        "result": ratio(rate(seconds), rate(baseline_seconds), GOAL),
        "content": content,
    }))
}

fn receive(bench: &Bench, slot: &str, end: &str) -> Command {
    let mut command = Command::new("pg_recvlogical");
    command.args([
        "-d",
        &bench.postgres.url(),
        "--slot",
        slot,
        "--start",
        "--no-loop",
        "-f",
        "/dev/null",
    ]);
    command.args([
        "--endpos",
        end,
        "-o",
        "proto_version=1",
        "-o",
        "publication_names=embrasure_flow",
    ]);
    command
}

/// Makes the backlog, statement by statement on random keys, as an application would.
fn make_backlog(bench: &Bench) -> Result<()> {
    let (rows, transactions) = (bench.options.rows, bench.options.mutations / CHANGES_EACH);
    let procedure = format!(
        "CREATE PROCEDURE backlog() LANGUAGE plpgsql AS $$
         DECLARE fresh bigint := {rows}; gone bigint := 0; chosen bigint;
         BEGIN
           PERFORM setseed(0.5);
           FOR t IN 1..{transactions} LOOP
             FOR i IN 1..{CHANGES_EACH} LOOP
               IF i % 10 < 7 THEN
                 -- A variable, because a volatile condition would keep the index from being used.
                 chosen := {half} + floor(random() * {half})::bigint;
                 UPDATE load SET n = n + 1, payload = repeat(md5(random()::text), 8) WHERE id = chosen;
               ELSIF i % 10 < 9 THEN
                 fresh := fresh + 1;
                 INSERT INTO load VALUES (fresh, i, repeat(md5(fresh::text), 8), clock_timestamp());
               ELSE
                 gone := gone + 1;
                 DELETE FROM load WHERE id = gone;
               END IF;
             END LOOP;
             COMMIT;
           END LOOP;
         END $$",
        half = rows / 2,
    );
    bench.postgres.execute(&[&procedure, "CALL backlog()", "CHECKPOINT"])
}
