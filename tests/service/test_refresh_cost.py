"""What a refresh reads grows with the change, not with the tables."""
import pytest

from flowtest import oracle

pytestmark = [pytest.mark.any_major, pytest.mark.timeout(600)]

ROWS = 200_000
TABLES = {
    "gold.wide": "SELECT f.id, f.dim_id, f.amount, f.note, d.name, d.region FROM bronze.fact f JOIN bronze.dim d ON d.id = f.dim_id",
    "gold.by_region": """
        SELECT d.region, count(*) AS n, sum(f.amount) AS amount, max(f.amount) AS most
        FROM bronze.fact f JOIN bronze.dim d ON d.id = f.dim_id GROUP BY d.region""",
    "gold.latest": """
        SELECT dim_id, id, amount FROM (
            SELECT dim_id, id, amount, row_number() OVER (PARTITION BY dim_id ORDER BY amount DESC, id DESC) AS place
            FROM bronze.fact) ranked WHERE place = 1""",
    "gold.by_dim": """
        SELECT d.id, count(f.id) AS n, sum(f.amount) AS amount
        FROM bronze.dim d LEFT JOIN bronze.fact f ON f.dim_id = d.id GROUP BY d.id""",
}
#: A changed row of the dimension touches ten of the fact; MAX and windows read some neighbours more.
READ_MOST = 6_000


def change(database, turn):
    """Changes 100 rows: 80 of the fact and 20 of the dimension, all over the tables."""
    key = lambda rows, count: f"SELECT 1 + (g * 7919 + {turn * 104729}) % {rows} FROM generate_series(1, {count}) g"
    database.transaction(
        f"UPDATE fact SET amount = amount + 1, note = 'turn {turn}' WHERE id IN ({key(ROWS, 60)})",
        f"INSERT INTO fact SELECT {ROWS + 1000 * turn} + g, g, g, 'new' FROM generate_series(1, 10) g",
        f"DELETE FROM fact WHERE id IN ({key(ROWS, 70)} OFFSET 60)",
        f"UPDATE dim SET region = (region + 1) % 50 WHERE id IN ({key(ROWS // 10, 15)})",
        f"DELETE FROM dim WHERE id IN ({key(ROWS // 10, 20)} OFFSET 15)",
    )


def test_what_a_refresh_reads_follows_the_change(database, make_flow, read):
    database.execute(
        "CREATE TABLE dim (id bigint PRIMARY KEY, name text, region int)",
        f"INSERT INTO dim SELECT g, 'name ' || g, g % 50 FROM generate_series(1, {ROWS // 10}) g",
        "CREATE TABLE fact (id bigint PRIMARY KEY, dim_id bigint, amount numeric(12, 2), note text)",
        f"INSERT INTO fact SELECT g, 1 + g * 7919 % {ROWS // 10}, g % 1000, 'note ' || g FROM generate_series(1, {ROWS}) g",
    )
    database.publish("fact", "dim")
    database.execute(
        "CREATE SCHEMA bronze", "CREATE VIEW bronze.fact AS SELECT * FROM public.fact",
        "CREATE VIEW bronze.dim AS SELECT * FROM public.dim",
    )
    flow = make_flow(database, [{"source": f"public.{name}", "target": f"bronze.{name}"} for name in ("fact", "dim")],
        # A refresh may hold a third: the rows of the wide table do not fit, nor does a sort of the fact.
        limits={"memory": "64MiB"})
    for name, sql in TABLES.items():
        flow.transformation(name.split(".")[1], f"CREATE DYNAMIC TABLE {name} AS {sql};\n")
    flow.start().wait_ready()
    flow.wait_dynamic(seconds=240)
    readers = read(flow)
    for turn in range(1, 5):
        if turn == 3:
            # What was handed over in memory is gone with the process.
            flow.kill()
            change(database, turn)
            flow.start().wait_ready()
        else:
            change(database, turn)
        flow.wait_dynamic()
        for name, sql in TABLES.items():
            refresh = flow.dynamic_table(name)["last_refresh"]
            assert refresh["mode"] == "INCREMENTAL", refresh
            assert 0 < refresh["rows_read"] <= READ_MOST, (name, refresh)
    # The large ones are compared elsewhere, with fewer rows: row by row they would take minutes.
    for name in ("gold.by_region", "gold.by_dim"):
        oracle.check_query(flow, name, TABLES[name], readers)
    # Computed anew, all 200,000 rows find their twins, though neither side fits in memory.
    flow.run("refresh", "gold.wide", "--full", timeout=120).expect(0)
    refresh = flow.dynamic_table("gold.wide")["last_refresh"]
    assert (refresh["mode"], refresh["rows_inserted"], refresh["rows_deleted"]) == ("FULL", 0, 0), refresh
    flow.run("verify", "gold.wide", timeout=120).expect(0)
