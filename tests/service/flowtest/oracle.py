"""The oracle: PostgreSQL's own answer against what other programs read from the lake.

Every column of every row is compared, as a multiset of rows. PostgreSQL prints, we parse: each value becomes a
canonical text, so that a difference in type, scale, sign of zero, time zone or NULL cannot hide.
"""
import collections
import datetime
import decimal
import re
import struct
import uuid

from .lake import quoted

class Column:
    """One column of a PostgreSQL table as the catalog describes it, domains resolved."""

    def __init__(self, name, kind, category, modifier, element, override=None):
        self.name = name
        self.kind = kind
        self.category = category
        self.modifier = modifier
        self.element = element
        self.override = override

    @property
    def scale(self):
        """Is (precision, scale) when the column becomes a decimal."""
        if self.override:
            found = re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", self.override)
            return (int(found[1]), int(found[2])) if found else None
        if self.modifier is None or self.modifier < 4:
            return None
        precision, scale = ((self.modifier - 4) >> 16) & 0xFFFF, (self.modifier - 4) & 0x7FF
        scale = (scale ^ 1024) - 1024
        return (precision, scale) if precision <= 38 and 0 <= scale <= precision else None


def columns_of(database, table):
    """Describes the columns of a table that are sent."""
    rows = database.rows(
        """
        WITH RECURSIVE base(attnum, attname, oid, typmod) AS (
            SELECT attnum, attname, atttypid, atttypmod FROM pg_attribute
            WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
          UNION ALL
            SELECT b.attnum, b.attname, t.typbasetype, CASE WHEN t.typtypmod >= 0 THEN t.typtypmod ELSE b.typmod END
            FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
        )
        SELECT b.attname, t.typname, t.typtype, t.typcategory, b.typmod, e.typname, e.typtype
        FROM base b JOIN pg_type t ON t.oid = b.oid LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
        WHERE t.typtype <> 'd' ORDER BY b.attnum
        """,
        [table],
    )
    out = []
    for name, kind, typtype, category, modifier, element, element_type in rows:
        if category == "A":
            out.append(Column(name, "enum" if element_type == "e" else element, "A", modifier, element))
        else:
            out.append(Column(name, "enum" if typtype == "e" else kind, "S", modifier, None))
    return out


def select_exact(column, value):
    """Is the SQL that prints a value of this type without loss: numbers for dates and times, hex for bytes."""
    kind = column.kind
    if column.override == "time":
        return f"((extract(epoch FROM {value}) * 1000000)::bigint)"
    if column.override == "string":
        return value
    if kind == "date":
        return f"({value} - date '1970-01-01')"
    if kind in ("timestamp", "timestamptz"):
        return f"((extract(epoch FROM {value}) * 1000000)::bigint)"
    if kind == "bytea":
        return f"encode({value}, 'hex')"
    return value


def select_list(columns):
    parts = []
    for c in columns:
        value = "t." + quoted(c.name)
        if c.category == "A":
            inner = select_exact(c, "u.x")
            if inner != "u.x":
                value = (
                    f"CASE WHEN {value} IS NULL THEN NULL ELSE (SELECT coalesce(array_agg({inner} ORDER BY u.n),"
                    f" '{{}}') FROM unnest({value}) WITH ORDINALITY AS u(x, n)) END"
                )
            parts.append(value)
        else:
            parts.append(select_exact(c, value))
    return ", ".join(parts)


def raw_rows(connection, sql):
    """Gives every value as the text PostgreSQL prints, None for NULL."""
    result = connection.pgconn.exec_(sql.encode())
    if result.status not in (2,):  # PGRES_TUPLES_OK
        raise AssertionError(result.error_message.decode() + sql)
    get = result.get_value
    return [
        [None if (v := get(r, c)) is None else v.decode() for c in range(result.nfields)] for r in range(result.ntuples)
    ]


def parse_array(text):
    """Parses one-dimensional array output."""
    items, at = [], 1
    assert text[0] == "{" and text[-1] == "}", text
    while at < len(text) - 1:
        if text[at] == '"':
            at += 1
            item = []
            while text[at] != '"':
                if text[at] == "\\":
                    at += 1
                item.append(text[at])
                at += 1
            items.append("".join(item))
            at += 1
        else:
            end = min(e for e in (text.find(",", at), len(text) - 1) if e >= 0)
            word = text[at:end]
            items.append(None if word == "NULL" else word)
            at = end
        if at < len(text) - 1:
            assert text[at] == ",", text
            at += 1
    return items


def float_key(value, width):
    """Is the bits of a float; all NaNs are one."""
    if value != value:
        return "NaN"
    return struct.pack(">f" if width == 4 else ">d", value).hex()


def expected_value(column, text):
    """Turns PostgreSQL's text into the canonical text."""
    if text is None:
        return None
    kind = column.kind
    if column.override in ("string", "time"):
        return text
    if kind == "bool":
        return {"t": "true", "f": "false"}[text]
    if kind in ("float4", "float8"):
        return float_key(float(text), int(kind[5:]))
    if kind == "numeric" and column.scale:
        return format(decimal.Decimal(text), "f") if column.override is None else format(
            decimal.Decimal(text).quantize(decimal.Decimal(1).scaleb(-column.scale[1]), context=WIDE), "f")
    return text


WIDE = decimal.Context(prec=80)


def expected_rows(database, table, columns, connection=None, where=""):
    connection = connection or database.connection
    rows = raw_rows(connection, f"SELECT {select_list(columns)} FROM {table} AS t {where}")
    out = []
    for row in rows:
        values = []
        for column, text in zip(columns, row):
            if column.category == "A" and text is not None:
                values.append("[" + ",".join(repr(expected_value(column, v)) for v in parse_array(text)) + "]")
            else:
                values.append(expected_value(column, text))
        out.append(tuple(values))
    return out


def read_value(column, value):
    """Turns what a reader gave into the canonical text."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(repr(read_value(column, v)) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_key(value, 4 if column.kind == "float4" else 8)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.time):
        return str(((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raw = bytes(value)
        return str(uuid.UUID(bytes=raw)) if column.kind == "uuid" else raw.hex()
    return str(value)


def differences(expected, found, limit=6):
    """Explains how two multisets of rows differ; empty when they do not."""
    want, have = collections.Counter(expected), collections.Counter(found)
    missing, extra = want - have, have - want
    if not missing and not extra:
        return ""
    show = lambda counter: "\n".join(f"    {n}× {str(row)[:400]}" for row, n in list(counter.items())[:limit])
    return (
        f"{sum(want.values())} rows expected, {sum(have.values())} found\n"
        f"  missing {sum(missing.values())}:\n{show(missing)}\n  unexpected {sum(extra.values())}:\n{show(extra)}"
    )


def check_table(flow, source, target, readers, types=None, columns=None, connection=None, where=""):
    """Compares one table. `source` is SQL's name of it, `target` the lake's; `columns` the names expected there."""
    described = columns_of(flow.database, source)
    if columns is not None:
        described = [c for c in described if c.name in columns]
    for column in described:
        column.override = (types or {}).get(column.name)
    expected = expected_rows(flow.database, source, described, connection, where)
    for reader in readers:
        names, rows = reader.rows(target)
        assert names == [c.name for c in described], f"{reader.name}: {target} has columns {names}"
        found = [tuple(read_value(c, v) for c, v in zip(described, row)) for row in rows]
        why = differences(expected, found)
        assert not why, f"{reader.name} reads {target} otherwise than PostgreSQL: {why}"
    return len(expected)


def check_all(flow, readers, lsn=None, seconds=60, pairs=None):
    """Waits for everything committed so far, then compares every configured table."""
    flow.wait_caught_up(lsn, seconds)
    counts = {}
    for table in flow.tables:
        source, target = table["source"], table.get("target", table["source"].replace('"', ""))
        if pairs is None or target in pairs:
            counts[target] = check_table(flow, source, target, readers, table.get("types"), table.get("columns"))
    return counts


def check_query(flow, name, sql, readers, tolerance=1e-12):
    """Compares a dynamic table with PostgreSQL's answer to the same query; floats within a relative tolerance."""
    with flow.database.connect() as c:
        names, wanted = answer(c, sql)
    for reader in readers:
        columns, rows = reader.rows(name, skip=LINEAGE)
        compare_rows(f"{reader.name}: {name}", names, wanted, columns, rows, tolerance)


def answer(connection, sql):
    """Gives column names and plain rows of PostgreSQL's answer."""
    cursor = connection.execute(sql)
    return [d.name for d in cursor.description], [tuple(plain_value(v) for v in row) for row in cursor.fetchall()]


def compare_rows(what, names, wanted, columns, rows, tolerance=1e-12):
    """Asserts that what a reader found is PostgreSQL's answer."""
    assert columns == names, f"{what} has columns {columns}, the query {names}"
    found = [tuple(plain_value(v) for v in row) for row in rows]
    assert len(found) == len(wanted), f"{what}: {len(wanted)} rows expected, {len(found)} found\n{wanted[:5]}\n{found[:5]}"
    for want, have in zip(sorted(wanted, key=order), sorted(found, key=order)):
        same = all(equal(a, b, tolerance) for a, b in zip(want, have))
        assert same, f"{what}: expected {want}, found {have}"


LINEAGE = ("_flow_input_snapshot_id", "_flow_job_run_id", "_flow_processed_at", "_flow_refresh_mode")


def plain_value(value):
    """Brings dates, times, decimals and numbers of both sides to one form."""
    if isinstance(value, datetime.datetime):
        epoch = datetime.datetime(1970, 1, 1, tzinfo=value.tzinfo and datetime.timezone.utc)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    if isinstance(value, decimal.Decimal):
        return value.normalize(WIDE)
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


def order(row):
    """Sorts rows; floats are rounded so that two that count as equal sort alike."""
    key = lambda v: float(f"{v:.9g}") if isinstance(v, float) else v
    kind = lambda v: "" if v is None else "nan" if v != v else type(v).__name__
    return tuple((v is None, kind(v), 0 if v is None or v != v else key(v)) for v in row)


def equal(a, b, tolerance):
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(abs(a), abs(b))
    return a == b and (a is None) == (b is None)
