"""The copy and the stream meet exactly, under writers, however often `init` is interrupted."""
import time

import pytest

from flowtest import oracle, workload
from flowtest.waiting import wait_for


def test_copy_meets_stream_under_writers(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    with workload.Writers(database, rng) as writers:
        flow.start()
        flow.wait_ready()
        writers.wait_commits(100)
    counts = oracle.check_all(flow, read(flow))
    assert counts["bronze.item"] > 0 and counts["bronze.event"] >= 300


def test_init_alone_then_run(database, make_flow, read, rng):
    """`init` publishes the copy and ends; what is committed between it and `run` is not lost."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.run("init", timeout=120).expect(0)
    with workload.Writers(database, rng) as writers:
        writers.wait_commits(50)
        flow.start(init=False)
        writers.wait_commits(50)
    oracle.check_all(flow, read(flow))


def test_init_killed_at_random_moments(database, make_flow, read, rng):
    """Finished tables are kept, unfinished ones are copied again; nothing is lost or doubled."""
    workload.prepare(database)
    database.execute(
        "INSERT INTO item SELECT g, g, 1, 1, 'x', repeat('y', 200), NULL, now(), NULL FROM generate_series(10000, 60000) g",
        "INSERT INTO event SELECT 'start', now(), NULL FROM generate_series(1, 50000)",
    )
    flow = make_flow(database, workload.TABLES)
    with workload.Writers(database, rng, largest=200) as writers:
        for _ in range(4):
            flow.start()
            time.sleep(rng.uniform(0.05, 1.5))  # a random moment, not a wait for something
            assert flow.alive(), flow.log_tail()
            flow.kill()
        flow.start()
        flow.wait_ready(120)
        writers.wait_commits(30)
    oracle.check_all(flow, read(flow))
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = %s"
    wait_for("temporary slots to be gone", lambda: database.rows(slots, [database.name]) == [(flow.slot,)])


COPIES = "query LIKE 'COPY (SELECT%%' AND state = 'active'"


def bulk(database, count=8, rows=40_000):
    """Makes tables whose copies take a while, and gives their configuration."""
    names = [f"bulk_{n}" for n in range(count)]
    for name in names:
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v int, w text)",
            f"INSERT INTO {name} SELECT g, g, repeat('w', 100) FROM generate_series(1, {rows}) g",
        )
    database.execute(f"ALTER PUBLICATION embrasure_flow ADD TABLE {', '.join(names)}")
    return [f"public.{name}" for name in names]


@pytest.mark.parametrize("cut", ["copies", "everything"])
def test_connections_cut_while_copying(database, make_flow, read, rng, cut):
    """More tables than sessions, and their connections cut again and again, for longer than `retry_for` in all."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES + bulk(database), source={"retry_for": "2s", "copy_sessions": 2})
    # Somebody's slot with a name that a temporary one might get.
    database.execute(f"SELECT pg_create_logical_replication_slot('{flow.slot}_copy', 'pgoutput')")
    flow.allow("source failed", "no connection", "terminat", "snapshot", "replication:", "copy;")
    which = COPIES if cut == "copies" else "application_name LIKE 'embrasure%%'"
    terminate = (
        "WITH own AS (SELECT * FROM pg_stat_activity WHERE datname = %s) SELECT count(pg_terminate_backend(pid)) FROM own"
        f" WHERE {which} AND EXISTS (SELECT FROM own WHERE {COPIES})"
    )
    with workload.Writers(database, rng, largest=200) as writers:
        began = time.monotonic()
        flow.start()
        for n in range(4):
            cut_it = lambda: time.monotonic() > began + 0.8 * (n + 1) and database.value(terminate, [database.name]) > 0
            wait_for(lambda: f"a copy to be running\n{flow.log_tail()}", cut_it, every=0.01)
        flow.wait_ready(120)
        writers.wait_commits(30)
    oracle.check_all(flow, read(flow))
    temporary = "SELECT count(*) FROM pg_replication_slots WHERE database = %s AND temporary"
    wait_for("temporary slots to be gone", lambda: database.value(temporary, [database.name]) == 0)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_server_restarted_while_copying(own_server, make_flow, read, end):
    database = own_server.create_database("restarted")
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES + bulk(database, 4), source={"copy_sessions": 2})
    flow.allow("source failed", "no connection", "not ready", "terminat", "snapshot", "replication:", "copy;", "shut")
    flow.start()
    copying = f"SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND {COPIES}"
    wait_for("a copy to be running", lambda: database.value(copying, [database.name]) > 0, every=0.01)
    database.connection.close()
    getattr(own_server, end)()
    own_server.start()
    database.execute("INSERT INTO bulk_0 VALUES (-1, 0, 'x')", "UPDATE bulk_1 SET v = -v WHERE id < 100", "DELETE FROM bulk_2 WHERE id < 100")
    flow.wait_ready(120)
    database.execute("UPDATE bulk_3 SET v = -v WHERE id < 100")
    oracle.check_all(flow, read(flow))
    flow.close()
    database.drop()


def test_table_added_later_under_writers(database, make_flow, read, rng):
    """A table that `run --init` adds gets its own copy and start, and the others just go on."""
    workload.prepare(database)
    database.execute("ALTER PUBLICATION embrasure_flow DROP TABLE seat, event")
    flow = make_flow(database, workload.TABLES[:2])
    with workload.Writers(database, rng) as writers:
        flow.start().wait_ready()
        writers.wait_commits(30)
        for n in (2, 3):
            flow.stop()
            writers.wait_commits(10)
            database.execute(f"ALTER PUBLICATION embrasure_flow ADD TABLE {('seat', 'event')[n - 2]}")
            flow.tables.append(dict(workload.TABLES[n]))
            flow.write_config()
            flow.run("run").expect(78, workload.TABLES[n]["source"], "init")
            flow.start().wait_ready()
            writers.wait_commits(30)
    oracle.check_all(flow, read(flow))


CHANGED = {
    "made_again": ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int, w text)", "INSERT INTO t VALUES (1, 1, 'new')"],
    "other_type": ["ALTER TABLE t ALTER v TYPE bigint USING v + 5000000000"],
    "more_columns": ["ALTER TABLE t ADD x text DEFAULT 'x'"],
    "renamed_column": ["ALTER TABLE t RENAME v TO u"],
    "truncated": ["TRUNCATE t", "INSERT INTO t VALUES (1, 1, 'new')"],
}


def two_tables(database, make_flow):
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int, w text)", f"INSERT INTO {name} SELECT g, g, 'w' FROM generate_series(1, 100) g")
    database.publish()
    return make_flow(database, ["public.t", "public.u"], source={"copy_sessions": 1})


def follows(database, flow, read):
    """Asserts that both tables are equal, and still are after further changes."""
    readers = read(flow)
    oracle.check_all(flow, readers)
    database.execute("INSERT INTO t (id, w) VALUES (1000, 'later')", "UPDATE t SET w = 'changed' WHERE id = 1", "UPDATE u SET v = 0")
    assert oracle.check_all(flow, readers)["public.u"] == 100


@pytest.mark.parametrize("case", CHANGED)
def test_table_changed_between_two_runs_of_init(database, make_flow, read, case):
    """What was agreed before an interruption no longer counts: the table is agreed and copied anew."""
    flow = two_tables(database, make_flow)
    flow.run("init", env={"FLOW_FAILPOINT": "operation_begun:1"})
    assert (flow.state_dir / "failpoint.hit").exists()
    database.execute(*CHANGED[case])
    flow.start().wait_ready()
    follows(database, flow, read)


@pytest.mark.parametrize("case", CHANGED)
def test_table_changed_while_init_runs(database, make_flow, read, case):
    """A change between preflight and copy is noticed by the copy, which then begins again."""
    flow = two_tables(database, make_flow)
    flow.allow("was changed while it was copied")
    database.execute("CREATE TABLE held (id int PRIMARY KEY)")
    holder = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    with database.connect(autocommit=False) as open_transaction:
        open_transaction.execute("INSERT INTO held VALUES (1)")  # creation of the slot waits for it to end
        flow.start()
        wait_for("the slot to be in creation", lambda: database.value(holder, [flow.slot]))
        database.execute(*CHANGED[case])
        open_transaction.commit()
    flow.wait_ready()
    assert ("was changed while it was copied" in flow.log.read_text()) == (case not in ("more_columns", "truncated"))
    if case == "more_columns":  # the copy is right, and the first change shows what is not
        flow.allow("blocked", "resync")
        database.execute("UPDATE t SET w = 'changed' WHERE id = 1")
        flow.wait_blocked("public.t", "x was added|columns were changed")
        return
    follows(database, flow, read)


def test_target_touched_between_seal_and_commit(database, make_flow, read):
    """A copy whose commit meets another base is made again, under a generation of its own."""
    flow = two_tables(database, make_flow)
    flow.run("init", env={"FLOW_FAILPOINT": "before_commit:1"})
    assert (flow.state_dir / "failpoint.hit").exists()
    touched = read(flow)[1].load("public.t")
    with touched.transaction() as transaction:
        transaction.set_properties(someone="else")
    flow.start().wait_ready()
    follows(database, flow, read)


@pytest.mark.parametrize("end", ["created", "abandoned"])
def test_killed_while_the_slot_is_created(database, make_flow, read, end):
    """A slot that a killed process's session still creates is not taken for a finished one."""
    database.execute("CREATE TABLE held (id int PRIMARY KEY, n int)", "INSERT INTO held VALUES (1, 1)")
    database.publish("held")
    flow = make_flow(database, ["public.held"])
    holder = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    with database.connect(autocommit=False) as open_transaction:
        open_transaction.execute("INSERT INTO held VALUES (2, 2)")  # creation waits for it to end
        flow.start()
        pid = wait_for("the slot to be in creation", lambda: database.value(holder, [flow.slot]))
        flow.kill()
        flow.start()
        wait_for("the service to meet the held slot", lambda: "is held by server process" in flow.log_tail())
        if end == "abandoned":
            database.rows("SELECT pg_terminate_backend(%s)", [pid])
            wait_for("the slot to be let go", lambda: database.value(holder, [flow.slot]) != pid)
        open_transaction.commit()
    flow.wait_ready()
    assert oracle.check_all(flow, read(flow)) == {"public.held": 2}


def test_one_large_transaction_and_many_small(database, make_flow, read):
    """A transaction of 100,000 rows over two tables passes whole, between others."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    database.execute("INSERT INTO item (id, n) VALUES (5000, 1)")
    database.transaction(
        "INSERT INTO item (id, n, label) SELECT g, g, 'big' FROM generate_series(100001, 200000) g",
        "INSERT INTO event SELECT 'big', now(), NULL FROM generate_series(1, 30000)",
        "DELETE FROM item WHERE id > 150000 AND id % 2 = 0",
    )
    database.execute("UPDATE item SET n = -1 WHERE id = 5000")
    counts = oracle.check_all(flow, read(flow), seconds=120)
    assert counts["bronze.item"] == 300 + 1 + 75_000


def test_restart_continues(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    writer = workload.Writer(database, rng.randrange(2**32))
    for _ in range(3):
        writer.run(20)
        flow.restart()
        writer.run(5)
    flow.wait_ready()
    oracle.check_all(flow, read(flow))


def test_empty_tables_and_empty_strings(database, make_flow, read):
    database.execute("CREATE TABLE void (id int PRIMARY KEY, a text, b bytea, c text[])")
    database.publish("void")
    flow = make_flow(database, ["public.void"])
    flow.start().wait_ready()
    readers = read(flow)
    assert oracle.check_all(flow, readers) == {"public.void": 0}
    database.execute("INSERT INTO void VALUES (1, '', '', '{}'), (2, NULL, NULL, NULL), (3, '\\N', '\\x00', '{\"\",NULL}')")
    assert oracle.check_all(flow, readers) == {"public.void": 3}
    database.execute("DELETE FROM void")
    assert oracle.check_all(flow, readers) == {"public.void": 0}
