"""Each type at its extremes, through COPY, INSERT, UPDATE and DELETE, as key where allowed, NULL both ways."""
import re

import pytest

from flowtest import oracle

#: For each type the values that other systems got wrong, and the ends of its range.
TYPES = {
    "boolean": ["true", "false"],
    "smallint": ["-32768", "32767", "0"],
    "integer": ["-2147483648", "2147483647", "0"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0"],
    "real": ["'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "3.4028235e38", "1e-45", "0.1"],
    "double precision": ["'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "1.7976931348623157e308", "5e-324", "0.1"],
    "numeric(38,0)": ["99999999999999999999999999999999999999", "-99999999999999999999999999999999999999", "0", "70"],
    "numeric(30,5)": ["1234567890123456789012345.12345", "-0.00001", "0", "7e1"],
    "numeric(9,9)": ["0.999999999", "-0.000000001"],
    "numeric(38,38)": ["0.99999999999999999999999999999999999999", "-0.00000000000000000000000000000000000001"],
    "numeric": ["'NaN'", "'-Infinity'", "1e-100", "123456789012345678901234567890123456789012345678901234567890.5", "1.50", "1.500", "7e1", "0"],
    "numeric(50,2)": ["123456789012345678901234567890123456789012345678.99", "-0.01"],
    "numeric(5,-2)": ["12300", "-99999"],
    "text": ["''", "'NULL'", r"'\N'", "E'a\\nb\\tc\\\\d\"e'", "'漢字 🙂 e\u0301'", "repeat('x', 100000)"],
    "varchar(5)": ["'ab   '", "''"],
    "char(6)": ["'ab'", "''"],
    "json": ["'{\"b\": 1,  \"a\": [null, 1.0], \"b\": 2}'", "'null'", "'\"x\"'"],
    "jsonb": ["'{\"b\": 1, \"a\": [null, 1.0], \"b\": 2}'", "'null'", "'1e400'"],
    "mood": ["'sad'", "'so-so, \"ok\"'"],
    "time": ["'00:00:00'", "'24:00:00'", "'23:59:59.999999'"],
    "bytea": [r"'\x'", r"'\x00ff00'", "decode(repeat('00ff', 5000), 'hex')"],
    "date": ["'4713-01-01 BC'", "'0001-01-01'", "'1969-12-31'", "'2024-02-29'", "'9999-12-31'", "'20231-01-01'", "'5874897-12-31'"],
    "timestamp": ["'1969-12-31 23:59:59.999999'", "'0001-01-01'", "'4713-01-01 BC'", "'9999-12-31 23:59:59.999999'", "'2024-03-31 02:30'"],
    "timestamptz": ["'1969-12-31 23:59:59.999999Z'", "'0001-01-01 00:00Z'", "'9999-12-31 23:59:59.999999Z'", "'2024-03-31 02:30+01'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'12345678-9abc-def0-1234-56789abcdef0'"],
    "year_of_birth": ["1900", "2024"],
    "integer[]": ["'{}'", "'{1,NULL,-2147483648}'", "ARRAY(SELECT g FROM generate_series(1, 5000) g)"],
    "text[]": ["'{}'", r"""'{"a,b","",NULL,"NULL","q\"uote"}'""", "ARRAY['{', '}', E'\\\\']"],
    "numeric(10,2)[]": ["'{1.00,NULL,-0.01}'"],
    "real[]": ["'{NaN,0.1,-0}'"],
    "boolean[]": ["'{t,f,NULL}'"],
    "date[]": ["'{2024-02-29,NULL,0001-01-01}'"],
    "timestamptz[]": ["'{\"2024-03-31 02:30+01\",NULL}'"],
    "uuid[]": ["'{12345678-9abc-def0-1234-56789abcdef0,NULL}'"],
    "bytea[]": [r"""'{"\\x00ff",NULL}'"""],
    "mood[]": ["'{sad,\"so-so, \\\"ok\\\"\"}'"],
}
#: Types with exact equality may be keys; floats too, but not as identifier fields.
KEYS = [
    "boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric(38,0)", "numeric(30,5)", "numeric(9,9)",
    "numeric", "text", "varchar(5)", "char(6)", "mood", "time", "bytea", "date", "timestamp", "timestamptz", "uuid", "year_of_birth",
]


def declare(database):
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'so-so, \"ok\"')",
        "CREATE DOMAIN year_of_birth AS smallint CHECK (VALUE > 1000)",
    )


def literal(value, kind):
    """Writes a value of TYPES as SQL; numbers are quoted, since -32768::smallint is minus an overflow."""
    return f"'{value}'::{kind}" if value[0] in "-0123456789tf" else f"{value}::{kind}"


def fill(table, kind, base):
    return [f"INSERT INTO {table} (id, v) VALUES ({base + n}, {literal(v, kind)})" for n, v in enumerate(TYPES[kind])]


def numbered(database):
    """Lists (table, type); a negative scale came with PostgreSQL 15."""
    kinds = [kind for kind in TYPES if database.major >= 15 or "-" not in kind]
    return [(f"t{n}", kind) for n, kind in enumerate(kinds)]


def test_every_type_through_copy_and_stream(database, make_flow, read):
    """One table per type: a bad one is named alone. The copy's rows and the stream's rows hold the same values."""
    declare(database)
    for name, kind in numbered(database):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind}, other int)")
        database.transaction(*fill(name, kind, 0), f"INSERT INTO {name} VALUES (90, NULL)")
    database.publish(*[name for name, _ in numbered(database)])
    flow = make_flow(database, [f"public.{name}" for name, _ in numbered(database)])
    flow.start().wait_ready(120)
    readers = read(flow)

    def check():
        flow.wait_caught_up()
        wrong = []
        for name, kind in numbered(database):
            try:
                oracle.check_table(flow, name, f"public.{name}", readers)
            except AssertionError as error:
                wrong.append(f"{kind}: {error}")
        assert not wrong, "\n".join(wrong)

    check()
    for name, kind in numbered(database):
        database.transaction(*fill(name, kind, 100), f"INSERT INTO {name} VALUES (190, NULL)")
    check()
    for name, kind in numbered(database):
        count = len(TYPES[kind])
        rotated = [f"UPDATE {name} SET v = (SELECT v FROM {name} WHERE id = {100 + (n + 1) % count}) WHERE id = {n}" for n in range(count)]
        database.transaction(
            *rotated,
            f"UPDATE {name} SET v = NULL WHERE id = 100",
            f"UPDATE {name} SET v = (SELECT v FROM {name} WHERE id = 0) WHERE id = 190",
            f"UPDATE {name} SET other = 1 WHERE id = {100 + count - 1}",
        )
    check()
    for name, kind in numbered(database):
        database.transaction(f"DELETE FROM {name} WHERE id < 100")
    check()


def test_every_key_type(database, make_flow, read):
    """Rows are found again by their key: update, delete, re-insert and change of the key itself."""
    declare(database)
    for n, kind in enumerate(KEYS):
        database.execute(f"CREATE TABLE k{n} (id {kind} PRIMARY KEY, v int)")
        for m, value in enumerate(TYPES[kind]):
            database.execute(f"INSERT INTO k{n} VALUES ({literal(value, kind)}, {m}) ON CONFLICT DO NOTHING")
    database.publish(*[f"k{n}" for n in range(len(KEYS))])
    flow = make_flow(database, [f"public.k{n}" for n in range(len(KEYS))])
    flow.start().wait_ready(120)
    readers = read(flow)

    def check():
        flow.wait_caught_up()
        wrong = []
        for n, kind in enumerate(KEYS):
            try:
                oracle.check_table(flow, f"k{n}", f"public.k{n}", readers)
            except AssertionError as error:
                wrong.append(f"key {kind}: {error}")
        assert not wrong, "\n".join(wrong)

    check()
    for n, kind in enumerate(KEYS):
        database.execute(f"UPDATE k{n} SET v = v + 100")
    check()
    for n, kind in enumerate(KEYS):
        first, second = (literal(v, kind) for v in TYPES[kind][:2])
        database.transaction(
            f"DELETE FROM k{n} WHERE id = {first}",
            f"INSERT INTO k{n} VALUES ({first}, 7)",
            f"DELETE FROM k{n} WHERE id = {second}",
        )
        database.execute(f"UPDATE k{n} SET id = {second} WHERE id = {first}")
    check()
    for n in range(len(KEYS)):
        database.execute(f"DELETE FROM k{n}")
    check()


def test_composite_key_over_types(database, make_flow, read):
    """Parts of a key must not run into each other: ('a', 'bc') is not ('ab', 'c')."""
    database.execute(
        "CREATE TABLE c (a text, b bytea, d numeric, e timestamptz, v int, PRIMARY KEY (a, b, d, e))",
        r"INSERT INTO c VALUES ('a', 'bc', 1.0, 'epoch', 1), ('ab', 'c', 1.0, 'epoch', 2), ('', '', 0, '2024-01-01Z', 3)",
    )
    database.publish("c")
    flow = make_flow(database, ["public.c"])
    flow.start().wait_ready()
    readers = read(flow)
    oracle.check_all(flow, readers)
    database.execute("UPDATE c SET v = 10 WHERE a = 'a'", "DELETE FROM c WHERE a = 'ab'", "INSERT INTO c VALUES ('ab', 'c', 1.00, 'epoch', 4)")
    oracle.check_all(flow, readers)
    # 1.0 and 1.000 are one key in PostgreSQL.
    database.execute("UPDATE c SET v = 11 WHERE d = 1.000 AND a = 'ab'", "DELETE FROM c WHERE d = 1")
    oracle.check_all(flow, readers)


def test_key_columns_are_identifier_fields(database, make_flow, read):
    database.execute(
        "CREATE TABLE plain (a int, b text, v int NOT NULL, PRIMARY KEY (a, b))",
        "CREATE TABLE floating (a real PRIMARY KEY, v int)",
    )
    database.publish()
    flow = make_flow(database, ["public.plain", "public.floating"])
    flow.start().wait_ready()
    pyiceberg = read(flow)[1]
    schema = pyiceberg.load("public.plain").schema()
    assert {f.name: f.required for f in schema.fields} == {"a": True, "b": True, "v": False}
    assert schema.identifier_field_names() == {"a", "b"}
    schema = pyiceberg.load("public.floating").schema()
    assert {f.name: f.required for f in schema.fields} == {"a": True, "v": False}
    assert schema.identifier_field_names() == set()


def test_lake_types_are_the_documented_ones(database, make_flow, read):
    declare(database)
    wanted = {
        "a": ("smallint", "int"), "b": ("bigint", "long"), "c": ("real", "float"), "d": ("double precision", "double"),
        "e": ("numeric(12,3)", "decimal(12, 3)"), "f": ("numeric", "string"), "g": ("varchar(9)", "string"), "h": ("jsonb", "string"),
        "i": ("mood", "string"), "j": ("time", "string"), "k": ("bytea", "binary"), "l": ("date", "date"),
        "m": ("timestamp", "timestamp"), "n": ("timestamptz", "timestamptz"), "o": ("uuid", "uuid"), "p": ("year_of_birth", "int"),
        "q": ("boolean", "boolean"), "r": ("bigint[]", "list<long>"),
    }
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in wanted.items())
    database.execute(f"CREATE TABLE w (id int PRIMARY KEY, {columns})")
    database.publish("w")
    flow = make_flow(database, ["public.w"])
    flow.start().wait_ready()
    schema = read(flow)[1].load("public.w").schema()
    assert {f.name: str(f.field_type) for f in schema.fields} == {"id": "int", **{n: k for n, (_, k) in wanted.items()}}


BLOCKING = {
    "decimal_nan": ("numeric(10,2)", "'NaN'"),
    "date_infinity": ("date", "'infinity'"),
    "timestamp_infinity": ("timestamp", "'-infinity'"),
    "timestamptz_infinity": ("timestamptz", "'infinity'"),
    "timestamp_past_range": ("timestamp", "'294276-12-31 23:59:59'"),
    "two_dimensions": ("integer[]", "'{{1,2},{3,4}}'"),
    "other_lower_bound": ("integer[]", "'[0:1]={1,2}'"),
}


@pytest.mark.parametrize("where", ["copy", "stream"])
def test_value_the_type_cannot_hold_blocks_its_table_alone(database, make_flow, read, where):
    """No placeholder, no NULL, no clamp: the table stops before the value and the rest go on."""
    cases = {k: v for k, v in BLOCKING.items() if k != "timestamp_past_range"}
    database.execute("CREATE TABLE fine (id int PRIMARY KEY, v text)")
    for name, (kind, _) in cases.items():
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind})", f"INSERT INTO {name} VALUES (1, NULL)")
    database.publish()
    flow = make_flow(database, ["public.fine", *[f"public.{n}" for n in cases]])
    flow.allow("block", "cannot", *cases)
    bad = [f"INSERT INTO {name} VALUES (2, {value})" for name, (_, value) in cases.items()]
    if where == "copy":
        database.execute(*bad)
        flow.start()
    else:
        flow.start().wait_ready()
        database.execute(*bad)
    for name in cases:
        flow.wait_blocked(f"public.{name}", name, r"\bv\b")
    database.execute("INSERT INTO fine SELECT g, 'x' FROM generate_series(1, 10) g")
    flow.wait_caught_up()
    readers = read(flow)
    oracle.check_table(flow, "fine", "public.fine", readers)
    if where == "stream":
        for name in cases:
            oracle.check_table(flow, name, f"public.{name}", readers, where="WHERE t.id = 1")
    assert flow.run("status").code in (0, 3)


def test_chosen_types_hold_what_the_default_cannot(database, make_flow, read):
    database.execute(
        "CREATE TABLE chosen (id int PRIMARY KEY, a numeric(10,2), b date, c numeric, d timestamptz, e time)",
        "INSERT INTO chosen VALUES (1, 'NaN', 'infinity', 1.5, '-infinity', '12:34:56.789'), (2, 1, '2024-01-01', -7, 'epoch', NULL)",
    )
    database.publish("chosen")
    types = {"a": "string", "b": "string", "c": "decimal(38,9)", "d": "string", "e": "time"}
    flow = make_flow(database, [{"source": "public.chosen", "types": types}], env={"PGTZ": "UTC"})
    flow.start().wait_ready()
    readers = read(flow)
    oracle.check_all(flow, readers)
    database.execute("INSERT INTO chosen VALUES (3, '0.10', '-infinity', 123456789.123456789, 'infinity', '00:00:00')", "UPDATE chosen SET c = 1e20 WHERE id = 1")
    oracle.check_all(flow, readers)
    flow.allow("block", "chosen")
    database.execute("INSERT INTO chosen (id, c) VALUES (4, 0.0000000001)")  # ten decimals do not fit
    flow.wait_blocked("public.chosen", r"\bc\b")


@pytest.mark.parametrize("kind", ["interval", "money", "timetz", "point", "int4range", "inet", "tsvector", "bit(3)", "xml", "oid"])
def test_other_types_are_refused_by_name(database, make_flow, kind):
    database.execute(f'CREATE TABLE odd (id int PRIMARY KEY, "the column" {kind})')
    database.publish("odd")
    flow = make_flow(database, ["public.odd"])
    named = database.value("SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'odd'::regclass AND attnum = 2")
    flow.run("check", "--source").expect(78, "odd", "the column", re.escape(named))
    flow.run("init").expect(78, "odd", "the column")
    assert "the column" in (r := flow.run("discover").expect(0)).out + r.err
    assert database.rows("SELECT slot_name FROM pg_replication_slots WHERE database = %s", [database.name]) == []
