//! What would not be PostgreSQL's answer is refused by name, at its place.

use crate::planning::check;

/// Checks that a SELECT over one line is refused where `at` first stands in it.
async fn refused(select: &str, at: &str, code: &str, part: &str) {
    let column = select.find(at).expect("the place is in the statement") + 1;
    check(select, 2, column as u64, code, part).await;
}

#[tokio::test]
async fn types_that_do_not_meet_are_refused() {
    let meets = "SELECT id FROM bronze.f WHERE";
    for condition in [
        "s > 100",
        "s = n",
        "s = d",
        "day = s",
        "s BETWEEN 1 AND 2",
        "s IN (1, 2)",
        "b = s",
    ] {
        let select = format!("{meets} {condition}");
        check(&select, 2, 31, "F0409", "as in PostgreSQL: CAST").await;
    }
    refused(
        "SELECT id FROM bronze.f WHERE b = 1",
        "b = 1",
        "F0409",
        "boolean and integer",
    )
    .await;
    refused(
        "SELECT id FROM bronze.f WHERE n LIKE '1%'",
        "n LIKE",
        "F0409",
        "integer and text do not meet in LIKE",
    )
    .await;
    refused(
        "SELECT id FROM bronze.f WHERE t = n",
        "t = n",
        "F0409",
        "timestamp and integer",
    )
    .await;
    refused("SELECT coalesce(n, s) AS a FROM bronze.f", "n, s", "F0409", "coalesce").await;
    refused(
        "SELECT CASE WHEN b THEN n ELSE s END AS a FROM bronze.f",
        "n ELSE",
        "F0409",
        "CASE",
    )
    .await;
    refused("SELECT k || n AS a FROM bronze.f", "k ||", "F0409", "||").await;
    refused("SELECT x || s AS a FROM bronze.f", "x ||", "F0409", "||").await;
    refused("SELECT s + 1 AS a FROM bronze.f", "s + 1", "F0409", "coerce arithmetic").await;
}

#[tokio::test]
async fn tables_whose_columns_do_not_meet_are_refused() {
    let join = "SELECT f.id FROM bronze.f JOIN bronze.d ON f.s = d.k";
    refused(join, "f.s =", "F0409", "text and integer").await;
    let inside = "SELECT id FROM bronze.f WHERE s IN (SELECT k FROM bronze.d)";
    refused(inside, "s IN", "F0409", "text and integer do not meet in IN").await;
    check(
        "SELECT n FROM bronze.f UNION SELECT s FROM bronze.f",
        2,
        1,
        "F0409",
        "integer and text do not meet in UNION",
    )
    .await;
    check(
        "SELECT s FROM bronze.f EXCEPT SELECT k FROM bronze.d",
        2,
        1,
        "F0409",
        "text and integer",
    )
    .await;
    check("VALUES (1), ('a')", 2, 1, "F0409", "'a'").await;
    let lake = crate::sample::lake(1, 1);
    let text_first = crate::sample::try_planned("VALUES ('a'), (1)", &lake).await;
    assert!(text_first.is_err(), "{text_first:?}");
}

#[tokio::test]
async fn literals_that_are_not_of_the_type_are_refused() {
    for condition in [
        "n < 'ten'",
        "n < '1.5'",
        "k = '3000000000'",
        "d = '1.5.2'",
        "x = 'y'",
        "day = 'yesterday'",
        "t > '2024-01-01 10:00:00+02'",
        "u = 'no'",
        "b = 'perhaps'",
    ] {
        let select = format!("SELECT id FROM bronze.f WHERE {condition}");
        check(&select, 2, 31, "F0409", "is needed").await;
    }
}

#[tokio::test]
async fn patterns_that_the_engine_reads_otherwise_are_refused() {
    let similar = "SELECT id FROM bronze.f WHERE s SIMILAR TO 'a|b'";
    refused(similar, "SIMILAR", "F0410", "use LIKE").await;
    for operator in ["~", "~*", "!~", "!~*"] {
        let select = format!("SELECT id FROM bronze.f WHERE s {operator} '^a'");
        refused(&select, &format!("s {operator}"), "F0410", "use LIKE").await;
    }
    let replaced = "SELECT s, regexp_replace(s, '^a', '') AS a FROM bronze.f";
    refused(replaced, "regexp_replace", "F0410", "use LIKE").await;
}

#[tokio::test]
async fn functions_that_were_not_judged_are_refused() {
    for call in [
        "to_char(t, 'YYYY-MM')",
        "extract(second FROM t)",
        "extract(millisecond FROM t)",
        "extract(isodow FROM t)",
        "extract(isoyear FROM t)",
        "extract(hour FROM day)",
        "date_trunc('decade', t)",
        "round(x, 2)",
        "round(n)",
        "trunc(d, 1)",
        "log(x)",
        "power(x, 2)",
        "initcap(s)",
        "to_timestamp(n)",
        "to_hex(n)",
        "replace(s, '', 'x')",
        "split_part(s, ',', k)",
        "concat(x)",
        "nvl(n, k)",
        "array_length(make_array(k), 1)",
    ] {
        let select = format!("SELECT id, {call} AS a FROM bronze.f");
        refused(&select, call, "F0410", "FUNCTION_NOT_JUDGED").await;
    }
    refused(
        "SELECT date_part('year', t) AS a FROM bronze.f",
        "date_part",
        "F0410",
        "extract(",
    )
    .await;
    refused(
        "SELECT id, t AT TIME ZONE 'UTC' AS a FROM bronze.f",
        "AT TIME",
        "F0410",
        "CAST",
    )
    .await;
    let second = "SELECT round(d, 1) AS a, round(x, 2) AS b FROM bronze.f";
    refused(second, "round(x", "F0410", "round(double precision, integer)").await;
    refused(
        "SELECT string_agg(x, ',') AS a FROM bronze.f",
        "string_agg",
        "F0410",
        "FUNCTION_NOT_JUDGED",
    )
    .await;
}

#[tokio::test]
async fn casts_and_operators_that_differ_are_refused() {
    for (cast, at) in [
        ("CAST(x AS text)", "x AS text"),
        ("x::text", "x::"),
        ("r::text", "r::"),
        ("s::bytea", "s::"),
        ("t::bigint", "t::"),
        ("n::date", "n::"),
        ("(t - t)::text", "t - t"),
    ] {
        let select = format!("SELECT id, {cast} AS a FROM bronze.f");
        let at = if cast.starts_with("CAST") { "CAST" } else { at };
        refused(&select, at, "F0410", "CAST_NOT_EXACT").await;
    }
    refused(
        "SELECT id FROM bronze.f WHERE t - t > INTERVAL '1 day'",
        "t - t",
        "F0410",
        "intervals",
    )
    .await;
    refused("SELECT x % 2 AS a FROM bronze.f", "x %", "F0410", "OPERATOR_NOT_JUDGED").await;
    refused(
        "SELECT k << 2 AS a FROM bronze.f",
        "k <<",
        "F0410",
        "OPERATOR_NOT_JUDGED",
    )
    .await;
}

#[tokio::test]
async fn quotients_must_be_columns_or_cast_at_once() {
    for (expression, at) in [
        ("d / n * 100", "d / n"),
        ("100 * (d / n)", "d / n"),
        ("round(d / n * 100, 2)", "d / n"),
        ("CAST(d / n AS text)", "d / n"),
        ("CAST(d / n AS double precision)", "d / n"),
        ("abs(d / n)", "d / n"),
        ("d / n > 0.5", "d / n"),
    ] {
        let select = format!("SELECT id, {expression} AS a FROM bronze.f");
        refused(&select, at, "F0410", "QUOTIENT_NOT_CAST").await;
    }
    refused(
        "SELECT k FROM bronze.f GROUP BY k HAVING avg(n) > 2",
        "SELECT",
        "F0410",
        "QUOTIENT_NOT_CAST",
    )
    .await;
    let later = "SELECT q.a * 2 AS a FROM (SELECT d / n AS a FROM bronze.f) q";
    refused(later, "q.a", "F0410", "QUOTIENT_NOT_CAST").await;
    let rounded = "SELECT round(avg(d), 2) AS a FROM bronze.f";
    check(rounded, 2, 1, "F0410", "QUOTIENT_NOT_CAST").await;
    let different = "SELECT DISTINCT d / n AS a FROM bronze.f";
    check(different, 2, 1, "F0410", "QUOTIENT_NOT_CAST").await;
}

#[tokio::test]
async fn integer_division_of_what_is_numeric_in_postgresql_is_refused() {
    for (expression, at) in [
        ("sum(n) / count(*)", "SELECT"),
        ("sum(n) * 100 / count(*)", "SELECT"),
        ("count(*) / sum(n)", "SELECT"),
        ("coalesce(sum(n), 0) / 2", "SELECT"),
    ] {
        let select = format!("SELECT {expression} AS a FROM bronze.f");
        refused(&select, at, "F0410", "INTEGER_DIVISION").await;
    }
    let century = "SELECT id, extract(year FROM t) / 100 AS a FROM bronze.f";
    refused(century, "t) /", "F0410", "INTEGER_DIVISION").await;
    let later = "SELECT q.a / q.b AS c FROM (SELECT sum(n) AS a, count(*) AS b FROM bronze.f) q";
    refused(later, "q.a", "F0410", "INTEGER_DIVISION").await;
    let key = "SELECT q.a / 7 AS b FROM (SELECT k, sum(n) AS a FROM bronze.f GROUP BY k) q GROUP BY ROLLUP (q.a)";
    refused(key, "SELECT", "F0410", "INTEGER_DIVISION").await;
}

#[tokio::test]
async fn more_grouping_sets_than_postgresql_has_are_refused() {
    let many = "SELECT count(*) AS a FROM bronze.f GROUP BY CUBE (id, k, g, n, d, x, r, s, t, z, day, b, u)";
    check(many, 2, 1, "F0409", "more than 4096 grouping sets").await;
}

#[tokio::test]
async fn joined_columns_that_are_one_sided_are_refused() {
    let using = "SELECT k, id FROM bronze.f RIGHT JOIN bronze.d USING (k)";
    refused(using, "USING", "F0410", "COALESCE").await;
    let full = "SELECT k, id FROM bronze.f FULL OUTER JOIN bronze.d USING (k)";
    refused(full, "USING", "F0410", "FULL JOIN").await;
    let natural = "SELECT k, id FROM bronze.f NATURAL FULL JOIN bronze.d";
    refused(natural, "NATURAL", "F0410", "NATURAL FULL JOIN").await;
}

#[tokio::test]
async fn places_are_those_of_the_construct() {
    let many = "SELECT (SELECT max(name) FROM bronze.d) AS a, (SELECT name FROM bronze.d) AS c FROM bronze.f";
    refused(many, "SELECT name", "F0410", "SCALAR_SUBQUERY_MANY_ROWS").await;
    let second = "SELECT id FROM bronze.f WHERE k IN (1, 2) AND (b OR n IN (SELECT lim FROM bronze.d))";
    refused(second, "IN (SELECT", "F0410", "IN_SUBQUERY_POSITION").await;
    let all = "SELECT id FROM (SELECT id, k FROM bronze.f UNION ALL SELECT id, k FROM bronze.e) q \
               WHERE k > ALL (SELECT k FROM bronze.d)";
    refused(all, "ALL (", "F0410", "MIN or MAX").await;
    let some = "SELECT id FROM bronze.f WHERE k = SOME (SELECT k FROM bronze.d)";
    refused(some, "SOME", "F0410", "SOME").await;
    let exists = "SELECT id, EXISTS (SELECT 1 FROM bronze.d) AS a FROM bronze.f WHERE EXISTS (SELECT 1 FROM bronze.e)";
    refused(exists, "EXISTS", "F0410", "EXISTS_POSITION").await;
    let not_in = "SELECT id FROM bronze.f JOIN bronze.d o ON lim = n WHERE g IN (1) AND NOT b AND f.k NOT IN (SELECT k FROM bronze.f WHERE g = o.k)";
    refused(not_in, "NOT IN", "F0410", "CORRELATED_NOT_IN").await;
    let sets = "SELECT id FROM bronze.f WHERE EXISTS (SELECT 1 FROM bronze.d WHERE d.k = f.k GROUP BY ROLLUP (d.k))";
    refused(sets, "ROLLUP", "F0410", "CORRELATED_SUBQUERY").await;
    let below =
        "SELECT id, (SELECT count(*) FROM (SELECT DISTINCT name FROM bronze.d WHERE d.k = f.k) q) AS a FROM bronze.f";
    refused(below, "FROM (SELECT", "F0410", "CORRELATED_SUBQUERY").await;
    let sorted = "SELECT id FROM bronze.f ORDER BY (SELECT max(lim) FROM bronze.d WHERE d.k = f.k), id LIMIT 5";
    check(sorted, 2, 1, "F0410", "CORRELATED_SUBQUERY").await;
    let distinct = "SELECT count(DISTINCT k) AS a FROM bronze.f UNION ALL SELECT DISTINCT ON (k) id FROM bronze.f";
    refused(distinct, "DISTINCT ON", "F0410", "ROW_NUMBER").await;
}

#[tokio::test]
async fn numbers_that_no_column_holds_are_refused_at_their_place() {
    let digits = "123456789012345678901234567890123456789";
    for (select, number) in [
        ("SELECT 1e300 AS a FROM bronze.f", "1e300"),
        ("SELECT id FROM bronze.f WHERE n IN (1, 2) AND d < 1e-39", "1e-39"),
        ("SELECT d * 1e38 AS a FROM bronze.f", "1e38"),
        ("SELECT (1e40 * 2)::double precision AS a FROM bronze.f", "1e40"),
        ("SELECT 1e400::double precision AS a FROM bronze.f", "1e400"),
    ] {
        refused(select, number, "F0410", "NUMBER_TOO_WIDE").await;
    }
    let long = format!("SELECT k FROM bronze.f GROUP BY k HAVING max(n) < {digits}");
    refused(&long, digits, "F0410", "NUMBER_TOO_WIDE").await;
}

#[tokio::test]
async fn what_the_engine_does_not_know_is_refused_by_name() {
    check("SELECT n ^ 2 AS a FROM bronze.f", 2, 1, "F0410", "OPERATOR_NOT_JUDGED").await;
    check("SELECT ~n AS a FROM bronze.f", 2, 1, "F0410", "OPERATOR_NOT_JUDGED").await;
    let times = "SELECT t + k * INTERVAL '1 day' AS a FROM bronze.f";
    check(times, 2, 1, "F0410", "OPERATOR_NOT_JUDGED").await;
    refused(
        "SELECT sign(n) AS a FROM bronze.f",
        "sign",
        "F0410",
        "FUNCTION_NOT_JUDGED",
    )
    .await;
    refused(
        "SELECT s COLLATE \"de_DE\" AS a FROM bronze.f",
        "s COLLATE",
        "F0410",
        "COLLATE",
    )
    .await;
    let unknown = "SELECT sum(n) OVER (w ORDER BY id) AS a FROM bronze.f WINDOW v AS (PARTITION BY k)";
    refused(unknown, "w ORDER", "F0409", "is not defined").await;
    let twice = "SELECT sum(n) OVER (w ORDER BY id) AS a FROM bronze.f WINDOW w AS (PARTITION BY k ORDER BY n)";
    refused(twice, "w ORDER", "F0409", "has an order already").await;
}
