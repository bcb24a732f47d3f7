//! Only real differences are handed back, and applying them gives the computed table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use flow_refresh::PlannedTable;

use crate::lake::{Draw, MemoryLake};
use crate::sample::{Output, context, fact_schema, lake, planned, random, refresh, table};

/// Renders rows, so that multisets can be counted. Lineage columns are left out.
pub(crate) fn counted(batches: &[RecordBatch], columns: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let options = FormatOptions::default().with_null("\\N");
    for batch in batches {
        let formatters: Vec<_> = batch.columns()[..columns]
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).expect("columns can be shown"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = formatters.iter().map(|f| f.value(row).to_string()).collect();
            *counts.entry(values.join("\t")).or_insert(0) += 1;
        }
    }
    counts
}

/// Applies a refresh to the stored rows and puts the next snapshot.
fn apply(table: &PlannedTable, stored: Option<&RecordBatch>, output: &Output, lake: &MemoryLake) -> (i64, RecordBatch) {
    let schema = flow_core::arrow::arrow_schema(&table.output);
    let mut parts = output.inserted.clone();
    if let Some(stored) = stored {
        let mut keep = vec![true; stored.num_rows()];
        for (_, position) in &output.deleted {
            assert!(
                std::mem::take(&mut keep[*position as usize]),
                "position {position} is deleted twice"
            );
        }
        parts.push(filter_record_batch(stored, &BooleanArray::from(keep)).expect("a filter of the batch"));
    }
    let rows = concat_batches(&schema, &parts).expect("rows of one table");
    (lake.put(&table.name, rows.clone()), rows)
}

#[tokio::test]
async fn a_refresh_that_changes_nothing_gives_nothing() {
    let lake = lake(5, 200);
    for select in [
        "SELECT * FROM bronze.f",
        "SELECT k, s FROM bronze.f",
        "SELECT k, sum(x) AS a, count(*) AS c FROM bronze.f GROUP BY k",
        "SELECT f.id, d.name FROM bronze.f f LEFT JOIN bronze.d d ON f.k = d.k",
        "SELECT k, array_agg(n) AS a FROM bronze.f GROUP BY k",
        "SELECT id FROM bronze.e",
    ] {
        let table = planned(select, &lake).await;
        let first = refresh(&table, None, &lake, &context(2)).await.expect(select);
        assert_eq!(first.deleted, []);
        let (id, _) = apply(&table, None, &first, &lake);
        lake.shuffle(77);
        let again = refresh(&table, Some(id), &lake, &context(3)).await.expect(select);
        assert_eq!((again.rows_inserted, again.rows_deleted), (0, 0), "{select}");
        assert!(again.inserted.is_empty() && again.deleted.is_empty(), "{select}");
        assert!(again.rows_read >= first.rows_inserted, "{select}");
    }
}

#[tokio::test]
async fn differences_lead_to_the_computed_table() {
    let mut draw = Draw(3);
    let selects = [
        "SELECT k, g, s FROM bronze.f",
        "SELECT id, x, r, d, t, z, day, b, u FROM bronze.f",
        "SELECT k, count(*) AS c, sum(d) AS d FROM bronze.f GROUP BY k",
        "SELECT DISTINCT k, b FROM bronze.f",
    ];
    for select in selects {
        let lake = lake(11, 150);
        let table = planned(select, &lake).await;
        let mut stored: Option<(i64, RecordBatch)> = None;
        for step in 0..6 {
            // Some rows go, some stay, some come; sometimes all go.
            let name = crate::sample::table("bronze.f");
            let rows = if step == 4 { 0 } else { 60 + draw.below(90) as usize };
            lake.put(
                &name,
                random(&fact_schema(), rows, if step == 3 { 11 } else { 11 + draw.below(2) }),
            );
            lake.shuffle(draw.next());
            let mut context = context(1 + step % 3);
            context.run_id = format!("run-{step}");
            let before = stored.as_ref().map(|(_, rows)| rows.clone());
            let id = stored.as_ref().map(|(id, _)| *id);
            let output = refresh(&table, id, &lake, &context).await.expect(select);
            let fresh = refresh(&table, None, &lake, &context).await.expect(select);
            let (id, rows) = apply(&table, before.as_ref(), &output, &lake);
            let users = table.user_columns;
            assert_eq!(
                counted(std::slice::from_ref(&rows), users),
                counted(&fresh.inserted, users),
                "{select}, step {step}"
            );
            check_smallest(before.as_ref(), &fresh.inserted, &output, users);
            check_lineage(&table, &output, &context.run_id, &lake).await;
            stored = Some((id, rows));
        }
    }
}

/// No row is both deleted and inserted.
fn check_smallest(before: Option<&RecordBatch>, computed: &[RecordBatch], output: &Output, users: usize) {
    let before = before.map_or(BTreeMap::new(), |rows| counted(std::slice::from_ref(rows), users));
    let computed = counted(computed, users);
    let more = |a: &BTreeMap<String, usize>, b: &BTreeMap<String, usize>| -> u64 {
        a.iter()
            .map(|(row, count)| count.saturating_sub(b.get(row).copied().unwrap_or(0)) as u64)
            .sum()
    };
    assert_eq!(output.rows_inserted, more(&computed, &before));
    assert_eq!(output.rows_deleted, more(&before, &computed));
    assert!(output.deleted.is_sorted());
}

async fn check_lineage(table: &PlannedTable, output: &Output, run_id: &str, lake: &Arc<MemoryLake>) {
    use flow_core::lake::SnapshotReader;
    let loaded = lake
        .load(&crate::sample::table("bronze.f"))
        .await
        .expect("memory is read")
        .expect("it is there");
    let snapshot = loaded.snapshots.last().expect("it has one").snapshot_id;
    for batch in &output.inserted {
        assert_eq!(batch.schema(), flow_core::arrow::arrow_schema(&table.output));
        let at = table.user_columns;
        assert!(
            batch
                .column(at)
                .as_primitive::<Int64Type>()
                .iter()
                .all(|v| v == Some(snapshot))
        );
        assert!(
            batch
                .column(at + 1)
                .as_string::<i32>()
                .iter()
                .all(|v| v == Some(run_id))
        );
        assert!(
            batch
                .column(at + 3)
                .as_string::<i32>()
                .iter()
                .all(|v| v == Some("FULL"))
        );
    }
}

#[tokio::test]
async fn bits_that_compare_equal_in_sql_still_differ_in_a_table() {
    use arrow_array::Float64Array;
    let lake = MemoryLake::new();
    let put = |value: f64| {
        let column: arrow_array::ArrayRef = Arc::new(Float64Array::from(vec![value]));
        lake.put(
            &table("bronze.v"),
            RecordBatch::try_from_iter([("x", column)]).expect("one column"),
        )
    };
    put(0.0);
    let planned = planned("SELECT x FROM bronze.v", &lake).await;
    let first = refresh(&planned, None, &lake, &context(1)).await.expect("a row");
    let (id, _) = apply(&planned, None, &first, &lake);
    put(-0.0);
    let second = refresh(&planned, Some(id), &lake, &context(1)).await.expect("a row");
    assert_eq!((second.rows_inserted, second.rows_deleted), (1, 1));
}

#[tokio::test]
async fn a_stored_table_with_other_columns_is_refused() {
    use flow_core::Remedial;
    let lake = lake(1, 5);
    let one = planned("SELECT id, k FROM bronze.f", &lake).await;
    let first = refresh(&one, None, &lake, &context(1)).await.expect("rows");
    let (id, _) = apply(&one, None, &first, &lake);
    for other in ["SELECT id FROM bronze.f", "SELECT id, k, g FROM bronze.f"] {
        let other = planned(other, &lake).await;
        let error = refresh(&other, Some(id), &lake, &context(1))
            .await
            .expect_err("other columns");
        assert_eq!(error.code(), Some("F0422"), "{error}");
    }
}

#[tokio::test]
async fn lineage_of_an_input_is_no_input() {
    let lake = lake(1, 5);
    let low = planned("SELECT id, k FROM bronze.f", &lake).await;
    let first = refresh(&low, None, &lake, &context(1)).await.expect("rows");
    apply(&low, None, &first, &lake);
    let text = "CREATE DYNAMIC TABLE gold.u AS SELECT * FROM gold.t";
    let reader: Arc<dyn flow_core::lake::SnapshotReader> = lake.clone();
    let plan = flow_refresh::plan(&crate::sample::define(text), &reader, &BTreeMap::new()).await;
    assert_eq!(plan.problems, []);
    assert_eq!(plan.tables[0].user_columns, 2);
    let output = refresh(&plan.tables[0], None, &lake, &context(1)).await.expect("rows");
    assert_eq!(output.rows_inserted, 5);
}
