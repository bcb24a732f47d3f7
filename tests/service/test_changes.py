"""Single kinds of change that other systems got wrong."""
from flowtest import oracle


def start(database, make_flow, read, tables):
    database.publish()
    flow = make_flow(database, tables)
    flow.start().wait_ready()
    return flow, read(flow)


def test_key_changes_leave_no_old_row(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 100) g")
    flow, readers = start(database, make_flow, read, ["public.t"])
    database.execute("UPDATE t SET id = id + 1000")
    assert oracle.check_all(flow, readers) == {"public.t": 100}
    database.transaction("UPDATE t SET id = -1 WHERE id = 1001", "UPDATE t SET id = 1001 WHERE id = 1002", "UPDATE t SET id = 1002 WHERE id = -1")
    assert oracle.check_all(flow, readers) == {"public.t": 100}
    database.transaction("UPDATE t SET id = 5 WHERE id = 1010", "UPDATE t SET id = 1010 WHERE id = 5")
    database.transaction("DELETE FROM t WHERE id = 1020", "UPDATE t SET id = 1020 WHERE id = 1021")
    assert oracle.check_all(flow, readers) == {"public.t": 99}


def test_swap_of_deferred_keys(database, make_flow, read):
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT g, repeat('v' || g, 3000) FROM generate_series(1, 10) g",
    )
    flow, readers = start(database, make_flow, read, [{"source": "public.t", "primary_key": ["id"]}])
    database.execute("UPDATE t SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id IN (1, 2)")
    assert oracle.check_all(flow, readers) == {"public.t": 10}
    database.execute("UPDATE t SET id = CASE WHEN id = 10 THEN 1 ELSE id + 1 END")
    assert oracle.check_all(flow, readers) == {"public.t": 10}


def test_insert_and_update_of_one_key_in_one_epoch(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    flow, readers = start(database, make_flow, read, ["public.t"])
    database.transaction(*["INSERT INTO t VALUES (1, 0)"] + ["UPDATE t SET v = v + 1"] * 20)
    for _ in range(20):
        database.execute("UPDATE t SET v = v + 1")
    database.transaction("INSERT INTO t VALUES (2, 0)", "DELETE FROM t WHERE id = 2")
    assert oracle.check_all(flow, readers) == {"public.t": 1}


def test_savepoints_rolled_back_in_a_large_transaction(database, make_flow, read):
    """Of 505 rows 500 were rolled back to a savepoint: five arrive, also when the transaction is large."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    flow, readers = start(database, make_flow, read, ["public.t"])
    with database.connect(autocommit=False) as c:
        c.execute("INSERT INTO t SELECT g, repeat('a', 500) FROM generate_series(1, 5) g")
        c.execute("SAVEPOINT s")
        c.execute("INSERT INTO t SELECT g, repeat('b', 5000) FROM generate_series(6, 505) g")
        c.execute("ROLLBACK TO s")
        c.commit()
    assert oracle.check_all(flow, readers) == {"public.t": 5}


def test_update_to_the_same_value_and_back(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute("INSERT INTO t SELECT g, g FROM generate_series(1, 50) g")
    flow, readers = start(database, make_flow, read, [{"source": "public.t", "primary_key": ["id"]}])
    lsn = flow.wait_caught_up()
    before = readers[1].load("public.t").metadata.current_snapshot_id
    database.transaction("UPDATE t SET v = v + 1", "UPDATE t SET v = v - 1")
    database.execute("UPDATE t SET v = v")
    assert oracle.check_all(flow, readers) == {"public.t": 50}
    assert flow.published() > lsn
    assert readers[1].load("public.t").metadata.current_snapshot_id == before, "no change, no snapshot"


def test_replica_identity_by_another_index(database, make_flow, read):
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v int)", "CREATE UNIQUE INDEX code_key ON t (code)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX code_key", "INSERT INTO t SELECT g, 'c' || g, g FROM generate_series(1, 20) g",
    )
    flow, readers = start(database, make_flow, read, [{"source": "public.t", "primary_key": ["code"]}])
    database.execute("UPDATE t SET v = 0, id = id + 100 WHERE id < 5", "UPDATE t SET code = 'z' WHERE id = 10", "DELETE FROM t WHERE code = 'c11'")
    assert oracle.check_all(flow, readers) == {"public.t": 19}


def test_two_phase_commit(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    flow, readers = start(database, make_flow, read, ["public.t"])
    for number, end in ((1, "COMMIT"), (2, "ROLLBACK")):
        database.execute("BEGIN", f"INSERT INTO t VALUES ({number}, {number})", f"PREPARE TRANSACTION 'flow{number}'")
        database.execute(f"{end} PREPARED 'flow{number}'")
    assert oracle.check_all(flow, readers) == {"public.t": 1}


def test_generated_columns_are_left_out(database, make_flow, read):
    """A generated column that is not sent is missing in copy and stream alike, never NULL in one of them."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int, twice int GENERATED ALWAYS AS (v * 2) STORED, w text)",
        "INSERT INTO t (id, v, w) SELECT g, g, 'w' FROM generate_series(1, 10) g",
    )
    database.publish("t")
    flow = make_flow(database, ["public.t"])
    flow.run("check", "--source").expect(0, "twice")
    flow.start().wait_ready()
    readers = read(flow)
    oracle.check_all(flow, readers)
    database.execute("UPDATE t SET v = v + 1", "INSERT INTO t (id, v, w) VALUES (11, 11, 'x')", "DELETE FROM t WHERE id = 1")
    assert oracle.check_all(flow, readers) == {"public.t": 10}


def test_names_that_need_quotes(database, make_flow, read):
    database.execute(
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."The.Table" ("ID" int PRIMARY KEY, "select" text, "with space" int, "ünï#code" int, "a""b" int)',
        'INSERT INTO "My Schema"."The.Table" VALUES (1, \'a\', 2, 3, 4)',
    )
    flow, readers = start(database, make_flow, read, [{"source": '"My Schema"."The.Table"', "target": "bronze.the_table"}])
    oracle.check_all(flow, readers)
    database.execute('UPDATE "My Schema"."The.Table" SET "select" = NULL, "ünï#code" = 9', 'INSERT INTO "My Schema"."The.Table" VALUES (2, \'b\')')
    assert oracle.check_all(flow, readers) == {"bronze.the_table": 2}


def test_very_wide_table(database, make_flow, read):
    columns = ", ".join(f"c{n} int" for n in range(600))
    database.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {columns})", "INSERT INTO wide (id, c0, c599) VALUES (1, 2, 3)")
    flow, readers = start(database, make_flow, read, ["public.wide"])
    database.execute("UPDATE wide SET c300 = 5", "INSERT INTO wide (id, c1) VALUES (2, 9)")
    assert oracle.check_all(flow, readers) == {"public.wide": 2}


def test_column_that_is_null_everywhere(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, never text, nor numeric(9,2))", "INSERT INTO t VALUES (1)")
    flow, readers = start(database, make_flow, read, ["public.t"])
    database.execute("INSERT INTO t VALUES (2)")
    assert oracle.check_all(flow, readers) == {"public.t": 2}


def test_chosen_columns_and_row_filter(database, make_flow, read, major):
    """Target columns are exactly those the publication sends; its row filter holds for the copy too."""
    if major < 15:
        return  # column lists and row filters came with 15
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, kept int, hidden text)",
        "INSERT INTO t SELECT g, g, 'secret' FROM generate_series(1, 20) g",
        "CREATE PUBLICATION embrasure_flow FOR TABLE t (id, kept) WHERE (id > 10)",
    )
    flow = make_flow(database, ["public.t"])
    result = flow.run("init", timeout=120)
    if result.code == 78:
        assert "filter" in (result.out + result.err).lower(), "a refusal names the row filter"
        return
    flow.start(init=False).wait_ready()
    readers = read(flow)
    database.execute("INSERT INTO t VALUES (5000, 1, 's'), (-1, 1, 's')", "UPDATE t SET kept = 0 WHERE id IN (3, 12)")
    flow.wait_caught_up()
    assert oracle.check_table(flow, "t", "public.t", readers, columns=["id", "kept"], where="WHERE t.id > 10") == 11
