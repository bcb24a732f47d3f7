"""The service under steady load for long: memory, files and commit times stay within bounds."""
import os
import pathlib
import time

import pytest

from flowtest import oracle, workload
from flowtest.lake import pointers


def resident_mib(pid):
    line = next(l for l in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.lane("soak")
@pytest.mark.timeout(1780)
def test_steady_load(database, make_flow, read, rng):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.transformation("labels", "CREATE DYNAMIC TABLE gold.labels AS SELECT label, count(*) AS n FROM bronze.item GROUP BY label;")
    flow.start().wait_ready()
    seconds = float(os.environ.get("FLOW_SOAK_SECONDS", "1200"))
    start, memory = time.monotonic(), []
    with workload.Writers(database, rng, count=2, largest=2000) as writers:
        while time.monotonic() - start < seconds:
            writers.wait_commits(50, 120)
            memory.append(resident_mib(flow.process.pid))
            epoch = pointers(flow.catalog)[1][1]
            print(f"{time.monotonic() - start:6.0f} s  epoch {epoch}  {memory[-1]:.0f} MiB  {writers.committed} transactions", flush=True)
            # Rows that a writer holds stay for the next time: waiting for them is how deadlocks begin.
            database.execute(
                "DELETE FROM item WHERE id IN (SELECT id FROM item WHERE id > 100000 AND id % 10 <> 0 FOR UPDATE SKIP LOCKED)"
            )
    flow.wait_dynamic(seconds=300)
    oracle.check_all(flow, read(flow), seconds=300)
    third = len(memory) // 3
    early, late = max(memory[third : 2 * third]), max(memory[2 * third :])
    assert late <= early * 1.3 + 50, f"memory grew from {early:.0f} to {late:.0f} MiB"
    table = read(flow)[1].load("bronze.item")
    assert len(table.metadata.snapshots) <= 400, "histories stay short"
