"""Files of SQL statements that are judged three ways; `tests/sql/README.md` describes the format."""
import collections
import dataclasses
import pathlib
import re

from . import oracle
from .lake import exact, pointers, quoted
from .postgres import lsn_number
from .waiting import wait_for

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "sql"


@dataclasses.dataclass
class Statement:
    """Is one SELECT, and what its file says of it."""

    number: int
    section: str
    line: int
    sql: str
    full: tuple = ()
    refused: str = ""
    fails: str = ""
    postgres: str = ""

    @property
    def name(self):
        return f"s{self.number:03}"

    @property
    def judge(self):
        return self.postgres or self.sql


@dataclasses.dataclass
class World:
    """Is one file."""

    name: str
    schema: list
    steps: list
    statements: list

    @property
    def tables(self):
        return [m.group(1) for sql in self.schema if (m := re.match(r"CREATE TABLE (\w+)", sql))]


def read(name):
    """Reads a file of statements."""
    schema, steps, statements, buffer, words = [], [], [], [], {}
    kind = section = ""
    for number, line in enumerate((FOLDER / f"{name}.sql").read_text().splitlines(), 1):
        if marker := re.match(r"--! (\w+) ?(.*)", line):
            assert not buffer, f"{name}.sql:{number}: a statement has no end"
            kind, section = marker.groups()
            if kind == "step":
                steps.append((section, []))
            continue
        if word := re.match(r"-- (full|refused|fails|postgres):\s*(.*)", line):
            words[word.group(1)] = word.group(2)
            continue
        if line.startswith("--") or not line.strip():
            continue
        buffer.append(line)
        if not line.endswith(";"):
            continue
        sql = "\n".join(buffer).removesuffix(";")
        buffer = []
        if kind == "schema":
            schema.append(sql)
        elif kind == "step":
            steps[-1][1].append(sql)
        elif "postgres" in words:
            statements[-1].postgres = sql
        else:
            statements.append(Statement(
                len(statements) + 1, section, number, sql,
                tuple(words.get("full", "").split()), words.get("refused", ""), words.get("fails", ""),
            ))
        words = {}
    return World(name, schema, steps, statements)


def prepare(world, database, make_flow, statements, **kw):
    """Makes the tables, and an installation with every SELECT as `auto.NAME`."""
    database.execute(*world.schema)
    names = world.tables
    database.execute("CREATE SCHEMA bronze", *[f"CREATE VIEW bronze.{n} AS SELECT * FROM public.{n}" for n in names])
    database.publish(*names)
    flow = make_flow(database, [{"source": f"public.{n}", "target": f"bronze.{n}"} for n in names], **kw)
    for s in statements:
        flow.transformation(s.name, f"CREATE DYNAMIC TABLE auto.{s.name} AS\n{s.sql};\n")
    return flow


def declare_whole(flow, statements):
    """Declares every SELECT as `whole.NAME` too, which is refreshed in full."""
    for s in statements:
        flow.transformation(f"{s.name}_whole", f"CREATE DYNAMIC TABLE whole.{s.name} REFRESH_MODE = FULL AS\n{s.sql};\n")


def bits(rows):
    """Makes rows comparable bit for bit; all NaNs are one."""
    def one(value):
        if isinstance(value, float):
            return oracle.float_key(value, 8)
        return repr(value)

    return collections.Counter(tuple(one(v) for v in row) for row in rows)


class Judge:
    """Compares the tables of every statement with PostgreSQL, and with each other bit for bit."""

    def __init__(self, flow, readers):
        self.flow = flow
        self.duck, self.pyiceberg = readers
        self.columns = {}
        self.known = {}

    def duck_rows(self, name, metadata):
        """Reads a table, if it has another snapshot than the last time; its columns stay what they are."""
        if self.known.get(name, (None,))[0] != metadata:
            self.known[name] = (metadata, self.read(name, metadata))
        return self.known[name][1]

    def read(self, name, metadata):
        if name not in self.columns:
            self.columns[name] = [c for c in self.duck.columns(name, metadata) if c[0] not in oracle.LINEAGE]
        chosen = ", ".join(exact(quoted(column), kind) for column, kind in self.columns[name])
        return [c for c, _ in self.columns[name]], self.duck.query(f"SELECT {chosen} FROM {self.duck.scan(name, metadata)}")

    def differences(self, statements, where, kinds, strangers=False):
        """Maps the names of statements to what differs; with `strangers` PyIceberg reads AUTO's tables too."""
        at = pointers(self.flow.catalog)[0]
        wrong = {}
        for s in statements:
            try:
                names, wanted = oracle.answer(self.flow.database.connection, s.judge)
                found = {}
                for table in (f"{kind}.{s.name}" for kind in kinds):
                    assert table in at, f"there is no {table}"
                    columns, found[table] = self.duck_rows(table, at[table])
                    oracle.compare_rows(f"DuckDB: {table}", names, wanted, columns, found[table])
                one, *others = map(bits, found.values())
                for other in others:
                    assert one == other, f"{kinds} differ in bits: {oracle.differences(one.elements(), other.elements())}"
                if strangers:
                    columns, rows = self.pyiceberg.rows(f"auto.{s.name}", skip=oracle.LINEAGE)
                    oracle.compare_rows(f"PyIceberg: auto.{s.name}", names, wanted, columns, rows)
            except AssertionError as error:
                wrong[s.name] = f"{where}, line {s.line}: {s.sql}\n  {error}"
        return wrong


def wait(flow, statements, kinds, seconds=90):
    """Waits until the tables of all statements show what is committed, or are blocked. Gives what is blocked."""
    lsn = flow.wait_caught_up(None, seconds)
    names = {f"{kind}.{s.name}" for s in statements for kind in kinds}

    def late():
        status = flow.status() or {}
        tables = {t["name"]: t for t in status.get("dynamic_tables", []) if t["name"] in names}
        fresh = lambda t: t["state"] == "fresh" and lsn_number(t["data_lsn"] or "0/0") >= lsn
        waiting = [n for n in names if n not in tables or not (fresh(tables[n]) or tables[n]["state"] == "blocked")]
        return waiting, {n: t["blocked"] for n, t in tables.items() if t["state"] == "blocked"}

    wait_for(lambda: f"dynamic tables at {lsn:X}: {late()}\n{flow.log_tail()}", lambda: not late()[0], seconds, 0.2)
    return late()[1]


def plan(flow):
    """Is what `plan` says: tables by name, and the problems by file."""
    document = flow.run("plan", "--json").json()
    problems = collections.defaultdict(list)
    for problem in document["problems"]:
        problems[pathlib.Path(problem["file"]).stem].append(problem)
    return {t["name"]: t for t in document["tables"]}, problems


def check_plan(flow, statements):
    """Compares what `plan` says of each statement with what the file says. Gives what differs."""
    tables, problems = plan(flow)
    wrong = {}
    for s in statements:
        if s.refused:
            found = [f"{p['code']} {p['message']}" for p in problems[s.name]]
            right = bool(found) and all(re.search(rf"\b{s.refused}\b", text) for text in found)
        else:
            table = tables.get(f"auto.{s.name}") or {"mode": problems[s.name], "reasons": []}
            codes = {r["code"] for r in table["reasons"]} if table["mode"] == "FULL" else set()
            found = (table["mode"], codes)
            right = found == (("FULL", set(s.full)) if s.full else ("INCREMENTAL", set()))
        if not right:
            wrong[s.name] = f"line {s.line}: {s.sql}\n  the file says {s.refused or s.full or 'INCREMENTAL'}, plan says {found}"
    return wrong


def modes(reader, name):
    """Lists (mode, reason) of the refreshes that wrote something, oldest first."""
    snapshots = sorted(reader.load(name).metadata.snapshots, key=lambda s: s.sequence_number)
    summaries = [s.summary.additional_properties for s in snapshots]
    return [(s["flow.refresh-mode"], s["flow.refresh-reason"]) for s in summaries if "flow.refresh-mode" in s]
