"""What becomes of dynamic tables when columns of their inputs, or their own files, come, go and change."""
import collections

import pytest

from flowtest import oracle
from flowtest.lake import pointers
from flowtest.waiting import wait_for

pytestmark = pytest.mark.any_major

#: Over a table of another program. `agg` reads k and n, `full` k and n, `star` all there is.
FOREIGN = {
    "gold.agg": "AS SELECT n % 2 AS g, count(*) AS c, sum(k) AS k FROM other.f GROUP BY n % 2",
    "gold.full": "REFRESH_MODE = FULL AS SELECT k, n FROM other.f",
    "gold.star": "AS SELECT * FROM other.f",
}


def declare(flow, name, sql):
    flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} {sql};\n")


def remove(flow, name):
    (flow.folder / "transformations" / f"{name.split('.')[1]}.sql").unlink()


def runs(flow, name):
    """Lists (mode, reason) of a table's refreshes, newest first."""
    found = flow.run("history", name, "--json").expect(0).json()
    return [(run["mode"], run["reason"]) for run in found if run["mode"] != "NO_DATA"]


class Foreign:
    """The other program: it changes its table and computes what a SELECT over it gives."""

    def __init__(self, flow, reader):
        import pyarrow as pa

        self.flow = flow
        self.lake = reader.catalog
        self.lake.create_namespace("other")
        columns = [("a", pa.int32()), ("k", pa.int32()), ("n", pa.int32()), ("s", pa.string())]
        table = self.lake.create_table("other.f", schema=pa.schema(columns))
        rows = [{"a": 0, "k": i, "n": i, "s": f"s{i}"} for i in range(10)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    def alter(self, change):
        with self.lake.load_table("other.f").update_schema(allow_incompatible_changes=True) as update:
            change(update)

    def add_row(self, **values):
        """Adds a row, and lets something else be published: our own commits are when inputs are looked at."""
        import pyarrow as pa

        table = self.lake.load_table("other.f")
        table.append(pa.Table.from_pylist([values], schema=table.schema().as_arrow()))
        self.snapshot = str(self.lake.load_table("other.f").current_snapshot().snapshot_id)
        self.flow.database.execute("UPDATE t SET v = v + 1")

    def answer(self, sql):
        import duckdb

        connection = duckdb.connect()
        connection.register("f", self.lake.load_table("other.f").scan().to_arrow())
        select = sql.split("AS ", 1)[1].replace("other.f", "f")
        return collections.Counter(connection.execute(select).fetchall())

    def follows(self, readers, names, how=None, sql=FOREIGN):
        """Waits until tables reflect the newest snapshot, and compares them."""
        for name in names:
            at = lambda: (self.flow.dynamic_table(name) or {}).get("frontier", {}).get("other.f")
            fresh = lambda: at() == self.snapshot and self.flow.dynamic_table(name)["state"] == "fresh"
            wait_for(lambda: f"{name} at {self.snapshot}: {self.flow.dynamic_table(name)}\n{self.flow.log_tail()}", fresh, 30, 0.1)
            columns, rows = readers[1].rows(name, skip=oracle.LINEAGE)
            assert collections.Counter(rows) == self.answer(sql[name]), name
            self.flow.run("verify", name).expect(0)
            if how:
                assert runs(self.flow, name)[0] == how, (name, runs(self.flow, name)[:3])

    def blocked(self, name, *words):
        """Waits until a table is blocked, and checks that it was not written."""
        before = self.content(name)
        state = lambda: self.flow.dynamic_table(name) or {}
        wait_for(lambda: f"{name} blocked: {state()}\n{self.flow.log_tail()}", lambda: state().get("state") == "blocked", 30, 0.1)
        blocked = state()["blocked"]
        assert blocked["code"] == "F0427" and all(word in blocked["reason"] for word in (*words, "nothing was written")), blocked
        assert self.content(name) == before
        self.flow.run("verify", name).expect(0)

    def content(self, name):
        return pointers(self.flow.catalog, [name])[0][name]


def test_columns_of_inputs_come_and_go(database, make_flow, read):
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    database.publish("t")
    flow = make_flow(database, [{"source": "public.t", "target": "bronze.t"}])
    flow.run("init").expect(0)
    readers = read(flow)
    other = Foreign(flow, readers[1])
    for name, sql in FOREIGN.items():
        declare(flow, name, sql)
    flow.allow("F0427")
    flow.start(init=False).wait_ready()
    incremental = ("INCREMENTAL", "input changed")
    other.add_row(a=0, k=100, n=100, s="x")
    other.follows(readers, FOREIGN)

    # A column that nobody reads comes: nobody cares, and `*` does not take it up.
    other.alter(lambda update: update.add_column("extra", _integer()))
    other.add_row(a=0, k=101, n=101, s="x", extra=1)
    star = {**FOREIGN, "gold.star": "AS SELECT a, k, n, s FROM other.f"}
    other.follows(readers, ["gold.agg", "gold.star"], incremental, star)
    flow.reload()
    wait_for("drift is shown", lambda: "extra" in str(flow.dynamic_table("gold.star")["drift"]), 10, 0.1)
    assert not flow.dynamic_table("gold.agg")["drift"]
    flow.run("status").expect(0, "drift: other.f has column extra")
    plan = {table["name"]: table for table in flow.run("plan", "--json").expect(0).json()["tables"]}
    assert "extra" in str(plan["gold.star"]["drift"]) and plan["gold.agg"]["drift"] == plan["gold.full"]["drift"] == []
    other.add_row(a=0, k=102, n=102, s="x", extra=2)
    other.follows(readers, ["gold.agg", "gold.star"], incremental, star)

    # One that only `*` reads goes, before the others in order.
    other.alter(lambda update: update.delete_column("a"))
    other.blocked("gold.star", "column a of other.f", "gone")
    flow.run("plan").expect(78, "F0427", "column a of other.f")
    flow.run("verify", "gold.full").expect(0)
    flow.run("refresh", "gold.agg", "--full").expect(0)
    other.add_row(k=103, n=103, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental)
    other.follows(readers, ["gold.full"])
    flow.restart(init=False)
    flow.wait_ready()
    other.add_row(k=104, n=104, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental)

    # One that is read is renamed while the service stands, and renamed back: nothing was lost.
    flow.stop()
    other.alter(lambda update: update.rename_column("n", "m"))
    flow.start(init=False).wait_ready()
    other.blocked("gold.agg", "column n of other.f, int, is gone")
    other.blocked("gold.full", "column n of other.f")
    other.alter(lambda update: update.rename_column("m", "n"))
    other.add_row(k=105, n=105, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental)

    # It is dropped and made anew: another column, of which the old rows have nothing.
    other.alter(lambda update: update.delete_column("n"))
    other.add_row(k=106, s="x", extra=2)
    other.blocked("gold.agg", "column n of other.f")
    other.alter(lambda update: update.add_column("n", _integer()))
    other.add_row(k=107, n=7, s="x", extra=2)
    other.follows(readers, ["gold.agg"], ("FULL", "input changed: INPUT_COLUMNS"))
    other.add_row(k=108, n=8, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental)
    other.follows(readers, ["gold.full"])

    # Two columns exchange their names: what was read stands under another name.
    def exchange(update):
        update.rename_column("k", "was_k").rename_column("n", "k")

    other.alter(exchange)
    other.alter(lambda update: update.rename_column("was_k", "n"))
    other.add_row(k=8, n=200, s="x", extra=2)
    other.follows(readers, ["gold.agg"], ("FULL", "input changed: INPUT_COLUMNS"))
    other.add_row(k=9, n=201, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental)

    # It has another type: the definition says what that shall mean.
    other.alter(lambda update: update.update_column("k", _long()))
    other.blocked("gold.full", "column k of other.f was int and is long")
    other.add_row(k=109, n=9, s="x", extra=2)
    mended = {name: sql.replace("sum(k)", "sum(CAST(k AS int))").replace("SELECT k,", "SELECT CAST(k AS int) AS k,") for name, sql in FOREIGN.items()}
    for name in ("gold.agg", "gold.full"):
        declare(flow, name, mended[name])
    flow.reload()
    other.follows(readers, ["gold.agg", "gold.full"], sql=mended)
    other.add_row(k=110, n=9, s="x", extra=2)
    other.follows(readers, ["gold.agg"], incremental, mended)
    assert flow.dynamic_table("gold.star")["state"] == "blocked"


def _integer():
    from pyiceberg.types import IntegerType

    return IntegerType()


def _long():
    from pyiceberg.types import LongType

    return LongType()


CHAIN = {
    "silver.all": "SELECT k, v, s FROM bronze.item WHERE v > 0",
    "gold.top": "SELECT k, sum(v) AS v, count(*) AS c FROM silver.all GROUP BY k",
}


def test_files_are_removed_and_put_back(database, make_flow, read):
    database.execute(
        "CREATE TABLE item (id int PRIMARY KEY, k int, v int, s text)",
        "INSERT INTO item SELECT g, g % 5, g % 7, 's' FROM generate_series(1, 100) g",
        "CREATE SCHEMA bronze", "CREATE SCHEMA silver", "CREATE SCHEMA gold",
        "CREATE VIEW bronze.item AS SELECT * FROM public.item",
        *[f"CREATE VIEW {name} AS {sql}" for name, sql in CHAIN.items()],
    )
    database.publish("item")
    flow = make_flow(database, [{"source": "public.item", "target": "bronze.item"}])
    for name, sql in CHAIN.items():
        declare(flow, name, f"AS {sql}")
    flow.start().wait_ready()
    readers = read(flow)

    def check(*names):
        flow.wait_dynamic(names=set(names))
        for name in names:
            oracle.check_query(flow, name, f"SELECT * FROM {name}", readers)

    def state(name):
        return flow.dynamic_table(name)["state"]

    def change():
        database.execute("UPDATE item SET v = (v + 1) % 7, k = (k + 1) % 5 WHERE id % 3 = 0", "INSERT INTO item SELECT max(id) + 1, 1, 1, 'n' FROM item")

    check(*CHAIN)
    change()
    check(*CHAIN)

    # One that others read: it stays, they stay at its cut, and both go on by what changed.
    flow.run("drop", "silver.all").expect(78, "F0024", "all.sql declares it")
    remove(flow, "silver.all")
    flow.reload()
    wait_for("silver.all detached", lambda: state("silver.all") == "detached", 10, 0.1)
    flow.run("status").expect(0, "silver.all is detached")
    before = pointers(flow.catalog, list(CHAIN))[0]
    for _ in range(3):
        change()
        flow.wait_caught_up()
    assert pointers(flow.catalog, list(CHAIN))[0] == before and flow.dynamic_table("silver.all")["frontier"]
    flow.run("drop", "silver.all").expect(78, "F0024", "gold.top reads it")
    declare(flow, "silver.all", f"AS {CHAIN['silver.all']}")
    flow.restart(init=False)
    flow.wait_ready()
    check(*CHAIN)
    for name in CHAIN:
        assert {mode for mode, _ in runs(flow, name)[:-1]} == {"INCREMENTAL"}, runs(flow, name)

    # Put back with another query it is computed again, as a difference.
    remove(flow, "silver.all")
    flow.reload()
    change()
    sql = CHAIN["silver.all"].replace("> 0", "> 2")
    database.execute(f"CREATE OR REPLACE VIEW silver.all AS {sql}")
    declare(flow, "silver.all", f"AS {sql}")
    flow.reload()
    check(*CHAIN)
    assert ("FULL", "query changed: QUERY_CHANGED") in runs(flow, "silver.all")[:2], runs(flow, "silver.all")[:2]

    # Dropped for good, killed in between, and declared anew.
    remove(flow, "gold.top")
    flow.transformation("broken", "CREATE DYNAMIC gold.top AS SELECT 1 AS x;")
    flow.allow("F0401")
    flow.reload()
    flow.run("drop", "gold.top").expect(78, "F0024", "cannot be planned")
    remove(flow, "x.broken")
    flow.stop()
    assert flow.run("drop", "gold.top", env={"FLOW_FAILPOINT": "table_dropped:1"}).code < 0
    (flow.state_dir / "failpoint.hit").unlink()
    assert "gold.top" not in pointers(flow.catalog)[0]
    flow.start(init=False).wait_ready()
    wait_for("gold.top detached", lambda: state("gold.top") == "detached", 10)
    flow.run("drop", "gold.top").expect(0, "no longer in the catalog")
    flow.run("drop", "gold.top").expect(78, "F0015")
    assert flow.dynamic_table("gold.top") is None
    declare(flow, "gold.top", f"AS {CHAIN['gold.top']}")
    flow.reload()
    check(*CHAIN)
    assert [reason for _, reason in runs(flow, "gold.top")] == ["first refresh: FIRST_REFRESH"]

    # A change of the captured table's own definition blocks that, and those above stay as they are.
    flow.allow("block")
    before = pointers(flow.catalog, list(CHAIN))[0]
    database.execute("ALTER TABLE item DROP COLUMN s CASCADE", "UPDATE item SET v = 6")
    flow.wait_blocked("bronze.item")
    assert pointers(flow.catalog, list(CHAIN))[0] == before
    for name in CHAIN:
        assert state(name) in ("fresh", "waiting")
        flow.run("verify", name).expect(0)
