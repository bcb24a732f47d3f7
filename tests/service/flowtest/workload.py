"""A seeded random workload: everything SQL can do to rows, by several writers at once.

PostgreSQL itself is the judge of what the result is, so the workload need not know it. It only has to reach many
kinds of transactions: one row or a hundred thousand, several tables, savepoints, rollbacks, key changes and swaps.
"""
import random
import threading

import psycopg

from .waiting import wait_for

SCHEMA = [
    # A plain table with columns that are stored out of line, under the default replica identity.
    """CREATE TABLE item (id bigint PRIMARY KEY, n int NOT NULL, price numeric(12,2), ratio double precision,
       label text, body text, blob bytea, at timestamptz NOT NULL DEFAULT clock_timestamp(), tags text[])""",
    "ALTER TABLE item ALTER body SET STORAGE EXTERNAL",
    # A composite key with a text part.
    """CREATE TABLE part (region text, id int, owner uuid, amount numeric(20,4), done boolean, doc jsonb,
       PRIMARY KEY (region, id))""",
    # A deferrable key cannot be the replica identity: swaps in one statement need FULL.
    "CREATE TABLE seat (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, holder text, note text)",
    "ALTER TABLE seat REPLICA IDENTITY FULL",
    # No key at all: rows are only added.
    "CREATE TABLE event (kind text, at timestamptz DEFAULT clock_timestamp(), payload jsonb)",
]
TABLES = [
    {"source": "public.item", "target": "bronze.item"},
    {"source": "public.part", "target": "bronze.part"},
    {"source": "public.seat", "target": "bronze.seat", "primary_key": ["id"]},
    {"source": "public.event", "target": "bronze.event", "append_only": True},
]
REGIONS = ["north", "south", "", "ost/west", "ünïcode"]
KEYS = 400


def prepare(database, rows=300):
    """Creates the tables, some rows and the publication."""
    database.execute(*SCHEMA)
    database.execute(
        f"INSERT INTO item SELECT g, g, g / 7.0, g / 3.0, 'label ' || g, repeat(md5(g::text), 300), decode(md5(g::text),"
        f" 'hex'), '2024-01-01'::timestamptz + g * interval '1 s', ARRAY['a', NULL, g::text] FROM generate_series(1, {rows}) g",
        f"INSERT INTO part SELECT (ARRAY['north','south',''])[1 + g % 3], g, md5(g::text)::uuid, g, g % 2 = 0,"
        f" jsonb_build_object('g', g) FROM generate_series(1, {rows}) g",
        "INSERT INTO seat SELECT g, 'holder ' || g, NULL FROM generate_series(1, 50) g",
        f"INSERT INTO event SELECT 'start', now(), jsonb_build_object('g', g) FROM generate_series(1, {rows}) g",
    )
    database.publish("item", "part", "seat", "event")


class Writer:
    """One client that makes random transactions until it is stopped."""

    def __init__(self, database, seed, largest=2000):
        self.database = database
        self.rng = random.Random(seed)
        self.largest = largest
        self.committed = 0
        self.stopping = threading.Event()
        self.failure = None
        self.thread = None

    # ---- statements

    def key(self):
        return self.rng.randrange(1, KEYS)

    def text(self, short=False):
        n = self.rng.choice([0, 1, 20]) if short else self.rng.choice([0, 10, 3000, 9000, 20000])
        return "".join(self.rng.choices("abcdefgh ÄЖ漢\\'\"\n\t", k=min(n, 50))) + "x" * max(0, n - 50)

    def insert_item(self, c):
        c.execute(
            "INSERT INTO item (id, n, price, ratio, label, body, blob, tags) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [self.key(), self.rng.randrange(10**6), self.rng.randrange(10**9) / 100, self.rng.choice([0.1, -0.0, 1e300, None]),
             self.text(True), self.rng.choice([None, self.text()]), self.rng.randbytes(self.rng.choice([0, 3, 5000])),
             self.rng.choice([None, [], ["a", None, "b,\"c"]])],
        )

    def update_item(self, c):
        kind = self.rng.randrange(6)
        if kind == 0:  # leaves the out-of-line columns unchanged
            c.execute("UPDATE item SET n = n + 1 WHERE id = %s", [self.key()])
        elif kind == 1:
            c.execute("UPDATE item SET body = %s WHERE id = %s", [self.text(), self.key()])
        elif kind == 2:
            c.execute("UPDATE item SET body = NULL, tags = NULL, price = NULL WHERE id = %s", [self.key()])
        elif kind == 3:
            low = self.key()
            c.execute("UPDATE item SET label = label || '!' WHERE id BETWEEN %s AND %s", [low, low + 30])
        elif kind == 4:  # there and back within one transaction is no change
            key = self.key()
            c.execute("UPDATE item SET n = n + 5 WHERE id = %s", [key])
            c.execute("UPDATE item SET n = n - 5 WHERE id = %s", [key])
        else:
            c.execute("UPDATE item SET ratio = NULLIF(ratio, 0.1), label = NULL WHERE id = %s", [self.key()])

    def delete_item(self, c):
        c.execute("DELETE FROM item WHERE id = %s", [self.key()])

    def reinsert_item(self, c):
        key = self.key()
        c.execute("DELETE FROM item WHERE id = %s", [key])
        c.execute("INSERT INTO item (id, n, body) VALUES (%s, -1, %s) ON CONFLICT DO NOTHING", [key, self.text()])

    def move_key(self, c):
        old, new = self.key(), self.key()
        c.execute("UPDATE item SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM item WHERE id = %s)", [new, old, new])

    def swap_by_way_of(self, c):
        a, b = sorted(self.rng.sample(range(1, KEYS), 2))
        c.execute("SELECT id FROM item WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", [a, b])
        c.execute("UPDATE item SET id = -%s WHERE id = %s", [a, a])
        c.execute("UPDATE item SET id = %s WHERE id = %s", [a, b])
        c.execute("UPDATE item SET id = %s WHERE id = -%s", [b, a])

    def swap_deferred(self, c):
        a, b = sorted(self.rng.sample(range(1, 50), 2))
        c.execute("SELECT id FROM seat WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", [a, b])
        c.execute("UPDATE seat SET id = CASE id WHEN %s THEN %s ELSE %s END WHERE id IN (%s, %s)", [a, b, a, a, b])

    def rotate(self, c):
        c.execute("UPDATE seat SET id = CASE WHEN id = 50 THEN 1 ELSE id + 1 END WHERE id BETWEEN 1 AND 50")

    def change_seat(self, c):
        c.execute("UPDATE seat SET holder = %s, note = %s WHERE id = %s", [self.text(True), self.text(), self.rng.randrange(1, 50)])

    def write_part(self, c):
        region, key = self.rng.choice(REGIONS), self.key()
        kind = self.rng.randrange(4)
        if kind == 0:
            c.execute("DELETE FROM part WHERE region = %s AND id = %s", [region, key])
        elif kind == 1:
            c.execute(
                "UPDATE part SET region = %s WHERE region = %s AND id = %s"
                " AND NOT EXISTS (SELECT FROM part WHERE region = %s AND id = %s)",
                [r := self.rng.choice(REGIONS), region, key, r, key],
            )
        else:
            c.execute(
                "INSERT INTO part VALUES (%s, %s, gen_random_uuid(), %s, %s, %s) ON CONFLICT (region, id) DO UPDATE"
                " SET amount = part.amount + 1, done = NOT part.done",
                [region, key, self.rng.randrange(10**6), self.rng.choice([True, False, None]), '{"a": [1, null, "x"]}'],
            )

    def add_events(self, c):
        c.execute("INSERT INTO event SELECT %s, clock_timestamp(), jsonb_build_object('i', i) FROM generate_series(1, %s) i",
                  [self.text(True), self.rng.randrange(1, 20)])

    def many_rows(self, c):
        """A transaction of up to `largest` rows over several tables."""
        n = int(self.largest ** self.rng.random())
        base = 10_000 + self.rng.randrange(3) * 1_000_000
        c.execute("INSERT INTO item (id, n, label) SELECT %s + g, g, 'bulk' FROM generate_series(1, %s) g ON CONFLICT DO NOTHING", [base, n])
        if self.rng.random() < 0.5:
            c.execute("UPDATE item SET n = n + 1 WHERE id > %s AND id <= %s", [base, base + n])
        if self.rng.random() < 0.5:
            c.execute("DELETE FROM item WHERE id > %s AND id <= %s AND id %% 3 = 0", [base, base + n])
        c.execute("INSERT INTO event SELECT 'bulk', clock_timestamp(), NULL FROM generate_series(1, %s) g", [n // 4 + 1])

    # ---- transactions

    STATEMENTS = (
        ["insert_item", "update_item", "delete_item", "write_part"] * 4
        + ["reinsert_item", "move_key", "swap_by_way_of", "swap_deferred", "change_seat", "add_events"] * 2
        + ["rotate", "many_rows"]
    )

    def transaction(self, c):
        """Makes one transaction; may roll back on purpose, whole or to a savepoint."""
        outcome = self.rng.random()
        with c.transaction(force_rollback=outcome < 0.08):
            for _ in range(self.rng.choice([1, 1, 1, 2, 5, 20])):
                step = getattr(self, self.rng.choice(self.STATEMENTS))
                if self.rng.random() < 0.15:
                    with c.transaction(force_rollback=self.rng.random() < 0.5):
                        step(c)
                else:
                    step(c)
        self.committed += outcome >= 0.08

    def run(self, count=None):
        """Makes transactions until stopped, or `count` of them."""
        with self.database.connect(autocommit=True) as c:
            done = 0
            while not self.stopping.is_set() and (count is None or done < count):
                try:
                    self.transaction(c)
                    done += 1
                except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation, psycopg.errors.SerializationFailure):
                    pass  # rolled back as a whole: another writer came first

    def start(self):
        def body():
            try:
                self.run()
            except Exception as error:  # reported by stop()
                self.failure = error

        self.thread = threading.Thread(target=body, daemon=True)
        self.thread.start()
        return self

    def stop(self):
        self.stopping.set()
        self.thread.join(60)
        if self.failure:
            raise self.failure


class Writers:
    """Several writers at once; use as a context."""

    def __init__(self, database, rng, count=2, largest=2000):
        self.writers = [Writer(database, rng.randrange(2**32), largest) for _ in range(count)]

    def __enter__(self):
        for w in self.writers:
            w.start()
        return self

    def __exit__(self, *exc):
        for w in self.writers:
            w.stop()

    @property
    def committed(self):
        return sum(w.committed for w in self.writers)

    def wait_commits(self, more, seconds=60):
        """Waits until this many further transactions were committed."""
        goal = self.committed + more

        def reached():
            for w in self.writers:
                if w.failure:
                    raise w.failure
            return self.committed >= goal

        wait_for(lambda: f"{goal} transactions, there are {self.committed}", reached, seconds)
