"""Compares a table of the lake with PostgreSQL's, every column of every row, in DuckDB.

  python compare_table.py CATALOG NAMESPACE.TABLE CONNINFO SCHEMA.TABLE [COLUMNS]

Prints {"rows": N, "equal": true}; exits 1 when any row differs. For tables whose types both sides share.
"""
import json
import sqlite3
import sys

from duckdb_read import connect

catalog, target, conninfo, source = sys.argv[1:5]
columns = sys.argv[5] if len(sys.argv) > 5 else "*"
space, name = target.rsplit(".", 1)
with sqlite3.connect(f"file:{catalog}?mode=ro", uri=True) as c:
    (at,) = c.execute(
        "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?", [space, name]
    ).fetchone()
con = connect(pg=conninfo)
con.execute("SET preserve_insertion_order = false")
con.execute(f"CREATE TEMP TABLE here AS SELECT {columns} FROM iceberg_scan('{at.removeprefix('file://')}')")
con.execute(f"CREATE TEMP TABLE there AS SELECT {columns} FROM p.{source}")
rows, wanted = con.execute("SELECT (SELECT count(*) FROM here), (SELECT count(*) FROM there)").fetchone()
missing = con.execute("SELECT count(*) FROM (SELECT * FROM there EXCEPT ALL SELECT * FROM here)").fetchone()[0]
extra = con.execute("SELECT count(*) FROM (SELECT * FROM here EXCEPT ALL SELECT * FROM there)").fetchone()[0]
print(json.dumps({"rows": rows, "expected": wanted, "missing": missing, "unexpected": extra, "equal": not missing and not extra}))
sys.exit(0 if not missing and not extra else 1)
