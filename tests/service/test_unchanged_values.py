"""Values that PostgreSQL does not send again because they did not change keep their content."""
import pytest

from flowtest import oracle

def prepare(database, identity):
    database.execute(
        "CREATE TABLE doc (id int PRIMARY KEY, n int, body text, meta jsonb, raw bytea, numbers int[], reals real[])",
        *[f"ALTER TABLE doc ALTER {c} SET STORAGE EXTERNAL" for c in ("body", "meta", "raw", "numbers", "reals")],
        f"ALTER TABLE doc REPLICA IDENTITY {identity}",
    )
    insert = (
        "INSERT INTO doc SELECT i, 0, (SELECT string_agg(md5((i * g)::text), '') FROM generate_series(1, 400) g),"
        " jsonb_build_object('k', repeat('v', 9000), 'i', i), decode(repeat(md5(i::text), 300), 'hex'),"
        " ARRAY(SELECT g * i FROM generate_series(1, 5000) g), ARRAY(SELECT (g / 7.0)::real FROM generate_series(1, 5000) g)"
        " FROM generate_series({}, {}) i"
    )
    database.execute(insert.format(1, 10))
    database.publish("doc")
    return insert


@pytest.mark.parametrize("identity, hot_rows", [("DEFAULT", "auto"), ("DEFAULT", True), ("FULL", "auto"), ("FULL", True), ("FULL", False)])
def test_update_of_another_column(database, make_flow, read, identity, hot_rows):
    insert = prepare(database, identity)
    flow = make_flow(database, [{"source": "public.doc", "hot_rows": hot_rows}])
    flow.start().wait_ready()
    readers = read(flow)
    database.execute("UPDATE doc SET n = n + 1")  # rows that came by copy
    oracle.check_all(flow, readers)
    database.execute(insert.format(11, 20))
    database.execute("UPDATE doc SET n = n + 1 WHERE id > 5")  # rows that came by stream
    oracle.check_all(flow, readers)
    database.transaction(insert.format(21, 30), "UPDATE doc SET n = 7 WHERE id > 20", "UPDATE doc SET n = n + 1 WHERE id = 1")
    database.transaction("UPDATE doc SET id = id + 1000 WHERE id <= 4", "UPDATE doc SET n = -1 WHERE id > 1000")
    oracle.check_all(flow, readers)
    database.transaction("UPDATE doc SET body = NULL WHERE id = 6", "UPDATE doc SET n = 8 WHERE id = 6")
    database.transaction("DELETE FROM doc WHERE id = 7", insert.format(7, 7), "UPDATE doc SET n = 9 WHERE id = 7")
    flow.restart(init=False)
    flow.wait_ready()
    database.execute("UPDATE doc SET n = n + 1")
    assert oracle.check_all(flow, read(flow))["public.doc"] == 30


def test_neither_old_tuple_nor_hot_row(database, make_flow, read):
    """Nothing here has the unchanged value: the table stops before it, with what to do, and keeps its content."""
    prepare(database, "DEFAULT")
    flow = make_flow(database, [{"source": "public.doc", "hot_rows": False}])
    flow.allow(r"public\.doc", "block")
    flow.start().wait_ready()
    flow.wait_caught_up()
    readers = read(flow)
    before = readers[0].rows("public.doc")
    database.execute("UPDATE doc SET n = n + 1")
    flow.wait_blocked("public.doc", "F0005", "TOAST")
    assert readers[0].rows("public.doc") == before


@pytest.mark.parametrize("together", [False, True])
def test_small_row_with_a_value_out_of_line(database, make_flow, read, together):
    """A value that went out of line when its row was large stays there when the row becomes small, and is left out of
    every later update."""
    database.execute("CREATE TABLE doc (id int PRIMARY KEY, n int, a text, b text, c text, d text, e text)")
    database.execute(*[f"ALTER TABLE doc ALTER {c} SET STORAGE EXTERNAL" for c in "abcde"])
    database.publish("doc")
    flow = make_flow(database, ["public.doc"])
    flow.start().wait_ready()
    readers = read(flow)
    # Five texts of 450 bytes are more than a page may hold of a row: one goes out of line.
    texts = ", ".join(f"repeat('{c}', 450)" for c in "abcde")
    insert = f"INSERT INTO doc SELECT g, 0, {texts} FROM generate_series(1, 20) g"
    smaller = [f"UPDATE doc SET {', '.join(f'{o} = NULL' for o in 'abcde' if o != c)} WHERE id % 5 = {n}" for n, c in enumerate("abcde")]
    if together:
        database.transaction(insert, *smaller)
    else:
        database.execute(insert)
        oracle.check_all(flow, readers)
        database.execute(*smaller)
    oracle.check_all(flow, readers)
    toast = database.value("SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 'doc'")
    assert database.value(f"SELECT count(*) FROM {toast}") > 0, "some value is still out of line"
    for _ in range(3):
        database.execute("UPDATE doc SET n = n + 1")
        assert oracle.check_all(flow, readers) == {"public.doc": 20}
    database.transaction("UPDATE doc SET id = id + 100", "UPDATE doc SET n = n + 1")
    flow.restart(init=False)
    flow.wait_ready()
    database.execute("UPDATE doc SET n = n + 1")
    assert oracle.check_all(flow, readers) == {"public.doc": 20}
    # Emptied, it needs no copy; filled again, it has one.
    database.execute("UPDATE doc SET a = NULL, b = NULL, c = NULL, d = NULL, e = NULL", "UPDATE doc SET n = n + 1")
    oracle.check_all(flow, readers)


def test_text_that_looks_like_a_placeholder(database, make_flow, read):
    database.execute(
        "CREATE TABLE doc (id int PRIMARY KEY, n int, body text)",
        "INSERT INTO doc VALUES (1, 0, '__debezium_unavailable_value'), (2, 0, 'unchanged_toast'), (3, 0, '\\N')",
    )
    database.publish("doc")
    flow = make_flow(database, ["public.doc"])
    flow.start().wait_ready()
    database.execute("UPDATE doc SET n = 1")
    oracle.check_all(flow, read(flow))
