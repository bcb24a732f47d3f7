"""Dynamic tables refreshed by what changed: that they are, and that they equal PostgreSQL running the same SQL."""
import shutil
import time

import pytest

from flowtest import oracle
from flowtest.lake import pointers
from flowtest.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.any_major

SCHEMA = [
    "CREATE TABLE item (id int PRIMARY KEY, k int, n int, x double precision, s text)",
    "CREATE TABLE side (id int PRIMARY KEY, k int, lim int)",
    "INSERT INTO item SELECT i, CASE WHEN i % 9 = 0 THEN NULL ELSE i % 12 END, i % 20, i / 7.0, 's' || i % 5 FROM generate_series(1, 300) i",
    "INSERT INTO side SELECT i, CASE WHEN i % 7 = 0 THEN NULL ELSE i % 14 END, i % 10 FROM generate_series(1, 40) i",
]
SOURCES = ("item", "side")
#: A diamond over a chain: two tables read the first, one reads both, and one more stands on top.
LEVELS = {
    "silver.joined": "SELECT i.id, i.k, i.n, i.x, s.lim FROM bronze.item i LEFT JOIN bronze.side s ON s.k = i.k",
    "silver.groups": "SELECT k, count(*) AS rows, sum(n) AS total, min(lim) AS least, sum(x) AS x FROM silver.joined GROUP BY k",
    "silver.first": "SELECT id, k, n FROM (SELECT id, k, n, row_number() OVER (PARTITION BY k ORDER BY n DESC, id, lim) AS r FROM silver.joined) q WHERE r = 1",
    "gold.both": "SELECT g.k, g.rows, g.total, g.least, g.x, f.id, f.n FROM silver.groups g FULL JOIN silver.first f ON f.k = g.k",
    "gold.top": "SELECT k, rows, n FROM gold.both ORDER BY rows DESC, k LIMIT 4",
}
STEPS = ["refresh_computed", "operation_begun", "files_written", "operation_sealed", "before_commit", "after_commit", "proof_recorded", "apply_block", "operation_completed"]


def prepare(database, make_flow, tables, schema=SCHEMA, sources=SOURCES, **kw):
    """Makes the tables, views of the same names for PostgreSQL, and an installation."""
    database.execute(*schema)
    database.publish(*sources)
    database.execute("CREATE SCHEMA bronze", "CREATE SCHEMA silver", "CREATE SCHEMA gold")
    database.execute(*[f"CREATE VIEW bronze.{n} AS SELECT * FROM public.{n}" for n in sources])
    database.execute(*[f"CREATE VIEW {name} AS {sql}" for name, sql in tables.items()])
    flow = make_flow(database, [{"source": f"public.{n}", "target": f"bronze.{n}"} for n in sources], **kw)
    for name, sql in tables.items():
        declare(flow, name, sql)
    return flow


def declare(flow, name, sql):
    flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} AS {sql};\n")


def change(database, rng, count):
    """Changes few rows, often of both tables in one transaction."""
    for _ in range(count):
        key, k = rng.randint(1, 320), rng.choice(["NULL", *map(str, range(14))])
        database.transaction(*rng.sample([
            f"INSERT INTO item VALUES ({key}, {k}, {rng.randint(0, 30)}, {rng.random()}, 'new') ON CONFLICT (id) DO UPDATE SET n = excluded.n, x = excluded.x",
            f"UPDATE item SET k = {k} WHERE id = {rng.randint(1, 320)}",
            f"DELETE FROM item WHERE id = {rng.randint(1, 320)}",
            f"UPDATE side SET k = {k}, lim = {rng.randint(0, 12)} WHERE id = {rng.randint(1, 45)}",
            f"DELETE FROM side WHERE id = {rng.randint(1, 45)}",
            f"INSERT INTO side VALUES ({rng.randint(1, 45)}, {k}, {rng.randint(0, 12)}) ON CONFLICT DO NOTHING",
        ], rng.randint(1, 4)))


def check(flow, readers, names=LEVELS):
    """Compares every table with PostgreSQL; says of all that differ."""
    flow.wait_dynamic(names=set(names))
    wrong = []
    for name in names:
        try:
            oracle.check_query(flow, name, f"SELECT * FROM {name}", readers)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def history(flow, name):
    """Lists a table's refreshes, newest first."""
    runs = flow.run("history", name, "--json").expect(0).json()
    return sorted(runs, key=lambda run: run.get("started_at") or run["committed_at"], reverse=True)


def test_history_is_newest_first(database, make_flow, rng):
    flow = prepare(database, make_flow, {"silver.joined": LEVELS["silver.joined"]})
    flow.start().wait_ready()
    for _ in range(2):
        flow.wait_dynamic()
        change(database, rng, 3)
        database.execute("UPDATE item SET n = n + 1 WHERE id % 10 = 1")
    flow.wait_dynamic()
    running = flow.run("history", "silver.joined", "--json").expect(0).json()
    flow.stop()
    stopped = flow.run("history", "silver.joined", "--json").expect(0).json()
    # A stopped service shows what wrote something.
    wrote = [run["run_id"] for run in running if run["rows_inserted"] or run["rows_deleted"]]
    assert len(wrote) > 1 and wrote == [run["run_id"] for run in stopped]
    worked = [run["mode"] for run in running if run["mode"] != "NO_DATA"]
    assert worked[-1] == "FULL" and worked[0] == "INCREMENTAL"


def modes_since(flow, name, run_id):
    """Lists (mode, reason) of the refreshes behind a known one, newest first."""
    runs = history(flow, name)
    at = next((n for n, run in enumerate(runs) if run["run_id"] == run_id), len(runs))
    return [(run["mode"], run["reason"]) for run in runs[:at]]


def newest(flow, names=LEVELS):
    """Maps each table to its newest refresh; a first one without rows left none."""
    return {name: runs[0]["run_id"] if (runs := history(flow, name)) else None for name in names}


def all_incremental(flow, since, names=LEVELS):
    """Asserts that tables were refreshed by what changed and never in full."""
    runs = {name: modes_since(flow, name, since[name]) for name in names}
    full = {name: modes for name, modes in runs.items() if "FULL" in [mode for mode, _ in modes]}
    assert not full, full


def test_chain_and_diamond_are_incremental(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    document = flow.run("init", timeout=120).expect(0) and flow.run("plan", "--json").expect(0).json()
    assert {t["name"]: t["mode"] for t in document["tables"]} == {name: "INCREMENTAL" for name in LEVELS}
    flow.start(init=False).wait_ready()
    readers = read(flow)
    check(flow, readers)
    for name in LEVELS:
        assert [run["mode"] for run in history(flow, name)][-1] == "FULL", "the first content is computed in full"
        assert flow.dynamic_table(name)["mode"] == "INCREMENTAL"
    since = newest(flow)
    for _ in range(4):
        change(database, rng, 3)
        check(flow, readers[:1])
        for name in LEVELS:
            refresh = flow.dynamic_table(name)["last_refresh"]
            assert refresh["run_id"] == since[name] or refresh["mode"] in ("INCREMENTAL", "NO_DATA"), (name, refresh)
    check(flow, readers)
    all_incremental(flow, since)
    written = {name: modes_since(flow, name, since[name]) for name in LEVELS}
    assert all(written[name] for name in ("silver.joined", "silver.groups")), written
    # A restart goes on from the state that is there.
    since = newest(flow)
    flow.restart(init=False)
    flow.wait_ready()
    change(database, rng, 3)
    check(flow, readers)
    all_incremental(flow, since)


def test_work_follows_the_change(database, make_flow, read):
    """One changed row writes few rows and leaves the lineage of all others alone."""
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers[:1])
    before = flow.dynamic_table("silver.joined")["last_refresh"]["run_id"]
    rows = len(readers[0].rows("silver.joined")[1])
    database.execute("UPDATE item SET n = 1000 WHERE id = 9")
    check(flow, readers)
    for name in ("silver.joined", "silver.groups", "gold.both"):
        refresh = flow.dynamic_table(name)["last_refresh"]
        assert (refresh["mode"], refresh["rows_inserted"] <= 8, refresh["rows_deleted"] <= 8) == ("INCREMENTAL", True, True), (name, refresh)
    kept = readers[0].query(f"SELECT count(*) FROM {readers[0].scan('silver.joined')} WHERE _flow_job_run_id = '{before}'")[0][0]
    assert kept >= rows - 8
    told = readers[0].query(f"SELECT DISTINCT _flow_refresh_mode FROM {readers[0].scan('silver.joined')} WHERE id = 9")
    assert told == [("INCREMENTAL",)]
    # What no query reads is no change, and an update that changes nothing neither.
    at = pointers(flow.catalog, list(LEVELS))[0]
    database.execute("UPDATE item SET s = 'other' WHERE id < 50", "UPDATE side SET lim = lim")
    check(flow, readers[:1])
    assert pointers(flow.catalog, list(LEVELS))[0] == at


#: name → query, by the kinds that broke other systems. All are incremental.
KINDS = {
    "null_row": "SELECT k, s FROM bronze.item WHERE n > 3",
    "null_group": "SELECT k, count(*) AS c, sum(n) AS t FROM bronze.item GROUP BY k",
    "full_join_sum": "SELECT sum(i.n) AS t, count(s.id) AS c FROM bronze.item i FULL JOIN bronze.side s ON i.k = s.k",
    "three_joins": "SELECT a.id, b.id AS b, c.id AS c FROM bronze.side a JOIN bronze.item b ON a.k = b.k JOIN bronze.side c ON c.k = b.k",
    "self_join": "SELECT a.id, b.id AS other FROM bronze.side a JOIN bronze.side b ON a.k = b.k AND a.id < b.id",
    "full_of_totals": "SELECT a.c AS x, b.c AS y FROM (SELECT count(*) AS c FROM bronze.item) a FULL JOIN (SELECT count(*) AS c FROM bronze.side) b ON a.c = b.c",
    "null_safe": "SELECT i.id, s.id AS other FROM bronze.item i JOIN bronze.side s ON i.k IS NOT DISTINCT FROM s.k",
    "left_pads": "SELECT i.id, s.id AS other, s.lim FROM bronze.item i LEFT JOIN bronze.side s ON i.k = s.k AND s.lim > i.n",
    "right_pads": "SELECT i.id, s.id AS other FROM bronze.item i RIGHT JOIN bronze.side s ON i.k = s.k",
    "both_pads": "SELECT i.id, s.id AS other FROM bronze.item i FULL JOIN bronze.side s ON i.k = s.k AND i.n > 5",
    "second_match": "SELECT id FROM bronze.item i WHERE EXISTS (SELECT 1 FROM bronze.side s WHERE s.k = i.k)",
    "last_match_goes": "SELECT id FROM bronze.item i WHERE NOT EXISTS (SELECT 1 FROM bronze.side s WHERE s.k = i.k AND s.lim > 2)",
    "not_in_nulls": "SELECT id FROM bronze.item WHERE k NOT IN (SELECT k FROM bronze.side)",
    "not_in_filtered": "SELECT id FROM bronze.item WHERE k NOT IN (SELECT k FROM bronze.side WHERE lim > 4)",
    "bound_by_value": "SELECT id FROM bronze.item WHERE n > (SELECT max(lim) FROM bronze.side)",
    "counted": "SELECT id, (SELECT count(*) FROM bronze.side s WHERE s.k = i.k) AS c FROM bronze.item i",
    "distinct_count": "SELECT k, count(DISTINCT s) AS a, count(DISTINCT n) AS b FROM bronze.item GROUP BY k",
    "boundaries": "SELECT k, min(n) AS a, max(n) AS b, min(s) AS c, max(x) AS d FROM bronze.item GROUP BY k",
    "one_row_always": "SELECT count(*) AS c, sum(n) AS t, max(s) AS m FROM bronze.item",
    "times": "SELECT k, sum(n) * 100 AS t FROM bronze.item GROUP BY k",
    "floats": "SELECT k, sum(x) AS t, avg(x) AS m FROM bronze.item GROUP BY k",
    "sum_of_case": "SELECT k, sum(CASE WHEN n > 5 THEN n END) AS t FROM bronze.item GROUP BY k",
    "distinct_over_join": "SELECT DISTINCT s.lim, i.s FROM bronze.item i FULL JOIN bronze.side s ON i.k = s.k",
    "second_of_group": "SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS r FROM bronze.item) q WHERE r = 2",
    "windows": "SELECT id, rank() OVER (PARTITION BY k ORDER BY n) AS r, sum(n) OVER (PARTITION BY k ORDER BY id) AS t, lag(n) OVER (PARTITION BY k ORDER BY id) AS before FROM bronze.item",
    "top_with_ties": "SELECT n, s FROM bronze.item ORDER BY n DESC LIMIT 7",
    "top_below": "SELECT count(*) AS c, sum(n) AS t FROM (SELECT n FROM bronze.item ORDER BY n, id LIMIT 9 OFFSET 2) q",
    "duplicates": "SELECT n % 3 AS m FROM bronze.item",
    "hidden_filter": "SELECT id FROM bronze.item WHERE n > 9",
    "set_union": "SELECT k FROM bronze.item UNION SELECT k FROM bronze.side",
    "set_intersect": "SELECT k FROM bronze.item INTERSECT SELECT k FROM bronze.side",
    "set_except": "SELECT k FROM bronze.side EXCEPT SELECT k FROM bronze.item",
    "all_of_both": "SELECT k, n FROM bronze.item UNION ALL SELECT k, lim FROM bronze.side",
    "sets_of_groups": "SELECT k, s, count(*) AS c, sum(n) AS t FROM bronze.item GROUP BY GROUPING SETS ((k, s), (k))",
    "texts": "SELECT k, string_agg(s, ',' ORDER BY s, id) AS t FROM bronze.item GROUP BY k",
    "total_of_nothing": "SELECT k, count(*) AS c FROM bronze.item GROUP BY GROUPING SETS ((k), ())",
    "shared_condition": "SELECT k, bool_or(id > 0) FILTER (WHERE n < 2) AS a, bit_or(id) FILTER (WHERE n < 2) AS b, string_agg(s, ',' ORDER BY s) FILTER (WHERE n < 2) AS c FROM bronze.item GROUP BY k",
    "factor_in_subquery": "SELECT id, (SELECT 0.5 * sum(CAST(lim AS numeric(10, 2))) FROM bronze.side s WHERE s.k = i.k) AS c FROM bronze.item i",
    "earlier_rows": "SELECT id, (SELECT count(*) FROM bronze.item j WHERE j.k = i.k AND j.n < i.n) AS c FROM bronze.item i",
    "pair_not_in": "SELECT id FROM bronze.item WHERE (k, n) NOT IN (SELECT k, lim FROM bronze.side)",
    "condition_is_null": "SELECT k, count(*) FILTER (WHERE n > 2) AS c FROM bronze.item GROUP BY k",
    "having": "SELECT k, count(*) AS c FROM bronze.item GROUP BY k HAVING count(*) BETWEEN 2 AND 24",
}
REFILL = "INSERT INTO item SELECT i, i % 5, i % 6, i / 3.0, 's' || i % 3 FROM generate_series(1, 60) i"
#: What happens, each in one transaction.
EVENTS = {
    "a row with NULL goes, both sides grow": [
        "DELETE FROM item WHERE id IN (9, 18)", "UPDATE item SET s = NULL WHERE id = 27",
        "INSERT INTO item VALUES (401, 13, 50, 0.1, 'a'), (402, 20, 50, 0.2, 'a')", "INSERT INTO side VALUES (51, 13, 9), (52, 20, 9), (53, 3, 9)"],
    "a key moves, its partner goes": ["UPDATE item SET k = 13 WHERE k = 2", "DELETE FROM side WHERE k IN (2, 13)", "UPDATE side SET k = 2 WHERE id = 3"],
    "boundaries go, and every NULL that excluded all": ["DELETE FROM item WHERE n >= 19 OR n = 0", "DELETE FROM side WHERE lim = 9 OR k IS NULL"],
    "one NULL is back, the same rows under other keys": [
        "INSERT INTO side VALUES (61, NULL, 8)", "UPDATE item SET x = x * 3, n = n + 1", "UPDATE item SET id = id + 1000 WHERE id % 3 = 0"],
    "one side is emptied": ["DELETE FROM side"],
    "all goes": ["DELETE FROM item"],
    "all comes again": [REFILL, "INSERT INTO side SELECT i, i % 4, i % 6 FROM generate_series(1, 12) i"],
    "emptied and filled in one": ["DELETE FROM item", REFILL, "UPDATE item SET n = 3 WHERE id < 9"],
}


@pytest.mark.timeout(600)
def test_kinds_that_broke_other_systems(database, make_flow, read):
    tables = {f"gold.{name}": sql for name, sql in KINDS.items()}
    flow = prepare(database, make_flow, tables)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers[:1], tables)
    since = newest(flow, tables)
    wrong = []
    for event, statements in EVENTS.items():
        database.transaction(*statements)
        try:
            check(flow, readers if event == "emptied and filled in one" else readers[:1], tables)
        except AssertionError as error:
            wrong.append(f"after {event}: {error}")
    assert not wrong, "\n".join(wrong)
    all_incremental(flow, since, tables)


@pytest.mark.parametrize("step", STEPS)
def test_killed_between_any_two_steps(database, make_flow, read, rng, step):
    """Each change counts once on all levels, wherever the process ended, and the state that is left is used."""
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    since = newest(flow)
    flow.stop()
    flow.start(init=False, env={"FLOW_FAILPOINT": f"{step}:{rng.randint(2, 9)}"})
    until_killed(flow, database, rng, step)
    flow.start(init=False).wait_ready()
    change(database, rng, 2)
    check(flow, read(flow))
    all_incremental(flow, since)


def until_killed(flow, database, rng, step):
    """Changes rows until the step ends the process, and proves that it did."""
    end = time.monotonic() + 60 * PATIENCE
    while flow.alive() and time.monotonic() < end:
        change(database, rng, 1)
        time.sleep(0.05)
    assert not flow.alive(), f"{step} was not reached\n{flow.log_tail()}"
    flow.allow("is held by server process")
    flow.wait_exit()
    hit = flow.state_dir / "failpoint.hit"
    assert hit.exists() and hit.read_text().strip() == step, f"{step} was not reached\n{flow.log_tail()}"
    hit.unlink()


@pytest.mark.parametrize("answer", ["commit_request", "commit_answer"])
def test_commit_without_an_answer(database, make_flow, read, rng, answer):
    """A commit that nobody answered, made or not, is looked for, and each change counts once."""
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    since = newest(flow)
    flow.allow("timed out")
    for nth in (2, rng.randint(3, 9)):
        flow.stop()
        flow.start(init=False, env={"FLOW_FAILPOINT": f"{answer}:{nth}"}).wait_ready()
        hit = flow.state_dir / "failpoint.hit"

        def lost():
            change(database, rng, 2)
            return hit.exists()

        wait_for(f"{answer} {nth}", lost, 30, 0.2)
        hit.unlink()
        flow.wait_dynamic()
    change(database, rng, 2)
    check(flow, read(flow))
    all_incremental(flow, since)


@pytest.mark.lane("crash")
@pytest.mark.timeout(1700)
def test_killed_at_each_step_many_times(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    since = newest(flow)
    for _ in range(4):
        for step in rng.sample(STEPS, len(STEPS)):
            flow.stop() if flow.alive() else None
            flow.start(init=False, env={"FLOW_FAILPOINT": f"{step}:{rng.randint(1, 25)}"})
            until_killed(flow, database, rng, step)
        flow.start(init=False).wait_ready()
        change(database, rng, 2)
        check(flow, read(flow))
        all_incremental(flow, since)
        for name in LEVELS:
            flow.run("verify", name).expect(0)
        # And states that are new: all content is computed in full, and built from.
        flow.stop()
        flow.start(init=False, env={"FLOW_FAILPOINT": f"state_built:{rng.randint(1, 4)}"})
        for name in LEVELS:
            flow.run("refresh", name, "--full") if flow.alive() else None
        until_killed(flow, database, rng, "state_built")
        flow.start(init=False).wait_ready()
        check(flow, read(flow))
        since = newest(flow)


def test_killed_while_state_is_built(database, make_flow, read, rng):
    """The first, a middle and a last level: what an interrupted build left is not taken for state."""
    flow = prepare(database, make_flow, LEVELS)
    flow.run("init", timeout=120).expect(0)
    for step, nth in (("refresh_table_made", 1), ("state_built", 1), ("refresh_table_made", 2), ("state_built", 2), ("state_built", 1)):
        flow.start(init=False, env={"FLOW_FAILPOINT": f"{step}:{nth}"})
        until_killed(flow, database, rng, step)
    flow.start(init=False).wait_ready()
    readers = read(flow)
    check(flow, readers[:1])
    since = newest(flow)
    change(database, rng, 4)
    check(flow, readers)
    all_incremental(flow, since)


def test_killed_at_random_moments(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    since = newest(flow)
    for _ in range(4):
        change(database, rng, 6)
        time.sleep(rng.uniform(0, 0.6))  # a random moment, not a wait for something
        flow.kill()
        flow.start(init=False)
    flow.wait_ready()
    change(database, rng, 2)
    check(flow, read(flow))
    all_incremental(flow, since)


def test_lost_state_directory_is_refused(database, make_flow):
    """What operators keep beside is part of the state: its loss is said, and nothing begins from nothing."""
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    flow.stop()
    before = pointers(flow.catalog)
    shutil.rmtree(flow.state_dir)
    flow.run("run").expect(79, "state")
    assert pointers(flow.catalog) == before


def test_definition_changed_and_changed_back(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers[:1])
    name = "silver.groups"
    for sql in (LEVELS[name].replace("sum(n)", "max(n)::bigint"), LEVELS[name]):
        since = newest(flow)
        flow.stop()
        declare(flow, name, sql)
        change(database, rng, 3)
        database.execute(f"CREATE OR REPLACE VIEW {name} AS {sql}")
        flow.start(init=False).wait_ready()
        check(flow, readers)
        modes = modes_since(flow, name, since[name])
        assert modes and "FULL" in [mode for mode, _ in modes], modes
        # Tables below see the difference and stay incremental.
        all_incremental(flow, since, [n for n in LEVELS if n != name])
        since = newest(flow)
        change(database, rng, 3)
        check(flow, readers[:1])
        all_incremental(flow, since)


def test_white_space_is_no_change(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    flow.wait_dynamic()
    since = newest(flow)
    flow.stop()
    for name, sql in LEVELS.items():
        declare(flow, name, f"-- a word\n{sql.replace('SELECT', 'select ')}")
    change(database, rng, 3)
    flow.start(init=False).wait_ready()
    check(flow, read(flow))
    all_incremental(flow, since)


def test_suspended_for_many_epochs(database, make_flow, read, rng):
    flow = prepare(database, make_flow, LEVELS)
    flow.start().wait_ready()
    readers = read(flow)
    check(flow, readers[:1])
    since = newest(flow)
    flow.run("suspend", "silver.first").expect(0)
    wait_for("suspended", lambda: flow.dynamic_table("silver.first")["state"] == "suspended")
    at = pointers(flow.catalog, ["silver.first", "gold.both"])[0]
    for _ in range(8):
        change(database, rng, 4)
        flow.wait_dynamic(names={"silver.groups"})
    flow.restart(init=False)
    flow.wait_ready()
    assert pointers(flow.catalog, ["silver.first", "gold.both"])[0] == at, "what reads a suspended table waits for it"
    flow.run("resume", "silver.first").expect(0)
    check(flow, readers)
    all_incremental(flow, since)


def test_snapshots_stay_without_the_definition(database, make_flow, read, rng):
    """What a table without a definition reflects outlives the trimming, so that it goes on by what changed."""
    tables = {name: LEVELS[name] for name in ("silver.joined", "silver.groups")}
    flow = prepare(database, make_flow, tables, publish={"keep_snapshots": 10, "keep_for": "1m"})
    flow.start().wait_ready()
    readers = read(flow)
    change(database, rng, 2)
    check(flow, readers[:1], tables)
    since = newest(flow, tables)
    wanted = {s for n, s in flow.dynamic_table("silver.joined")["frontier"].items() if s}
    flow.stop()
    for name in tables:
        (flow.folder / "transformations" / f"{name.split('.')[1]}.sql").unlink()
    flow.start(init=False).wait_ready()
    for _ in range(16):
        database.execute("UPDATE item SET n = n + 1 WHERE id % 50 = 3", "UPDATE side SET lim = lim + 1 WHERE id = 5")
        flow.wait_caught_up()
    kept = {n: {str(s.snapshot_id) for s in readers[1].load(f"bronze.{n}").metadata.snapshots} for n in SOURCES}
    assert wanted <= set.union(*kept.values()) and min(map(len, kept.values())) <= 10 + 3 + 4, kept
    flow.stop()
    for name, sql in tables.items():
        declare(flow, name, sql)
    flow.start(init=False).wait_ready()
    change(database, rng, 2)
    check(flow, readers, tables)
    all_incremental(flow, since, tables)


def test_snapshots_expired_under_a_stopped_service(database, make_flow, read, rng):
    """The way from the stored frontier is gone: the refresh says so, and the next goes by what changed again."""
    tables = {name: LEVELS[name] for name in ("silver.joined", "silver.groups")}
    flow = prepare(database, make_flow, tables)
    flow.start().wait_ready()
    readers = read(flow)
    change(database, rng, 2)
    check(flow, readers[:1], tables)
    since = newest(flow, tables)
    flow.run("suspend", "silver.joined").expect(0)
    for _ in range(3):
        change(database, rng, 3)
        database.execute("UPDATE item SET n = n + 1 WHERE id < 5", "UPDATE side SET lim = lim + 1 WHERE id < 5")
        flow.wait_caught_up()
    flow.stop()
    for name in SOURCES:
        table = readers[1].load(f"bronze.{name}")
        old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    flow.start(init=False).wait_ready()
    flow.run("resume", "silver.joined").expect(0)
    check(flow, readers, tables)
    modes = modes_since(flow, "silver.joined", since["silver.joined"])
    assert modes and modes[-1][0] == "FULL" and "INPUT_" in modes[-1][1], modes
    since = newest(flow, tables)
    change(database, rng, 4)
    check(flow, readers, tables)
    all_incremental(flow, since, tables)
