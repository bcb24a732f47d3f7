"""The service under test: its folder, its flow.toml, its process and its log."""
import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.request

from .postgres import lsn_number
from .waiting import PATIENCE, wait_for

#: Levels that fail a test unless it said that it expects the message.
LOUD = ("WARN", "ERROR")


def binary():
    """Is the program under test."""
    if "FLOW_BIN" in os.environ:
        return os.environ["FLOW_BIN"]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    target = os.environ.get("CARGO_TARGET_DIR") or os.path.join(cache, "embrasure-flow", "target")
    return os.path.join(target, "debug", "embrasure-flow")


def toml_value(value):
    """Writes a Python value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(str(value), ensure_ascii=False)


class Result:
    """Is what a finished command left."""

    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __repr__(self):
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"

    def json(self):
        return json.loads(self.out)

    def expect(self, code, *patterns):
        """Asserts the exit code and that each pattern is in what was printed."""
        assert self.code == code, f"expected exit {code}, got {self!r}"
        text = self.out + self.err
        for pattern in patterns:
            assert re.search(pattern, text, re.IGNORECASE), f"no /{pattern}/ in {self!r}"
        return self


class Flow:
    """One installation: a folder with flow.toml, state and warehouse."""

    def __init__(self, folder, database, tables=(), env=None, **sections):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database = database
        self.env = {"FLOW_POSTGRES_URL": database.url, **(env or {})}
        self.sections = {
            "source": {
                "id": "test",
                "connection_env": "FLOW_POSTGRES_URL",
                "slot": "embrasure_flow_" + re.sub(r"\W", "_", database.name)[-40:],
                "publication": "embrasure_flow",
                "heartbeat": "1s",
                "retry_for": "60s",
            },
            "catalog": {"type": "embedded", "warehouse": "warehouse"},
            "publish": {"interval": "100ms"},
            "limits": {"min_free_bytes": "1MiB"},
            "http": {"listen": "127.0.0.1:0"},
            "dynamic_tables": {"dir": "transformations"},
        }
        for name, values in sections.items():
            self.sections.setdefault(name, {}).update(values)
        self.tables = [dict(t) if isinstance(t, dict) else {"source": t} for t in tables]
        self.process = None
        self.allowed = []
        self.log_read = 0
        self.address = None
        (self.folder / "transformations").mkdir(exist_ok=True)
        self.write_config()

    # ---- configuration

    @property
    def slot(self):
        return self.sections["source"]["slot"]

    @property
    def config(self):
        return self.folder / "flow.toml"

    @property
    def state_dir(self):
        return self.folder / "state"

    @property
    def warehouse(self):
        return self.folder / "warehouse"

    @property
    def catalog(self):
        return self.warehouse / "catalog.db"

    @property
    def log(self):
        return self.folder / "log.jsonl"

    def write_config(self):
        lines = ['state_dir = "state"']
        for name, values in self.sections.items():
            lines += ["", f"[{name}]"] + [f"{k} = {toml_value(v)}" for k, v in values.items()]
        for table in self.tables:
            lines += ["", "[[tables]]"] + [f"{k} = {toml_value(v)}" for k, v in table.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def transformation(self, name, sql):
        (self.folder / "transformations" / f"{name}.sql").write_text(sql)

    # ---- commands

    def command(self, *args):
        return [binary(), "--config", str(self.config), *args]

    def run(self, *args, timeout=60, env=None):
        """Runs a command to its end."""
        env = {**os.environ, **self.env, **(env or {})}
        done = subprocess.run(self.command(*args), env=env, capture_output=True, text=True, timeout=timeout * PATIENCE, cwd=self.folder)
        return Result(done)

    # ---- the service

    def start(self, init=True, env=None, args=()):
        """Starts the service; does not wait."""
        assert self.process is None, "already running"
        words = ["run"] + (["--init"] if init else []) + list(args)
        self.address = None
        with open(self.log, "ab") as log:
            log.write(b"\n")
            self.process = subprocess.Popen(
                self.command(*words),
                env={**os.environ, **self.env, **(env or {})},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
            )
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def wait_exit(self, seconds=60):
        """Waits until the service ended by itself and gives its exit code; negative is a signal."""
        code = self.process.wait(timeout=seconds * PATIENCE)
        self.process = None
        return code

    def reload(self):
        """Sends SIGHUP and waits until the log says what came of it."""
        before = self.log.read_text().count("the configuration was")
        self.process.send_signal(signal.SIGHUP)
        wait_for("the reload", lambda: self.log.read_text().count("the configuration was") > before, 30)

    def stop(self, seconds=30):
        """Asks the service to end and expects that it does so cleanly."""
        self.process.send_signal(signal.SIGTERM)
        code = self.wait_exit(seconds)
        assert code == 0, f"exit {code} after SIGTERM\n{self.log_tail()}"

    def kill(self):
        """Ends the service as a power cut would.

        PostgreSQL may notice late and let the next process wait for the slot, which that one says.
        """
        self.allow("is held by server process")
        self.process.kill()
        self.process.wait(timeout=30)
        self.process = None

    def restart(self, **kw):
        self.stop()
        self.start(**kw)

    def _address(self):
        if self.address is None:
            result = self.run("status", "--json")
            status = json.loads(result.out) if result.out.strip().startswith("{") else {}
            if status.get("http") and status.get("pid") == self.process.pid:
                self.address = status["http"]
        return self.address

    def http(self, path):
        """Gives (code, text) of a request; None while nothing answers."""
        address = self._address()
        if address is None:
            return None
        address = address if address.startswith("http") else f"http://{address}"
        try:
            with urllib.request.urlopen(address + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def status(self):
        """Is the service's status document; None while there is none."""
        assert self.alive(), f"the service ended with {self.process and self.process.poll()}\n{self.log_tail()}"
        answer = self.http("/status")
        return json.loads(answer[1]) if answer and answer[0] == 200 else None

    def table(self, target):
        """Is one table's part of the status."""
        status = self.status() or {"tables": []}
        return next((t for t in status["tables"] if t["target"] == target), None)

    def dynamic_table(self, name):
        status = self.status() or {"dynamic_tables": []}
        return next((t for t in status["dynamic_tables"] if t["name"] == name), None)

    def wait_ready(self, seconds=60):
        return wait_for(lambda: f"ready\n{self.status()}\n{self.log_tail()}", lambda: (self.status() or {}).get("ready"), seconds)

    def published(self):
        status = self.status()
        return lsn_number(status["source"]["published_lsn"]) if status else 0

    def wait_caught_up(self, lsn=None, seconds=60):
        """Waits until everything up to `lsn`, by default all that is committed, is published. Gives the LSN."""
        lsn = self.database.flush_lsn() if lsn is None else lsn
        wait_for(lambda: f"published to {lsn:X}\n{self.status()}\n{self.log_tail()}", lambda: self.published() >= lsn, seconds)
        return lsn

    def wait_blocked(self, target, *patterns, seconds=60):
        """Waits until a table is blocked and checks its reason."""
        probe = lambda: (self.table(target) or {}).get("state") in ("blocked", "resync_required") and self.table(target)
        table = wait_for(lambda: f"{target} blocked\n{self.table(target)}\n{self.log_tail()}", probe, seconds)
        text = json.dumps(table)
        for pattern in patterns:
            assert re.search(pattern, text, re.IGNORECASE), f"no /{pattern}/ in {text}"
        return table

    def wait_dynamic(self, lsn=None, seconds=90, names=None):
        """Waits until every dynamic table that refreshes by itself shows `lsn` and is quiet."""
        lsn = self.wait_caught_up(lsn, seconds)

        def behind():
            status = self.status() or {}
            tables = [t for t in status.get("dynamic_tables", []) if names is None or t["name"] in names]
            if not tables:
                return "no dynamic tables"
            return [t for t in tables if t["state"] != "fresh" or lsn_number(t["data_lsn"] or "0/0") < lsn]

        wait_for(lambda: f"dynamic tables at {lsn:X}: {behind()}\n{self.log_tail()}", lambda: not behind(), seconds, 0.1)
        return lsn

    # ---- log

    def allow(self, *patterns):
        """Says that log messages like these are expected here."""
        self.allowed += patterns

    def log_tail(self, lines=25):
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "--- log\n" + "\n".join(text.splitlines()[-lines:])

    def check_log(self):
        """Asserts that nothing unexpected was logged."""
        bad = []
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else []:
            if not line.strip():
                continue
            try:
                level = json.loads(line).get("level", "")
            except (ValueError, AttributeError):
                level = "ERROR" if re.search(r"panicked|ERROR|^error", line) else ""
            if level in LOUD and not any(re.search(p, line, re.IGNORECASE) for p in self.allowed):
                bad.append(line)
        assert not bad, "unexpected in the log:\n" + "\n".join(bad[:20])

    def close(self):
        if self.alive():
            self.kill()
