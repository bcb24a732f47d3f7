"""A running service is operated: reloaded, asked, watched while its source is away."""
import csv
import datetime
import io
import json

import pytest

from flowtest import oracle
from flowtest.waiting import wait_for

pytestmark = pytest.mark.any_major


@pytest.fixture
def simple(database, make_flow):
    for name in ("t", "u"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", f"INSERT INTO {name} SELECT g, 'v' || g FROM generate_series(1, 10) g")
    database.publish("t", "u")
    return make_flow(database, ["public.t", "public.u"])


def everything_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_reload_takes_a_new_transformation(simple, database, read):
    flow = simple
    flow.start().wait_ready()
    flow.transformation("counted", "CREATE DYNAMIC TABLE gold.counted AS SELECT count(*) AS n FROM public.t;")
    flow.reload()
    flow.wait_dynamic(names={"gold.counted"})
    readers = read(flow)
    oracle.check_query(flow, "gold.counted", "SELECT count(*) AS n FROM public.t", readers)
    database.execute("INSERT INTO t VALUES (11, 'x')")
    flow.wait_dynamic(names={"gold.counted"})
    oracle.check_query(flow, "gold.counted", "SELECT count(*) AS n FROM public.t", readers)
    # A configuration with a problem changes nothing.
    good = flow.config.read_text()
    flow.allow("unknown key")
    flow.config.write_text(good.replace("[http]", "[http]\nlistenn = 1"))
    flow.reload()
    assert "listenn" in flow.log_tail(50)
    database.execute("INSERT INTO t VALUES (12, 'x')")
    flow.wait_dynamic(names={"gold.counted"})
    oracle.check_query(flow, "gold.counted", "SELECT count(*) AS n FROM public.t", readers)


def test_statement_that_cannot_be_read_is_in_the_status(simple, database):
    """It has no table to stand with."""
    flow = simple
    flow.allow(r"broken\.sql")
    flow.transformation("broken", "CREATE DYNAMIC TABLE gold.good AS SELECT id FROM public.t;\n\nCREATE DYNAMIK TABLE gold.x AS SELECT 1;")
    flow.start().wait_ready()
    [problem] = flow.status()["problems"]
    assert problem["code"] == "F0401" and problem["line"] == 3 and problem["column"] == 8, problem
    assert problem["file"].endswith("transformations/broken.sql"), problem
    flow.run("status").expect(0, r"problem \[F0401\] .*broken\.sql:3:8: ")
    flow.wait_dynamic(names={"gold.good"})
    flow.transformation("broken", "CREATE DYNAMIC TABLE gold.good AS SELECT id FROM public.t;")
    flow.reload()
    wait_for("the problem to go", lambda: flow.status()["problems"] == [])


def test_plan_and_run_refuse_the_same_name(simple, database):
    """A captured table's name is taken before, while and after it is copied, and when it left the configuration."""
    flow = simple
    flow.transformation("taken", "CREATE DYNAMIC TABLE public.u AS SELECT id FROM public.t;")
    words = (r"F0405.*public\.u is already the target",)
    flow.run("plan").expect(78, *words)
    assert not flow.warehouse.exists(), "plan makes nothing"
    flow.allow(*words)
    flow.start().wait_ready()
    assert flow.dynamic_table("public.u")["blocked"]["code"] == "F0405"
    flow.run("plan").expect(78, *words)
    # Now all is in the catalog, and nothing needs the server.
    flow.run("plan", env={"FLOW_POSTGRES_URL": ""}).expect(78, *words)
    flow.stop()
    del flow.tables[1]
    flow.write_config()
    flow.run("plan").expect(78, *words)


def test_table_that_left_the_configuration_goes_on(simple, database, read):
    flow = simple
    flow.start().wait_ready()
    flow.allow("tables are no longer in the configuration")
    del flow.tables[1]
    flow.write_config()
    said = lambda: [line for line in flow.log.read_text().splitlines() if "no longer in the configuration" in line]
    assert said() == []
    flow.reload()
    [line] = said()
    assert json.loads(line)["level"] == "WARN" and "public.u" in line and "public.t" not in line
    database.execute("UPDATE u SET v = 'again'", "UPDATE t SET v = 'again'")
    readers = read(flow)
    flow.wait_caught_up()
    oracle.check_table(flow, "u", "public.u", readers)
    flow.restart(init=False)
    flow.wait_ready()
    assert len(said()) == 2, "once for each start and reload"
    database.execute("UPDATE u SET v = 'and again'")
    flow.wait_caught_up()
    oracle.check_table(flow, "u", "public.u", readers)
    assert flow.table("public.u")["state"] == "streaming"


def test_query_writes_csv(simple, database):
    flow = simple
    flow.start().wait_ready()
    database.execute("""INSERT INTO t VALUES (11, 'a "b", c'), (12, NULL), (13, ''), (14, E'two\nlines')""")
    flow.wait_caught_up()
    flow.stop()
    made = everything_below(flow.folder)
    result = flow.run("query", "--format", "csv", "SELECT id, v FROM public.t WHERE id > 9 ORDER BY id", env={"FLOW_POSTGRES_URL": ""})
    result.expect(0)
    rows = list(csv.reader(io.StringIO(result.out)))
    assert rows == [["id", "v"], ["10", "v10"], ["11", 'a "b", c'], ["12", ""], ["13", ""], ["14", "two\nlines"]]
    assert "\n12,\n" in result.out and '\n13,""\n' in result.out, "NULL and the empty text differ"
    assert everything_below(flow.folder) == made, "a query leaves nothing"


def test_log_lines_are_json_of_one_shape(simple, database):
    flow = simple
    flow.allow("F0131")
    flow.start().wait_ready()
    database.execute("ALTER TABLE t ADD COLUMN more int", "UPDATE t SET v = 'x'")
    flow.wait_blocked("public.t")
    flow.stop()
    lines = [json.loads(line) for line in flow.log.read_text().splitlines() if line.strip()]
    assert lines
    for line in lines:
        assert {"timestamp", "level", "message", "target"} <= set(line), line
        assert line["level"] in ("ERROR", "WARN", "INFO"), line
        assert isinstance(line["message"], str) and line["message"], line
        moment = datetime.datetime.fromisoformat(line["timestamp"].replace("Z", "+00:00"))
        assert moment.utcoffset() == datetime.timedelta(0), line
    assert any(line.get("code") == "F0131" and line["level"] == "WARN" for line in lines), "a blocked table is told with its code"


def test_degraded_while_the_server_is_away(own_server, make_flow):
    database = own_server.create_database("away")
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.publish("t")
    flow = make_flow(database, ["public.t"])
    flow.allow("PostgreSQL", "replication", "connect")
    flow.start().wait_ready()
    assert flow.status()["state"] == "streaming"
    database.connection.close()
    own_server.stop()
    wait_for("degraded", lambda: flow.status()["state"] == "degraded", 30)
    assert flow.status()["ready"] is False and flow.http("/readyz")[0] == 503
    assert 'flow_service_state{state="degraded"} 1' in flow.http("/metrics")[1]
    own_server.start()
    flow.wait_ready()
    assert flow.status()["state"] == "streaming"
    flow.stop()
    database.drop()
