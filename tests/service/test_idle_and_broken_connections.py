"""An idle database, a database busy elsewhere, a server that restarts, connections that are cut."""
import sqlite3
import time

import pytest

from flowtest import oracle, workload
from flowtest.postgres import lsn_number
from flowtest.waiting import wait_for


def simple(database, make_flow, **kw):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 10) g")
    database.publish("t")
    flow = make_flow(database, ["public.t"], **kw)
    flow.start().wait_ready()
    return flow


def test_idle_database_moves_on(database, make_flow, read):
    """Writes only in tables that are not published: published LSN and slot follow, and no snapshot is written."""
    flow = simple(database, make_flow)
    readers = read(flow)
    flow.wait_caught_up()
    before = readers[1].load("public.t").metadata.current_snapshot_id
    database.execute("CREATE TABLE elsewhere (x int)")
    for _ in range(3):
        database.execute("INSERT INTO elsewhere SELECT generate_series(1, 20000)", "SELECT pg_switch_wal()")
        lsn = flow.wait_caught_up(seconds=30)
        wait_for("the slot to follow", lambda: database.confirmed_lsn(flow.slot) >= lsn, 30)
    assert readers[1].load("public.t").metadata.current_snapshot_id == before
    # Restarted while idle, it must not fall behind what it acknowledged.
    flow.restart(init=False)
    flow.wait_ready()
    flow.wait_caught_up()
    oracle.check_all(flow, readers)


def test_acknowledged_only_after_published(database, make_flow, read, rng):
    """`acknowledged ≤ published ≤ journaled ≤ received`, each only ever growing."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    last = {}
    with workload.Writers(database, rng):
        for _ in range(150):
            source = flow.status()["source"]
            at = {k: lsn_number(source[k + "_lsn"]) for k in ("acknowledged", "published", "journaled", "received")}
            assert at["acknowledged"] <= at["published"] <= at["journaled"] <= at["received"], at
            assert all(at[k] >= last.get(k, 0) for k in at), (last, at)
            last = at
            confirmed = database.confirmed_lsn(flow.slot)
            assert confirmed <= flow.published(), "the slot is never ahead of the catalog"
    oracle.check_all(flow, read(flow))


def test_nothing_is_acknowledged_while_the_catalog_is_held(database, make_flow, read, rng):
    """What is journaled and not published is not acknowledged, however long publishing takes."""
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.allow("catalog", "locked", "busy")
    flow.start().wait_ready()
    held = 0
    with workload.Writers(database, rng) as writers:
        for _ in range(4):
            writers.wait_commits(30)
            with sqlite3.connect(flow.catalog, timeout=30, isolation_level=None) as catalog:
                catalog.execute("BEGIN IMMEDIATE")
                published = lsn_number(catalog.execute("SELECT published_lsn FROM flow_sources").fetchone()[0])
                # Longer than the service takes to tell PostgreSQL what it has.
                end = time.monotonic() + 1.5
                while time.monotonic() < end:
                    confirmed = database.confirmed_lsn(flow.slot)
                    assert confirmed <= published, f"{confirmed:X} was acknowledged, {published:X} is published"
                    time.sleep(0.05)
                held += database.flush_lsn() > published
                catalog.execute("ROLLBACK")
            catalog.close()
    assert held == 4, "nothing was written meanwhile"
    oracle.check_all(flow, read(flow))


def test_journaled_acknowledges_before_publishing(database, make_flow, read):
    flow = simple(database, make_flow, source={"ack_mode": "journaled"}, publish={"interval": "5s"})
    database.execute("INSERT INTO t VALUES (11, 11)")
    lsn = database.flush_lsn()
    wait_for("the slot to follow the journal", lambda: database.confirmed_lsn(flow.slot) >= lsn, 20)
    flow.kill()
    flow.start(init=False).wait_ready()
    assert oracle.check_all(flow, read(flow)) == {"public.t": 11}


def test_connection_cut(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.allow("connect", "terminat", "stream", "source", "closed", "replication")
    flow.start().wait_ready()
    with workload.Writers(database, rng) as writers:
        for _ in range(5):
            writers.wait_commits(20)
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender' OR"
                f" (datname = '{database.name}' AND application_name LIKE '%flow%')"
            )
    oracle.check_all(flow, read(flow))


def test_server_restarted_and_crashed(own_server, make_flow, read):
    database = own_server.create_database("restarted")
    flow = simple(database, make_flow)
    flow.allow("connect", "terminat", "stream", "source", "closed", "shut", "refused", "replication", "recover", "starting")
    for n, end in enumerate((own_server.stop, own_server.kill), 1):
        database.execute(f"INSERT INTO t VALUES ({100 + n}, 0)", f"UPDATE t SET v = v + {n}")
        database.connection.close()
        end()
        assert flow.alive()
        own_server.start()
        database.execute(f"INSERT INTO t VALUES ({200 + n}, 0)")
        oracle.check_all(flow, read(flow))
    flow.close()
    database.drop()


def test_server_away_past_retry_for(own_server, make_flow):
    database = own_server.create_database("away")
    flow = simple(database, make_flow, source={"retry_for": "3s"})
    flow.allow("connect", "terminat", "stream", "source", "closed", "shut", "refused", "replication", "retry", "unavailable")
    database.connection.close()
    own_server.stop()
    assert flow.wait_exit(60) == 75
    own_server.start()
    database.drop()


@pytest.mark.any_major
def test_probes_status_and_metrics(database, make_flow):
    flow = simple(database, make_flow)
    flow.wait_caught_up()
    for probe in ("/healthz", "/livez", "/readyz"):
        assert flow.http(probe)[0] == 200, probe
    code, metrics = flow.http("/metrics")
    assert code == 200
    names = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if line and not line.startswith("#")}
    assert names and all(n.startswith("flow_") for n in names if not n.startswith("process_")), names
    status = flow.status()
    assert status["state"] == "streaming" and status["ready"] is True
    for key in ("id", "slot", "server_lsn", "received_lsn", "journaled_lsn", "published_lsn", "published_epoch", "acknowledged_lsn"):
        assert key in status["source"], key
    for key in ("source", "target", "state", "epoch", "published_lsn", "snapshot_id", "lag_seconds", "lag_bytes", "blocked"):
        assert key in status["tables"][0], key
    printed = flow.run("status", "--json").expect(0).json()
    assert printed["source"]["id"] == status["source"]["id"] == "test"
    assert flow.http("/nothing")[0] == 404
    flow.stop()
    flow.run("status").expect(3)
