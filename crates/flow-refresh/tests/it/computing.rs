//! Values are exact or an error; order and number of partitions never show.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_ord::sort::{SortColumn, lexsort_to_indices};
use flow_core::{Remedial, Remedy};
use flow_refresh::RefreshContext;

use crate::lake::{Draw, MemoryLake};
use crate::sample::{context, lake, planned, refresh, table};

fn numbers(values: &[(&str, ArrayRef)]) -> Arc<MemoryLake> {
    let lake = MemoryLake::new();
    let batch = RecordBatch::try_from_iter(values.iter().map(|(name, array)| (*name, array.clone())));
    lake.put(&table("bronze.v"), batch.expect("columns of one length"));
    lake
}

fn longs(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

async fn check_blocked(select: &str, lake: &Arc<MemoryLake>, part: &str) {
    let table = planned(select, lake).await;
    let error = refresh(&table, None, lake, &context(4)).await.expect_err(select);
    assert_eq!(error.remedy(), Remedy::BlockTable, "{select}: {error}");
    assert_eq!(error.code(), Some("F0420"), "{select}: {error}");
    let text = error.to_string();
    assert!(text.contains("gold.t") && text.contains(part), "{select}: {text}");
    for digits in ["9223372036854775807", "123456"] {
        assert!(!text.contains(digits), "{text} holds a row's value");
    }
}

#[tokio::test]
async fn what_does_not_fit_in_memory_goes_on_in_files() {
    let rows = 200_000;
    let lake = numbers(&[
        ("a", longs(&(0..rows).collect::<Vec<_>>())),
        ("g", longs(&(0..rows).map(|n| n * 7919 % 120_000).collect::<Vec<_>>())),
    ]);
    let small = RefreshContext {
        memory_bytes: 5 << 20,
        ..context(2)
    };
    let few = RecordBatch::try_from_iter([("k", longs(&[1, 2, 3]))]);
    lake.put(&table("bronze.few"), few.expect("a column"));
    for select in [
        "SELECT a, g, a + g AS s FROM bronze.v",
        "SELECT a, row_number() OVER (ORDER BY g, a) AS r FROM bronze.v",
        "SELECT a, row_number() OVER (PARTITION BY g ORDER BY a DESC) AS r FROM bronze.v",
        "SELECT g, count(*) AS c, max(a) AS m FROM bronze.v GROUP BY g",
        // The smaller side is held, wherever it stands.
        "SELECT v.a, f.k FROM bronze.v LEFT JOIN bronze.few f ON f.k = v.g",
        "SELECT v.a, f.k FROM bronze.few f RIGHT JOIN bronze.v ON f.k = v.g",
    ] {
        let table = planned(select, &lake).await;
        let whole = refresh(&table, None, &lake, &context(1)).await.expect(select);
        let output = refresh(&table, None, &lake, &small).await.expect(select);
        let sorted = |batches: &[RecordBatch]| {
            let whole = arrow_select::concat::concat_batches(&batches[0].schema(), batches).expect("one schema");
            let columns = whole.columns()[..table.user_columns].iter().cloned();
            let columns: Vec<_> = columns.map(|values| SortColumn { values, options: None }).collect();
            let order = lexsort_to_indices(&columns, None).expect("orders");
            columns
                .iter()
                .map(|column| arrow_select::take::take(&column.values, &order, None).expect("takes"))
                .collect::<Vec<_>>()
        };
        assert!(sorted(&output.inserted) == sorted(&whole.inserted), "{select}");
    }
}

#[tokio::test]
async fn scratch_files_that_cannot_be_made_are_tried_again() {
    let lake = numbers(&[("a", longs(&(0..100_000).collect::<Vec<_>>()))]);
    let table = planned("SELECT a, a + 1 AS b FROM bronze.v", &lake).await;
    let mut small = context(1);
    small.memory_bytes = 1 << 20;
    small.scratch.folder = "/nowhere/at/all".into();
    let error = refresh(&table, None, &lake, &small).await.expect_err("no folder");
    assert_eq!((error.code(), error.remedy()), (None, Remedy::Retry), "{error}");
}

#[tokio::test]
async fn overflow_blocks_the_table() {
    let lake = numbers(&[
        ("a", longs(&[i64::MAX, 1, i64::MIN, 123_456])),
        ("g", longs(&[1, 1, 2, 3])),
    ]);
    check_blocked("SELECT a + 1 AS y FROM bronze.v", &lake, "overflow").await;
    check_blocked("SELECT a - 1 AS y FROM bronze.v", &lake, "overflow").await;
    check_blocked("SELECT a * 2 AS y FROM bronze.v", &lake, "overflow").await;
    check_blocked("SELECT -a AS y FROM bronze.v", &lake, "overflow").await;
    check_blocked("SELECT abs(a) AS y FROM bronze.v", &lake, "").await;
    check_blocked("SELECT a / (g - 1) AS y FROM bronze.v", &lake, "division by zero").await;
    check_blocked("SELECT a % (g - 1) AS y FROM bronze.v", &lake, "division by zero").await;
    check_blocked("SELECT a / (g - 3) AS y FROM bronze.v WHERE g = 2", &lake, "overflow").await;
    check_blocked("SELECT a::int AS y FROM bronze.v", &lake, "does not fit").await;
    check_blocked("SELECT a::numeric(5,2) AS y FROM bronze.v", &lake, "").await;
    check_blocked("SELECT (a::text || 'x')::int AS y FROM bronze.v", &lake, "does not fit").await;
    check_blocked("SELECT sum(a) AS y FROM bronze.v WHERE g = 1", &lake, "sum").await;
    check_blocked("SELECT g, sum(a) AS y FROM bronze.v GROUP BY g", &lake, "sum").await;
    check_blocked("SELECT sum(a) OVER (ORDER BY g) AS y FROM bronze.v", &lake, "sum").await;
    let huge = "10000000000000000000000000000000000000::numeric(38,0)";
    check_blocked(
        &format!("SELECT {huge} * 100 * a AS y FROM bronze.v WHERE g = 3"),
        &lake,
        "",
    )
    .await;
    check_blocked(&format!("SELECT sum({huge} * 9) AS y FROM bronze.v"), &lake, "sum").await;
}

#[tokio::test]
async fn a_sum_overflows_only_if_its_result_does() {
    let lake = numbers(&[("a", longs(&[i64::MAX, i64::MAX, i64::MIN, i64::MIN, 7]))]);
    for partitions in [1, 4] {
        let table = planned("SELECT sum(a) AS s, avg(a) AS m FROM bronze.v", &lake).await;
        let output = refresh(&table, None, &lake, &context(partitions))
            .await
            .expect("the sum fits");
        assert_eq!(output.inserted[0].column(0).as_ref(), &Int64Array::from(vec![5]));
        assert_eq!(output.inserted[0].column(1).as_primitive::<Float64Type>().value(0), 1.0);
    }
}

#[tokio::test]
async fn zeros_and_nans_are_one_and_sort_as_in_postgresql() {
    let quiet = f64::from_bits(0xfff8_0000_0000_0001);
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, quiet, 1.0, f64::INFINITY]));
    let lake = numbers(&[("x", values), ("id", longs(&[1, 2, 3, 4, 5, 6]))]);
    let check = async |select: &str, expected: &[f64]| {
        let table = planned(select, &lake).await;
        let output = refresh(&table, None, &lake, &context(4)).await.expect(select);
        let column = arrow_select::concat::concat_batches(&output.inserted[0].schema(), &output.inserted);
        let column = column.expect("batches of one table");
        let got: Vec<u64> = column
            .column(0)
            .as_primitive::<Float64Type>()
            .values()
            .iter()
            .map(|v| v.to_bits())
            .collect();
        let expected: Vec<u64> = expected.iter().map(|v| v.to_bits()).collect();
        assert_eq!(got, expected, "{select}");
    };
    let nan = f64::from_bits(0x7ff8_0000_0000_0000);
    check("SELECT DISTINCT x FROM bronze.v", &[0.0, 1.0, f64::INFINITY, nan]).await;
    check("SELECT x FROM bronze.v GROUP BY x", &[0.0, 1.0, f64::INFINITY, nan]).await;
    check("SELECT max(x) AS y FROM bronze.v", &[nan]).await;
    check("SELECT min(x) AS y FROM bronze.v", &[0.0]).await;
    check(
        "SELECT count(*)::double precision AS y FROM bronze.v WHERE x = 0.0",
        &[2.0],
    )
    .await;
    check(
        "SELECT count(*)::double precision AS y FROM bronze.v WHERE x > 1.0",
        &[3.0],
    )
    .await;
    check("SELECT count(DISTINCT x)::double precision AS y FROM bronze.v", &[4.0]).await;
    check(
        "SELECT count(*)::double precision AS y FROM bronze.v a JOIN bronze.v b ON a.x = b.x",
        &[10.0],
    )
    .await;
    check(
        "SELECT x FROM (SELECT x FROM bronze.v ORDER BY x DESC LIMIT 1) AS q",
        &[quiet],
    )
    .await;
    check("SELECT sum(x) AS y FROM bronze.v WHERE id IN (2)", &[-0.0]).await;
}

/// Computes one number.
async fn number(select: &str, lake: &Arc<MemoryLake>) -> f64 {
    let table = planned(select, lake).await;
    let output = refresh(&table, None, lake, &context(1)).await.expect(select);
    output.inserted[0].column(0).as_primitive::<Float64Type>().value(0)
}

#[tokio::test]
async fn a_distinct_aggregate_changes_no_other() {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, 3.0, 1e17, 0.1, -1e17, 0.1]));
    let lake = numbers(&[("x", values), ("n", longs(&[1, 2, 3, 4, 5, 5, 6]))]);
    let mean = "SELECT avg(DISTINCT x) AS m FROM bronze.v WHERE x >= 0.0 AND x < 4.0 AND n < 5";
    assert_eq!(number(mean, &lake).await, 1.5);
    // Sums of parts would be rounded twice.
    let sum = "SELECT q.t FROM (SELECT sum(x) AS t, count(DISTINCT n) AS c FROM bronze.v WHERE n > 3) q WHERE q.c = 3";
    assert_eq!(number(sum, &lake).await, 0.2);
}

#[tokio::test]
async fn a_filter_that_is_null_lets_nothing_through() {
    // The bits under a NULL are those of a value that would pass.
    let nulls = arrow_buffer::NullBuffer::from(vec![false, true, false]);
    let values: ArrayRef = Arc::new(Float64Array::new(vec![5.0, 6.0, 7.0].into(), Some(nulls)));
    let lake = numbers(&[("x", values), ("g", longs(&[1, 1, 1]))]);
    let counted = "SELECT count(*) FILTER (WHERE x > 0.0)::double precision AS c FROM bronze.v GROUP BY g";
    assert_eq!(number(counted, &lake).await, 1.0);
}

#[tokio::test]
async fn window_functions_keep_their_own_orders() {
    let lake = numbers(&[
        ("g", longs(&[1; 60])),
        ("n", longs(&(0..60).map(|n| n % 3).collect::<Vec<_>>())),
        ("s", longs(&(0..60).map(|n| 60 - n).collect::<Vec<_>>())),
    ]);
    let select = "SELECT g, n, rank() OVER (PARTITION BY g ORDER BY n) AS r, first_value(s) OVER (PARTITION BY g ORDER BY n) AS f \
                  FROM bronze.v";
    let table = planned(select, &lake).await;
    let one = refresh(&table, None, &lake, &context(1)).await.expect(select);
    lake.shuffle(9);
    let other = refresh(&table, None, &lake, &context(1)).await.expect(select);
    assert_eq!(one.inserted, other.inserted);
}

/// Each of these depends on the order of rows unless something is done about it.
const ORDERED: [&str; 15] = [
    "SELECT sum(x) AS a, avg(x) AS b, var_pop(x) AS c, stddev(x) AS d, sum(r) AS e, avg(r) AS f FROM bronze.f",
    "SELECT k, sum(x * 1e10) AS a, avg(x / 3) AS b, var_samp(x / 7) AS c FROM bronze.f GROUP BY k",
    "SELECT k, sum(DISTINCT x) AS a, sum(DISTINCT n) AS b, avg(DISTINCT d) AS c FROM bronze.f GROUP BY k",
    "SELECT id, sum(x) OVER (PARTITION BY k ORDER BY g) AS a FROM bronze.f",
    "SELECT id, sum(x / 3) OVER (PARTITION BY k ORDER BY g ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS a FROM bronze.f",
    "SELECT id, min(x) OVER (ORDER BY g, id ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING) AS a FROM bronze.f",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY g) AS a FROM bronze.f",
    "SELECT k, lag(n) OVER (PARTITION BY k ORDER BY g) AS a, ntile(3) OVER (ORDER BY g) AS b FROM bronze.f",
    "SELECT k, first_value(n) OVER (PARTITION BY k ORDER BY g) AS a FROM bronze.f",
    "SELECT k, g FROM bronze.f ORDER BY g LIMIT 7",
    "SELECT k, g FROM bronze.f LIMIT 7",
    "SELECT sum(n) AS a FROM (SELECT n FROM bronze.f ORDER BY g OFFSET 3 LIMIT 9) AS q",
    "SELECT k, string_agg(s, ',') AS a, string_agg(s, ';' ORDER BY g) AS b FROM bronze.f GROUP BY k",
    "SELECT k, array_agg(n ORDER BY g) AS a, first_value(s ORDER BY g) AS b FROM bronze.f GROUP BY k",
    "SELECT k, array_agg(DISTINCT n) AS a FROM bronze.f GROUP BY k",
];

#[tokio::test]
async fn order_and_partitions_do_not_show() {
    for seed in 0..3 {
        let lake = lake(seed, 120);
        for select in ORDERED {
            let table = planned(select, &lake).await;
            lake.shuffle(1);
            let one = refresh(&table, None, &lake, &context(1)).await.expect(select);
            for (order, partitions) in [(2, 1), (3, 2), (4, 7)] {
                lake.shuffle(order);
                let other = refresh(&table, None, &lake, &context(partitions)).await.expect(select);
                assert_eq!(one.inserted, other.inserted, "{select}, seed {seed}, order {order}");
            }
        }
    }
}

#[tokio::test]
async fn too_little_memory_is_an_error() {
    let lake = lake(1, 20_000);
    let null_aware = "SELECT id FROM bronze.f WHERE id NOT IN (SELECT id FROM bronze.f)";
    let many_rows = "SELECT a.id, b.s FROM bronze.f a JOIN bronze.f b ON a.k = b.k";
    for (select, memory_bytes, bytes_max) in [(null_aware, 100_000, 1 << 30), (many_rows, 8 << 20, 1 << 20)] {
        let table = planned(select, &lake).await;
        let mut small = context(2);
        small.memory_bytes = memory_bytes;
        small.scratch.bytes_max = bytes_max;
        let error = refresh(&table, None, &lake, &small).await.expect_err(select);
        assert_eq!(
            (error.code(), error.remedy()),
            (Some("F0421"), Remedy::BlockTable),
            "{error}"
        );
    }
}

#[tokio::test]
async fn sums_of_many_floats_are_the_true_sums() {
    let mut draw = Draw(9);
    let whole: Vec<i64> = (0..3000).map(|_| (draw.next() >> 20) as i64 - (1 << 43)).collect();
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(whole.iter().map(|v| *v as f64 / 1024.0)));
    let lake = numbers(&[("x", floats)]);
    let table = planned("SELECT sum(x) AS s FROM bronze.v", &lake).await;
    let output = refresh(&table, None, &lake, &context(3)).await.expect("a sum");
    let expected = whole.iter().sum::<i64>() as f64 / 1024.0;
    assert_eq!(
        output.inserted[0].column(0).as_primitive::<Float64Type>().value(0),
        expected
    );
}

#[tokio::test]
async fn in_finds_floats_that_are_equal() {
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, 1.0]));
    let lake = numbers(&[("x", values), ("n", longs(&[1, 2, 3]))]);
    let counted = "SELECT count(*)::double precision AS c FROM bronze.v WHERE";
    let zero = "(SELECT x FROM bronze.v WHERE n = 2)";
    assert_eq!(number(&format!("{counted} x IN {zero}"), &lake).await, 2.0);
    assert_eq!(number(&format!("{counted} x NOT IN {zero}"), &lake).await, 1.0);
}
