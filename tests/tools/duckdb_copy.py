"""Baseline of the copy benchmark: DuckDB's PostgreSQL scanner writes a table as zstd Parquet.

  python duckdb_copy.py CONNINFO SCHEMA.TABLE OUT THREADS

Runs twice and reports the second: {"command", "seconds", "rows_per_second", "cpu_seconds", "peak_rss_mib"}.
"""
import json
import resource
import sys
import time

from duckdb_read import connect

conninfo, table, out, threads = sys.argv[1:5]
con = connect(pg=conninfo)
con.execute(f"SET threads = {int(threads)}")
con.execute("SET preserve_insertion_order = false")
sql = f"COPY (SELECT * FROM p.{table}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
con.execute(sql)
cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
before, start = cpu(), time.perf_counter()
con.execute(sql)
seconds, used = time.perf_counter() - start, cpu() - before
rows = con.execute(f"SELECT count(*) FROM '{out}'").fetchone()[0]
print(json.dumps({
    "command": f"duckdb {con.execute('SELECT version()').fetchone()[0]}, SET threads = {int(threads)}; {sql}",
    "seconds": round(seconds, 3),
    "rows": rows,
    "rows_per_second": round(rows / seconds),
    "cpu_seconds": round(used, 3),
    "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
}))
