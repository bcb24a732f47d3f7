"""A transaction above the memory budget is folded in several passes: same content, bounded memory."""
import re

import pytest

from flowtest import oracle

#: Every server sends a transaction in the same messages, however large it is.
pytestmark = pytest.mark.any_major

MIB = 1 << 20

#: What a process with `limits.memory = "64MiB"` may take at its peak: the budget, the events between receiving and
#: journaling (32 MiB), for each of four tables a Parquet row group being written (64 MiB), and the program itself.
PEAK_MIB = 512


def metric(flow, name):
    return float(re.search(rf"^{name} ([0-9.e+]+)$", flow.http("/metrics")[1], re.M)[1])


def peak_mib(flow):
    with open(f"/proc/{flow.process.pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) / 1024


def prepare(database):
    database.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, n int, pad text)",
        "INSERT INTO wide SELECT g, g, repeat(md5(g::text), 20) FROM generate_series(1, 30000) g",
        # Rows with a value out of line, whose keys change: both keys must share a pass.
        "CREATE TABLE doc (id int PRIMARY KEY, n int, body text)", "ALTER TABLE doc ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO doc SELECT g, g, repeat(md5(g::text), 100) FROM generate_series(1, 3000) g",
        # A composite key of which one part is out of line: it is left out where the other part changes.
        "CREATE TABLE part (a int, b text, n int, PRIMARY KEY (a, b))", "ALTER TABLE part ALTER b SET STORAGE EXTERNAL",
        "INSERT INTO part SELECT g, repeat(md5(g::text), 75), 0 FROM generate_series(1, 1000) g",
        "CREATE TABLE event (kind text, n int)",
    )
    database.publish("wide", "doc", "part", "event")
    return ["public.wide", "public.doc", "public.part", {"source": "public.event", "append_only": True}]


def everything(c):
    """Makes one transaction of all that can happen to rows, several times the budget of folding (16 MiB)."""
    for statement in (
        "INSERT INTO wide SELECT g, g, repeat(md5(g::text), 20) FROM generate_series(100001, 140000) g",
        "UPDATE wide SET n = n + 1 WHERE id <= 30000",
        "UPDATE wide SET id = id + 1000000 WHERE id BETWEEN 1 AND 5000",
        "DELETE FROM wide WHERE id BETWEEN 5001 AND 9000",
        "INSERT INTO wide SELECT g, -g, 'again' FROM generate_series(5001, 7000) g",
        "DELETE FROM wide WHERE id BETWEEN 100001 AND 110000",
        "UPDATE wide SET id = -1 WHERE id = 20001", "UPDATE wide SET id = 20001 WHERE id = 20002", "UPDATE wide SET id = 20002 WHERE id = -1",
        "UPDATE wide SET pad = pad || 'x' WHERE id > 110000 AND id < 1000000",
        "INSERT INTO doc SELECT g, g, repeat(md5(g::text), 100) FROM generate_series(10001, 12000) g",
        "UPDATE doc SET n = -n",
        "UPDATE doc SET id = id + 100000 WHERE id <= 2000", "UPDATE doc SET id = id + 100000, n = 7 WHERE id BETWEEN 10001 AND 11000",
        "UPDATE doc SET id = id + 100000 WHERE id BETWEEN 100001 AND 100500",
        "UPDATE doc SET id = -1 WHERE id = 2500", "UPDATE doc SET id = 2500 WHERE id = 2501", "UPDATE doc SET id = 2501 WHERE id = -1",
        "UPDATE doc SET body = 'small' WHERE id BETWEEN 101000 AND 101100", "DELETE FROM doc WHERE id BETWEEN 101101 AND 101200",
        "UPDATE part SET a = a + 10000 WHERE a <= 600", "UPDATE part SET n = n + 1", "UPDATE part SET a = a + 10000, n = 5 WHERE a BETWEEN 10001 AND 10300",
        "DELETE FROM part WHERE a BETWEEN 601 AND 700", "INSERT INTO part SELECT a, b, -1 FROM part WHERE a BETWEEN 701 AND 720 ON CONFLICT DO NOTHING",
        "INSERT INTO event SELECT 'kind ' || g, g FROM generate_series(1, 20000) g",
    ):
        c.execute(statement)


def test_transaction_above_the_memory_budget(database, make_flow, read):
    tables = prepare(database)
    flow = make_flow(database, tables, limits={"memory": "64MiB"})
    flow.start().wait_ready(120)
    flow.wait_caught_up()
    readers = read(flow)
    before = metric(flow, "flow_fold_passes_total"), metric(flow, "flow_published_epochs_total")
    received = metric(flow, "flow_received_bytes_total")
    with database.connect(autocommit=False) as c:
        everything(c)
        c.commit()
    counts = oracle.check_all(flow, readers, seconds=300)
    assert counts["public.event"] == 20000
    passes = metric(flow, "flow_fold_passes_total") - before[0] - (metric(flow, "flow_published_epochs_total") - before[1])
    size = metric(flow, "flow_received_bytes_total") - received
    print(f"{size / MIB:.0f} MiB in {passes + 1:.0f} passes, peak {peak_mib(flow):.0f} MiB")
    assert size > 64 * MIB, "the transaction alone is larger than the whole budget"
    assert passes >= 4, "it was folded in several passes"
    assert peak_mib(flow) < PEAK_MIB
    # What the passes left in the row index is right too.
    database.execute("UPDATE wide SET n = n + 1", "UPDATE doc SET n = n + 1", "UPDATE part SET n = n + 1", "DELETE FROM doc WHERE id % 3 = 0")
    oracle.check_all(flow, readers, seconds=300)


def test_killed_while_a_large_transaction_is_written(database, make_flow, read):
    tables = prepare(database)
    flow = make_flow(database, tables, limits={"memory": "64MiB"})
    flow.start().wait_ready(120)
    flow.wait_caught_up()
    flow.stop()
    flow.start(init=False, env={"FLOW_FAILPOINT": "apply_block:1"})
    with database.connect(autocommit=False) as c:
        everything(c)
        c.commit()
    flow.wait_exit(180)
    assert (flow.state_dir / "failpoint.hit").exists()
    flow.start(init=False).wait_ready(180)
    oracle.check_all(flow, read(flow), seconds=300)
