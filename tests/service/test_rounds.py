"""What a dynamic table reads is one moment of its source, also through other dynamic tables, and it never goes back."""
import time

import pytest

from flowtest.lake import pointers
from flowtest.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.any_major

TOTAL = 4000
#: name → clauses and query. Both sides of a transfer meet again below.
LEVELS = {
    "silver.left": "{lag} AS SELECT sum(v) AS s FROM bronze.a",
    "silver.right": "AS SELECT sum(v) AS s FROM bronze.b",
    "gold.both": "AS SELECT l.s AS l, r.s AS r FROM silver.left l CROSS JOIN silver.right r",
    "gold.mixed": "AS SELECT l.s AS l, r.s AS r FROM silver.left l CROSS JOIN (SELECT sum(v) AS s FROM bronze.b) r",
}


def prepare(database, make_flow, lag="", **kw):
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v bigint)", "CREATE TABLE b (id int PRIMARY KEY, v bigint)",
        "INSERT INTO a SELECT g, 100 FROM generate_series(1, 20) g", "INSERT INTO b SELECT g, 100 FROM generate_series(1, 20) g",
    )
    database.publish("a", "b")
    flow = make_flow(database, [{"source": "public.a", "target": "bronze.a"}, {"source": "public.b", "target": "bronze.b"}], **kw)
    for name, sql in LEVELS.items():
        flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} {sql.format(lag=lag)};\n")
    return flow


def transfer(database, rng):
    n, k = rng.randint(1, 9), rng.randint(1, 20)
    database.transaction(f"UPDATE a SET v = v - {n} WHERE id = {k}", f"UPDATE b SET v = v + {n} WHERE id = {k}")


def check_snapshots(flow, reader, name):
    """Every retained snapshot is of one moment, and none is older than the one before. Gives their number."""
    table = reader.load(name)
    at, seen = "", 0
    for snapshot in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number):
        rows = table.scan(snapshot_id=snapshot.snapshot_id, selected_fields=("l", "r")).to_arrow().to_pylist()
        assert [row["l"] + row["r"] for row in rows] == [TOTAL], f"{name}: {rows} in {snapshot.summary}"
        lsn = snapshot.summary.additional_properties["flow.data-lsn"]
        high, low = lsn.split("/")
        lsn = f"{high:0>8}{low:0>8}"
        assert lsn >= at, f"{name} went back to {lsn} from {at}"
        at, seen = lsn, seen + 1
    return seen


@pytest.mark.parametrize("lag", ["", "LAG = '2 seconds'"])
def test_two_parents_are_read_at_one_moment(database, make_flow, read, rng, lag):
    flow = prepare(database, make_flow, lag)
    flow.start().wait_ready()
    reader = read(flow)[1]
    names = ("gold.both", "gold.mixed")
    wait_for("the first refreshes", lambda: all(name in pointers(flow.catalog)[0] for name in names), 60)
    end = time.monotonic() + 60 * PATIENCE
    least = {name: 0 for name in names}
    while min(least.values()) < 4 and time.monotonic() < end:
        for _ in range(20):
            transfer(database, rng)
            time.sleep(0.02)
        if rng.random() < 0.1:
            flow.restart(init=False)
        least = {name: check_snapshots(flow, reader, name) for name in names}
    assert min(least.values()) >= 4, least
    flow.wait_dynamic()
    for name in names:
        check_snapshots(flow, reader, name)
    duck = read(flow)[0]
    left, right = database.rows("SELECT (SELECT sum(v) FROM a)::bigint, (SELECT sum(v) FROM b)::bigint")[0]
    for name in names:
        assert duck.query(f"SELECT l, r FROM {duck.scan(name)}") == [(left, right)]


def test_a_parent_that_never_rests_does_not_starve_what_reads_it(database, make_flow, read, rng):
    """Under a steady load a parent is refreshed without a pause; its reader takes the cuts it leaves."""
    flow = prepare(database, make_flow, publish={"interval": "50ms"})
    for table in "a", "b":
        database.execute(f"INSERT INTO {table} SELECT g, 1000 FROM generate_series(100, 2500) g")
    flow.transformation("busy", """CREATE DYNAMIC TABLE silver.busy AS
        SELECT x.id, count(*) AS n FROM bronze.a x JOIN bronze.b y ON x.v = y.v GROUP BY x.id;""")
    flow.transformation("calm", "CREATE DYNAMIC TABLE gold.calm AS SELECT sum(n) AS n FROM silver.busy;")
    flow.start().wait_ready()
    flow.wait_dynamic()
    reader = read(flow)[1]
    count = lambda name: len(reader.load(name).metadata.snapshots)
    parent, child = count("silver.busy"), count("gold.calm")
    end = time.monotonic() + 60 * PATIENCE
    while count("silver.busy") - parent < 10 and time.monotonic() < end:
        for _ in range(20):
            for table in "a", "b":
                database.execute(f"UPDATE {table} SET v = 1001 - v % 2 WHERE id = {rng.randint(100, 2500)}")
    parent, child = count("silver.busy") - parent, count("gold.calm") - child
    assert parent >= 10, "the parent was refreshed again and again"
    assert child * 3 >= parent * 2, f"{child} refreshes behind {parent} of the parent"
    flow.wait_dynamic()
    assert read(flow)[0].query(f"SELECT n FROM {read(flow)[0].scan('gold.calm')}") == database.rows(
        "SELECT sum(n)::bigint FROM (SELECT count(*) AS n FROM a JOIN b ON a.v = b.v GROUP BY a.id) q")


def test_a_parent_without_content_is_not_read_as_empty(database, make_flow, read):
    """A first refresh that is blocked leaves an empty table; what reads it waits."""
    flow = prepare(database, make_flow)
    flow.transformation("left", "CREATE DYNAMIC TABLE silver.left AS SELECT sum(v * 9223372036854775807) AS s FROM bronze.a;")
    flow.transformation("count", "CREATE DYNAMIC TABLE gold.count AS SELECT count(*) AS n FROM silver.left;")
    flow.allow("overflow")
    flow.start().wait_ready()
    wait_for("silver.left blocked", lambda: flow.dynamic_table("silver.left")["state"] == "blocked", 60)
    flow.wait_dynamic(names={"silver.right"})
    table = flow.dynamic_table("gold.count")
    assert (table["state"], table["held_by"]) == ("waiting", "silver.left"), table
    assert "gold.count" not in pointers(flow.catalog)[0]
    result = flow.run("refresh", "gold.count")
    result.expect(78, r"silver\.left has no content")


def test_a_parent_without_definition_holds_what_reads_it(database, make_flow, read, rng):
    flow = prepare(database, make_flow)
    flow.start().wait_ready()
    flow.wait_dynamic()
    flow.stop()
    flow.transformation("left", "CREATE DYNAMIC TABLE silver.left AS SELEC;")
    flow.allow("left", "plan")
    flow.start(init=False).wait_ready()
    reader = read(flow)[1]
    for _ in range(10):
        transfer(database, rng)
    flow.wait_dynamic(names={"silver.right"})
    check_snapshots(flow, reader, "gold.mixed")
    wait_for("gold.mixed held", lambda: flow.dynamic_table("gold.mixed")["held_by"] == "silver.left", 30)
    flow.stop()
    flow.transformation("left", "CREATE DYNAMIC TABLE silver.left AS SELECT sum(v) AS s FROM bronze.a;")
    flow.start(init=False).wait_ready()
    flow.wait_dynamic()
    assert check_snapshots(flow, reader, "gold.mixed") > 1


def test_suspended_while_refreshing(database, make_flow, read):
    """A suspension outlives the refresh that it met."""
    flow = prepare(database, make_flow)
    database.execute("INSERT INTO a SELECT g, 0 FROM generate_series(21, 9000) g")
    flow.transformation("slow", "CREATE DYNAMIC TABLE gold.slow REFRESH_MODE = FULL AS SELECT count(*) AS n FROM bronze.a x CROSS JOIN bronze.a y WHERE x.id + y.id <> 3;")
    flow.start().wait_ready()
    running = lambda: (flow.dynamic_table("gold.slow") or {}).get("state") in ("initialising", "refreshing")
    wait_for("gold.slow refreshing", running, 60)
    flow.run("suspend", "gold.slow").expect(0)
    flow.wait_dynamic(names={"gold.both"})
    assert flow.dynamic_table("gold.slow")["state"] == "suspended"
    before = flow.dynamic_table("gold.slow")["last_refresh"]
    flow.restart(init=False)
    flow.wait_ready()
    database.execute("INSERT INTO a VALUES (9001, 0)")
    flow.wait_dynamic(names={"gold.both"})
    table = flow.dynamic_table("gold.slow")
    assert (table["state"], table["last_refresh"]) == ("suspended", before)
    flow.run("resume", "gold.slow").expect(0)
    flow.wait_dynamic()


def test_resumed_after_its_query_could_not_be_refreshed(database, make_flow, read):
    """What a blocked query left in place is not taken for its result."""
    flow = prepare(database, make_flow)
    flow.transformation("right", "CREATE DYNAMIC TABLE silver.right AS SELECT sum(v) AS s FROM bronze.b;")
    flow.start().wait_ready()
    flow.wait_dynamic()
    flow.stop()
    # A division by zero that a change of the data cures.
    flow.transformation("right", "CREATE DYNAMIC TABLE silver.right AS SELECT sum(v) + 1 / (SELECT min(v) FROM bronze.a) AS s FROM bronze.b;")
    database.execute("UPDATE a SET v = 0 WHERE id = 1")
    flow.allow("zero")
    flow.start(init=False).wait_ready()
    wait_for("silver.right blocked", lambda: flow.dynamic_table("silver.right")["state"] == "blocked", 60)
    duck = read(flow)[0]
    assert duck.query(f"SELECT s FROM {duck.scan('silver.right')}") == [(2000,)]
    database.execute("UPDATE a SET v = 1 WHERE id = 1")
    flow.wait_caught_up()
    assert flow.dynamic_table("silver.right")["state"] == "blocked"
    flow.run("resume", "silver.right").expect(0)
    flow.wait_dynamic(names={"silver.right"})
    assert duck.query(f"SELECT s FROM {duck.scan('silver.right')}") == [(2001,)]


def test_few_snapshots_are_enough(database, make_flow, read, rng):
    """What a late table has still to read is not trimmed."""
    flow = prepare(database, make_flow, "LAG = '6 seconds'", publish={"keep_snapshots": 10})
    flow.start().wait_ready()
    reader = read(flow)[1]
    end = time.monotonic() + 60 * PATIENCE
    lean = lambda: len(reader.load("bronze.b").metadata.snapshots) if "bronze.b" in pointers(flow.catalog)[0] else 0
    rounds = 0
    while rounds < 3 and time.monotonic() < end:
        transfer(database, rng)
        time.sleep(0.1)
        if "gold.mixed" in pointers(flow.catalog)[0]:
            rounds = check_snapshots(flow, reader, "gold.mixed")
    assert rounds >= 3 and lean() <= 10 + 61 + 4
    flow.wait_dynamic()
    check_snapshots(flow, reader, "gold.mixed")
