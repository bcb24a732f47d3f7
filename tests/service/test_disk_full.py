"""A disk that is nearly full, or full: nothing is lost, nothing is blocked, and it goes on by itself."""
import os
import subprocess

import pytest

from flowtest import oracle
from flowtest.postgres import lsn_number
from flowtest.waiting import wait_for

pytestmark = pytest.mark.any_major

MIB = 1 << 20


@pytest.fixture
def small_disk(folder):
    """Mounts small file systems: `small_disk(path, mib)`. Skips where that is not permitted.

    Tests name it before `make_flow`, so that the service has ended when its disk goes.
    """
    mounted = []

    def mount(path, mib):
        path.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=755", "tmpfs", str(path)], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


def free(path):
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def fill(path, leave):
    """Leaves `leave` bytes free."""
    filler = path / "filler"
    with open(filler, "ab") as f:
        while (room := free(path) - leave) >= 4096:
            f.write(b"\1" * min(room, MIB))
            f.flush()
    return filler


def start(database, make_flow, small_disk, where, floor):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT g, 'v' FROM generate_series(1, 100) g")
    database.publish("t")
    flow = make_flow(database, ["public.t"], limits={"min_free_bytes": floor})
    disk = small_disk({"warehouse": flow.warehouse, "state": flow.state_dir}[where], 96)
    flow.start().wait_ready()
    flow.wait_caught_up()
    return flow, disk


def received(flow):
    return lsn_number(flow.status()["source"]["received_lsn"])


@pytest.mark.parametrize("where", ["warehouse", "state"])
def test_the_floor_holds_capture(database, small_disk, make_flow, read, where):
    flow, disk = start(database, make_flow, small_disk, where, "16MiB")
    flow.allow("F0018")
    filler = fill(disk, 12 * MIB)
    # What is under way when the floor is met still arrives: one event a second passes at most.
    wait_for("capture to pause", lambda: database.execute("UPDATE t SET v = 'w' WHERE id = 1") or flow.status()["storage"]["capture_paused"])
    status = flow.status()
    assert status["storage"]["free_bytes"] < 16 * MIB
    held = received(flow)
    database.execute("INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1001, 1200) g")
    wanted = database.flush_lsn()
    looks = []
    wait_for("ten looks", lambda: looks.append(received(flow)) or len(looks) >= 10, 60, 0.3)
    assert set(looks) == {held}, f"capture went on: {held} {looks}"
    assert flow.published() < wanted and flow.table("public.t")["state"] == "streaming"
    if where == "warehouse":
        size = lambda: sum(f.stat().st_size for f in disk.rglob("*.parquet"))
        before = size()
        wait_for("more looks", lambda: looks.append(0) or len(looks) >= 16, 60, 0.3)
        assert size() == before, "nothing is written below the floor"
    filler.unlink()
    wait_for("capture to resume", lambda: not flow.status()["storage"]["capture_paused"])
    assert oracle.check_all(flow, read(flow)) == {"public.t": 300}
    assert flow.published() >= wanted


def test_the_floor_does_not_keep_the_service_from_stopping(database, small_disk, make_flow, read):
    flow, disk = start(database, make_flow, small_disk, "warehouse", "16MiB")
    flow.allow("F0018")
    filler = fill(disk, 12 * MIB)
    wait_for("capture to pause", lambda: database.execute("UPDATE t SET v = v || 'w' WHERE id = 1") or flow.status()["storage"]["capture_paused"])
    flow.stop()
    warned = lambda: flow.log.read_text().count("F0018")
    before = warned()
    flow.start(init=False)
    wait_for("the floor to be seen", lambda: warned() > before)
    flow.stop()
    filler.unlink()
    flow.start(init=False).wait_ready()
    assert oracle.check_all(flow, read(flow)) == {"public.t": 100}


def test_a_copy_waits_at_the_floor(database, small_disk, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT g, 'v' FROM generate_series(1, 20000) g")
    database.publish("t")
    flow = make_flow(database, ["public.t"], limits={"min_free_bytes": "16MiB"})
    flow.allow("F0018")
    disk = small_disk(flow.warehouse, 96)
    filler = fill(disk, 12 * MIB)
    flow.start()
    wait_for("the floor to be seen", lambda: "F0018" in flow.log_tail(50))
    looks = []
    wait_for("ten looks", lambda: looks.append(list(disk.rglob("*.parquet"))) or len(looks) >= 10, 60, 0.2)
    assert not any(looks), "a copy is not written below the floor"
    filler.unlink()
    flow.wait_ready()
    assert oracle.check_all(flow, read(flow)) == {"public.t": 20000}


def test_a_disk_that_fills_up_while_an_epoch_is_written(database, small_disk, make_flow, read):
    """Without a floor the write itself fails. The epoch is written again, and no table is blocked for it."""
    flow, disk = start(database, make_flow, small_disk, "warehouse", "0B")
    flow.allow("F030[129]", "disk is full", "No space left")
    filler = fill(disk, 512 * 1024)
    database.execute("INSERT INTO t SELECT g, (SELECT string_agg(md5((g * i)::text), '') FROM generate_series(1, 30) i) FROM generate_series(1001, 9000) g")
    wait_for("the disk to be full", lambda: "No space left" in flow.log_tail(50))
    assert flow.alive() and flow.table("public.t")["state"] == "streaming"
    filler.unlink()
    assert oracle.check_all(flow, read(flow)) == {"public.t": 8100}
