"""Random SELECTs over three tables, and random changes of these. What is drawn has one answer.

Every relation has the columns k, g, n, x, s, b. Orders are total, so that ties are equal rows. Floats
are halves, whose sums are exact in any order, and there is no NaN and no negative zero, whose treatment
`docs/dynamic-tables.md` describes.
"""

TABLES = ("t0", "t1", "t2")
ALL = "k, g, n, x, s, b"
CONDITIONS = [
    "Q.n > 1", "Q.n % 2 = 0", "Q.x > 0.0", "Q.x = 0.0", "Q.k IS NOT NULL", "Q.g IS NULL OR Q.n < 3", "Q.s <> 'a'", "Q.b",
    "NOT Q.b AND Q.n >= 0", "Q.n BETWEEN 0 AND 3", "coalesce(Q.s, 'a') LIKE 'a%'", "Q.k = Q.g OR Q.b IS NULL", "Q.k IN (0, 2)",
]
SUBQUERIES = [
    "EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k)", "EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k AND P.n < Q.n)",
    "NOT EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k)", "NOT EXISTS (SELECT 1 FROM (R) P WHERE P.g = Q.g AND P.n > Q.n)",
    "Q.k IN (SELECT P.k FROM (R) P)", "Q.n IN (SELECT P.n FROM (R) P WHERE P.k = Q.k)", "Q.k NOT IN (SELECT P.k FROM (R) P)",
    "Q.n NOT IN (SELECT P.n FROM (R) P WHERE P.n IS NOT NULL)", "Q.n >= (SELECT min(P.n) FROM (R) P)",
    "Q.n > (SELECT count(*) FROM (R) P WHERE P.k = Q.k)", "(Q.b OR EXISTS (SELECT 1 FROM (R) P WHERE P.k = Q.k))",
    "EXISTS (SELECT 1 FROM (R) P)", "NOT EXISTS (SELECT 1 FROM (R) P WHERE P.n < 0)",
]
ON = ["Q.k = P.k", "Q.k = P.k AND Q.g = P.g", "Q.x = P.x", "Q.s = P.s", "Q.n = P.n"]
COUNTS = [
    "sum(n)", "count(*)", "count(n)", "min(n)", "max(n)", "count(DISTINCT x)", "count(DISTINCT s)", "sum(DISTINCT n)",
    # A condition of COUNT that is NULL is a known defect, which tests/sql/general.sql keeps.
    "sum(n) FILTER (WHERE b)", "count(*) FILTER (WHERE coalesce(x, 0.0) > 0.0)", "bit_or(n)",
]


class Query:
    """Draws one SELECT."""

    def __init__(self, rng):
        self.rng = rng
        self.names = 0

    def name(self):
        self.names += 1
        return f"q{self.names}"

    def relation(self, depth):
        if depth == 0:
            return f"SELECT {ALL} FROM bronze.{self.rng.choice(TABLES)}"
        r, q = self.relation(depth - 1), self.name()
        draw = self.rng.randrange(19)
        if draw == 0:
            return f"SELECT * FROM ({r}) {q} WHERE " + self.rng.choice(CONDITIONS).replace("Q.", f"{q}.")
        if draw == 1:
            return f"SELECT k, g, n + 1 AS n, x * 2 AS x, coalesce(s, 'z') AS s, n > 2 AS b FROM ({r}) {q}"
        if draw in (2, 18):
            other, kind = self.relation(self.rng.randrange(depth)), self.rng.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
            return f"SELECT * FROM ({r}) {q} {kind} SELECT * FROM ({other}) {self.name()}"
        if draw in (3, 4, 5, 6):
            return self.join(r, q, depth)
        if draw in (7, 8):
            other, p = self.relation(self.rng.randrange(depth)), self.name()
            condition = self.rng.choice(SUBQUERIES).replace("Q.", f"{q}.").replace("P.", f"{p}.").replace("(R) P", f"(R) {p}").replace("(R)", f"({other})")
            return f"SELECT * FROM ({r}) {q} WHERE {condition}"
        if draw in (9, 10):
            return self.group(r, q)
        if draw == 11:
            return f"SELECT DISTINCT {ALL} FROM ({r}) {q}"
        if draw in (12, 13):
            return self.window(r, q)
        if draw == 14:
            order = self.rng.choice(["n DESC, k", "x", "s DESC NULLS LAST", "k NULLS FIRST, x DESC"])
            limit = f"LIMIT {self.rng.randrange(6)} OFFSET {self.rng.randrange(3)}"
            return f"SELECT * FROM (SELECT * FROM ({r}) {q} ORDER BY {order}, {ALL} {limit}) {q}l"
        if draw == 15:
            # A set without columns over no rows is a known defect, which tests/sql/general.sql keeps.
            sets = self.rng.choice(["(k, g), (g)", "(k), (g)", "(k, g), (k), (g)"])
            return f"SELECT k, g, count(n) AS n, sum(x) AS x, max(s) AS s, bool_and(b) AS b FROM ({r}) {q} GROUP BY GROUPING SETS ({sets})"
        if draw == 16:
            return f"SELECT max(k) AS k, min(g) AS g, count(*) AS n, sum(x) AS x, min(s) AS s, bool_or(b) AS b FROM ({r}) {q}"
        return f"SELECT * FROM (WITH c AS ({r}) SELECT u.k, v.g, u.n, v.x, u.s, v.b FROM c u JOIN c v ON u.k = v.k AND u.n = v.n) {q}"

    def join(self, r, q, depth):
        other, p = self.relation(self.rng.randrange(depth)), self.name()
        kind = self.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = self.rng.choice(ON if kind == "FULL JOIN" else ON + ["(Q.k IS NOT DISTINCT FROM P.k)"])
        on += self.rng.choice(["", "", "", " AND Q.n < P.n", " AND Q.n > 0", " AND P.b"])
        columns = self.rng.choice([
            "Q.k, P.g, Q.n, P.x, Q.s, P.b", "P.k, Q.g, P.n, Q.x, P.s, Q.b", "coalesce(Q.k, P.k) AS k, Q.g, coalesce(P.n, 0) AS n, Q.x, P.s, P.b",
        ])
        names = lambda text: text.replace("Q.", f"{q}.").replace("P.", f"{p}.")
        return f"SELECT {names(columns)} FROM ({r}) {q} {kind} ({other}) {p} ON {names(on)}"

    def group(self, r, q):
        n, x = self.rng.choice(COUNTS), self.rng.choice(["sum(x)", "min(x)", "max(x)", "sum(DISTINCT x)"])
        s = self.rng.choice(["min(s)", "max(s)", "string_agg(s, ',' ORDER BY s)", "max(s) FILTER (WHERE n > 1)"])
        b = self.rng.choice(["bool_and(b)", "bool_or(b)", "count(*) > 2"])
        k, g, by = self.rng.choice([("k", "min(g)", "k"), ("max(k)", "g", "g"), ("max(k)", "max(g)", "x"), ("k", "g", "k, g")])
        having = self.rng.choice(["", "", " HAVING count(*) > 1", " HAVING max(n) > 2"])
        return f"SELECT {k} AS k, {g} AS g, CAST({n} AS bigint) AS n, {x} AS x, {s} AS s, {b} AS b FROM ({r}) {q} GROUP BY {by}{having}"

    def window(self, r, q):
        n = self.rng.choice(["row_number()", "rank()", "dense_rank()", "sum(n)", "count(*)", "lag(n)", "max(n)"])
        over = self.rng.choice(["PARTITION BY k ORDER BY n", "PARTITION BY g ORDER BY x DESC", "PARTITION BY k, g ORDER BY s"])
        x = self.rng.choice([
            "x", "sum(x) OVER (PARTITION BY k)", f"sum(x) OVER (PARTITION BY k ORDER BY n, {ALL} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
            f"first_value(x) OVER (PARTITION BY g ORDER BY n, {ALL})",
        ])
        inner = f"SELECT k, g, CAST({n} OVER ({over}, {ALL}) AS bigint) AS n, {x} AS x, s, b FROM ({r}) {q}"
        return self.rng.choice([inner, inner, f"SELECT * FROM ({inner}) {q}w WHERE n = 1"])


def query(rng):
    return Query(rng).relation(rng.choice([1, 2, 2, 3]))


def row(rng, key):
    some = lambda values, chance: "NULL" if rng.random() < chance else rng.choice(values)
    return "({}, {}, {}, {}, {}, {}, {})".format(
        key, some(["0", "1", "2", "3"], 0.2), some(["0", "1", "2"], 0.2), some(["-1", "0", "1", "2", "3", "5"], 0.1),
        some(["-1.5", "0", "0.5", "2"], 0.1), some(["'a'", "'ab'", "'b'"], 0.2), some(["true", "false"], 0.2))


def schema(rng):
    """Gives the statements that make the tables; one of them may be empty."""
    made = [f"CREATE TABLE {t} (id int PRIMARY KEY, k int, g int, n bigint, x double precision, s text, b boolean)" for t in TABLES]
    for t in TABLES:
        if count := rng.choice([0, 1, 6, 12, 20]):
            made.append(f"INSERT INTO {t} VALUES {', '.join(row(rng, key) for key in range(1, count + 1))}")
    return made


def changes(rng):
    """Gives the statements of one transaction."""
    made = []
    for t in rng.sample(TABLES, rng.randint(1, 3)):
        for _ in range(rng.randint(1, 3)):
            key, column = rng.randint(1, 24), rng.choice(["k", "g", "n"])
            made.append(rng.choice([
                f"INSERT INTO {t} VALUES {', '.join(row(rng, k) for k in rng.sample(range(1, 30), 4))} ON CONFLICT (id) DO UPDATE SET k = excluded.k, n = excluded.n, s = excluded.s",
                f"INSERT INTO {t} VALUES {row(rng, key)} ON CONFLICT DO NOTHING",
                f"UPDATE {t} SET {column} = {rng.choice(['NULL', '0', '1', '2'])} WHERE id % 4 = {rng.randrange(4)}",
                f"UPDATE {t} SET x = x + 0.5, b = NOT b WHERE id = {key}",
                f"UPDATE {t} SET s = 'b' WHERE k = {rng.randrange(4)}",
                f"UPDATE {t} SET id = id + 100 WHERE id = {key} AND NOT EXISTS (SELECT 1 FROM {t} WHERE id = {key + 100})",
                f"DELETE FROM {t} WHERE id % 3 = {rng.randrange(3)}",
                f"DELETE FROM {t} WHERE k = {rng.randrange(4)}",
                f"DELETE FROM {t} WHERE {column} IS NULL",
                f"DELETE FROM {t}" if rng.random() < 0.3 else f"DELETE FROM {t} WHERE id = {key}",
            ]))
    return made
