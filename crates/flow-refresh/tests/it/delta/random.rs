//! Random queries over random tables under random changes.
//!
//! `FLOW_DELTA_SECONDS` is how long it draws, 6 by default; `FLOW_DELTA_SEED` is the one seed to try.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow_schema::DataType;
use flow_refresh::InputChanges;

use super::world::{Kept, Not, World, schema};
use crate::lake::Draw;

/// Draws a relation with columns k, g, n, x, s, b.
struct Query<'d> {
    draw: &'d mut Draw,
    names: usize,
}

impl Query<'_> {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("q{}", self.names)
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.draw.below(of.len() as u64) as usize]
    }

    fn condition(&mut self, q: &str) -> String {
        let of = [
            "Q.n > 1",
            "Q.n % 2 = 0",
            "Q.x > 0.0",
            "Q.x = 0.0",
            "Q.k IS NOT NULL",
            "Q.g IS NULL OR Q.n < 3",
            "Q.s <> 'a'",
            "Q.b",
            "NOT Q.b AND Q.n >= 0",
            "Q.n BETWEEN 0 AND 3",
            "coalesce(Q.s, 'a') LIKE 'a%'",
        ];
        self.pick(&of).replace('Q', q)
    }

    fn relation(&mut self, depth: u64) -> String {
        if depth == 0 {
            let table = self.draw.below(3);
            return format!("SELECT k, g, n, x, s, b FROM bronze.t{table}");
        }
        let below = depth - 1;
        let (r, q) = (self.relation(below), self.name());
        match self.draw.below(19) {
            0 => format!("SELECT * FROM ({r}) {q} WHERE {}", self.condition(&q)),
            1 => format!("SELECT k, g, n + 1 AS n, x / 2 AS x, coalesce(s, 'z') AS s, n > 2 AS b FROM ({r}) {q}"),
            2 => {
                let below = self.draw_below(depth);
                let other = self.relation(below);
                let set = self.pick(&["UNION ALL", "UNION", "INTERSECT", "EXCEPT"]);
                format!("{r} {set} SELECT * FROM ({other}) {}", self.name())
            }
            3..=6 => self.join(&r, &q, depth),
            7 | 8 => self.where_subquery(&r, &q, depth),
            9 | 10 => self.group(&r, &q),
            11 => format!("SELECT DISTINCT k, g, n, x, s, b FROM ({r}) {q}"),
            12 | 13 => self.window(&r, &q),
            14 => {
                let order = self.pick(&["n DESC, k", "x", "s DESC NULLS LAST", "k NULLS FIRST, x DESC"]);
                let (skip, fetch) = (self.draw.below(3), self.draw.below(6));
                format!("SELECT * FROM (SELECT * FROM ({r}) {q} ORDER BY {order} LIMIT {fetch} OFFSET {skip}) {q}l")
            }
            15 => {
                let sets = self.pick(&[
                    "ROLLUP(k, g)",
                    "CUBE(k, g)",
                    "GROUPING SETS((k, g), (g))",
                    "GROUPING SETS((k), (), (g), (k))",
                ]);
                format!(
                    "SELECT k, g, count(n) AS n, sum(x) AS x, max(s) AS s, bool_and(b) AS b FROM ({r}) {q} GROUP BY {sets}"
                )
            }
            16 => format!(
                "SELECT max(k) AS k, min(g) AS g, count(*) AS n, avg(x) AS x, min(s) AS s, bool_or(b) AS b FROM ({r}) {q}"
            ),
            17 => format!(
                "WITH c AS ({r}) SELECT u.k, v.g, u.n, v.x, u.s, v.b FROM c u JOIN c v ON u.k = v.k AND u.n = v.n"
            ),
            _ => format!(
                "{r} UNION ALL SELECT * FROM (SELECT k, g, 7 AS n, 0.5::double precision AS x, 'w' AS s, true AS b FROM ({r}) {q} WHERE n > 3) {q}w"
            ),
        }
    }

    fn draw_below(&mut self, depth: u64) -> u64 {
        self.draw.below(depth)
    }

    fn join(&mut self, r: &str, q: &str, depth: u64) -> String {
        let below = self.draw_below(depth);
        let (other, p) = (self.relation(below), self.name());
        let kind = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let on = self.pick(&[
            "Q.k = P.k",
            "Q.k = P.k AND Q.g = P.g",
            "Q.x = P.x",
            "Q.s = P.s",
            "(Q.k IS NOT DISTINCT FROM P.k)",
        ]);
        let more = self.pick(&["", "", "", " AND Q.n < P.n", " AND Q.n > 0", " AND P.b"]);
        let columns = self.pick(&[
            "Q.k, P.g, Q.n, P.x, Q.s, P.b",
            "P.k, Q.g, P.n, Q.x, P.s, Q.b",
            "coalesce(Q.k, P.k) AS k, Q.g, coalesce(P.n, 0) AS n, Q.x, P.s, P.b",
        ]);
        let on = format!("{on}{more}");
        let (on, columns) = (
            on.replace('Q', q).replace('P', &p),
            columns.replace('Q', q).replace('P', &p),
        );
        format!("SELECT {columns} FROM ({r}) {q} {kind} ({other}) {p} ON {on}")
    }

    fn where_subquery(&mut self, r: &str, q: &str, depth: u64) -> String {
        let below = self.draw_below(depth);
        let (other, p) = (self.relation(below), self.name());
        let condition = self.pick(&[
            "EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k)",
            "EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k AND P.n < Q.n)",
            "NOT EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k)",
            "NOT EXISTS (SELECT 1 FROM (R) P WHERE P.g = Q.g AND P.n > Q.n)",
            "Q.k IN (SELECT P.k FROM (R) P)",
            "Q.n IN (SELECT P.n FROM (R) P WHERE P.k = Q.k)",
            "Q.k NOT IN (SELECT P.k FROM (R) P)",
            "Q.n NOT IN (SELECT P.n FROM (R) P WHERE P.n IS NOT NULL)",
            "Q.n >= (SELECT min(P.n) FROM (R) P)",
            "Q.n > (SELECT count(*) FROM (R) P WHERE P.k = Q.k)",
            "(Q.b OR EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k))",
            "EXISTS (SELECT 1 FROM (R) P)",
            "Q.n > (SELECT 2 * count(*) - coalesce(max(P.n), 1) FROM (R) P WHERE P.k = Q.k)",
            "Q.n >= (SELECT sum(P.n) FROM (R) P WHERE P.k = Q.k AND P.n < Q.n)",
            "Q.x > (SELECT min(P.x) FROM (R) P WHERE P.x <> Q.x)",
            "(Q.k, Q.n) IN (SELECT P.g, P.n FROM (R) P)",
            "(Q.k, Q.n) NOT IN (SELECT P.k, P.n FROM (R) P WHERE P.n < 2)",
            "Q.n NOT IN (SELECT P.n FROM (R) P WHERE P.k = Q.k)",
            "Q.n IN (SELECT count(*) FROM (R) P WHERE P.k = Q.k)",
        ]);
        let condition = condition
            .replace('Q', q)
            .replace('P', &p)
            .replace("(R)", &format!("({other})"));
        format!("SELECT * FROM ({r}) {q} WHERE {condition}")
    }

    fn group(&mut self, r: &str, q: &str) -> String {
        let n = self.pick(&[
            "sum(n)",
            "count(*)",
            "count(n)",
            "min(n)",
            "max(n)",
            "count(DISTINCT x)",
            "count(DISTINCT s)",
            "sum(DISTINCT n)",
            "sum(n) FILTER (WHERE b)",
            "count(*) FILTER (WHERE x > 0.0)",
            "bit_or(n)",
        ]);
        let x = self.pick(&[
            "sum(x)",
            "avg(x)",
            "min(x)",
            "max(x)",
            "avg(n)",
            "var_pop(n)",
            "stddev(n)",
            "avg(DISTINCT x)",
            "sum(DISTINCT x)",
        ]);
        let s = self.pick(&["min(s)", "max(s)", "string_agg(s, ',')", "max(s) FILTER (WHERE n > 1)"]);
        let b = self.pick(&["bool_and(b)", "bool_or(b)", "min(b)", "count(*) > 2"]);
        let (k, g, by) = match self.draw.below(4) {
            0 => ("k", "min(g)", "k"),
            1 => ("max(k)", "g", "g"),
            2 => ("max(k)", "max(g)", "x"),
            _ => ("k", "g", "k, g"),
        };
        let having = self.pick(&["", "", " HAVING count(*) > 1", " HAVING max(n) > 2"]);
        format!(
            "SELECT {k} AS k, {g} AS g, {n} AS n, {x} AS x, {s} AS s, {b} AS b FROM ({r}) {q} GROUP BY {by}{having}"
        )
    }

    fn window(&mut self, r: &str, q: &str) -> String {
        let n = self.pick(&[
            "row_number()",
            "rank()",
            "dense_rank()",
            "sum(n)",
            "count(*)",
            "lag(n)",
            "max(n)",
        ]);
        let over = self.pick(&[
            "PARTITION BY k ORDER BY n",
            "PARTITION BY g ORDER BY x DESC",
            "PARTITION BY k, g ORDER BY s",
        ]);
        let x = self.pick(&[
            "x",
            "sum(x) OVER (PARTITION BY k)",
            "avg(x) OVER (PARTITION BY k ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            "first_value(x) OVER (PARTITION BY g ORDER BY n)",
        ]);
        let inner = format!("SELECT k, g, {n} OVER ({over}) AS n, {x} AS x, s, b FROM ({r}) {q}");
        match self.draw.below(3) {
            0 => format!("SELECT * FROM ({inner}) {q}w WHERE n = 1"),
            _ => inner,
        }
    }
}

/// Says what became of a seed.
enum Outcome {
    /// All steps were compared.
    Compared,
    /// There was nothing to compare, or not for all steps.
    Refused(String),
}

/// Draws a query and changes from a seed, and compares after each step.
async fn try_seed(seed: u64) -> Outcome {
    let mut draw = Draw(seed);
    let types = [
        DataType::Int32,
        DataType::Int64,
        DataType::Utf8,
        DataType::Float64,
        DataType::Decimal128(12, 2),
        DataType::Date32,
    ];
    let mut key = || types[draw.below(types.len() as u64) as usize].clone();
    let schema = schema([key(), key()]);
    let depth = 1 + draw.below(3);
    let select = Query {
        draw: &mut draw,
        names: 0,
    }
    .relation(depth);
    let mut world = World::random(&schema, &mut draw);
    let mut kept = match Kept::new(&select, &world).await {
        Ok(kept) => kept,
        Err(Not::Incremental(codes)) => return Outcome::Refused(codes.join(" ")),
        Err(Not::Planned(problem)) => {
            let code = problem.rsplit('(').next().unwrap_or_default().to_owned();
            return Outcome::Refused(format!("problem {code}"));
        }
        Err(Not::Computed(error)) => return Outcome::Refused(error.to_string()),
    };
    for step in 0..3 {
        let mut changes = InputChanges::new();
        let names: Vec<_> = world.rows.keys().cloned().collect();
        for name in names {
            if draw.below(4) > 0 {
                changes.insert(name.clone(), world.change(&name, &mut draw));
            }
        }
        let what = format!("seed {seed}, step {step}: {select}");
        if let Err(why) = kept.step(&changes, &world, &what).await {
            return Outcome::Refused(format!("{why:?}"));
        }
    }
    Outcome::Compared
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[tokio::test]
async fn random_queries_equal_recompute() {
    if let Some(seed) = variable("FLOW_DELTA_SEED") {
        try_seed(seed).await;
        return;
    }
    let first = variable("FLOW_DELTA_FIRST").unwrap_or(0);
    let until = tokio::time::Instant::now() + Duration::from_secs(variable("FLOW_DELTA_SECONDS").unwrap_or(6));
    let (mut seed, mut compared) = (first, 0);
    let mut failed = Vec::new();
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    while tokio::time::Instant::now() < until && failed.len() < 10 {
        // A task of its own, so that one seed's failure is noted and the next is tried.
        match tokio::spawn(try_seed(seed)).await {
            Ok(Outcome::Compared) => compared += 1,
            Ok(Outcome::Refused(why)) => *refused.entry(why).or_insert(0) += 1,
            Err(_) => failed.push(seed),
        }
        seed += 1;
    }
    println!("seeds {first}..{seed}: {compared} compared, not compared: {refused:#?}");
    assert!(failed.is_empty(), "seeds {failed:?} differ");
    assert!(compared > (seed - first) / 2, "most queries are incremental");
}
