"""Fixtures: a server per session, a database and an installation per test."""
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from flowtest.daemon import Flow  # noqa: E402
from flowtest.lake import DuckReader, PyIcebergReader  # noqa: E402
from flowtest.postgres import TOOLS, Server  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--lane", default="", help="run only the tests of one long lane")
    parser.addoption("--of-this-major", action="store_true", help="leave out what no server version can change")


def pytest_configure(config):
    config.addinivalue_line("markers", "lane(name): belongs to a long lane and not to the gate")
    config.addinivalue_line("markers", "any_major: nothing in it depends on PostgreSQL's version")


def pytest_collection_modifyitems(config, items):
    lane = config.getoption("--lane")
    chosen, left = [], []
    for item in items:
        mark = item.get_closest_marker("lane")
        wanted = (mark.args[0] if mark else "") == lane
        if config.getoption("--of-this-major") and item.get_closest_marker("any_major"):
            wanted = False
        (chosen if wanted else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    setattr(item, "report_" + outcome.get_result().when, outcome.get_result())


@pytest.fixture(scope="session")
def major():
    return int(os.environ.get("FLOW_PG_MAJOR", "18"))


def scratch(name):
    """Makes a folder that PostgreSQL's unprivileged user may enter."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"flow-{name}-"))
    folder.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def server(major):
    """Is a server that tests share; a test that restarts it must take `own_server`."""
    folder = scratch(f"pg{major}")
    server = Server(major, folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_server(major):
    """Is a server for one test alone."""
    folder = scratch(f"pg{major}")
    server = Server(major, folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def database_name(request):
    plain = re.sub(r"\W+", "_", request.node.name.lower())[:40]
    return f"{plain}_{os.getpid()}"


@pytest.fixture
def database(server, request):
    database = server.create_database(database_name(request))
    yield database
    database.drop()


@pytest.fixture
def folder(request):
    """Is the test's own folder; kept when the test fails."""
    folder = scratch("test")
    yield folder
    report = getattr(request.node, "report_call", None)
    if report is not None and report.failed:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_flow(folder, request):
    """Makes installations; ends them and checks their logs after the test."""
    made = []

    def make(database, tables=(), name="flow", **kw):
        flow = Flow(folder / name, database, tables, **kw)
        made.append(flow)
        return flow

    yield make
    for flow in made:
        flow.close()
    report = getattr(request.node, "report_call", None)
    if report is not None and report.passed:
        for flow in made:
            flow.check_log()


@pytest.fixture
def read():
    """Makes readers of an installation's catalog: `read(flow)` gives DuckDB and PyIceberg."""
    made = []

    def readers(flow):
        pair = [DuckReader(flow.catalog), PyIcebergReader(flow.catalog)]
        made.extend(pair)
        return pair

    yield readers
    for reader in made:
        reader.close()


@pytest.fixture(scope="session")
def spark():
    """Is a folder with Spark and its jars."""
    folder = scratch("spark")
    subprocess.run([str(TOOLS / "spark-iceberg.sh"), str(folder)], check=True, stdout=subprocess.DEVNULL, timeout=900)
    return folder


@pytest.fixture
def rng(request):
    """Is a random generator whose seed is printed with a failure; FLOW_SEED repeats it."""
    seed = int(os.environ.get("FLOW_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FLOW_SEED={seed}")
    generator = random.Random(seed)
    generator.seed_used = seed
    return generator
