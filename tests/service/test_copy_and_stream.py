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
