"""A random workload while the service is killed: at random moments, and at every durable step."""
import os
import sqlite3
import time

import pytest

from flowtest import oracle, workload

#: The steps at which the engine can be told to end at once.
FAILPOINTS = [
    "journal_synced", "operation_begun", "files_written", "operation_sealed", "before_commit", "after_commit",
    "proof_recorded", "apply_block", "operation_completed", "acknowledged",
]


def test_random_workload(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    readers = read(flow)
    for _ in range(3):
        with workload.Writers(database, rng, count=3, largest=20_000) as writers:
            writers.wait_commits(80)
        oracle.check_all(flow, readers)


def kill_rounds(database, make_flow, read, rng, rounds, check_every):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    for number in range(1, rounds + 1):
        with workload.Writers(database, rng, largest=5000):
            time.sleep(rng.uniform(0.05, 1.5))  # a random moment, not a wait for something
            flow.kill()
            flow.start(init=False)
            time.sleep(rng.uniform(0.0, 1.0))
            if rng.random() < 0.3:  # also while it recovers
                flow.kill()
                flow.start(init=False)
        flow.wait_ready()
        if number % check_every == 0 or number == rounds:
            oracle.check_all(flow, read(flow))


def test_killed_at_random_moments(database, make_flow, read, rng):
    kill_rounds(database, make_flow, read, rng, rounds=int(os.environ.get("FLOW_KILL_ROUNDS", "5")), check_every=2)


@pytest.mark.lane("crash")
@pytest.mark.timeout(1700)
def test_killed_fifty_times(database, make_flow, read, rng):
    kill_rounds(database, make_flow, read, rng, rounds=int(os.environ.get("FLOW_KILL_ROUNDS", "50")), check_every=2)


def crash_at(flow, database, name, nth, rng):
    """Runs until the step is reached, and proves that it was."""
    flow.start(init=False, env={"FLOW_FAILPOINT": f"{name}:{nth}"})
    with workload.Writers(database, rng, count=1, largest=500):
        code = flow.wait_exit(60)
    hit = flow.state_dir / "failpoint.hit"
    assert hit.exists() and hit.read_text().strip() == name, f"{name}:{nth} was not reached, exit {code}\n{flow.log_tail()}"
    assert code != 0
    hit.unlink()


@pytest.mark.any_major
@pytest.mark.parametrize("name", FAILPOINTS)
def test_killed_at_each_durable_step(database, make_flow, read, rng, name):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.run("init", timeout=120).expect(0)
    for nth in (1, rng.randrange(2, 6)):
        crash_at(flow, database, name, nth, rng)
        flow.start(init=False)
        flow.wait_ready()
        oracle.check_all(flow, read(flow))
        flow.stop()


@pytest.mark.any_major
def test_commit_that_the_catalog_forgot_is_found(database, make_flow, read):
    """Records of old commits are dropped from the catalog, also by another service on it. The table itself still has
    the attempt's marker, so a service that died before it heard of its commit does not publish it again."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 100) g")
    database.publish("t")
    flow = make_flow(database, ["public.t"])
    flow.start().wait_ready()
    flow.stop()
    flow.start(init=False, env={"FLOW_FAILPOINT": "after_commit:1"})
    database.transaction("UPDATE t SET v = v + 1 WHERE id < 50", "DELETE FROM t WHERE id > 90", "INSERT INTO t VALUES (500, 5)")
    flow.wait_exit(60)
    assert (flow.state_dir / "failpoint.hit").exists()
    with sqlite3.connect(flow.catalog, timeout=30) as c:
        assert c.execute("DELETE FROM flow_commits").rowcount > 0
        c.execute("DELETE FROM flow_operations")
    readers = read(flow)
    committed = readers[1].load("public.t").metadata.current_snapshot_id
    flow.start(init=False).wait_ready()
    assert oracle.check_all(flow, readers) == {"public.t": 91}
    assert readers[1].load("public.t").metadata.current_snapshot_id == committed, "it was committed once"
    database.execute("UPDATE t SET v = v + 1")
    oracle.check_all(flow, readers)
    assert flow.table("public.t")["state"] == "streaming"


@pytest.mark.parametrize("name", ["operation_begun", "files_written", "operation_sealed", "before_commit", "after_commit"])
def test_init_killed_at_each_durable_step(database, make_flow, read, name):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    result = flow.run("init", timeout=120, env={"FLOW_FAILPOINT": f"{name}:1"})
    assert (flow.state_dir / "failpoint.hit").exists(), f"{name} was not reached: {result!r}"
    (flow.state_dir / "failpoint.hit").unlink()
    database.execute("UPDATE item SET n = n + 1 WHERE id < 100", "DELETE FROM part WHERE id > 250")
    flow.start().wait_ready()
    oracle.check_all(flow, read(flow))


@pytest.mark.lane("crash")
@pytest.mark.timeout(1700)
def test_killed_at_each_step_many_times(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.run("init", timeout=120).expect(0)
    for round_number in range(3):
        for name in FAILPOINTS:
            crash_at(flow, database, name, rng.randrange(1, 12), rng)
        flow.start(init=False)
        flow.wait_ready()
        oracle.check_all(flow, read(flow))
        flow.stop()


@pytest.mark.lane("random")
@pytest.mark.timeout(1750)
def test_random_for_long(database, make_flow, read, rng):
    """Large transactions, many writers, restarts and kills, for minutes; every round is compared."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    end = time.monotonic() + float(os.environ.get("FLOW_RANDOM_SECONDS", "1200"))
    rounds = 0
    while time.monotonic() < end:
        with workload.Writers(database, rng, count=4, largest=100_000) as writers:
            writers.wait_commits(rng.randrange(10, 200), 300)
            action = rng.randrange(4)
            if action == 0:
                flow.kill()
                flow.start(init=False)
            elif action == 1:
                flow.restart(init=False)
            elif action == 2:
                flow.allow("connection", "terminat", "reconnect", "stream")
                database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL")
        flow.wait_ready(120)
        counts = oracle.check_all(flow, read(flow), seconds=300)
        rounds += 1
        print(f"round {rounds}: {counts}", flush=True)
        database.execute("DELETE FROM item WHERE id > 10000", "DELETE FROM part WHERE id % 2 = 0")
    assert rounds >= 3
