//! Read-only SQL at one cut.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use flow_core::lake::SnapshotReader;
use flow_core::{Remedial, Remedy, TableName};
use flow_refresh::{RefreshError, query};

use crate::sample::{context, lake, planned, random, refresh, table};

const MEMORY: usize = 64 << 20;

#[tokio::test]
async fn a_query_reads_the_cut() {
    let lake = lake(1, 10);
    let second = lake.put(&table("bronze.f"), random(&crate::sample::fact_schema(), 25, 2));
    let count = async |cut: &(dyn Fn(&TableName) -> Option<i64> + Send + Sync)| {
        let reader: Arc<dyn SnapshotReader> = lake.clone();
        let (schema, batches) = query("SELECT count(*) AS n FROM bronze.f;", reader, cut, MEMORY)
            .await
            .expect("rows");
        assert_eq!(schema.field(0).name(), "n");
        batches[0].column(0).as_primitive::<Int64Type>().value(0)
    };
    assert_eq!(count(&|_| Some(100)).await, 10);
    assert_eq!(count(&move |_| Some(second)).await, 25);
    assert_eq!(count(&|_| None).await, 0);
}

#[tokio::test]
async fn grouping_sets_of_an_outer_query_are_not_computed_wrongly() {
    let lake = lake(1, 10);
    let reader: Arc<dyn SnapshotReader> = lake.clone();
    let sql = "SELECT id FROM bronze.f WHERE EXISTS (SELECT 1 FROM bronze.d WHERE d.k = f.k GROUP BY ROLLUP (d.k))";
    let error = query(sql, reader, &|_| Some(100), MEMORY).await.expect_err(sql);
    assert_eq!(error.remedy(), Remedy::Reconfigure, "{error}");
}

#[tokio::test]
async fn only_reading_is_allowed() {
    let lake = lake(1, 10);
    let check = async |sql: &str, line: u64, column: u64, part: &str| {
        let reader: Arc<dyn SnapshotReader> = lake.clone();
        let error = query(sql, reader, &|_| Some(100), MEMORY).await.expect_err(sql);
        assert_eq!(error.remedy(), Remedy::Reconfigure, "{sql}: {error}");
        let RefreshError::Refused {
            line: l,
            column: c,
            message,
        } = &error
        else {
            panic!("{sql}: {error}");
        };
        assert_eq!((*l, *c), (line, column), "{sql}: {message}");
        assert!(message.contains(part), "{sql}: {message}");
    };
    for statement in [
        "INSERT INTO bronze.f SELECT * FROM bronze.f",
        "DELETE FROM bronze.f",
        "DROP TABLE bronze.f",
        "CREATE TABLE bronze.q AS SELECT 1",
        "SET datafusion.execution.target_partitions = 1",
        "COPY bronze.f TO 'x.csv'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "SHOW TABLES",
    ] {
        check(statement, 1, 1, "expected SELECT").await;
    }
    check("SELECT 1; SELECT 2", 1, 9, "one statement").await;
    check("SELECT 1; DROP TABLE bronze.f", 1, 9, "one statement").await;
    check("SELECT *\nFROM bronze.nope", 2, 6, "unknown table").await;
    check("SELECT nope FROM bronze.f", 1, 8, "unknown column").await;
    check("SELECT * INTO x FROM bronze.f", 1, 10, "INTO").await;
    check("SELECT * FROM information_schema.df_settings", 1, 15, "not readable").await;
    check("SELECT * FROM '/etc/passwd'", 1, 1, "unknown table").await;
    check("EXPLAIN DELETE FROM bronze.f", 1, 9, "expected SELECT").await;
    check("SELECT 'x", 1, 8, "unterminated").await;
    check(
        "WITH q AS (DELETE FROM bronze.f RETURNING *) SELECT * FROM q",
        1,
        12,
        "",
    )
    .await;
}

#[tokio::test]
async fn lineage_is_there_when_it_is_named() {
    let lake = lake(1, 5);
    let gold = planned("SELECT id FROM bronze.f", &lake).await;
    let output = refresh(&gold, None, &lake, &context(1)).await.expect("rows");
    let id = lake.put(&gold.name, output.inserted[0].clone());
    let columns = async |sql: &str| {
        let reader: Arc<dyn SnapshotReader> = lake.clone();
        let (schema, _) = query(sql, reader, &move |_| Some(id), MEMORY).await.expect(sql);
        schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(columns("SELECT * FROM gold.t").await, ["id"]);
    assert_eq!(
        columns("SELECT id, _flow_job_run_id FROM gold.t").await,
        ["id", "_flow_job_run_id"]
    );
}

#[tokio::test]
async fn explain_shows_the_plan() {
    let reader: Arc<dyn SnapshotReader> = lake(1, 5);
    let (schema, batches) = query("EXPLAIN SELECT id FROM bronze.f", reader, &|_| None, MEMORY)
        .await
        .expect("a plan");
    assert_eq!(schema.field(0).name(), "plan");
    assert!(batches[0].column(0).as_string::<i32>().value(0).contains("TableScan"));
}
