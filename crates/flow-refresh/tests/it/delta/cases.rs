//! Named cases: each operator, and each kind of input that broke others.

use std::sync::atomic::Ordering;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use flow_core::changes::ChangeBatch;
use flow_core::{Remedial, Remedy};
use flow_refresh::{InputChanges, Mode, begin_delta, refresh_delta};

use super::state::MemoryState;
use super::world::{Kept, Not, World};
use crate::sample::{context, table};

/// Is one row of a test table: k, n, x, s; `None` is NULL.
type Row<'a> = (Option<i64>, Option<i64>, Option<f64>, Option<&'a str>);

fn rows(rows: &[Row<'_>]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        (
            "k",
            std::sync::Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))),
        ),
        (
            "n",
            std::sync::Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        ),
        (
            "x",
            std::sync::Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.2))),
        ),
        (
            "s",
            std::sync::Arc::new(StringArray::from_iter(rows.iter().map(|row| row.3))),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true))).expect("columns")
}

fn kn(pairs: &[(i64, i64)]) -> RecordBatch {
    let all: Vec<Row<'_>> = pairs.iter().map(|(k, n)| (Some(*k), Some(*n), None, None)).collect();
    rows(&all)
}

/// Is what changes in one table: rows that go, by number, and rows that come.
type Edit<'a> = (&'a str, &'a [u32], RecordBatch);

async fn kept(select: &str, world: &World) -> Kept {
    match Kept::new(select, world).await {
        Ok(kept) => kept,
        Err(why) => panic!("{select}: {why:?}"),
    }
}

/// Keeps a table over `bronze.a` and `bronze.b` through edits, each step compared with recompute.
async fn check(select: &str, a: RecordBatch, b: RecordBatch, steps: &[Vec<Edit<'_>>]) {
    let mut world = World::new(&[("bronze.a", a), ("bronze.b", b)]);
    let mut kept = kept(select, &world).await;
    for (at, step) in steps.iter().enumerate() {
        let mut changes = InputChanges::new();
        for (name, gone, come) in step {
            changes.insert(
                table(name),
                world.replace(&table(name), gone, std::slice::from_ref(come)),
            );
        }
        let what = format!("step {at}: {select}");
        kept.step(&changes, &world, &what)
            .await
            .expect("the query can be computed");
    }
}

fn none() -> RecordBatch {
    rows(&[])
}

#[tokio::test]
async fn rows_with_null_go_and_null_groups_stay_one() {
    let a = rows(&[
        (None, Some(1), None, None),
        (None, None, None, None),
        (Some(1), None, None, Some("x")),
    ]);
    for select in [
        "SELECT k, n, s FROM bronze.a",
        "SELECT k, count(*) AS c, sum(n) AS t FROM bronze.a GROUP BY k",
        "SELECT DISTINCT k, s FROM bronze.a",
    ] {
        let more = rows(&[(None, Some(2), None, None)]);
        let steps = [
            vec![("bronze.a", &[][..], more.clone())],
            vec![("bronze.a", &[][..], more.clone())],
            vec![("bronze.a", &[1, 0][..], none())],
            vec![("bronze.a", &[0, 1, 2][..], none())],
        ];
        check(select, a.clone(), none(), &steps).await;
    }
}

#[tokio::test]
async fn a_sum_over_rows_without_partner_is_null_again() {
    let select = "SELECT sum(a.n) AS t, count(*) AS c FROM bronze.a a FULL JOIN bronze.b b ON a.k = b.k";
    let steps = [
        vec![("bronze.a", &[0, 1][..], none())],
        vec![("bronze.b", &[0][..], none())],
        vec![
            ("bronze.a", &[][..], kn(&[(2, 5)])),
            ("bronze.b", &[][..], kn(&[(2, 6)])),
        ],
    ];
    check(select, kn(&[(1, 10), (1, 20)]), kn(&[(1, 1)]), &steps).await;
}

#[tokio::test]
async fn both_sides_of_a_join_change_at_once() {
    for kind in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
        for more in ["", " AND a.n < b.n"] {
            let select = format!("SELECT a.k, a.n, b.n AS m FROM bronze.a a {kind} bronze.b b ON a.k = b.k{more}");
            let steps = [
                // Insert only, on both sides: the cross term counts once.
                vec![
                    ("bronze.a", &[][..], kn(&[(1, 3), (2, 4)])),
                    ("bronze.b", &[][..], kn(&[(1, 9), (2, 1)])),
                ],
                // Both partners go at once.
                vec![("bronze.a", &[0][..], none()), ("bronze.b", &[0][..], none())],
                // One more partner for rows that have one: nothing is padded again.
                vec![("bronze.b", &[][..], kn(&[(1, 10), (1, 10)]))],
                // The key changes where the partner goes.
                vec![
                    ("bronze.a", &[0, 1][..], kn(&[(7, 3)])),
                    ("bronze.b", &[1, 2][..], kn(&[(7, 8)])),
                ],
                vec![("bronze.b", &[0, 1, 2][..], none())],
            ];
            let b = rows(&[
                (Some(1), Some(5), None, None),
                (None, Some(6), None, None),
                (Some(3), None, None, None),
            ]);
            check(&select, kn(&[(1, 1), (1, 1), (4, 0)]), b, &steps).await;
        }
    }
}

#[tokio::test]
async fn a_self_join_of_three_loses_rows_everywhere() {
    let select = "SELECT x.n AS p, y.n AS q, z.n AS r FROM bronze.a x JOIN bronze.a y ON x.k = y.k LEFT JOIN bronze.b z ON y.n = z.k";
    let steps = [
        vec![
            ("bronze.a", &[0, 1][..], kn(&[(1, 2)])),
            ("bronze.b", &[0][..], kn(&[(2, 3)])),
        ],
        vec![("bronze.a", &[0][..], none()), ("bronze.b", &[0, 1][..], none())],
    ];
    check(
        select,
        kn(&[(1, 1), (1, 2), (2, 2), (2, 2)]),
        kn(&[(1, 9), (2, 8)]),
        &steps,
    )
    .await;
}

#[tokio::test]
async fn nulls_meet_only_where_the_query_says() {
    let a = rows(&[(None, Some(1), None, None), (Some(1), Some(2), None, None)]);
    for on in ["a.k = b.k", "(a.k IS NOT DISTINCT FROM b.k)"] {
        for kind in ["JOIN", "LEFT JOIN", "FULL JOIN"] {
            let select = format!("SELECT a.n, b.n AS m FROM bronze.a a {kind} bronze.b b ON {on}");
            let more = rows(&[(None, Some(7), None, None)]);
            let steps = [
                vec![("bronze.b", &[][..], more.clone())],
                vec![("bronze.a", &[0][..], more.clone())],
                vec![("bronze.b", &[0][..], none())],
            ];
            check(&select, a.clone(), more.clone(), &steps).await;
        }
    }
}

#[tokio::test]
async fn a_join_of_two_aggregates_over_nothing_has_rows() {
    let select = "SELECT p.c, q.c AS d FROM (SELECT count(*) AS c FROM bronze.a) p FULL JOIN (SELECT count(*) AS c FROM bronze.b) q ON p.c = q.c";
    let steps = [
        vec![("bronze.a", &[][..], kn(&[(1, 1)]))],
        vec![("bronze.b", &[][..], kn(&[(1, 1), (2, 2)]))],
        vec![("bronze.a", &[0][..], none()), ("bronze.b", &[0, 1][..], none())],
    ];
    check(select, none(), none(), &steps).await;
}

#[tokio::test]
async fn exists_and_in_change_only_when_the_first_partner_comes_or_the_last_goes() {
    for condition in [
        "EXISTS (SELECT 1 FROM bronze.b WHERE b.k = a.k)",
        "NOT EXISTS (SELECT 1 FROM bronze.b WHERE b.k = a.k AND b.n > a.n)",
        "a.k IN (SELECT k FROM bronze.b)",
        "a.k NOT IN (SELECT k FROM bronze.b)",
        "(a.n > 3 OR EXISTS (SELECT 1 FROM bronze.b WHERE b.k = a.k))",
    ] {
        let select = format!("SELECT k, n FROM bronze.a WHERE {condition}");
        let null = rows(&[(None, Some(1), None, None)]);
        let steps = [
            vec![("bronze.b", &[][..], kn(&[(1, 5)]))],
            vec![("bronze.b", &[][..], kn(&[(1, 6)]))],
            vec![("bronze.b", &[][..], null.clone())],
            vec![("bronze.a", &[][..], kn(&[(1, 9), (5, 5)]))],
            vec![("bronze.b", &[2][..], none()), ("bronze.a", &[0][..], none())],
            vec![("bronze.b", &[0, 1][..], none())],
            vec![("bronze.b", &[][..], null)],
        ];
        let a = rows(&[
            (Some(1), Some(1), None, None),
            (None, Some(2), None, None),
            (Some(2), Some(3), None, None),
        ]);
        check(&select, a, none(), &steps).await;
    }
}

#[tokio::test]
async fn a_scalar_on_the_right_moves_and_goes() {
    let select = "SELECT k, n FROM bronze.a WHERE n >= (SELECT max(n) FROM bronze.b)";
    let steps = [
        vec![("bronze.b", &[][..], kn(&[(1, 3)]))],
        vec![("bronze.b", &[0][..], none())],
        vec![("bronze.a", &[0][..], kn(&[(1, 9)])), ("bronze.b", &[0][..], none())],
    ];
    check(select, kn(&[(1, 1), (2, 4), (3, 2)]), kn(&[(1, 2)]), &steps).await;
}

#[tokio::test]
async fn extremes_go_with_and_without_equals() {
    let select =
        "SELECT k, min(n) AS a, max(n) AS b, min(s) AS c, max(x) AS d, count(DISTINCT n) AS e FROM bronze.a GROUP BY k";
    let row = |n: i64, x: f64, s: &'static str| (Some(1), Some(n), Some(x), Some(s));
    let a = rows(&[
        row(1, 0.0, "b"),
        row(1, -0.0, "a"),
        row(5, f64::NAN, "a"),
        row(9, 2.0, "c"),
        row(9, f64::NAN, "c"),
    ]);
    let steps = [
        vec![("bronze.a", &[0][..], none())],
        vec![("bronze.a", &[0][..], none())],
        vec![("bronze.a", &[2][..], rows(&[row(0, 1.0, "z"), row(7, -1.0, "")]))],
        vec![("bronze.a", &[0, 1, 2, 3][..], none())],
        vec![("bronze.a", &[][..], rows(&[(Some(1), None, None, None)]))],
    ];
    check(select, a, none(), &steps).await;
}

#[tokio::test]
async fn an_expression_over_an_aggregate_and_having_are_kept() {
    let select = "SELECT k, sum(n) * 100 AS t FROM bronze.a GROUP BY k HAVING count(*) > 1";
    let steps = [
        vec![("bronze.a", &[][..], kn(&[(2, 1)]))],
        vec![("bronze.a", &[0][..], none())],
        vec![("bronze.a", &[0, 1, 2][..], none())],
    ];
    check(select, kn(&[(1, 1), (1, 2), (2, 5)]), none(), &steps).await;
}

#[tokio::test]
async fn float_sums_do_not_drift() {
    let select = "SELECT k, sum(x) AS t, avg(x) AS m, var_pop(x) AS v, stddev(CASE WHEN n > 1 THEN x END) AS d FROM bronze.a GROUP BY k";
    let row = |n: i64, x: f64| (Some(1), Some(n), Some(x), None);
    let mut steps = Vec::new();
    for at in 0..12 {
        steps.push(vec![(
            "bronze.a",
            &[0, 1][..],
            rows(&[row(at, 0.1 * at as f64), row(2, 1e16 / (at + 1) as f64)]),
        )]);
    }
    steps.push(vec![("bronze.a", &[0, 1, 2][..], none())]);
    check(select, rows(&[row(1, 0.1), row(2, 0.2), row(3, 1e17)]), none(), &steps).await;
}

#[tokio::test]
async fn one_copy_of_equal_rows_goes() {
    let steps = [
        vec![("bronze.a", &[0][..], none())],
        vec![("bronze.a", &[0][..], kn(&[(1, 1), (1, 1)]))],
        vec![("bronze.a", &[0, 1, 2][..], none())],
    ];
    for select in [
        "SELECT k, n FROM bronze.a",
        "SELECT DISTINCT k, n FROM bronze.a",
        "SELECT k FROM bronze.a UNION ALL SELECT n FROM bronze.a",
        "SELECT k FROM bronze.a UNION SELECT k FROM bronze.b",
        "SELECT k FROM bronze.a EXCEPT SELECT k FROM bronze.b",
        "SELECT k FROM bronze.a INTERSECT SELECT k FROM bronze.b",
    ] {
        check(select, kn(&[(1, 1), (1, 1), (1, 1)]), kn(&[(1, 5), (2, 5)]), &steps).await;
    }
}

#[tokio::test]
async fn an_update_that_crosses_the_filter_or_is_not_projected() {
    let steps = [
        vec![("bronze.a", &[0][..], kn(&[(1, 9)]))],
        vec![("bronze.a", &[0][..], kn(&[(1, 0)]))],
    ];
    check(
        "SELECT k FROM bronze.a WHERE n > 5",
        kn(&[(1, 1), (2, 7)]),
        none(),
        &steps,
    )
    .await;
    // Only a column that is not given changes: nothing does.
    let mut world = World::new(&[("bronze.a", kn(&[(1, 1)]))]);
    let mut kept = kept("SELECT k, count(*) AS c FROM bronze.a GROUP BY k", &world).await;
    let change = world.replace(&table("bronze.a"), &[0], &[kn(&[(1, 2)])]);
    let changes = InputChanges::from([(table("bronze.a"), change)]);
    let delta = refresh_delta(&kept.table, &kept.plan, &changes, &kept.state, &context(1)).await;
    let delta = delta.expect("a step");
    assert_eq!(
        (delta.rows.weights.len(), delta.rows_read),
        (0, 0),
        "the change cancels before it is looked up"
    );
    kept.step(&changes, &world, "an update of another column")
        .await
        .expect("computed");
}

#[tokio::test]
async fn windows_and_first_rows() {
    let steps = [
        vec![("bronze.a", &[0][..], kn(&[(1, 0), (2, 9)]))],
        vec![("bronze.a", &[0, 1, 2][..], kn(&[(1, 4)]))],
        vec![("bronze.a", &[0, 1, 2][..], none())],
    ];
    for select in [
        "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM bronze.a",
        "SELECT * FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n DESC) AS r FROM bronze.a) q WHERE r = 2",
        "SELECT k, n, sum(n) OVER (PARTITION BY k) AS t, rank() OVER (PARTITION BY n ORDER BY k) AS r FROM bronze.a",
        "SELECT k, n, rank() OVER (PARTITION BY k ORDER BY n) AS r, first_value(s) OVER (PARTITION BY k ORDER BY n) AS f FROM bronze.a",
        "SELECT k, n FROM bronze.a ORDER BY n DESC LIMIT 2",
        "SELECT k FROM (SELECT k, n FROM bronze.a ORDER BY n LIMIT 2 OFFSET 1) q",
        "SELECT a.k, q.n FROM bronze.a a JOIN (SELECT k, n FROM bronze.a ORDER BY k, n DESC LIMIT 3) q ON a.k = q.k",
        "SELECT k, string_agg(s, ',' ORDER BY n) AS t, array_agg(n ORDER BY n) AS l FROM bronze.a GROUP BY k",
        "SELECT k, bit_or(n) AS t, count(*) AS c FROM bronze.a GROUP BY k",
        "SELECT k, n, count(*) AS c, sum(x) AS t FROM bronze.a GROUP BY CUBE(k, n)",
        "SELECT k, n, count(*) AS c FROM bronze.a GROUP BY GROUPING SETS ((k), (n), (k, n))",
        "SELECT k, grouping(k) AS g, max(n) AS m FROM bronze.a GROUP BY ROLLUP(k)",
        "SELECT max(n) AS m, sum(DISTINCT n) AS d, count(*) FILTER (WHERE k = 1) AS c FROM bronze.a",
    ] {
        let a = rows(&[
            (Some(1), Some(3), Some(0.5), Some("a")),
            (Some(1), Some(3), Some(-0.0), Some("b")),
            (None, Some(1), None, None),
            (Some(2), None, Some(f64::NAN), Some("c")),
        ]);
        check(select, a, none(), &steps).await;
    }
}

#[tokio::test]
async fn grouping_sets_keep_a_row_over_nothing_and_one_for_each_time_a_set_is_written() {
    let zeros = rows(&[
        (Some(1), Some(4), Some(0.0), Some("a")),
        (Some(1), None, Some(-0.0), Some("b")),
        (None, Some(4), Some(f64::NAN), None),
        (None, Some(5), Some(-f64::NAN), Some("a")),
    ]);
    let all: &[u32] = &[0, 1, 2, 3];
    let steps = [
        vec![("bronze.a", &[0][..], none())],
        vec![("bronze.a", &[0, 1, 2][..], none())],
        vec![("bronze.a", &[][..], zeros.clone())],
        vec![("bronze.a", &[1][..], kn(&[(2, 2)]))],
        vec![("bronze.a", all, none())],
        vec![("bronze.a", &[][..], kn(&[(3, 3)]))],
    ];
    for select in [
        "SELECT k, n, count(*) AS c, sum(x) AS t, max(s) AS m FROM bronze.a GROUP BY ROLLUP(k, n)",
        "SELECT k, n, grouping(k, n) AS g, min(x) AS m, count(DISTINCT x) AS d FROM bronze.a GROUP BY CUBE(k, n)",
        "SELECT k, count(*) AS c FROM bronze.a GROUP BY GROUPING SETS ((k), (k), (), ())",
        "SELECT x, count(*) AS c, grouping(x) AS g FROM bronze.a GROUP BY ROLLUP(x)",
        "SELECT x, k, count(*) AS c FROM bronze.a GROUP BY GROUPING SETS ((x, k), (k, x), (x))",
        "SELECT k FROM bronze.a GROUP BY ROLLUP(k)",
        "SELECT k, count(*) AS c FROM bronze.a GROUP BY ROLLUP(k) HAVING k > 1",
        "SELECT k, count(*) AS c FROM bronze.a GROUP BY ROLLUP(k) HAVING grouping(k) = 0",
        "SELECT k, count(*) AS c FROM bronze.a GROUP BY ROLLUP(k) HAVING count(*) = 0 OR grouping(k) = 0",
        "SELECT n + k AS m, sum(n) * 2 AS t FROM bronze.a GROUP BY ROLLUP(n + k)",
        "SELECT k, n, string_agg(s, ',' ORDER BY s) AS t FROM bronze.a GROUP BY GROUPING SETS ((k), (n), (k))",
        "SELECT a.k, b.k AS l, count(*) AS c FROM bronze.a a LEFT JOIN bronze.b b ON a.k = b.k GROUP BY CUBE(a.k, b.k)",
        "SELECT k, sum(c) AS t FROM (SELECT k, n, count(*) AS c FROM bronze.a GROUP BY CUBE(k, n)) q GROUP BY ROLLUP(k)",
        "SELECT b.k, q.c FROM bronze.b b JOIN (SELECT k, count(*) AS c FROM bronze.a GROUP BY ROLLUP(k)) q ON q.c > b.n",
        "SELECT q.c FROM (SELECT 1 AS one, count(*) AS c FROM bronze.a) q WHERE q.one = 2",
        "SELECT 1 AS one, count(*) AS c FROM bronze.a GROUP BY one",
    ] {
        check(select, zeros.clone(), kn(&[(1, 0), (2, -1)]), &steps).await;
        check(select, none(), none(), &steps[2..]).await;
    }
}

#[tokio::test]
async fn constants_come_once() {
    let steps = [vec![("bronze.a", &[0][..], kn(&[(3, 3)]))]];
    for select in [
        "SELECT 1 AS one",
        "SELECT k FROM bronze.a UNION ALL VALUES (1), (2), (2)",
        "SELECT a.k, v.t FROM bronze.a a JOIN (VALUES (1, 'x'), (3, 'y')) v(k, t) ON a.k = v.k",
        "SELECT a.k, q.c FROM bronze.a a CROSS JOIN (SELECT count(*) AS c FROM bronze.b) q",
    ] {
        check(select, kn(&[(1, 1), (2, 2)]), none(), &steps).await;
    }
}

#[tokio::test]
async fn a_row_that_never_came_cannot_go() {
    for select in [
        "SELECT k, count(*) AS c FROM bronze.a GROUP BY k",
        "SELECT DISTINCT k FROM bronze.a",
        "SELECT max(n) AS m FROM bronze.a",
        "SELECT a.k FROM bronze.a a JOIN bronze.b b ON a.k = b.k",
        "SELECT k, rank() OVER (PARTITION BY k ORDER BY n) AS r FROM bronze.a",
        "SELECT k, n FROM bronze.a ORDER BY n LIMIT 1",
    ] {
        let world = World::new(&[("bronze.a", kn(&[(1, 1)])), ("bronze.b", kn(&[(1, 1)]))]);
        let kept = kept(select, &world).await;
        let gone = ChangeBatch::of(kn(&[(5, 5)]), -1);
        let changes = InputChanges::from([(table("bronze.a"), vec![gone])]);
        let error = refresh_delta(&kept.table, &kept.plan, &changes, &kept.state, &context(1)).await;
        let error = error.expect_err(select);
        assert_eq!(
            (error.code(), error.remedy()),
            (Some("F0425"), Remedy::BlockTable),
            "{select}"
        );
    }
}

#[tokio::test]
async fn any_weights_and_any_cuts_give_the_same() {
    let select = "SELECT k, sum(x) AS t, avg(n) AS m, var_pop(x) AS v, max(n) AS h, count(DISTINCT x) AS d FROM bronze.a GROUP BY k";
    let world = World::new(&[("bronze.a", none()), ("bronze.b", none())]);
    let kept = kept(select, &world).await;
    let one = rows(&[(Some(1), Some(3), Some(0.1), None)]);
    let other = rows(&[(Some(1), Some(4), Some(1e17), None)]);
    let change = |rows: &RecordBatch, weight: i64| ChangeBatch::of(rows.clone(), weight);
    // 1000 of one and 3 of the other, in one step with large weights, and in several that cross.
    let cuts: [Vec<Vec<ChangeBatch>>; 3] = [
        vec![vec![change(&one, 1000), change(&other, 3)]],
        vec![vec![
            change(&one, 1 << 40),
            change(&other, 5),
            change(&one, 1000 - (1 << 40)),
            change(&other, -2),
        ]],
        vec![
            vec![change(&other, 7)],
            vec![change(&one, 1001), change(&other, -7)],
            vec![change(&other, 3), change(&one, -1)],
        ],
    ];
    let mut states = Vec::new();
    for cut in cuts {
        let mut state = MemoryState::default();
        for (at, step) in cut.into_iter().enumerate() {
            let changes = InputChanges::from([(table("bronze.a"), step)]);
            let delta = match at {
                0 => begin_delta(&kept.table, &kept.plan, &changes, &state, &context(1)).await,
                _ => refresh_delta(&kept.table, &kept.plan, &changes, &state, &context(1)).await,
            };
            state.apply(&delta.expect("a step").state);
        }
        states.push(state.entries);
    }
    assert!(!states[0].is_empty() && states[0] == states[1] && states[0] == states[2]);
}

#[tokio::test]
async fn cost_follows_the_change() {
    let many: Vec<(i64, i64)> = (0..2000).map(|at| (at % 500, at)).collect();
    let dimension: Vec<(i64, i64)> = (0..500).map(|at| (at, at)).collect();
    for (select, limit) in [
        ("SELECT k, n FROM bronze.a WHERE n > 3", 0),
        (
            "SELECT a.k, a.n, b.n AS m FROM bronze.a a JOIN bronze.b b ON a.k = b.k",
            4,
        ),
        (
            "SELECT a.k, a.n, b.n AS m FROM bronze.a a LEFT JOIN bronze.b b ON a.k = b.k",
            4,
        ),
        ("SELECT k, n FROM bronze.a WHERE k IN (SELECT k FROM bronze.b)", 4),
        ("SELECT k, n FROM bronze.a WHERE k NOT IN (SELECT k FROM bronze.b)", 6),
        (
            "SELECT k, count(*) AS c, max(n) AS m, sum(x) AS t FROM bronze.a GROUP BY k",
            6,
        ),
        ("SELECT max(n) AS m FROM bronze.a", 6),
        (
            "SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM bronze.a",
            8,
        ),
        ("SELECT k, n FROM bronze.a ORDER BY n DESC LIMIT 5", 10),
        ("SELECT DISTINCT k FROM bronze.a", 2),
    ] {
        let mut world = World::new(&[("bronze.a", kn(&many)), ("bronze.b", kn(&dimension))]);
        let mut kept = kept(select, &world).await;
        let change = world.replace(&table("bronze.a"), &[1999], &[kn(&[(7, 1)])]);
        let changes = InputChanges::from([(table("bronze.a"), change)]);
        kept.state.read.store(0, Ordering::Relaxed);
        let read = kept.step(&changes, &world, select).await.expect("computed");
        assert!(read <= limit, "{select}: {read} entries were read");
        assert_eq!(
            kept.state.read.load(Ordering::Relaxed),
            read,
            "{select}: reads are counted"
        );
    }
}

#[tokio::test]
async fn groups_that_do_not_fit_are_built_in_shares() {
    let many: Vec<(i64, i64)> = (0..30_000).map(|at| (at, at % 7)).collect();
    let world = World::new(&[("bronze.a", kn(&many))]);
    let kept = kept("SELECT k, count(*) AS c, max(n) AS m FROM bronze.a GROUP BY k", &world).await;
    let small = flow_refresh::RefreshContext {
        memory_bytes: 6 << 20,
        ..context(1)
    };
    let mut state = MemoryState::default();
    let inputs = [flow_refresh::RefreshInput {
        name: table("bronze.a"),
        snapshot_id: Some(100),
    }];
    let reader: std::sync::Arc<dyn flow_core::lake::SnapshotReader> = world.lake.clone();
    let built = flow_refresh::build_state(&kept.table, &kept.plan, &inputs, reader, &mut state, &small).await;
    assert!(
        built.expect("it fits in shares") > 30_000,
        "the input is read more than once"
    );
    assert!(state.entries == kept.state.entries);
}

#[tokio::test]
async fn a_change_beyond_memory_says_so() {
    let world = World::new(&[("bronze.a", none()), ("bronze.b", none())]);
    let kept = kept("SELECT k, count(*) AS c FROM bronze.a GROUP BY k", &world).await;
    let many: Vec<(i64, i64)> = (0..60_000).map(|at| (at, at)).collect();
    let changes = InputChanges::from([(table("bronze.a"), vec![ChangeBatch::of(kn(&many), 1)])]);
    let small = flow_refresh::RefreshContext {
        memory_bytes: 1 << 20,
        ..context(1)
    };
    let error = refresh_delta(&kept.table, &kept.plan, &changes, &kept.state, &small).await;
    assert_eq!(error.expect_err("it does not fit").code(), Some("F0421"));
}

#[tokio::test]
async fn what_is_refreshed_in_full_says_why_and_where() {
    let world = World::new(&[("bronze.a", kn(&[(1, 1)])), ("bronze.b", none())]);
    for (select, code, word) in [
        (
            "SELECT k, rank() OVER (ORDER BY n) AS r FROM bronze.a",
            "WINDOW_WITHOUT_PARTITION",
            "rank",
        ),
        (
            "SELECT string_agg(s, ',') AS t FROM bronze.a",
            "AGGREGATE_WITHOUT_GROUP",
            "string_agg",
        ),
        (
            "SELECT k, n, string_agg(s, ',') AS t FROM bronze.a GROUP BY CUBE(k, n)",
            "AGGREGATE_WITHOUT_GROUP",
            "string_agg",
        ),
        (
            "SELECT k FROM bronze.a ORDER BY k OFFSET 2",
            "OFFSET_WITHOUT_LIMIT",
            "OFFSET",
        ),
    ] {
        match Kept::new(select, &world).await {
            Err(Not::Incremental(codes)) => assert_eq!(codes, [code], "{select}"),
            Err(other) => panic!("{select}: {other:?}"),
            Ok(_) => panic!("{select} is incremental"),
        }
        let planned = crate::sample::planned(select, &world.lake).await;
        let reasons = planned.delta.expect_err(select);
        let before = "CREATE DYNAMIC TABLE gold.t AS ".len() + select.find(word).expect("the word is there");
        let column = before as u64 + 1;
        assert_eq!(
            (reasons[0].line, reasons[0].column),
            (1, column),
            "{select}: {reasons:?}"
        );
        assert_eq!(planned.mode, Mode::Full);
    }
}
