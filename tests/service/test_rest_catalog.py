"""Other programs use the catalog over HTTP: they read our tables while we publish, and keep tables of their own."""
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from flowtest import oracle, workload
from flowtest.postgres import TOOLS
from flowtest.waiting import wait_for

pytestmark = pytest.mark.any_major

TOKEN = "open-sesame"


def uri(flow):
    flow.http("/livez")
    return f"http://{flow.address}/iceberg"


def duckdb(flow, **kw):
    from duckdb_read import connect

    return connect(rest=uri(flow), warehouse="flow", **kw)


def pyiceberg(flow, **kw):
    from pyiceberg.catalog.rest import RestCatalog

    return RestCatalog("flow", uri=uri(flow), **kw)


def call(flow, method, path, body=None, headers=()):
    """Sends a request by hand; gives code and document."""
    request = urllib.request.Request(uri(flow) + path, method=method, data=body and json.dumps(body).encode(), headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture
def served(database, make_flow):
    workload.prepare(database)
    flow = make_flow(database, workload.TABLES)
    flow.start().wait_ready()
    return flow


def test_clients_read_ours_and_write_their_own_while_we_publish(served, database, read, rng):
    import pyarrow as pa
    from pyiceberg.types import IntegerType

    flow = served
    con, rest = duckdb(flow), pyiceberg(flow)
    with workload.Writers(database, rng, largest=200) as writers:
        # Both see our tables as they are published.
        assert ("bronze",) in rest.list_namespaces()
        assert ("bronze", "item") in rest.list_tables("bronze")
        start = con.execute("SELECT count(*) FROM c.bronze.event").fetchone()[0]
        assert len(rest.load_table("bronze.event").scan().to_arrow()) >= start > 0
        writers.wait_commits(20)

        # DuckDB: schema, CTAS, rows of several statements, deletes, two tables in one transaction.
        con.execute("CREATE SCHEMA c.mine")
        con.execute("CREATE TABLE c.mine.copied AS SELECT id, label, \"at\" FROM c.bronze.item")
        copied = con.execute("SELECT count(*) FROM c.mine.copied").fetchone()[0]
        assert copied > 0
        con.execute("CREATE TABLE c.mine.pairs (id BIGINT, tags VARCHAR[], inner_ STRUCT(a INTEGER, b VARCHAR))")
        con.execute("INSERT INTO c.mine.pairs VALUES (1, ['x', NULL], {'a': 1, 'b': 'one'}), (2, [], NULL)")
        con.execute("BEGIN")
        con.execute("INSERT INTO c.mine.pairs VALUES (3, NULL, {'a': 3, 'b': 'three'})")
        con.execute("DELETE FROM c.mine.copied WHERE id IS NOT NULL")
        con.execute("COMMIT")
        assert con.execute("SELECT id, tags, inner_.b FROM c.mine.pairs ORDER BY id").fetchall() == [
            (1, ["x", None], "one"), (2, [], None), (3, None, "three")]
        assert con.execute("SELECT count(*) FROM c.mine.copied").fetchone()[0] == 0

        # PyIceberg: the same tables, and its own with schema changes, deletes, rename, registration.
        assert rest.load_table("mine.pairs").scan().to_arrow().num_rows == 3
        rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]})
        rest.create_namespace("mine.deep")
        table = rest.create_table("mine.deep.names", rows.schema)
        table.append(rows)
        with table.update_schema() as change:
            change.add_column("extra", IntegerType())
        table.append(pa.table({"id": pa.array([4], pa.int64()), "name": ["d"], "extra": pa.array([7], pa.int32())}))
        table.delete("id = 1")
        rest.rename_table("mine.deep.names", "mine.names")
        table = rest.load_table("mine.names")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [2, 3, 4]
        rest.drop_table("mine.names")
        assert not rest.table_exists("mine.names")
        rest.register_table("mine.names", table.metadata_location)
        assert con.execute("SELECT id, extra FROM c.mine.names ORDER BY id").fetchall() == [(2, None), (3, None), (4, 7)]

        # What is ours stays ours, and says so.
        for statement in ("INSERT INTO c.bronze.event SELECT * FROM c.bronze.event", "DROP TABLE c.bronze.event"):
            with pytest.raises(Exception, match="(?i)403|forbidden|written by Embrasure Flow"):
                con.execute(statement)
        with pytest.raises(Exception, match="written by Embrasure Flow"):
            rest.load_table("bronze.event").delete("kind = 'start'")
        with pytest.raises(Exception, match="written by Embrasure Flow"):
            rest.drop_table("bronze.event")

        creators(flow, rows.schema)
        writers.wait_commits(10)
    flow.wait_caught_up()
    oracle.check_all(flow, read(flow))
    lake_input(flow, rest, con)
    con.execute("DROP TABLE c.mine.pairs")
    con.execute("DROP TABLE c.mine.copied")
    assert ("mine", "pairs") not in rest.list_tables("mine")


def creators(flow, schema):
    """Many make the same table at once, and append to it: one makes it, and no append is lost."""
    import pyarrow as pa
    from pyiceberg.exceptions import TableAlreadyExistsError

    made, failures = [], []

    def one(number):
        try:
            rest = pyiceberg(flow)
            try:
                rest.create_table("mine.raced", schema, properties={"commit.retry.num-retries": "50"})
                made.append(number)
            except TableAlreadyExistsError:
                pass
            table = rest.load_table("mine.raced")
            table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]}))
        except Exception as error:  # noqa: BLE001 - told below, with the thread's number
            failures.append((number, repr(error)))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert len(made) == 1, made
    found = pyiceberg(flow).load_table("mine.raced").scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == list(range(4))


def lake_input(flow, rest, con):
    """A client's table is an input of a dynamic table, and its commits wake it."""
    import pyarrow as pa

    flow.transformation("named", "CREATE DYNAMIC TABLE gold.named AS SELECT name, count(*) AS n FROM mine.names GROUP BY name;")
    flow.reload()
    query = "SELECT name, n FROM c.gold.named ORDER BY name NULLS LAST"

    def shows(wanted):
        table = flow.dynamic_table("gold.named")
        return table and table["state"] == "fresh" and con.execute(query).fetchall() == wanted

    wait_for(lambda: f"the dynamic table\n{flow.log_tail()}", lambda: shows([("b", 1), ("d", 1), (None, 1)]), 30)
    rest.load_table("mine.names").append(pa.table({"id": pa.array([5], pa.int64()), "name": ["b"], "extra": pa.array([1], pa.int32())}))
    wait_for(lambda: f"the dynamic table\n{flow.log_tail()}", lambda: shows([("b", 2), ("d", 1), (None, 1)]), 30)


def test_routes_answer_by_hand_and_in_time(served, database):
    flow = served
    code, config = call(flow, "GET", "/v1/config?warehouse=flow")
    assert code == 200 and config["overrides"] == {"prefix": "flow"}
    assert call(flow, "GET", "/v1/config?warehouse=other")[0] == 404
    # Loading stays quick while snapshots come.
    path = "/v1/flow/namespaces/bronze/tables/event"
    snapshots = lambda: len(call(flow, "GET", path)[1]["metadata"]["snapshots"])

    def another():
        database.execute("INSERT INTO event VALUES ('x', now(), '{}')")
        return snapshots() >= 40

    wait_for("snapshots", another, 60, 0.05)
    times = []
    for _ in range(60):
        began = time.monotonic()
        assert call(flow, "GET", path)[0] == 200
        times.append(time.monotonic() - began)
    assert sorted(times)[30] < 0.1, times


def test_token_guards_the_catalog(database, make_flow):
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    database.publish("t")
    flow = make_flow(database, ["public.t"], env={"FLOW_HTTP_TOKEN": TOKEN}, http={"listen": "127.0.0.1:0", "token_env": "FLOW_HTTP_TOKEN"})
    flow.start()
    wait_for("readiness", lambda: (flow.http("/readyz") or (0,))[0] == 200)
    code, document = call(flow, "GET", "/v1/config")
    assert (code, document["error"]["type"]) == (401, "NotAuthorizedException")
    assert [flow.http(path)[0] for path in ("/livez", "/metrics", "/status")] == [200, 200, 401]
    rest, con = pyiceberg(flow, token=TOKEN), duckdb(flow, token=TOKEN)
    assert rest.load_table("public.t").scan().to_arrow()["id"].to_pylist() == [1]
    assert con.execute("SELECT id FROM c.public.t").fetchall() == [(1,)]
    # Clients that stay attached do not keep the stopped service's catalog open.
    flow.stop()
    assert sorted(path.name for path in flow.warehouse.glob("catalog.db*")) == ["catalog.db"]
    con.close()


@pytest.mark.lane("spark")
@pytest.mark.timeout(1700)
def test_spark_reads_ours_and_writes_its_own(served, database, rng, read, spark):
    flow = served
    with workload.Writers(database, rng, largest=200) as writers:
        writers.wait_commits(20)
        done = subprocess.run(
            [str(spark / "venv/bin/python"), str(TOOLS / "spark_sql.py"), "--jars", str(spark / "jars"), "--rest", uri(flow),
             "SELECT count(*) AS n FROM bronze.item",
             "CREATE NAMESPACE mine",
             "CREATE TABLE mine.t (id bigint, name string) PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('format-version' = '2')",
             "INSERT INTO mine.t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
             "DELETE FROM mine.t WHERE id = 2",
             "ALTER TABLE mine.t ADD COLUMN extra int",
             "INSERT INTO mine.t VALUES (4, 'd', 7)",
             "CREATE TABLE mine.ctas USING iceberg AS SELECT id, label FROM bronze.item",
             "CALL flow.system.rewrite_data_files('mine.t')",
             "CALL flow.system.expire_snapshots(table => 'mine.t', retain_last => 1)",
             "ALTER TABLE mine.t RENAME TO mine.u",
             "SELECT id, name, extra FROM mine.u ORDER BY id",
             "SELECT (SELECT count(*) FROM mine.ctas) > 0 AS some",
             "SHOW TABLES IN mine",
             "DROP TABLE mine.ctas PURGE"],
            capture_output=True, text=True, timeout=900,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("[", "{"))]
        assert done.returncode == 0, f"{answers}\n{done.stderr[-3000:]}"
    assert answers[0][0]["n"] > 0
    assert answers[11] == [{"id": 1, "name": "a", "extra": None}, {"id": 3, "name": "c", "extra": None}, {"id": 4, "name": "d", "extra": 7}]
    assert answers[12] == [{"some": True}]
    refused = subprocess.run(
        [str(spark / "venv/bin/python"), str(TOOLS / "spark_sql.py"), "--jars", str(spark / "jars"), "--rest", uri(flow),
         "DELETE FROM bronze.event"],
        capture_output=True, text=True, timeout=300,
    )
    assert refused.returncode == 1 and "written by Embrasure Flow" in refused.stdout, refused.stdout
    assert duckdb(flow).execute("SELECT id, extra FROM c.mine.u ORDER BY id").fetchall() == [(1, None), (3, None), (4, 7)]
    flow.wait_caught_up()
    oracle.check_all(flow, read(flow))
