"""PostgreSQL servers and databases for tests. One server serves a test session, one database a test."""
import os
import pathlib
import socket
import subprocess

import psycopg

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def free_port():
    """Asks the system for a port that nothing listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lsn_number(text):
    """Turns `16/B374D848` into a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


class Server:
    """One PostgreSQL server, started by tests/tools/pg.sh."""

    def __init__(self, major, folder, **env):
        self.major = int(major)
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.env = {**os.environ, **env}

    def _tool(self, action):
        command = [str(TOOLS / "pg.sh"), action, str(self.major), str(self.folder), str(self.port)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, f"pg.sh {action}: {done.stderr}"

    def start(self):
        self._tool("start")

    def stop(self):
        """Shuts down; clients are disconnected and nothing is lost."""
        self._tool("stop")

    def kill(self):
        """Ends at once, as a crash would."""
        self._tool("kill")

    def url(self, database, user="postgres", password=None, **params):
        """Is the connection string for `FLOW_POSTGRES_URL`."""
        login = user if password is None else f"{user}:{password}"
        query = "&".join(f"{k}={v}" for k, v in params.items())
        return f"postgresql://{login}@127.0.0.1:{self.port}/{database}" + (f"?{query}" if query else "")

    def connect(self, database="postgres", **kw):
        kw.setdefault("autocommit", True)
        return psycopg.connect(self.url(database), **kw)

    def create_database(self, name):
        with self.connect() as c:
            c.execute(f'CREATE DATABASE "{name}"')
        return Database(self, name)


class Database:
    """One database of a server, with the few questions tests ask of it."""

    def __init__(self, server, name):
        self.server = server
        self.name = name
        self._connection = None

    @property
    def url(self):
        return self.server.url(self.name)

    @property
    def major(self):
        return self.server.major

    def connect(self, **kw):
        return self.server.connect(self.name, **kw)

    @property
    def connection(self):
        """Is a connection in autocommit mode, made anew when it broke."""
        if self._connection is None or self._connection.closed:
            self._connection = self.connect()
        return self._connection

    def execute(self, *statements):
        """Runs each statement in its own transaction."""
        for statement in statements:
            self.connection.execute(statement)

    def transaction(self, *statements):
        """Runs the statements in one transaction."""
        with self.connection.transaction():
            self.execute(*statements)

    def rows(self, query, args=None):
        return self.connection.execute(query, args).fetchall()

    def value(self, query, args=None):
        row = self.connection.execute(query, args).fetchone()
        return row[0] if row else None

    def flush_lsn(self):
        """Is a position at or above the end of every transaction committed so far."""
        return lsn_number(self.value("SELECT pg_current_wal_flush_lsn()"))

    def confirmed_lsn(self, slot="embrasure_flow"):
        text = self.value("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", [slot])
        return None if text is None else lsn_number(text)

    def publish(self, *tables, name="embrasure_flow", options=""):
        """Creates the publication of these tables, or of all tables when none is named."""
        what = f"FOR TABLE {', '.join(tables)}" if tables else "FOR ALL TABLES"
        self.execute(f"CREATE PUBLICATION {name} {what} {options}")

    def drop(self):
        """Drops slots and database; clients must be gone or are cut."""
        if self._connection is not None:
            self._connection.close()
        with self.server.connect() as c:
            c.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self.name])
            for (slot,) in c.execute("SELECT slot_name FROM pg_replication_slots WHERE database = %s", [self.name]):
                end_of_slot(c, slot)
            c.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')


def end_of_slot(connection, slot):
    """Drops a slot whose walsender was just cut; it may need a moment to let go."""
    from .waiting import wait_for

    def dropped():
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            return True
        except psycopg.errors.ObjectInUse:
            return False
        except psycopg.errors.UndefinedObject:
            return True

    wait_for(f"slot {slot} to be free", dropped)
