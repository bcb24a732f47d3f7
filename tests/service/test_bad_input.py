"""What the user must change is said at once, completely, with the exit code that means it, and without secrets."""
import contextlib
import os
import shutil
import subprocess

import psycopg
import pytest

from conftest import scratch
from flowtest import oracle
from flowtest.daemon import binary
from flowtest.postgres import Server, free_port
from flowtest.waiting import wait_for


@pytest.fixture
def simple(database, make_flow):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 10) g")
    database.publish("t")
    return make_flow(database, ["public.t"])


@pytest.fixture
def server_with(major):
    """Starts servers with settings of their own: `server_with(PG_CONF=…)`."""
    made = []

    def start(**env):
        server = Server(major, scratch("pgown"), **env)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def slots(database):
    return database.rows("SELECT slot_name FROM pg_replication_slots WHERE database = %s", [database.name])


# ---- configuration

def edit(flow, old, new):
    text = flow.config.read_text()
    assert old in text
    flow.config.write_text(text.replace(old, new, 1))


def line_of(flow, needle):
    return next(n for n, line in enumerate(flow.config.read_text().splitlines(), 1) if needle in line)


def test_all_problems_at_once(simple):
    edit(simple, 'interval = "100ms"', 'interval = "100 parsecs"\nintervall = "1s"')
    edit(simple, "[http]", '[http]\ntoken_env = "FLOW_TEST_NOT_SET"')
    simple.config.write_text(simple.config.read_text() + '\n[[tables]]\nsource = "public.u"\ntarget = "public.t"\n')
    result = simple.run("check").expect(78, "parsecs|interval", "intervall", "FLOW_TEST_NOT_SET", r"public\.t")
    assert str(line_of(simple, "intervall")) in result.err + result.out


@pytest.mark.any_major
def test_two_tables_with_one_target(simple, database):
    """Both lines are named; where a schema's tables are only known to the server, both tables are."""
    simple.tables = [{"source": "public.t", "target": "a.x"}, {"source": "public.u", "target": "a.x"}]
    simple.write_config()
    first, second = [n for n, line in enumerate(simple.config.read_text().splitlines(), 1) if line == 'target = "a.x"']
    for command in ("check", "init", "run", "plan"):
        simple.run(command).expect(78, rf"flow\.toml:{second}:\d+: tables\[1\]\.target: 'a\.x' is the target of tables\[0\] \(line {first}\)")
    simple.tables = [{"source": "public.*"}, {"source": "public.t", "target": "public.w"}]
    database.execute("CREATE TABLE w (id int PRIMARY KEY)", "ALTER PUBLICATION embrasure_flow ADD TABLE w")
    simple.write_config()
    simple.run("init").expect(78, "F0010", r"public\.t", r"public\.w")
    assert slots(database) == []


@pytest.mark.any_major
@pytest.mark.parametrize("command", ["check", "init", "run", "discover", "plan"])
def test_unknown_key(simple, command):
    edit(simple, "slot =", "slott =")
    simple.run(command).expect(78, "slott", str(line_of(simple, "slott")))


def test_missing_environment_variable(simple):
    simple.env["FLOW_POSTGRES_URL"] = ""
    simple.run("check", "--source").expect(78, "FLOW_POSTGRES_URL")
    edit(simple, "FLOW_POSTGRES_URL", "FLOW_TEST_NOT_SET")
    simple.run("check").expect(78, "FLOW_TEST_NOT_SET")


def test_not_toml_and_no_file(simple):
    simple.config.write_text("state_dir = \n")
    simple.run("check").expect(78, r"flow\.toml", "1")
    simple.config.unlink()
    simple.run("check").expect(78, r"flow\.toml")


def test_catalog_inside_state_dir(simple):
    edit(simple, 'warehouse = "warehouse"', 'warehouse = "warehouse"\npath = "state/catalog.db"')
    simple.run("check").expect(78, "state", "path")


def test_not_loopback_needs_a_token(simple):
    edit(simple, "127.0.0.1:0", "0.0.0.0:0")
    simple.run("check").expect(78, "token")


@pytest.mark.any_major
def test_usage():
    run = lambda *a: subprocess.run([binary(), *a], capture_output=True, text=True, timeout=30)
    assert run("no-such-command").returncode == 2
    for command in ["new", "check", "discover", "init", "run", "status", "plan", "dag", "apply", "refresh", "suspend", "resume", "query"]:
        done = run(command, "--help")
        assert done.returncode == 0 and "embrasure-flow" in done.stdout, command
        assert "xample" in done.stdout, f"{command} --help shows an example"


def test_new_writes_what_check_accepts(database, folder):
    made = folder / "fresh"
    assert subprocess.run([binary(), "new", str(made)], timeout=30).returncode == 0
    env = {**os.environ, "FLOW_POSTGRES_URL": database.url}
    database.publish()
    done = subprocess.run([binary(), "--config", str(made / "flow.toml"), "check"], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode in (0, 78), done
    assert (made / "transformations").is_dir()
    again = subprocess.run([binary(), "new", str(made)], capture_output=True, text=True, timeout=30)
    assert again.returncode == 78, "an existing flow.toml is never overwritten"


# ---- source

def test_good_source_passes_every_check(simple):
    simple.run("check", "--source", "--catalog").expect(0)
    found = simple.run("discover").expect(0)
    assert "[[tables]]" in found.out and "public.t" in found.out


@pytest.mark.parametrize("command", [("check", "--source"), ("run", "--init")])
def test_wrong_password(server_with, make_flow, command):
    server = server_with(PG_PASSWORD="right-secret", PGPASSWORD="right-secret")

    class There:
        name = "postgres"
        url = server.url("postgres", password="wrong-secret")

    flow = make_flow(There, ["public.t"])
    result = flow.run(*command).expect(78, "password|authentication")
    assert "wrong-secret" not in result.out + result.err


def test_tls(server_with, make_flow):
    server = server_with(PG_SSL="1")
    database = server.create_database("tls")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)", "CREATE PUBLICATION embrasure_flow FOR TABLE t")
    flow = make_flow(database, ["public.t"])
    ca = server.folder / "server.crt"
    good = database.url.replace("127.0.0.1", "localhost") + f"?sslmode=verify-full&sslrootcert={ca}"
    for url, code in [
        (good, 0),
        (database.url + "?sslmode=require", 0),
        (database.url.replace("127.0.0.1", "localhost") + "?sslmode=verify-full", 78),
        (f"postgresql://postgres@localhost:{server.port}/tls?sslmode=verify-full&sslrootcert=/nowhere.crt", 78),
    ]:
        flow.env["FLOW_POSTGRES_URL"] = url
        result = flow.run("check", "--source")
        assert result.code == code, (url, result)
    flow.env["FLOW_POSTGRES_URL"] = good
    flow.start().wait_ready()
    used = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.backend_type = 'walsender'"
    assert database.value(used) is True
    flow.stop()
    database.drop()


def test_unreachable(simple):
    simple.env["FLOW_POSTGRES_URL"] = f"postgresql://postgres@127.0.0.1:{free_port()}/nowhere"
    simple.run("check", "--source").expect(75)
    edit(simple, 'retry_for = "60s"', 'retry_for = "2s"')
    simple.run("run", "--init").expect(75)


def test_wal_level(server_with, make_flow):
    server = server_with(PG_CONF="wal_level=replica\nmax_replication_slots=1")
    database = server.create_database("wal")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION embrasure_flow FOR TABLE t")
    make_flow(database, ["public.t"]).run("check", "--source").expect(78, "wal_level", "slots")
    database.drop()


def test_missing_rights(simple, database):
    role = "weak_" + database.name[-30:]
    database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        simple.env["FLOW_POSTGRES_URL"] = database.server.url(database.name, user=role)
        simple.run("check", "--source").expect(78, "REPLICATION", "SELECT")
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_row_level_security(simple, database):
    role = "reader_" + database.name[-30:]
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY",
    )
    try:
        simple.env["FLOW_POSTGRES_URL"] = database.server.url(database.name, user=role)
        simple.run("check", "--source").expect(78, "row.level security")
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_publication_gaps(database, make_flow):
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    flow = make_flow(database, ["public.t", "public.u"])
    flow.run("check", "--source").expect(78, "publication", "embrasure_flow")
    database.execute("CREATE PUBLICATION embrasure_flow FOR TABLE t WITH (publish = 'insert, update')")
    flow.run("check", "--source").expect(78, r"public\.u", "delete")
    flow.run("init").expect(78, r"public\.u")
    assert slots(database) == []
    database.execute("DROP PUBLICATION embrasure_flow")
    flow.run("init", "--create-publication", timeout=120).expect(0)
    assert database.rows("SELECT tablename FROM pg_publication_tables ORDER BY 1") == [("t",), ("u",)]


def test_tables_that_cannot_be_replicated(database, make_flow):
    database.execute(
        "CREATE TABLE no_key (v int)",
        "CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (9)",
        "CREATE TABLE base (id int PRIMARY KEY)", "CREATE TABLE derived (v int) INHERITS (base)",
        "CREATE TABLE other_key (id int PRIMARY KEY, code int NOT NULL UNIQUE)",
        "CREATE TABLE generated_key (v int, id int GENERATED ALWAYS AS (v * 2) STORED PRIMARY KEY)",
        "CREATE TABLE fine (id int PRIMARY KEY)",
    )
    database.publish()
    tables = ["public.no_key", "public.part", "public.base", {"source": "public.other_key", "primary_key": ["code"]}, "public.generated_key",
              "public.fine", "public.missing"]
    flow = make_flow(database, tables)
    result = flow.run("check", "--source").expect(78, "no_key", "part", "base", "other_key", "generated_key", "missing")
    assert "append_only" in result.out + result.err
    flow.run("init").expect(78)
    assert slots(database) == []


# ---- slot, state directory, targets

def test_slot_dropped_is_never_made_again(simple, database):
    simple.start().wait_ready()
    simple.stop()
    database.execute(f"SELECT pg_drop_replication_slot('{simple.slot}')")
    for words in (("run",), ("run", "--init")):
        simple.run(*words).expect(79, "slot")
    assert slots(database) == []


def test_slot_made_anew_by_somebody(simple, database):
    simple.start().wait_ready()
    simple.stop()
    database.execute(
        f"SELECT pg_drop_replication_slot('{simple.slot}')", "INSERT INTO t VALUES (100, 1)",
        f"SELECT pg_create_logical_replication_slot('{simple.slot}', 'pgoutput')",
    )
    simple.run("run").expect(79)


def test_slot_advanced_by_somebody(simple, database):
    simple.start().wait_ready()
    simple.wait_caught_up()
    simple.stop()
    database.execute("INSERT INTO t VALUES (100, 1)", f"SELECT pg_replication_slot_advance('{simple.slot}', pg_current_wal_flush_lsn())")
    simple.run("run").expect(79)


def test_slot_invalidated(server_with, make_flow):
    server = server_with(PG_CONF="max_slot_wal_keep_size=1MB\nmin_wal_size=32MB\nmax_wal_size=32MB")
    database = server.create_database("lost")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE x (v text)", "CREATE PUBLICATION embrasure_flow FOR TABLE t")
    flow = make_flow(database, ["public.t"])
    flow.start().wait_ready()
    flow.stop()
    status = "SELECT wal_status FROM pg_replication_slots"

    def lost():
        database.execute("INSERT INTO x SELECT repeat('x', 1000) FROM generate_series(1, 30000)", "SELECT pg_switch_wal()", "CHECKPOINT")
        return database.value(status) == "lost"

    wait_for("the slot to be invalidated", lost, 60)
    flow.run("run").expect(79, "slot")
    database.drop()


@contextlib.contextmanager
def slot_held(database, slot):
    """Lets another program stream from the slot for a while."""
    holder = subprocess.Popen(
        ["pg_recvlogical", "-d", database.url, "--slot", slot, "--start", "-f", "/dev/null",
         "-o", "proto_version=1", "-o", "publication_names=embrasure_flow", "--no-loop"],
        stderr=subprocess.DEVNULL,
    )
    try:
        held = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        wait_for("the slot to be held", lambda: database.value(held, [slot]))
        yield
    finally:
        holder.terminate()
        holder.wait(20)


def test_slot_held_by_another_is_waited_for(simple, database):
    simple.start().wait_ready()
    simple.stop()
    with slot_held(database, simple.slot):
        simple.allow("slot", "in use", "active", "retry", "source")
        simple.start(init=False)
        wait_for("the service to report it", lambda: "active" in simple.log_tail(200) or "slot" in simple.log_tail(200))
        assert simple.alive()
    simple.wait_ready(60)


def test_slot_held_by_another_for_too_long(simple, database):
    simple.start().wait_ready()
    simple.stop()
    edit(simple, 'retry_for = "60s"', 'retry_for = "2s"')
    with slot_held(database, simple.slot):
        simple.run("run").expect(75, "held by server process")
    database.execute("INSERT INTO t VALUES (100, 1)")
    simple.start(init=False).wait_ready()
    simple.wait_caught_up()


@pytest.mark.parametrize("source", ["public.t", "public.*"])
def test_slot_on_another_system(database, make_flow, server_with, source):
    """A connection string that leads to another cluster is noticed before anything is asked of it."""
    tables = ["CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 1)"]
    database.execute(*tables)
    database.publish("t")
    flow = make_flow(database, [{"source": source}])
    flow.run("init", timeout=120).expect(0)
    other = server_with().create_database(database.name)
    other.execute(*tables)
    other.publish("t", "u")
    flow.env["FLOW_POSTGRES_URL"] = other.url
    for words in (("run",), ("run", "--init")):
        flow.run(*words).expect(79, "another database system", "system identifier")
    # With a table to copy, init would have something to do there.
    flow.tables.append({"source": "public.u"})
    flow.write_config()
    for publication in ("kept", "dropped"):
        for words in (("run",), ("run", "--init"), ("init",), ("init", "--create-publication")):
            if source == "public.t" and words == ("run",):
                continue  # refused before the server is asked: the table has no copy
            flow.run(*words).expect(79, "another database system")
        other.execute("DROP PUBLICATION IF EXISTS embrasure_flow")
    assert slots(other) == [] and other.rows("SELECT pubname FROM pg_publication") == []
    flow.env["FLOW_POSTGRES_URL"] = database.url
    database.execute("ALTER PUBLICATION embrasure_flow ADD TABLE u")
    flow.start().wait_ready()
    flow.wait_caught_up()
    other.drop()


def test_server_out_of_connections(simple, database, read):
    """Refused for want of a free connection, the service tries again until there is one."""
    role = "few_" + database.name[-30:]
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        simple.env["FLOW_POSTGRES_URL"] = database.server.url(database.name, user=role)
        simple.start().wait_ready()
        simple.stop()
        simple.allow("too many connections")
        database.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0", "INSERT INTO t VALUES (100, 1)")
        simple.run("check", "--source").expect(75, "too many connections")
        simple.start(init=False)
        wait_for("the service to be refused", lambda: simple.log_tail(50).count("too many connections") >= 2)
        assert simple.alive()
        database.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        assert oracle.check_all(simple, read(simple)) == {"public.t": 11}
        simple.stop()
    finally:
        simple.close()
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_server_out_of_wal_senders(server_with, make_flow, read):
    """The same for the replication connection, which is counted apart, in a service that streams."""
    database = server_with(PG_CONF="max_wal_senders=3").create_database("senders")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    database.publish("t")
    flow = make_flow(database, ["public.t"])
    flow.allow("terminat", "max_wal_senders", "no connection")
    flow.start().wait_ready()
    others = []

    def taken():
        database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_replication WHERE application_name LIKE 'embrasure%'")
        try:
            others.append(psycopg.connect(database.url + "?replication=database", autocommit=True))
        except psycopg.OperationalError:
            pass  # the service was faster
        return len(others) == 3

    wait_for("all senders to be taken", taken)
    wait_for("the service to be refused", lambda: "max_wal_senders" in flow.log_tail(50))
    assert flow.alive()
    database.execute("INSERT INTO t VALUES (2, 2)")
    for other in others:
        other.close()
    assert oracle.check_all(flow, read(flow)) == {"public.t": 2}
    flow.stop()
    database.drop()


def test_lost_state_directory(simple, database):
    simple.start().wait_ready()
    simple.stop()
    shutil.rmtree(simple.state_dir)
    for words in (("run",), ("run", "--init"), ("init",)):
        simple.run(*words).expect(79, "state")
    assert slots(database) == [(simple.slot,)], "nothing was dropped"


@pytest.mark.any_major
def test_state_directory_of_another_source(simple, database, make_flow):
    simple.start().wait_ready()
    simple.stop()
    simple.sections["source"]["id"] = "another"
    simple.write_config()
    simple.run("run").expect(78, "another|test")
    simple.sections["source"].update(id="test", slot="other_slot")
    simple.write_config()
    simple.run("run").expect(78, "slot")


@pytest.mark.any_major
def test_second_process_on_one_state_directory(simple):
    simple.start().wait_ready()
    simple.run("run").expect(75, "state")
    assert simple.alive()


def test_existing_target_is_refused(simple, database, make_flow):
    """A table of somebody else in the catalog is never written to."""
    import pyarrow as pa
    from pyiceberg.catalog.sql import SqlCatalog

    simple.warehouse.mkdir()
    catalog = SqlCatalog("flow", uri=f"sqlite:///{simple.catalog}", warehouse=f"file://{simple.warehouse}")
    catalog.create_namespace("public")
    table = catalog.create_table("public.t", schema=pa.schema([("x", pa.int32())]))
    table.append(pa.table({"x": pa.array([1], pa.int32())}))
    simple.run("init").expect(78, r"public\.t")
    assert catalog.load_table("public.t").scan().to_arrow().to_pylist() == [{"x": 1}]
    assert slots(database) == []


def test_foreign_commit_blocks_its_table(database, make_flow, read):
    import pyarrow as pa

    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1)")
    database.publish()
    flow = make_flow(database, ["public.t", "public.u"])
    flow.allow(r"public\.t", "foreign", "block")
    flow.start().wait_ready()
    readers = read(flow)
    table = readers[1].load("public.t")
    table.append(pa.table({"id": pa.array([99], pa.int32()), "v": pa.array([99], pa.int32())}, schema=table.schema().as_arrow()))
    database.execute("UPDATE t SET v = 2", "UPDATE u SET v = 2")
    flow.wait_blocked("public.t")
    flow.wait_caught_up()
    oracle.check_table(flow, "u", "public.u", readers)


@pytest.mark.any_major
def test_setting_an_initialised_table_cannot_follow(simple):
    simple.start().wait_ready()
    simple.stop()
    simple.tables[0]["types"] = {"v": "string"}
    simple.write_config()
    simple.run("run").expect(78, r"public\.t", "types|schema")
    del simple.tables[0]["types"]
    simple.tables[0]["target"] = "elsewhere.t"
    simple.write_config()
    result = simple.run("run")
    assert result.code == 78, result


def test_another_publication_is_refused(simple, database, read):
    """A setting that names another publication says nothing of the tables' rows; none is given up for it."""
    simple.start().wait_ready()
    simple.stop()
    database.execute("CREATE PUBLICATION other FOR TABLE t")
    for name in ("other", "nowhere"):
        simple.sections["source"]["publication"] = name
        simple.write_config()
        simple.run("run").expect(78, f'"{name}"|publication')
    del simple.sections["source"]["publication"]
    simple.write_config()
    database.execute("UPDATE t SET v = v + 1")
    simple.start().wait_ready()
    oracle.check_all(simple, read(simple))


# ---- changes of the source's shape

BREAKING = {
    "truncate": (["TRUNCATE t"], "TRUNCATE"),
    "truncate_and_reload": (["TRUNCATE t", "INSERT INTO t VALUES (1, 1, 'n')"], "TRUNCATE"),
    "add_column": (["ALTER TABLE t ADD COLUMN more int DEFAULT 7", "UPDATE t SET more = 8"], "more"),
    "drop_column": (["ALTER TABLE t DROP COLUMN w", "UPDATE t SET v = 9"], r"\bw\b"),
    "rename_column": (["ALTER TABLE t RENAME COLUMN w TO ww", "UPDATE t SET v = 9"], "w"),
    "drop_and_add_in_one": (["BEGIN; ALTER TABLE t DROP COLUMN w; ALTER TABLE t ADD COLUMN x text; UPDATE t SET v = 9; COMMIT"], "w|x"),
    "change_type": (["ALTER TABLE t ALTER v TYPE bigint", "UPDATE t SET v = 5000000000"], r"\bv\b"),
    "change_identity": (["ALTER TABLE t REPLICA IDENTITY NOTHING", "INSERT INTO t VALUES (77, 1, 'n')"], "identity|key"),
}


@pytest.mark.parametrize("case", BREAKING)
def test_unsupported_change_blocks_its_table_alone(database, make_flow, read, case):
    statements, pattern = BREAKING[case]
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int, w text)", f"INSERT INTO {name} SELECT g, g, 'w' FROM generate_series(1, 10) g")
    database.publish("t", "u")
    flow = make_flow(database, ["public.t", "public.u"])
    flow.allow(r"public\.t", "block")
    flow.start().wait_ready()
    readers = read(flow)
    database.execute("UPDATE t SET v = v + 1", "UPDATE u SET v = v + 1")
    oracle.check_all(flow, readers)
    before = readers[0].rows("public.t")
    database.execute(*statements)
    flow.wait_blocked("public.t", pattern)
    database.execute("UPDATE u SET v = v + 1")
    flow.wait_caught_up()
    oracle.check_table(flow, "u", "public.u", readers)
    assert sorted(readers[0].rows("public.t")[1]) == sorted(before[1]), "the blocked table stays as it was before the change"
    flow.restart(init=False)
    flow.wait_blocked("public.t")
    oracle.check_table(flow, "u", "public.u", readers)


def test_enum_value_added_while_streaming(database, make_flow, read):
    database.execute("CREATE TYPE mood AS ENUM ('a')", "CREATE TABLE t (id int PRIMARY KEY, m mood, ms mood[])", "INSERT INTO t VALUES (1, 'a', '{a}')")
    database.publish()
    flow = make_flow(database, ["public.t"])
    flow.start().wait_ready()
    database.execute("ALTER TYPE mood ADD VALUE 'b'")
    database.execute("INSERT INTO t VALUES (2, 'b', '{b,a}')")
    oracle.check_all(flow, read(flow))


@pytest.mark.parametrize("case", ["drop_table_and_add", "drop_blocked_table_and_add", "drop_operation"])
def test_publication_changed_behind_our_back(database, make_flow, read, case):
    """ALTER PUBLICATION is not in the stream: rows may be missing for ever, so the tables need a resync."""
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)", f"INSERT INTO {name} VALUES (1, 1)")
    database.publish("t", "u")
    flow = make_flow(database, ["public.t", "public.u"])
    flow.allow("publication", "resync", r"public\.")
    flow.start().wait_ready()
    if case == "drop_blocked_table_and_add":
        database.execute("TRUNCATE t")
        flow.wait_blocked("public.t", "truncate")
        database.execute("ALTER PUBLICATION embrasure_flow DROP TABLE t", "INSERT INTO t VALUES (2, 2)")
        database.execute("ALTER PUBLICATION embrasure_flow ADD TABLE t")
        wait_for("t to be given up", lambda: flow.table("public.t")["state"] == "resync_required")
        flow.wait_blocked("public.t", "publication.*truncate")
    elif case == "drop_table_and_add":
        database.execute("ALTER PUBLICATION embrasure_flow DROP TABLE t")
        database.execute("UPDATE t SET v = 2")
        database.execute("ALTER PUBLICATION embrasure_flow ADD TABLE t")
        flow.wait_blocked("public.t", "publication")
        assert flow.table("public.t")["state"] == "resync_required"
        database.execute("UPDATE u SET v = 2")
        flow.wait_caught_up()
        oracle.check_table(flow, "u", "public.u", read(flow))
    else:
        database.execute("ALTER PUBLICATION embrasure_flow SET (publish = 'insert')")
        assert flow.wait_exit(60) == 79
        flow.start()
        assert flow.wait_exit(60) == 79, "a restart must not look healthy"


@pytest.mark.parametrize("source", ["public.t", "public.*"])
@pytest.mark.parametrize("then", ["gone", "made_again"])
def test_publication_dropped(database, make_flow, source, then):
    """Every table may have lost changes, for good: 79 from the running service and from each later start."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    database.publish("t")
    flow = make_flow(database, [{"source": source}])
    flow.allow("publication", "resync", r"public\.t")
    flow.start().wait_ready()
    database.execute("DROP PUBLICATION embrasure_flow", "UPDATE t SET v = 2")
    if then == "made_again":
        database.publish("t")
        database.execute("UPDATE t SET v = 3")
    assert flow.wait_exit(60) == 79, flow.log_tail()
    for words in (("run",), ("run", "--init"), ("run",)):
        flow.run(*words).expect(79, "publication")


@pytest.mark.parametrize("source", ["public.t", "public.*"])
def test_publication_dropped_while_stopped(database, make_flow, source):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    database.publish("t")
    flow = make_flow(database, [{"source": source}])
    flow.run("init", timeout=120).expect(0)
    database.execute("DROP PUBLICATION embrasure_flow")
    for words in (("run",), ("run", "--init")):
        flow.run(*words).expect(79, "publication.*dropped")


def test_publication_changed_while_copying(database, make_flow, read):
    """A table that was copied is given up if the publication may have lost its rows before the rest was."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    database.execute("CREATE TABLE u (id int PRIMARY KEY, v text)", "INSERT INTO u SELECT g, repeat('u', 300) FROM generate_series(1, 100000) g")
    database.publish("t", "u")
    flow = make_flow(database, ["public.t", "public.u"])
    flow.allow("publication", "resync", r"public\.")
    flow.run("init", timeout=120, env={"FLOW_FAILPOINT": "operation_completed:1"})
    assert (flow.state_dir / "failpoint.hit").exists(), "no copy was completed"
    database.execute("ALTER PUBLICATION embrasure_flow DROP TABLE t", "UPDATE t SET v = 2", "ALTER PUBLICATION embrasure_flow ADD TABLE t")
    flow.start()
    flow.wait_blocked("public.t", "publication")
    assert flow.table("public.t")["state"] == "resync_required"
    flow.wait_ready()
    oracle.check_table(flow, "u", "public.u", read(flow))


def test_disk_floor_pauses_capture(simple, database, read):
    """Below the floor capture waits; it goes on by itself when there is room again."""
    simple.allow("disk", "free", "pause")
    simple.sections["limits"]["min_free_bytes"] = "1000TiB"
    simple.write_config()
    result = None
    simple.start()
    try:
        wait_for("a word about the disk", lambda: not simple.alive() or "min_free_bytes" in simple.log_tail(100) or "disk" in simple.log_tail(100), 30)
        result = simple.process.poll()
    finally:
        simple.close()
    assert result in (None, 78)


# The harness is part of what is tested: it must see a wrong row.
@pytest.mark.any_major
def test_the_oracle_sees_a_difference():
    assert oracle.differences([("1", None)], [("1", None)]) == ""
    assert oracle.differences([("1", None)], [("1", "")])
    assert oracle.differences([("1",), ("1",)], [("1",)])
    assert oracle.float_key(0.0, 8) != oracle.float_key(-0.0, 8)
    assert oracle.parse_array('{a,NULL,"NULL","q\\"x",""}') == ["a", None, "NULL", 'q"x', ""]
    assert not oracle.equal(1.0, 1.0 + 1e-11, 1e-12) and oracle.equal(1e300, 1e300 * (1 + 1e-13), 1e-12)
    assert not oracle.equal(None, 0, 1e-12)

