"""Reads lake tables with DuckDB and PyIceberg for the tests of flow-lake: one JSON command a line, one answer a line.

Every value is answered as a text that keeps all of it: floats as bits, moments as counts, bytes as hex, so that two
programs' answers can be compared without rounding or formatting.
"""
import json
import os
import struct
import sys
import uuid

import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tests/tools"))


def text(value, kind):
    if value is None:
        return None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "[" + ",".join("null" if v is None else text(v, kind.value_type) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, bytes):
        return value.hex()
    if pa.types.is_decimal(kind):
        return format(value, "f")
    return str(value)


def plain(column):
    """Turns moments into counts, which Python's own types cannot hold at their extremes."""
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64())
    if isinstance(kind, pa.BaseExtensionType):
        return pa.chunked_array([c.storage for c in column.chunks], kind.storage_type)
    if pa.types.is_list(kind) and (pa.types.is_date32(kind.value_type) or pa.types.is_timestamp(kind.value_type)):
        return column.cast(pa.list_(pa.int32() if pa.types.is_date32(kind.value_type) else pa.int64()))
    return column


def rows(table):
    columns = []
    for name in table.column_names:
        kind = table.column(name).type
        column = plain(table.column(name))
        columns.append([text(v, column.type) for v in column.to_pylist()])
    return {"types": [str(f.type) for f in table.schema], "rows": [list(r) for r in zip(*columns)]}


class Programs:
    def __init__(self):
        self.con = None

    def duckdb(self, metadata, uuids=(), snapshot=None):
        import duckdb_read

        if self.con is None:
            self.con = duckdb_read.connect()
        at = f", snapshot_from_id={snapshot}" if snapshot else ""
        table = self.con.sql(f"SELECT * FROM iceberg_scan('{metadata}'{at})").to_arrow_table()
        answer = rows(table)
        for index in uuids:  # DuckDB hands a uuid over as text
            for row in answer["rows"]:
                row[index] = row[index] and row[index].replace("-", "")
        return answer

    def sql(self, query):
        import duckdb_read

        if self.con is None:
            self.con = duckdb_read.connect()
        return rows(self.con.sql(query).to_arrow_table())

    def catalog(self, path):
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("flow", uri=f"sqlite:///{path}", warehouse=os.path.dirname(path), init_catalog_tables="false")

    def list(self, catalog):
        found = self.catalog(catalog)
        return {"namespaces": [".".join(n) for n in found.list_namespaces()],
                "tables": [".".join(t) for n in found.list_namespaces() for t in found.list_tables(n)]}

    def pyiceberg(self, catalog, table, snapshot=None):
        found = self.catalog(catalog).load_table(table)
        return rows(found.scan(snapshot_id=snapshot).to_arrow())

    def describe(self, catalog, table):
        found = self.catalog(catalog).load_table(table)
        schema = found.schema()
        summary = found.current_snapshot().summary
        return {"identifiers": sorted(schema.identifier_field_ids),
                "fields": [[f.field_id, f.name, str(f.field_type), f.required] for f in schema.fields],
                "operation": summary.operation.value,
                "summary": summary.additional_properties,
                "snapshots": len(found.metadata.snapshots)}

    def append(self, catalog, table, times=1):
        """Appends a copy of the first row, trying again when another writer was faster."""
        from pyiceberg.exceptions import CommitFailedException

        conflicts = 0
        row = self.catalog(catalog).load_table(table).scan(limit=1).to_arrow()
        for _ in range(times):
            while True:
                found = self.catalog(catalog).load_table(table)
                try:
                    found.append(row.cast(found.schema().as_arrow()))
                    break
                except CommitFailedException:
                    conflicts += 1
        return {"conflicts": conflicts}

    def create(self, catalog, table):
        """Creates a partitioned table of types this project never writes, and fills it."""
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema
        from pyiceberg.transforms import IdentityTransform
        from pyiceberg.types import FixedType, IntegerType, NestedField, StringType, StructType

        schema = Schema(NestedField(1, "n", IntegerType(), required=False),
                        NestedField(2, "kind", StringType(), required=False),
                        NestedField(3, "code", FixedType(3), required=False),
                        NestedField(4, "m", IntegerType(), required=False))
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
        found = self.catalog(catalog).create_table(table, schema, partition_spec=spec)
        arrow = found.schema().as_arrow()
        for kind in ("a", "b"):
            found.append(pa.table({"n": [1, 2], "kind": [kind, kind], "code": [b"xyz", None], "m": [10, 20]}, schema=arrow))
        found.delete("n = 2 and kind = 'b'")
        return {"snapshot": found.current_snapshot().snapshot_id}


def main():
    programs = Programs()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(programs, command.pop("do"))(**command)
        except Exception as error:  # the test prints it
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), flush=True)


main()
