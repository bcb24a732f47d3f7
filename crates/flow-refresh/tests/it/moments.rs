//! Conditions on the refresh's time: the same as with that time written out.

use flow_refresh::{Mode, RefreshContext};

use crate::sample::{context, lake, planned, refresh};

/// 2023-12-20 10:20:30.123456 UTC.
const AT_US: i64 = 1_703_067_630_123_456;
const AT: &str = "timestamptz '2023-12-20 10:20:30.123456+00'";
const DAY: &str = "date '2023-12-20'";

async fn check(select: &str) {
    let lake = lake(3, 500);
    let table = planned(select, &lake).await;
    assert!(table.time_bound && table.mode == Mode::Full, "{select}");
    let reasons: Vec<_> = table.reasons.iter().map(|reason| reason.code).collect();
    assert!(
        reasons.iter().all(|code| *code == "TIME_BOUND_FILTER"),
        "{select}: {reasons:?}"
    );
    let written = select
        .replace("now()", AT)
        .replace("current_timestamp", AT)
        .replace("current_date", DAY);
    let fixed = planned(&written, &lake).await;
    assert!(!fixed.time_bound, "{written}");
    let at = |at_us| RefreshContext { at_us, ..context(1) };
    let rows = async |table, at_us| {
        let output = refresh(table, None, &lake, &at(at_us)).await.expect(select);
        let batches = output
            .inserted
            .iter()
            .map(|batch| batch.project(&[0]).expect("a column"));
        let mut rows: Vec<String> = batches.map(|batch| format!("{batch:?}")).collect();
        rows.sort_unstable();
        (output.rows_inserted, rows)
    };
    let (count, found) = rows(&table, AT_US).await;
    assert_eq!((count, found), rows(&fixed, 0).await, "{select}");
    assert!(count > 0, "{select} tells nothing");
    assert_ne!(count, rows(&table, 0).await.0, "{select} does not depend on the time");
}

#[tokio::test]
async fn a_condition_reads_the_time_it_is_given() {
    for select in [
        "SELECT id FROM bronze.f WHERE z > now() - INTERVAL '20 days' AND z <= current_timestamp",
        "SELECT id FROM bronze.f WHERE z BETWEEN now() - INTERVAL '1 month' AND now()",
        "SELECT id FROM bronze.f WHERE NOT (z < now() - INTERVAL '20 days') OR k > 1000",
        "SELECT id FROM bronze.f WHERE day >= current_date - 500",
        "SELECT id FROM bronze.f WHERE z >= date_trunc('month', now())",
        "SELECT k FROM bronze.f GROUP BY k HAVING min(z) < now() - INTERVAL '3 days'",
        "SELECT m.k FROM bronze.d m WHERE EXISTS (SELECT 1 FROM bronze.f f WHERE f.k = m.k AND f.z < now() - INTERVAL '30 days')",
        "SELECT id FROM (SELECT id, z FROM bronze.f WHERE z > now()) q",
    ] {
        check(select).await;
    }
}

#[tokio::test]
async fn the_time_has_its_place_in_the_reasons() {
    let lake = lake(3, 10);
    let table = planned("SELECT id FROM bronze.f\nWHERE z > current_timestamp", &lake).await;
    let places: Vec<_> = table
        .reasons
        .iter()
        .map(|reason| (reason.line, reason.column))
        .collect();
    assert_eq!(places, [(2, 11)], "{:?}", table.reasons);
}
