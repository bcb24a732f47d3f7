"""Baseline of the refresh benchmark: DuckDB computes a dynamic table's SQL anew and writes it as Parquet.

  python duckdb_refresh.py CATALOG NAMESPACE.TABLE SQL OUT THREADS

Reads every table that the dynamic table's frontier names, at the snapshot it names. Runs twice and reports the second;
then compares every row of the dynamic table with what it wrote. Exits 1 when any row differs.
"""
import json
import resource
import sqlite3
import sys
import time

from duckdb_read import connect

catalog, target, sql, out, threads = sys.argv[1:6]


def scan(name, snapshot=None):
    space, table = name.rsplit(".", 1)
    with sqlite3.connect(f"file:{catalog}?mode=ro", uri=True) as c:
        (at,) = c.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?", [space, table]
        ).fetchone()
    path = at.removeprefix("file://")
    at_snapshot = f", snapshot_from_id => {snapshot}" if snapshot else ""
    return path, f"iceberg_scan('{path}'{at_snapshot})"


con = connect()
con.execute(f"SET threads = {int(threads)}")
con.execute("SET preserve_insertion_order = false")
metadata, table = scan(target)
with open(metadata) as file:
    metadata = json.load(file)
current = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
for name, snapshot in json.loads(current["summary"]["flow.frontier"]).items():
    space, _ = name.rsplit(".", 1)
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {space}")
    con.execute(f"CREATE VIEW {name} AS SELECT * FROM {scan(name, snapshot)[1]}")
copy = f"COPY ({sql}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
con.execute(copy)
cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
before, start = cpu(), time.perf_counter()
con.execute(copy)
seconds, used = time.perf_counter() - start, cpu() - before
peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
columns = ", ".join(f'"{row[0]}"' for row in con.execute(f"DESCRIBE SELECT * FROM '{out}'").fetchall())
con.execute(f"CREATE TEMP TABLE there AS SELECT * FROM '{out}'")
con.execute(f"CREATE TEMP TABLE here AS SELECT {columns} FROM {table}")
count = lambda query: con.execute(f"SELECT count(*) FROM {query}").fetchone()[0]
missing = count("(SELECT * FROM there EXCEPT ALL SELECT * FROM here)")
extra = count("(SELECT * FROM here EXCEPT ALL SELECT * FROM there)")
equal = not missing and not extra
print(json.dumps({
    "baseline": {
        "command": f"duckdb {con.execute('SELECT version()').fetchone()[0]}, SET threads = {int(threads)}; {copy}",
        "seconds": round(seconds, 3),
        "cpu_seconds": round(used, 3),
        "peak_rss_mib": peak,
    },
    "content": {"rows": count("here"), "expected": count("there"), "missing": missing, "unexpected": extra, "equal": equal},
}))
sys.exit(0 if equal else 1)
