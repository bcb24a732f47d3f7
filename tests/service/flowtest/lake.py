"""Reading the lake as strangers do: the catalog is an SQLite file, the tables are read by DuckDB and PyIceberg."""
import sys
import pathlib
import sqlite3

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from duckdb_read import connect  # noqa: E402


def plain(path):
    """Turns a file:// location into a path."""
    return path.removeprefix("file://")


def pointers(catalog, names=None):
    """Reads (namespace.name → metadata file) of all tables, and the published LSN, in one transaction."""
    c = sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=10)
    try:
        c.execute("BEGIN")
        rows = c.execute("SELECT table_namespace, table_name, metadata_location FROM iceberg_tables").fetchall()
        source = c.execute("SELECT published_lsn, published_epoch FROM flow_sources").fetchone()
        c.execute("COMMIT")
    finally:
        c.close()
    found = {f"{space}.{name}": plain(at) for space, name, at in rows if at}
    return {n: found[n] for n in names} if names else found, source


class DuckReader:
    """Reads with DuckDB by metadata file."""

    name = "DuckDB"

    def __init__(self, catalog):
        self.catalog = catalog
        self.con = connect()

    def close(self):
        self.con.close()

    def scan(self, table, metadata=None):
        """Is the SQL that reads a table's current snapshot."""
        metadata = metadata or pointers(self.catalog)[0][table]
        return f"iceberg_scan('{metadata}')"

    def columns(self, table, metadata=None):
        """Lists (name, DuckDB type)."""
        rows = self.con.execute(f"DESCRIBE SELECT * FROM {self.scan(table, metadata)}").fetchall()
        return [(r[0], r[1]) for r in rows]

    def query(self, sql):
        return self.con.execute(sql).fetchall()

    def rows(self, table, metadata=None, skip=()):
        """Gives column names and rows, dates and times as whole numbers."""
        columns = [c for c in self.columns(table, metadata) if c[0] not in skip]
        selected = ", ".join(exact(quoted(name), kind) for name, kind in columns)
        return [c[0] for c in columns], self.query(f"SELECT {selected} FROM {self.scan(table, metadata)}")

    def snapshots(self, table, metadata=None):
        metadata = metadata or pointers(self.catalog)[0][table]
        return self.query(f"SELECT snapshot_id, timestamp_ms FROM iceberg_snapshots('{metadata}')")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def exact(value, kind):
    """Wraps a DuckDB value so that Python gets it without loss."""
    if kind.endswith("[]"):
        inner = exact("x", kind[:-2])
        return value if inner == "x" else f"list_transform({value}, x -> {inner})"
    if kind == "DATE":
        return f"({value} - DATE '1970-01-01')"
    if kind.startswith("TIMESTAMP"):
        return f"epoch_us({value})"
    return value


class PyIcebergReader:
    """Reads with PyIceberg through its own SQL catalog on the same file."""

    name = "PyIceberg"

    def __init__(self, catalog):
        from pyiceberg.catalog.sql import SqlCatalog

        warehouse = pathlib.Path(catalog).parent
        self.catalog = SqlCatalog("flow", uri=f"sqlite:///{catalog}", warehouse=f"file://{warehouse}")

    def close(self):
        self.catalog.engine.dispose()

    def load(self, table):
        space, name = table.rsplit(".", 1)
        return self.catalog.load_table((*space.split("."), name) if "." in space else (space, name))

    def rows(self, table, skip=()):
        import pyarrow as pa

        arrow = self.load(table).scan().to_arrow()
        names = [n for n in arrow.column_names if n not in skip]
        columns = [numbers(arrow.column(n).combine_chunks(), pa).to_pylist() for n in names]
        return names, list(zip(*columns)) if columns else []


def numbers(array, pa):
    """Turns dates and times into whole numbers, also within lists."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_date32(kind):
        return array.cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = numbers(array.values, pa)
        if inner.type != array.values.type:
            factory = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
            return factory.from_arrays(array.offsets, inner, mask=array.is_null())
    return array


def duckdb_version():
    return duckdb.__version__
