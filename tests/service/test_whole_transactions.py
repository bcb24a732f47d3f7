"""Readers polling throughout never see part of a transaction, whichever way they read."""
import random
import sqlite3
import threading

import psycopg
import pytest

from flowtest import oracle
from flowtest.lake import DuckReader, pointers
from flowtest.postgres import lsn_number
from flowtest.waiting import wait_for

pytestmark = pytest.mark.any_major

ACCOUNTS = 50
TOTAL = 2 * ACCOUNTS * 1000


def prepare(database):
    """Two tables whose balances add up to a constant; transfers go from one to the other."""
    for name in ("left_account", "right_account"):
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, balance bigint NOT NULL)",
            f"INSERT INTO {name} SELECT g, 1000 FROM generate_series(1, {ACCOUNTS}) g",
        )
    database.publish("left_account", "right_account")


class Transfers(threading.Thread):
    """Moves money between the tables, also by delete and insert and by a change of key."""

    def __init__(self, database, seed):
        super().__init__(daemon=True)
        self.database, self.rng, self.over, self.made, self.failure = database, random.Random(seed), threading.Event(), 0, None

    def run(self):
        try:
            with self.database.connect() as c:
                while not self.over.is_set():
                    self.transfer(c)
                    self.made += 1
        except Exception as error:
            self.failure = error

    def transfer(self, c):
        a, b, amount = self.rng.randint(1, ACCOUNTS), self.rng.randint(1, ACCOUNTS), self.rng.randint(1, 50)
        with c.transaction():
            if self.rng.random() < 0.2:
                row = c.execute("DELETE FROM left_account WHERE id = %s RETURNING balance", [a]).fetchone()
                if row is None:
                    raise psycopg.Rollback()
                self.change(c, "UPDATE right_account SET balance = balance + %s WHERE id = %s", amount, b)
                c.execute("INSERT INTO left_account VALUES (%s, %s)", [a, row[0] - amount])
            else:
                self.change(c, "UPDATE left_account SET balance = balance - %s WHERE id = %s", amount, a)
                self.change(c, "UPDATE right_account SET balance = balance + %s WHERE id = %s", amount, b)

    @staticmethod
    def change(c, sql, amount, account):
        """Changes one row. Under READ COMMITTED a row that another transfer just deleted and inserted again
        is not found: that transfer is given up whole."""
        if c.execute(sql, [amount, account]).rowcount != 1:
            raise psycopg.Rollback()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.join(30)
        if self.failure:
            raise self.failure


def test_transfers_keep_their_sum(database, make_flow, read, rng):
    prepare(database)
    flow = make_flow(database, ["public.left_account", "public.right_account"])
    flow.start().wait_ready()
    flow.wait_caught_up()
    reader = DuckReader(flow.catalog)
    epochs, lsns = [], []
    with Transfers(database, rng.randrange(2**32)), Transfers(database, rng.randrange(2**32)):
        while len(set(epochs)) < 30:
            tables, (lsn, epoch) = pointers(flow.catalog, ["public.left_account", "public.right_account"])
            parts = [
                reader.query(f"SELECT coalesce(sum(balance), 0), count(*) FROM iceberg_scan('{at}')")[0] for at in tables.values()
            ]
            assert sum(p[0] for p in parts) == TOTAL, f"epoch {epoch} shows {parts}"
            assert [p[1] for p in parts] == [ACCOUNTS, ACCOUNTS]
            epochs.append(epoch)
            lsns.append(lsn_number(lsn) if isinstance(lsn, str) else lsn)
    reader.close()
    assert epochs == sorted(epochs) and lsns == sorted(lsns), "progress only grows"
    oracle.check_all(flow, read(flow))


def test_newest_snapshots_up_to_an_epoch_are_one_cut(database, make_flow, read, rng):
    """The tables may be read one by one: the newest snapshot with flow.epoch ≤ N of each is one cut, for every N."""
    prepare(database)
    flow = make_flow(database, ["public.left_account", "public.right_account"])
    flow.start().wait_ready()
    flow.wait_caught_up()
    readers = read(flow)
    with Transfers(database, rng.randrange(2**32)) as transfers:
        first = pointers(flow.catalog)[1][1]
        wait_for("40 epochs", lambda: pointers(flow.catalog)[1][1] >= first + 40, 60)
    assert transfers.made > 0
    flow.wait_caught_up()
    tables = [readers[1].load(f"public.{side}_account") for side in ("left", "right")]
    histories = []
    for table in tables:
        history = []
        # The specification gives the list no order; sequence numbers do.
        for snapshot in sorted(table.metadata.snapshots, key=lambda s: s.sequence_number):
            summary = snapshot.summary.additional_properties
            history.append((int(summary["flow.epoch"]), lsn_number(summary["flow.lsn"]), snapshot.snapshot_id))
            assert summary["flow.source-id"] == "test" and summary["flow.operation-id"] and summary["flow.commit-time"]
        assert history == sorted(history), "epochs and LSNs grow together"
        histories.append(history)
    epochs = sorted({epoch for history in histories for epoch, _, _ in history})
    start = max(history[0][0] for history in histories)
    checked = 0
    for epoch in [e for e in epochs if e >= start]:
        total = 0
        for table, history in zip(tables, histories):
            chosen = [s for e, _, s in history if e <= epoch][-1]
            total += sum(table.scan(snapshot_id=chosen, selected_fields=("balance",)).to_arrow().column("balance").to_pylist())
        assert total == TOTAL, f"epoch {epoch}"
        checked += 1
    assert checked >= 20


def test_catalog_holds_one_record_per_operation(database, make_flow, read, rng):
    """Operations in the catalog are contiguous ranges, and each is recorded once."""
    prepare(database)
    flow = make_flow(database, ["public.left_account", "public.right_account"])
    flow.start().wait_ready()
    with Transfers(database, rng.randrange(2**32)) as transfers:
        wait_for("transfers", lambda: transfers.made > 100)
        flow.kill()
        flow.start(init=False).wait_ready()
        goal = transfers.made + 100
        wait_for("more transfers", lambda: transfers.made > goal)
    flow.wait_caught_up()
    with sqlite3.connect(f"file:{flow.catalog}?mode=ro", uri=True) as c:
        rows = c.execute("SELECT epoch, from_lsn, to_lsn FROM flow_operations WHERE epoch IS NOT NULL ORDER BY epoch").fetchall()
    ranges = sorted({(epoch, *(lsn_number(v) if isinstance(v, str) else v for v in lsns)) for epoch, *lsns in rows})
    assert len(ranges) > 3
    for before, after in zip(ranges, ranges[1:]):
        assert before[0] <= after[0] and before[2] <= after[1] or before[1:] == after[1:], f"{before} then {after} overlap"
    oracle.check_all(flow, read(flow))
