//! What is read, and where what is not read is pointed at.

use std::time::Duration;

use super::*;
use crate::definition::{Lag, RequestedMode};

fn read(text: &str) -> (Vec<Definition>, Vec<Problem>) {
    parse(&[SourceFile {
        path: "t.sql".into(),
        text: text.into(),
    }])
}

fn check_problem(text: &str, line: u64, column: u64, code: &str, part: &str) {
    let (_, problems) = read(text);
    let [problem] = &problems[..] else {
        panic!("{text}: expected one problem, got {problems:?}");
    };
    assert_eq!(
        (problem.line, problem.column, problem.code),
        (line, column, code),
        "{text}: {problem}"
    );
    assert!(problem.message.contains(part), "{text}: {problem}");
}

#[test]
fn problems_stand_at_their_token() {
    check_problem("SELECT 1", 1, 1, "F0401", "expected CREATE DYNAMIC TABLE");
    check_problem("CREATE TABLE a.b AS SELECT 1", 1, 8, "F0401", "found 'TABLE'");
    check_problem(
        "create dynamic table t as select 1",
        1,
        22,
        "F0403",
        "needs a namespace",
    );
    check_problem("CREATE DYNAMIC TABLE a._flow_t AS SELECT 1", 1, 24, "F0403", "reserved");
    check_problem(
        "CREATE DYNAMIC TABLE a.b\n  TAGS (x = 'y') AS SELECT 1",
        2,
        3,
        "F0402",
        "TAGS is not built",
    );
    check_problem(
        "CREATE DYNAMIC TABLE a.b PARTITION BY (x) AS SELECT 1",
        1,
        26,
        "F0402",
        "PARTITION BY",
    );
    for clause in [
        "PARTITION_WINDOW",
        "PARTITION_FRESHNESS",
        "PRECONDITIONS",
        "DQ_RULES",
        "ON_DQ_FAIL",
    ] {
        check_problem(
            &format!("CREATE DYNAMIC TABLE a.b {clause} = '1' AS SELECT 1"),
            1,
            26,
            "F0402",
            clause,
        );
    }
    for mode in ["TRIGGERED", "SCHEDULED '* * * * *'"] {
        let text = format!("CREATE DYNAMIC TABLE a.b REFRESH_MODE = {mode} AS SELECT 1");
        check_problem(&text, 1, 41, "F0402", "is not built yet");
    }
    check_problem(
        "CREATE DYNAMIC TABLE a.b FRESH = 1 AS SELECT 1",
        1,
        26,
        "F0402",
        "unknown clause FRESH",
    );
    check_problem(
        "CREATE DYNAMIC TABLE a.b LAG = 'soon' AS SELECT 1",
        1,
        32,
        "F0402",
        "not a duration",
    );
    check_problem(
        "CREATE DYNAMIC TABLE a.b LAG = '0s' AS SELECT 1",
        1,
        32,
        "F0402",
        "not a duration",
    );
    check_problem(
        "CREATE DYNAMIC TABLE a.b LAG = 5 AS SELECT 1",
        1,
        32,
        "F0401",
        "a duration",
    );
    check_problem(
        "CREATE DYNAMIC TABLE a.b LAG = '1s' TARGET_LAG = '2s' AS SELECT 1",
        1,
        37,
        "F0402",
        "twice",
    );
    check_problem("CREATE DYNAMIC TABLE a.b SELECT 1", 1, 26, "F0401", "AS");
    check_problem("CREATE DYNAMIC TABLE a.b AS", 1, 28, "F0401", "SELECT");
    check_problem(
        "CREATE DYNAMIC TABLE a.b AS\nSELECT \"é\", FROM\n  WHERE",
        2,
        13,
        "F0401",
        "found: FROM",
    );
    check_problem("CREATE DYNAMIC TABLE a.b AS SELECT 1 1", 1, 38, "F0401", "1");
    check_problem("CREATE DYNAMIC TABLE a.b AS SELECT 'é", 1, 36, "F0401", "unterminated");
    check_problem("CREATE DYNAMIC TABLE a.b AS DELETE FROM t", 1, 29, "F0401", "DELETE");
    check_problem(
        "CREATE DYNAMIC TABLE a.b AS SELECT _flow_job_run_id FROM b.t",
        1,
        36,
        "F0403",
        "reserved",
    );
}

#[test]
fn constructs_that_have_no_one_result_are_refused_in_place() {
    let check = |select: &str, column: u64, part: &str| {
        check_problem(
            &format!("CREATE DYNAMIC TABLE a.b AS\n{select}"),
            2,
            column,
            "F0410",
            part,
        );
    };
    check("SELECT * FROM b.t FOR UPDATE", 19, "FOR UPDATE");
    check("SELECT a INTO x FROM b.t", 10, "INTO");
    check("SELECT * FROM b.t TABLESAMPLE BERNOULLI (10)", 19, "TABLESAMPLE");
    check("SELECT a FROM b.t EXCEPT ALL SELECT a FROM b.u", 19, "EXCEPT ALL");
    check("SELECT a FROM b.t INTERSECT ALL SELECT a FROM b.u", 19, "INTERSECT ALL");
    check("SELECT DISTINCT ON (a) a, b FROM b.t ORDER BY a, b", 8, "DISTINCT ON");
    check("SELECT a FROM b.t WHERE a = $1", 29, "$1");
    check("SELECT a FROM b.t WHERE a IS DISTINCT FROM b AND c", 30, "parentheses");
    check("WITH RECURSIVE r AS (SELECT 1 AS n) SELECT n FROM r", 6, "RECURSIVE");
    check(
        "SELECT a FROM b.t ORDER BY a FETCH FIRST 2 ROWS WITH TIES",
        49,
        "WITH TIES",
    );
}

#[test]
fn a_broken_statement_leaves_the_others() {
    let (definitions, problems) = read(
        "-- first;\nCREATE DYNAMIC TABLE a.one AS SELECT ';' AS x, $$;$$ AS y FROM b.t; ;\n\
         CREATE DYNAMIC TABLE a.two BAD AS SELECT 1;\n\
         /* ; */ CREATE DYNAMIC TABLE IF NOT EXISTS \"A\".\"Two\" LAG = DOWNSTREAM REFRESH_MODE = full AS\n  SELECT 1 -- end\n;",
    );
    let names: Vec<String> = definitions.iter().map(|d| d.name.to_string()).collect();
    assert_eq!(names, ["a.one", "A.Two"]);
    assert_eq!(definitions[0].sql, "SELECT ';' AS x, $$;$$ AS y FROM b.t");
    assert_eq!((definitions[0].line, definitions[0].column), (2, 22));
    assert_eq!(definitions[1].sql, "SELECT 1");
    assert_eq!((definitions[1].sql_line, definitions[1].sql_column), (5, 3));
    assert_eq!(
        (definitions[1].lag, definitions[1].mode),
        (Lag::Downstream, RequestedMode::Full)
    );
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn a_text_that_breaks_off_keeps_what_came_before() {
    let (definitions, problems) = read("CREATE DYNAMIC TABLE a.b AS SELECT 1;\nCREATE DYNAMIC TABLE a.c AS SELECT 'x");
    assert_eq!(definitions.len(), 1);
    assert_eq!((problems.len(), problems[0].line), (1, 2), "{problems:?}");
}

#[test]
fn durations_are_read() {
    let check = |text: &str, seconds: u64| {
        let (definitions, problems) = read(&format!("CREATE DYNAMIC TABLE a.b LAG = {text} AS SELECT 1"));
        assert_eq!(problems, [], "{text}");
        assert_eq!(
            definitions[0].lag,
            Lag::Duration(Duration::from_secs(seconds)),
            "{text}"
        );
    };
    check("'5 minutes'", 300);
    check("INTERVAL '5 minutes'", 300);
    check("'1 hour 30 minutes'", 5400);
    check("'1h30m'", 5400);
    check("'2 DAYS'", 172_800);
}

#[test]
fn the_hash_is_of_what_is_meant() {
    let hash = |select: &str| {
        read(&format!("CREATE DYNAMIC TABLE a.b AS {select}")).0[0]
            .query_hash
            .clone()
    };
    let one = hash("SELECT a, 'X' FROM b.t");
    assert_eq!(one, hash("select A ,  /* c */ 'X'\n from B.T"));
    assert_ne!(one, hash("SELECT a, 'x' FROM b.t"));
    assert_ne!(one, hash("SELECT \"A\", 'X' FROM b.t"));
    assert_ne!(hash("SELECT a b FROM b.t"), hash("SELECT ab FROM b.t"));
}
