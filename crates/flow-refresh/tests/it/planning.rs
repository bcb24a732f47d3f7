//! What is planned, what is refused, and where the fault is said to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow_core::ColumnType;
use flow_core::lake::SnapshotReader;
use flow_refresh::{Plan, SourceFile, parse, plan, schema_difference};

use crate::sample::{define, fact_schema, lake, planned, table};

async fn plan_text(text: &str) -> Plan {
    let reader: Arc<dyn SnapshotReader> = lake(1, 10);
    plan(&define(text), &reader, &BTreeMap::new()).await
}

/// Parses and plans; problems of both come together.
async fn read_and_plan(text: &str) -> Plan {
    let (definitions, problems) = parse(&[SourceFile {
        path: "t.sql".into(),
        text: text.into(),
    }]);
    let reader: Arc<dyn SnapshotReader> = lake(1, 10);
    let mut plan = plan(&definitions, &reader, &BTreeMap::new()).await;
    plan.problems.extend(problems);
    plan
}

/// The SELECT starts on line 2, so columns count from its first character.
pub(crate) async fn check(select: &str, line: u64, column: u64, code: &str, part: &str) {
    let plan = read_and_plan(&format!("CREATE DYNAMIC TABLE gold.t AS\n{select}")).await;
    let Some(problem) = plan.problems.first() else {
        panic!("{select}: no problem");
    };
    assert_eq!(
        (problem.line, problem.column, problem.code),
        (line, column, code),
        "{select}: {problem}"
    );
    assert!(problem.message.contains(part), "{select}: {problem}");
    assert_eq!(problem.table, Some(table("gold.t")), "{select}: {problem}");
    assert!(plan.tables.is_empty(), "{select}");
}

#[tokio::test]
async fn names_that_do_not_exist_are_pointed_at() {
    check(
        "SELECT id FROM bronze.nope",
        2,
        16,
        "F0404",
        "unknown table bronze.nope",
    )
    .await;
    check("SELECT id FROM nope", 2, 16, "F0404", "write namespace.nope").await;
    check(
        "SELECT id,\n  nope FROM bronze.f",
        3,
        3,
        "F0409",
        "unknown column 'nope'",
    )
    .await;
    check("SELECT f.nope FROM bronze.f", 2, 8, "F0409", "nope").await;
    check(
        "SELECT k FROM bronze.f JOIN bronze.d ON f.k = d.k",
        2,
        8,
        "F0409",
        "ambiguous",
    )
    .await;
    check("SELECT nofunction(id) FROM bronze.f", 2, 8, "F0410", "nofunction").await;
    check(
        "SELECT * FROM information_schema.tables",
        2,
        15,
        "F0410",
        "not readable",
    )
    .await;
}

#[tokio::test]
async fn columns_that_no_table_can_hold_are_refused() {
    check("SELECT id, k AS id FROM bronze.f", 2, 8, "F0409", "with AS").await;
    check("SELECT id AS a, k AS a FROM bronze.f", 2, 1, "F0409", "same name").await;
    check("SELECT NULL AS a FROM bronze.f", 2, 16, "F0411", "CAST the NULL").await;
    check("SELECT t - t AS a FROM bronze.f", 2, 17, "F0411", "CAST it to text").await;
    check(
        "SELECT s::varchar(3) AS a FROM bronze.f",
        2,
        1,
        "F0409",
        "length would not be kept",
    )
    .await;
    check("SELECT x::numeric AS a FROM bronze.f", 2, 1, "F0409", "needs digits").await;
}

#[tokio::test]
async fn what_has_no_one_result_is_refused_by_name() {
    check("SELECT now() AS a FROM bronze.f", 2, 8, "F0410", "now()").await;
    // Without a column it decides all rows at once, and nowhere else does it compare.
    check(
        "SELECT id FROM bronze.f WHERE current_date > '2020-01-01'",
        2,
        31,
        "F0410",
        "current_date",
    )
    .await;
    check(
        "SELECT id FROM bronze.f WHERE day IN (current_date)",
        2,
        39,
        "F0410",
        "current_date",
    )
    .await;
    check(
        "SELECT f.id FROM bronze.f JOIN bronze.d ON f.z < now()",
        2,
        50,
        "F0410",
        "now()",
    )
    .await;
    check(
        "SELECT z < current_timestamp AS a FROM bronze.f",
        2,
        12,
        "F0410",
        "now()",
    )
    .await;
    check("SELECT random() AS a FROM bronze.f", 2, 8, "F0410", "random()").await;
    check("SELECT uuid() AS a FROM bronze.f", 2, 8, "F0410", "uuid()").await;
    check(
        "SELECT corr(x, r) AS a FROM bronze.f",
        2,
        8,
        "F0410",
        "AGGREGATE_NOT_EXACT",
    )
    .await;
    check(
        "SELECT approx_distinct(k) AS a FROM bronze.f",
        2,
        8,
        "F0410",
        "AGGREGATE_NOT_EXACT",
    )
    .await;
    check(
        "SELECT median(n) AS a FROM bronze.f",
        2,
        8,
        "F0410",
        "AGGREGATE_NOT_EXACT",
    )
    .await;
}

#[tokio::test]
async fn what_the_engine_gets_wrong_is_refused() {
    let not_in =
        "SELECT id FROM bronze.f JOIN bronze.d o ON lim = n WHERE f.k NOT IN (SELECT k FROM bronze.f WHERE g = o.k)";
    check(not_in, 2, 62, "F0410", "CORRELATED_NOT_IN").await;
    let in_list = "SELECT k IN (SELECT k FROM bronze.d) AS a FROM bronze.f";
    check(in_list, 2, 10, "F0410", "IN_SUBQUERY_POSITION").await;
    let under_or = "SELECT id FROM bronze.f WHERE id = 1 OR k NOT IN (SELECT k FROM bronze.d)";
    check(under_or, 2, 47, "F0410", "IN_SUBQUERY_POSITION").await;
    let exists = "SELECT EXISTS (SELECT 1 FROM bronze.d) AS a FROM bronze.f";
    check(exists, 2, 8, "F0410", "EXISTS_POSITION").await;
    let moving = "SELECT min(s) OVER (ORDER BY id ROWS 2 PRECEDING) AS a FROM bronze.f";
    check(moving, 2, 8, "F0410", "MOVING_FRAME").await;
    let many = "SELECT (SELECT name FROM bronze.d) AS a FROM bronze.f";
    check(many, 2, 9, "F0410", "SCALAR_SUBQUERY_MANY_ROWS").await;
    let grouped = "SELECT (SELECT max(name) FROM bronze.d GROUP BY k) AS a FROM bronze.f";
    check(grouped, 2, 9, "F0410", "SCALAR_SUBQUERY_MANY_ROWS").await;
}

#[tokio::test]
async fn cycles_duplicates_and_their_readers_stop_alone() {
    let plan = plan_text(
        "CREATE DYNAMIC TABLE g.a AS SELECT id FROM g.b;\n\
         CREATE DYNAMIC TABLE g.b AS SELECT id FROM g.a;\n\
         CREATE DYNAMIC TABLE g.c AS SELECT id FROM g.a;\n\
         CREATE DYNAMIC TABLE g.s AS SELECT id FROM g.s;\n\
         CREATE DYNAMIC TABLE g.twice AS SELECT id FROM bronze.f;\n\
         CREATE DYNAMIC TABLE g.twice AS SELECT k FROM bronze.f;\n\
         CREATE DYNAMIC TABLE g.top AS SELECT count(*) AS c FROM g.mid;\n\
         CREATE DYNAMIC TABLE g.mid AS SELECT id FROM g.low JOIN bronze.d ON low.k = d.k;\n\
         CREATE DYNAMIC TABLE g.low LAG = DOWNSTREAM AS SELECT id, k FROM bronze.f;\n\
         CREATE DYNAMIC TABLE g.bad AS SELECT nope FROM g.low;\n\
         CREATE DYNAMIC TABLE g.child AS SELECT nope FROM g.bad;",
    )
    .await;
    let problems: Vec<_> = plan.problems.iter().map(|p| (p.line, p.column, p.code)).collect();
    assert_eq!(
        problems,
        [
            (1, 44, "F0406"),
            (2, 44, "F0406"),
            (3, 44, "F0406"),
            (4, 44, "F0406"),
            (6, 22, "F0405"),
            (10, 38, "F0409"),
            (11, 50, "F0406"),
        ],
        "{:?}",
        plan.problems
    );
    assert!(
        plan.problems[0].message.contains("g.a <- g.b <- g.a"),
        "{}",
        plan.problems[0]
    );
    let order: Vec<_> = plan.tables.iter().map(|t| (t.name.to_string(), t.level)).collect();
    let order: Vec<_> = order.iter().map(|(name, level)| (name.as_str(), *level)).collect();
    assert_eq!(order, [("g.twice", 0), ("g.low", 0), ("g.mid", 1), ("g.top", 2)]);
    let mid = &plan.tables[2];
    assert_eq!(mid.inputs, [table("g.low"), table("bronze.d")]);
    assert!(
        plan.dag_text().contains("  g.mid <- g.low, bronze.d\n"),
        "{}",
        plan.dag_text()
    );
    let json = plan.to_json();
    assert_eq!(json["tables"][1]["mode"], "INCREMENTAL");
    assert_eq!(json["tables"][1]["reasons"][0]["code"], "EVERY_OPERATOR");
    assert_eq!(json["tables"][1]["reasons"][0]["line"], 9);
}

#[tokio::test]
async fn a_lag_downstream_of_nothing_is_noted() {
    let plan = plan_text("CREATE DYNAMIC TABLE g.a LAG = DOWNSTREAM AS SELECT id FROM bronze.f").await;
    assert!(
        plan.tables[0].notes[0].contains("only on command"),
        "{:?}",
        plan.tables[0].notes
    );
}

#[tokio::test]
async fn declared_tables_need_not_exist() {
    let reader: Arc<dyn SnapshotReader> = lake(1, 1);
    let declared = BTreeMap::from([(table("a.b.later"), flow_core::arrow::arrow_schema(&fact_schema()))]);
    let definitions = define("CREATE DYNAMIC TABLE g.a AS SELECT l.id, u FROM a.b.later AS l");
    let plan = plan(&definitions, &reader, &declared).await;
    assert_eq!(plan.problems, []);
    assert_eq!(plan.tables[0].inputs, [table("a.b.later")]);
    assert_eq!(plan.tables[0].output.columns[1].column_type, ColumnType::Uuid);
}

#[tokio::test]
async fn orders_are_completed_and_noted() {
    let lake = lake(1, 10);
    let check = async |select: &str, notes: &[&str]| {
        assert_eq!(planned(select, &lake).await.notes, notes, "{select}");
    };
    check(
        "SELECT id, k FROM bronze.f ORDER BY k LIMIT 3",
        &["LIMIT: rows are ordered further by id"],
    )
    .await;
    check("SELECT k FROM bronze.d", &[]).await;
    check(
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY w) AS r FROM (SELECT k, w, lim FROM bronze.d) AS d",
        &["row_number: rows are ordered further by k, lim"],
    )
    .await;
    check("SELECT k, rank() OVER (ORDER BY w) AS r FROM bronze.d", &[]).await;
    check("SELECT k, sum(lim) OVER (ORDER BY w) AS r FROM bronze.d", &[]).await;
    check(
        "SELECT string_agg(name, ',' ORDER BY w) AS r FROM bronze.d",
        &["string_agg: rows are ordered further by bronze.d.name"],
    )
    .await;
}

#[tokio::test]
async fn output_columns_have_iceberg_types() {
    let lake = lake(1, 10);
    let select = "SELECT count(*) AS a, sum(k) AS b, sum(d) AS c, avg(n) AS d, sum(r) AS e, max(s) AS f, min(t) AS g, \
                  max(z) AS h, row_number() OVER (ORDER BY k) AS i, avg(d) AS j, bool_and(b) AS l FROM bronze.f GROUP BY k";
    let table = planned(select, &lake).await;
    let types: Vec<String> = table.output.columns.iter().map(|c| c.column_type.to_string()).collect();
    let user = "long long decimal(22,2) double double string timestamp timestamptz long decimal(16,6) boolean";
    assert_eq!(types.join(" "), format!("{user} long string timestamptz string"));
    assert_eq!(table.user_columns, 11);
    let other = planned("SELECT count(*) AS a FROM bronze.f", &lake).await;
    assert_eq!(
        schema_difference(&other.output, &table.output)
            .as_deref()
            .map(|d| &d[..32]),
        Some("definition gives (a long), table")
    );
    assert_eq!(schema_difference(&table.output, &table.output), None);
}
