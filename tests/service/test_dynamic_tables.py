"""Dynamic tables over three levels equal PostgreSQL running the same SQL, also when killed between any two steps."""
import json
import pathlib
import random
import time

import pytest

from flowtest import oracle, workload
from flowtest.lake import pointers
from flowtest.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.any_major

SCHEMA = [
    "CREATE TABLE customer (id int PRIMARY KEY, name text, city text)",
    "CREATE TABLE purchase (id int PRIMARY KEY, customer_id int, amount numeric(12,2), quantity int, weight double precision, day date)",
    "INSERT INTO customer SELECT g, 'customer ' || g, (ARRAY['Bern', 'Oslo', NULL])[1 + g % 3] FROM generate_series(1, 60) g",
    "INSERT INTO purchase SELECT g, 1 + g % 70, g * 1.25, g % 9, g / 7.0, '2024-01-01'::date + g % 20 FROM generate_series(1, 800) g",
]
#: name → the query in the lake's terms; the same text runs in PostgreSQL over views of these names.
TABLES = {
    "silver.priced": """
        SELECT p.id, p.customer_id, c.name, c.city, p.amount, p.quantity, p.weight, p.day
        FROM bronze.purchase p LEFT JOIN bronze.customer c ON c.id = p.customer_id WHERE p.quantity > 0""",
    "silver.by_city": """
        SELECT city, day, count(*) AS purchases, sum(quantity) AS pieces, min(amount) AS least, max(amount) AS most,
               sum(weight) AS weight
        FROM silver.priced GROUP BY city, day""",
    "gold.best": """
        SELECT b.city, sum(b.purchases) AS purchases, sum(b.pieces) AS pieces, max(b.most) AS most,
               count(DISTINCT b.day) AS days
        FROM silver.by_city b GROUP BY b.city HAVING sum(b.purchases) > 1""",
}
BRONZE = [{"source": "public.customer", "target": "bronze.customer"}, {"source": "public.purchase", "target": "bronze.purchase"}]


def prepare(database, make_flow, tables=None, **kw):
    database.execute(*SCHEMA)
    database.publish("customer", "purchase")
    database.execute(
        "CREATE SCHEMA bronze", "CREATE SCHEMA silver", "CREATE SCHEMA gold",
        "CREATE VIEW bronze.customer AS SELECT * FROM public.customer",
        "CREATE VIEW bronze.purchase AS SELECT * FROM public.purchase",
        *[f"CREATE VIEW {name} AS {sql}" for name, sql in TABLES.items()],
    )
    flow = make_flow(database, BRONZE, **kw)
    for name, sql in (tables or TABLES).items():
        flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} AS {sql};\n")
    return flow


def change(database, rng, count):
    """Changes both sides of the join, in the same transactions too."""
    for _ in range(count):
        key, other = rng.randint(1, 900), rng.randint(1, 70)
        statements = [
            f"INSERT INTO purchase VALUES ({key}, {other}, {rng.randint(0, 10**6) / 100}, {rng.randint(-2, 9)}, {rng.random()}, '2024-01-05')"
            " ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, quantity = excluded.quantity",
            f"UPDATE purchase SET customer_id = {other} WHERE id = {rng.randint(1, 900)}",
            f"UPDATE purchase SET day = NULL WHERE id = {key}",
            f"DELETE FROM purchase WHERE id = {rng.randint(1, 900)}",
            f"UPDATE customer SET city = {rng.choice(['NULL', chr(39) + 'Oslo' + chr(39), chr(39) + 'Rom' + chr(39)])} WHERE id = {other}",
            f"DELETE FROM customer WHERE id = {other}",
            f"INSERT INTO customer VALUES ({other}, 'again', 'Bern') ON CONFLICT DO NOTHING",
        ]
        database.transaction(*rng.sample(statements, rng.randint(1, 3)))


def check(flow, readers, names=None):
    flow.wait_dynamic()
    for name in names or TABLES:
        # PostgreSQL types sums wider than the declared result; both are compared as numbers.
        oracle.check_query(flow, name, f"SELECT * FROM {name}", readers)


def test_three_levels_follow(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers)
    for _ in range(4):
        change(database, rng, 10)
        check(flow, readers)
    database.execute("DELETE FROM purchase")
    check(flow, readers)
    database.execute("INSERT INTO purchase VALUES (1, 1, 1.00, 1, 1.0, '2024-01-01'), (2, 1, 2.00, 2, 2.0, '2024-01-01')")
    check(flow, readers)


def test_refresh_without_change_writes_nothing(database, make_flow, read):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers)
    before = pointers(flow.catalog, list(TABLES))[0]
    database.execute("UPDATE customer SET name = name")
    check(flow, readers)
    assert pointers(flow.catalog, list(TABLES))[0] == before
    # A change that the first level filters away stops there.
    database.execute("INSERT INTO purchase VALUES (5000, 1, 1.00, 0, 1.0, '2024-01-01')")
    check(flow, readers)
    assert pointers(flow.catalog, list(TABLES))[0] == before


def test_summaries_and_lineage(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers)
    change(database, rng, 10)
    check(flow, readers)
    for name in TABLES:
        table = readers[1].load(name)
        snapshots = {s.snapshot_id: s for s in table.metadata.snapshots}
        summary = snapshots[table.metadata.current_snapshot_id].summary.additional_properties
        for key in ("flow.operation-id", "flow.data-lsn", "flow.frontier", "flow.run-id", "flow.refresh-mode", "flow.query-hash", "flow.refresh-reason"):
            assert summary.get(key), f"{name}: {key} is missing in {summary}"
        assert all(isinstance(v, str) for v in json.loads(summary["flow.frontier"]).values())
        arrow = table.scan().to_arrow()
        runs = {s.summary.additional_properties.get("flow.run-id") for s in snapshots.values()}
        assert set(arrow.column("_flow_job_run_id").to_pylist()) <= runs
        assert set(arrow.column("_flow_refresh_mode").to_pylist()) <= {"FULL", "INCREMENTAL"}
        assert None not in arrow.column("_flow_processed_at").to_pylist()
        status = flow.dynamic_table(name)
        assert status["last_refresh"]["mode"] in ("FULL", "NO_DATA", "INCREMENTAL") and status["last_refresh"]["run_id"]


@pytest.mark.parametrize("name", ["refresh_computed", "files_written", "operation_sealed", "before_commit", "after_commit", "proof_recorded", "apply_block", "operation_completed"])
def test_killed_between_any_two_steps(database, make_flow, read, rng, name):
    """Each change counts once, wherever the process ended."""
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    check(flow, read(flow))
    flow.stop()
    for nth in (1, rng.randint(2, 9)):
        flow.start(init=False, env={"FLOW_FAILPOINT": f"{name}:{nth}"})
        # A full refresh starts at most once a second, so the step is reached after some seconds of changes.
        end = time.monotonic() + 60 * PATIENCE
        while flow.alive() and time.monotonic() < end:
            change(database, rng, 1)
            time.sleep(0.05)
        assert not flow.alive(), f"{name}:{nth} was not reached\n{flow.log_tail()}"
        flow.wait_exit()
        hit = flow.state_dir / "failpoint.hit"
        assert hit.exists(), f"{name}:{nth} was not reached\n{flow.log_tail()}"
        hit.unlink()
    flow.start(init=False).wait_ready()
    check(flow, read(flow))


def test_killed_at_random_moments(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    for _ in range(4):
        change(database, rng, 5)
        time.sleep(rng.uniform(0, 0.8))  # a random moment, not a wait for something
        flow.kill()
        flow.start(init=False)
    flow.wait_ready()
    check(flow, read(flow))


def test_levels_of_one_cut_are_consistent(database, make_flow, read, rng):
    """Both sides of a transfer are read at one cut: the total of a level never shows half of it."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v bigint)", "CREATE TABLE b (id int PRIMARY KEY, v bigint)",
        "INSERT INTO a SELECT g, 100 FROM generate_series(1, 20) g", "INSERT INTO b SELECT g, 100 FROM generate_series(1, 20) g",
    )
    database.publish("a", "b")
    flow = make_flow(database, [{"source": "public.a", "target": "bronze.a"}, {"source": "public.b", "target": "bronze.b"}])
    both = "SELECT v FROM bronze.a UNION ALL SELECT v FROM bronze.b"
    flow.transformation("total", f"CREATE DYNAMIC TABLE gold.total AS SELECT sum(v) AS total FROM ({both}) u;")
    flow.start().wait_ready()
    duck = read(flow)[0]
    seen = 0
    for n in range(60):
        k = rng.randint(1, 20)
        database.transaction(f"UPDATE a SET v = v - {n} WHERE id = {k}", f"UPDATE b SET v = v + {n} WHERE id = {k}")
        if "gold.total" in pointers(flow.catalog)[0]:
            rows = duck.query(f"SELECT total FROM {duck.scan('gold.total')}")
            assert rows in ([], [(4000,)]), rows
            seen += rows == [(4000,)]
    flow.wait_dynamic()
    assert duck.query(f"SELECT total FROM {duck.scan('gold.total')}") == [(4000,)]
    assert seen > 0


EDGES = {
    "null_group": "SELECT g, count(*) AS n, sum(v) AS s FROM bronze.t GROUP BY g",
    "distinct_count": "SELECT g, count(DISTINCT v) AS n FROM bronze.t GROUP BY g",
    "full_join": "SELECT a.id AS x, b.id AS y FROM bronze.t a FULL JOIN bronze.u b ON a.g = b.g",
    "null_safe_join": "SELECT a.id AS x, b.id AS y FROM bronze.t a JOIN bronze.u b ON a.g IS NOT DISTINCT FROM b.g",
    "exists_join": "SELECT id FROM bronze.t t WHERE EXISTS (SELECT 1 FROM bronze.u u WHERE u.g = t.g)",
    "anti_join": "SELECT id FROM bronze.t t WHERE NOT EXISTS (SELECT 1 FROM bronze.u u WHERE u.g = t.g)",
    "times_hundred": "SELECT g, sum(v) * 100 AS s FROM bronze.t GROUP BY g",
    "sum_of_case": "SELECT g, sum(CASE WHEN v > 2 THEN v END) AS s FROM bronze.t GROUP BY g",
    "least_and_most": "SELECT g, min(v) AS a, max(v) AS b FROM bronze.t GROUP BY g",
    "duplicates": "SELECT g FROM bronze.t",
    "hidden_filter": "SELECT id FROM bronze.t WHERE v > 2",
    "set_union": "SELECT g FROM bronze.t UNION SELECT g FROM bronze.u",
    "no_groups": "SELECT count(*) AS n, sum(v) AS s FROM bronze.t",
    "join_of_aggregates": "SELECT a.n AS x, b.n AS y FROM (SELECT count(*) AS n FROM bronze.t) a FULL JOIN (SELECT count(*) AS n FROM bronze.u) b ON a.n = b.n",
    "floats": "SELECT g, sum(f) AS s, avg(f) AS a FROM bronze.t GROUP BY g",
    "floats_at_limits": "SELECT g, sum(f) AS s FROM bronze.u GROUP BY g",
    "average_at_limits": "SELECT id, avg(f) AS a FROM bronze.u GROUP BY id",
}


def test_edges_equal_recompute(database, make_flow, read):
    """NULL groups, empty groups, boundary values, duplicates, joins that lose and regain partners."""
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, g text, v int, f double precision)")
    database.execute(
        "INSERT INTO t VALUES (1, NULL, 1, 0.1), (2, NULL, NULL, 0.2), (3, 'a', 3, 1e16), (4, 'a', 3, 1.0), (5, 'b', 5, -1e16)",
        "INSERT INTO u VALUES (1, 'a', 1, 1), (2, 'a', 2, 2), (3, NULL, 3, 3), (4, 'c', 4, 4)",
        "CREATE SCHEMA bronze", "CREATE VIEW bronze.t AS SELECT * FROM public.t", "CREATE VIEW bronze.u AS SELECT * FROM public.u",
    )
    database.publish("t", "u")
    flow = make_flow(database, [{"source": f"public.{n}", "target": f"bronze.{n}"} for n in ("t", "u")])
    for name, sql in EDGES.items():
        flow.transformation(name, f"CREATE DYNAMIC TABLE edge.{name} AS {sql};")
    flow.start().wait_ready()
    readers = read(flow)
    steps = [
        [],
        ["DELETE FROM t WHERE id = 4", "INSERT INTO u VALUES (5, 'b', 5, 5)"],
        ["DELETE FROM t WHERE id = 1", "UPDATE t SET g = NULL WHERE id = 3", "DELETE FROM u WHERE g = 'a'"],
        ["INSERT INTO t VALUES (6, NULL, 7, 0.3), (7, 'a', 1, -0.0)", "UPDATE u SET g = 'a' WHERE id = 3"],
        ["UPDATE t SET v = 0", "DELETE FROM u"],
        ["DELETE FROM t"],
        # PostgreSQL squares for AVG too, and refuses larger ones.
        ["INSERT INTO t VALUES (1, 'z', 9, 1e150), (2, 'z', 9, 1e-150)"],
        ["INSERT INTO u VALUES (6, 'y', 1, 1e308), (7, 'y', 1, -1e308), (8, 'y', 1, 1e-308), (9, 'x', 1, -1e308), (10, 'x', 1, 5e-324)"],
    ]
    for step in steps:
        if step:
            database.transaction(*step)
        flow.wait_dynamic()
        wrong = []
        for name, sql in EDGES.items():
            try:
                oracle.check_query(flow, f"edge.{name}", sql, readers)
            except AssertionError as error:
                wrong.append(str(error))
        assert not wrong, f"after {step}:\n" + "\n".join(wrong)


def test_integer_overflow_blocks_its_table(database, make_flow, read):
    flow = prepare(database, make_flow)
    flow.transformation("overflow", "CREATE DYNAMIC TABLE gold.overflow AS SELECT sum(CAST(quantity AS BIGINT) * 4611686018427387904) AS s FROM bronze.purchase;")
    flow.allow("overflow")
    flow.start().wait_ready()
    wait_for("gold.overflow blocked", lambda: (flow.dynamic_table("gold.overflow") or {}).get("state") == "blocked", 60)
    lsn = flow.wait_dynamic(names=set(TABLES))
    assert lsn
    for name in TABLES:
        oracle.check_query(flow, name, f"SELECT * FROM {name}", read(flow))


BAD_SQL = {
    "syntax": ("CREATE DYNAMIC TABLE gold.bad AS\nSELECT id,\n  FROM WHERE bronze.purchase;", r"bad\.sql", r"[:\s](2|3)\b"),
    "unknown_table": ("CREATE DYNAMIC TABLE gold.bad AS\nSELECT 1 AS x FROM bronze.nowhere;", r"bad\.sql", "nowhere"),
    "unknown_column": ("CREATE DYNAMIC TABLE gold.bad AS\nSELECT nothing FROM bronze.purchase;", r"bad\.sql", "nothing"),
    "cycle": ("CREATE DYNAMIC TABLE gold.bad AS SELECT x FROM gold.worse;\nCREATE DYNAMIC TABLE gold.worse AS SELECT x FROM gold.bad;", "reads itself"),
    "duplicate": ("CREATE DYNAMIC TABLE gold.best AS SELECT 1 AS x FROM bronze.purchase;", "gold.best"),
    "random": ("CREATE DYNAMIC TABLE gold.bad AS SELECT random() AS x FROM bronze.purchase;", "random"),
    "now": ("CREATE DYNAMIC TABLE gold.bad AS SELECT now() AS x FROM bronze.purchase;", "now", "may stand in WHERE"),
    "clause": ("CREATE DYNAMIC TABLE gold.bad PARTITION BY (id) AS SELECT id FROM bronze.purchase;", "PARTITION"),
    "reserved": ("CREATE DYNAMIC TABLE gold.bad AS SELECT id AS _flow_x FROM bronze.purchase;", "_flow_"),
}


@pytest.mark.parametrize("case", BAD_SQL)
def test_bad_definition_is_named_and_the_rest_runs(database, make_flow, read, case):
    sql, *patterns = BAD_SQL[case]
    flow = prepare(database, make_flow)
    flow.transformation("bad", sql)
    result = flow.run("plan")
    assert result.code == 78, repr(result)
    result.expect(78, *patterns)
    flow.allow("bad", "gold", "plan", "dynamic")
    flow.start().wait_ready()
    good = [n for n in TABLES if not (case == "duplicate" and n == "gold.best")]
    flow.wait_dynamic(names=set(good))
    for name in good:
        oracle.check_query(flow, name, f"SELECT * FROM {name}", read(flow))


def test_commands(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    check(flow, read(flow))
    plan = flow.run("plan").expect(0, "silver.priced", "gold.best", "INCREMENTAL")
    assert plan.out.index("silver.priced") < plan.out.index("gold.best")
    document = flow.run("plan", "--json").expect(0).json()
    assert {t["name"] for t in (document["tables"] if isinstance(document, dict) else document)} == set(TABLES)
    flow.run("dag").expect(0, "silver.by_city")
    flow.run("suspend", "silver.by_city").expect(0)
    wait_for("suspended", lambda: flow.dynamic_table("silver.by_city")["state"] == "suspended")
    before = pointers(flow.catalog, ["silver.by_city"])[0]
    change(database, rng, 5)
    flow.wait_dynamic(names={"silver.priced"})
    assert pointers(flow.catalog, ["silver.by_city"])[0] == before
    flow.run("resume", "silver.by_city").expect(0)
    check(flow, read(flow))
    flow.run("refresh", "gold.best", "--full").expect(0)
    flow.run("refresh", "gold.nothing").expect(78, "gold.nothing")
    check(flow, read(flow))
    rows = flow.run("query", "--format", "json", "SELECT count(*) AS n FROM bronze.purchase").expect(0).json()
    assert rows == [{"n": database.value("SELECT count(*) FROM purchase")}]
    assert flow.run("query", "DROP TABLE bronze.purchase").code != 0
    flow.stop()
    change(database, rng, 3)
    flow.run("apply", timeout=120).expect(0)


def test_lag_and_downstream(database, make_flow, read):
    flow = prepare(database, make_flow, tables={"silver.priced": TABLES["silver.priced"]})
    flow.transformation("slow", "CREATE DYNAMIC TABLE gold.slow LAG = '1 hour' AS SELECT count(*) AS n FROM silver.priced;")
    flow.transformation("down", "CREATE DYNAMIC TABLE silver.down LAG = DOWNSTREAM AS SELECT count(*) AS n FROM bronze.customer;")
    flow.run("plan").expect(0, "silver.down", "DOWNSTREAM")
    flow.start().wait_ready()
    flow.wait_dynamic(names={"silver.priced"})
    wait_for("gold.slow", lambda: "gold.slow" in pointers(flow.catalog)[0], 60)
    duck = read(flow)[0]
    wait_for("gold.slow filled", lambda: duck.query(f"SELECT n FROM {duck.scan('gold.slow')}"), 30)
    before = pointers(flow.catalog, ["gold.slow"])[0]
    database.execute("DELETE FROM purchase WHERE id < 400")
    flow.wait_dynamic(names={"silver.priced"})
    assert pointers(flow.catalog, ["gold.slow"])[0] == before, "an hour has not passed"
    flow.run("refresh", "silver.down").expect(0)
    assert duck.query(f"SELECT n FROM {duck.scan('silver.down')}") == [(60,)]


def test_time_passes(database, make_flow, read):
    """Rows come and go by the time of the refresh alone, and what is there is the query at the recorded time."""
    database.execute(
        "CREATE TABLE event (id int PRIMARY KEY, moment timestamptz, day date)",
        "INSERT INTO event SELECT g, now() + g * INTERVAL '700 ms', current_date + g % 3 FROM generate_series(-30, 60) g",
    )
    database.publish("event")
    flow = make_flow(database, [{"source": "public.event", "target": "bronze.event"}])
    recent = """SELECT id, moment, day FROM bronze.event
        WHERE moment > now() - INTERVAL '4 seconds' AND moment <= current_timestamp AND day <= current_date + 1"""
    flow.transformation("recent", f"CREATE DYNAMIC TABLE silver.recent LAG = '1500 ms' AS {recent};")
    flow.transformation("days", "CREATE DYNAMIC TABLE gold.days AS SELECT day, count(*) AS n FROM silver.recent GROUP BY day;")
    flow.run("plan").expect(0, "TIME_BOUND_FILTER", "recent.sql:2")
    flow.start().wait_ready()
    readers = read(flow)

    def ids():
        return {row[0] for row in readers[0].query(f"SELECT id FROM {readers[0].scan('silver.recent')}")}

    wait_for("a content", lambda: "silver.recent" in pointers(flow.catalog)[0] and ids(), 60)
    for restart in (False, True):
        if restart:
            flow.restart(init=False)
            flow.wait_ready()
        before = ids()
        wait_for("rows that came and rows that went", lambda: ids() - before and before - ids(), 20)
        flow.run("suspend", "silver.recent").expect(0)
        run = next(run for run in flow.run("history", "silver.recent", "--json").expect(0).json() if run["mode"] == "FULL")
        at = f"timestamptz '{run['time']}'"
        query = recent.replace("now()", at).replace("current_timestamp", at).replace("current_date", f"({at} AT TIME ZONE 'UTC')::date")
        query = query.replace("bronze.event", "event")
        oracle.check_query(flow, "silver.recent", query, readers)
        flow.run("verify", "silver.recent").expect(0)
        flow.wait_dynamic(names={"gold.days"})
        oracle.check_query(flow, "gold.days", f"SELECT day, count(*) AS n FROM ({query}) q GROUP BY day", readers)
        flow.run("resume", "silver.recent").expect(0)
    reasons = {run["reason"] for run in flow.run("history", "silver.recent", "--json").expect(0).json()}
    assert "time passed" in reasons, reasons
    modes = {run["mode"] for run in flow.run("history", "gold.days", "--json").expect(0).json()[:-1]}
    assert "INCREMENTAL" in modes and "FULL" not in modes, modes


def test_changed_query(database, make_flow, read):
    """The same output schema is recomputed as a difference; another one blocks and shows both."""
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    check(flow, read(flow))
    flow.stop()
    query = TABLES["gold.best"].replace("> 1", "> 40")
    flow.transformation("best", f"CREATE DYNAMIC TABLE gold.best AS {query};")
    flow.start(init=False).wait_ready()
    flow.wait_dynamic()
    oracle.check_query(flow, "gold.best", query, read(flow))
    flow.stop()
    flow.allow("schema", "gold.best")
    flow.transformation("best", "CREATE DYNAMIC TABLE gold.best AS SELECT city AS town FROM silver.by_city;")
    flow.start(init=False).wait_ready()
    wait_for("gold.best blocked", lambda: (flow.dynamic_table("gold.best") or {}).get("state") == "blocked", 60)
    text = str(flow.dynamic_table("gold.best")) + flow.run("plan").out
    assert "town" in text and "purchases" in text
    oracle.check_query(flow, "gold.best", query, read(flow))


def test_dynamic_tables_under_random_load(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    sql = {
        "silver.item_label": "SELECT label, count(*) AS n, sum(n) AS total FROM bronze.item GROUP BY label",
        "gold.labels": "SELECT count(*) AS labels, sum(n) AS items FROM silver.item_label",
    }
    for name, query in sql.items():
        flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} AS {query};")
    flow.start().wait_ready()
    with workload.Writers(database, random.Random(rng.random())) as writers:
        writers.wait_commits(150)
    flow.wait_dynamic()
    readers = read(flow)
    first = "SELECT label, count(*) AS n, sum(n) AS total FROM item GROUP BY label"
    oracle.check_query(flow, "silver.item_label", first, readers)
    oracle.check_query(flow, "gold.labels", f"SELECT count(*) AS labels, sum(n)::bigint AS items FROM ({first}) x", readers)


def test_verify_and_history(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    check(flow, read(flow))
    readers = read(flow)
    change(database, rng, 10)
    check(flow, readers)
    # A change that the first level filters away leaves a refresh without a row.
    database.execute("INSERT INTO purchase VALUES (5000, 1, 1.00, 0, 1.0, '2024-01-01')")
    check(flow, readers)
    for name in TABLES:
        flow.run("verify", name).expect(0, "equals its query")
    runs = flow.run("history", "silver.priced", "--json").expect(0).json()
    assert runs[-1]["mode"] == "FULL" and "FIRST_REFRESH" in runs[-1]["reason"], runs
    idle, worked = ([run for run in runs[:-1] if (run["mode"] == "NO_DATA") is said] for said in (True, False))
    assert {run["mode"] for run in worked} == {"INCREMENTAL"}, runs
    assert worked[0]["rows_changed"] >= 1 and worked[0]["rows_inserted"] == 0, worked[0]
    # What did not change for it is told by snapshot ids, and many such runs are one entry.
    for _ in range(3):
        database.execute("UPDATE customer SET name = name")
        flow.wait_dynamic()
    runs = flow.run("history", "gold.best", "--json").expect(0).json()
    assert runs[0]["mode"] == "NO_DATA" and runs[0]["runs"] > 1 and runs[1]["mode"] != "NO_DATA", runs
    counts = ("rows_read", "rows_inserted", "rows_deleted", "rows_changed", "predicted_ms")
    assert not any(run[count] for run in [*idle, runs[0]] for count in counts), runs
    assert runs[0]["frontier"] == flow.dynamic_table("gold.best")["frontier"]
    flow.run("refresh", "gold.best").expect(0, "NO_DATA")
    flow.run("verify", "gold.nothing").expect(78, "gold.nothing")
    flow.stop()
    assert flow.run("history", "silver.priced", "--json").expect(0).json()[-1]["mode"] == "FULL"
    # The newest snapshot's content is exchanged for an older one's, behind everybody's back.
    path = pathlib.Path(pointers(flow.catalog, ["silver.priced"])[0]["silver.priced"].removeprefix("file://"))
    metadata = json.loads(path.read_text())
    lists = {s["snapshot-id"]: s["manifest-list"] for s in metadata["snapshots"]}
    newest = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    newest["manifest-list"] = lists[newest["parent-snapshot-id"]]
    path.write_text(json.dumps(metadata))
    found = flow.run("verify", "silver.priced", "--json").expect(4).json()
    assert not found["equal"] and found["missing"] + found["unexpected"] > 0, found
    assert found["missing_rows"] + found["unexpected_rows"], found
    flow.run("verify", "silver.priced").expect(4, "differs from its query")
