"""Random queries under random changes through the whole service, with PostgreSQL running the same SQL as judge.

`FLOW_RANDOM_SQL_SECONDS` is how long it draws; `FLOW_SEED` is the one round to repeat.
"""
import collections
import os
import random
import time

import psycopg
import pytest

from flowtest import oracle, random_sql, statements
from flowtest.lake import pointers

pytestmark = pytest.mark.any_major

#: How many queries one installation holds, and through how many changes they go.
QUERIES = 24
STEPS = 4


def draw(database, rng):
    """Draws queries that PostgreSQL takes; gives statements as those of a file."""
    found = []
    while len(found) < QUERIES:
        sql = random_sql.query(rng)
        try:
            database.execute(f"SELECT * FROM ({sql}) q LIMIT 0")
        except psycopg.Error:
            continue
        found.append(statements.Statement(len(found) + 1, "random", 0, sql))
    return found


def one_round(seed, server, make_flow, read, seen):
    """Compares after each step; gives what differs."""
    rng = random.Random(seed)
    database = server.create_database(f"random_sql_{seed}_{os.getpid()}")
    wrong, history = {}, []
    try:
        database.execute(*random_sql.schema(rng), "CREATE SCHEMA bronze")
        database.execute(*[f"CREATE VIEW bronze.{n} AS SELECT * FROM public.{n}" for n in random_sql.TABLES])
        database.publish(*random_sql.TABLES)
        drawn = draw(database, rng)
        flow = make_flow(database, [{"source": f"public.{n}", "target": f"bronze.{n}"} for n in random_sql.TABLES], name=f"flow-{seed}")
        flow.run("init", timeout=120).expect(0)
        path = lambda s: flow.folder / "transformations" / f"{s.name}.sql"
        for s in drawn:
            flow.transformation(s.name, f"CREATE DYNAMIC TABLE auto.{s.name} AS\n{s.sql};\n")
        tables, problems = statements.plan(flow)
        kept = []
        for s in drawn:
            table = tables.get(f"auto.{s.name}")
            codes = [r["code"] for r in table["reasons"]] if table else [f"{p['code']} {p['message'][:70]}" for p in problems[s.name]]
            if table and table["mode"] == "INCREMENTAL":
                kept.append(s)
            else:
                path(s).unlink()
            seen["INCREMENTAL" if table and table["mode"] == "INCREMENTAL" else " ".join(codes)] += 1
        flow.start(init=False).wait_ready()
        duck, pyiceberg = read(flow)
        for step in range(STEPS + 1):
            if step:
                history.append(random_sql.changes(rng))
                database.transaction(*history[-1])
            blocked = statements.wait(flow, kept, ("auto",))
            at = pointers(flow.catalog)[0]
            for s in kept:
                name = f"auto.{s.name}"
                try:
                    assert name not in blocked, blocked[name]
                    names, wanted = oracle.answer(database.connection, s.sql)
                    columns, rows = duck.rows(name, at[name], skip=oracle.LINEAGE)
                    oracle.compare_rows(f"DuckDB: {name}", names, wanted, columns, rows)
                    if step == STEPS:
                        modes = statements.modes(pyiceberg, name)
                        assert "FULL" not in [mode for mode, _ in modes[1:]], f"refreshed as {modes}"
                except AssertionError as error:
                    wrong.setdefault(s.name, f"seed {seed}, step {step}: {s.sql}\n  {error}\n  steps: {history}")
        if wrong:
            flow.allow(".")
        flow.stop()
    finally:
        if not wrong:
            database.drop()
    return wrong


def draw_for(seconds, rng, server, make_flow, read):
    seen, wrong = collections.Counter(), {}
    end = time.monotonic() + seconds
    rounds = 0
    while (time.monotonic() < end or not rounds) and not wrong:
        # The first round's seed is the test's own, so that FLOW_SEED repeats a round.
        seed = rng.seed_used if not rounds else rng.randrange(2**32)
        wrong = one_round(seed, server, make_flow, read, seen)
        rounds += 1
    print(f"{rounds} rounds: {dict(seen)}")
    assert not wrong, "\n".join(wrong.values())
    assert seen["INCREMENTAL"] > seen.total() / 2, f"most queries are incremental: {seen}"


def seconds(default):
    return float(os.environ.get("FLOW_RANDOM_SQL_SECONDS", default))


def test_random_queries(server, make_flow, read, rng):
    draw_for(seconds(20), rng, server, make_flow, read)


@pytest.mark.lane("random-sql")
@pytest.mark.timeout(0)
def test_random_queries_for_long(server, make_flow, read, rng):
    draw_for(seconds(1500), rng, server, make_flow, read)
