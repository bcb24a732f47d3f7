"""Spark reads our tables through Java's JdbcCatalog on the catalog file, deletes applied."""
import json
import subprocess

import pytest

from flowtest import oracle, workload
from flowtest.postgres import TOOLS


def ask(spark, flow, *sql):
    done = subprocess.run(
        [str(spark / "venv/bin/python"), str(TOOLS / "spark_sql.py"), "--jars", str(spark / "jars"), "--catalog", str(flow.catalog),
         "--warehouse", str(flow.warehouse), *sql],
        capture_output=True, text=True, timeout=600,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("[", "{"))]
    assert done.returncode == 0, f"{answers}\n{done.stderr[-3000:]}"
    return answers


@pytest.mark.lane("spark")
@pytest.mark.timeout(1700)
def test_spark_reads_every_row(database, make_flow, read, rng, spark):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.transformation("labels", "CREATE DYNAMIC TABLE gold.labels AS SELECT label, count(*) AS n FROM bronze.item GROUP BY label;")
    flow.start().wait_ready()
    with workload.Writers(database, rng) as writers:
        writers.wait_commits(200)
    flow.wait_dynamic()
    oracle.check_all(flow, read(flow))
    # Everything as text on both sides; Spark prints floats its own way, so those go as numbers.
    item, part, seat, event, labels = ask(
        spark, flow,
        "SELECT id, n, price, ratio, label, md5(coalesce(body, '~')) AS body, hex(blob) AS blob, unix_micros(at) AS at, tags FROM bronze.item",
        "SELECT region, id, owner, amount, done, doc FROM bronze.part",
        "SELECT id, holder, md5(coalesce(note, '~')) AS note FROM bronze.seat",
        "SELECT kind, unix_micros(at) AS at, payload FROM bronze.event",
        "SELECT label, n FROM gold.labels",
    )

    def same(rows, sql):
        with database.connect() as c:
            cursor = c.execute(sql)
            names = [d.name for d in cursor.description]
            wanted = [json.dumps(dict(zip(names, row)), default=str, sort_keys=True) for row in cursor]
        found = [json.dumps(row, default=str, sort_keys=True) for row in rows]
        why = oracle.differences(wanted, found)
        assert not why, f"{sql}: {why}"

    same(item, "SELECT id, n, price, ratio, label, md5(coalesce(body, '~')) AS body, upper(encode(blob, 'hex')) AS blob,"
               " (extract(epoch FROM at) * 1000000)::bigint AS at, tags FROM item")
    same(part, "SELECT region, id, owner::text, amount, done, doc::text FROM part")
    same(seat, "SELECT id, holder, md5(coalesce(note, '~')) AS note FROM seat")
    same(event, "SELECT kind, (extract(epoch FROM at) * 1000000)::bigint AS at, payload::text FROM event")
    same(labels, "SELECT label, count(*) AS n FROM item GROUP BY label")
