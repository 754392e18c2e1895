"""A real broker for the tests that need one; no port is fixed, no store outlives the session.

Tests run in several processes (`make test`), each with a session, hence a broker, of its own.
"""

import gc
import itertools
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nats.js.errors
import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.contracts.subjects import StreamPart
from spotline.runtime.broker import EmbeddedBroker
from tests.depth import examples
from tests.eventually import PATIENCE_S
from tests.fakes.bytecode import compile_tests
from tests.fakes.jetstream import jetstream_of
from tests.fakes.postgresql import running_postgresql
from tests.fakes.shared_kernels import share_kernels

# A law holds or does not; how long an example takes says how busy the machine is. The same examples
# are drawn in every run, so that a change is judged by what it changes; `make test-slow` draws others.
settings.register_profile(
    "laws",
    deadline=None,
    max_examples=examples(100),
    derandomize="SPOTLINE_DEEP" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("laws")

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

# Many tests wait: for a broker, for a process, for time to pass.
WORKERS_PER_CPU = 2

# Behind the last stream the server removes the folder of all streams, in the background: the first
# stream of the next test could lose its own. With this one there is no last one.
KEPT = "KEPT"

COMPILING = pytest.StashKey[subprocess.Popen[bytes]]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """What `-n auto` means: two processes a CPU, and none for tests of a single file."""
    files = [Path(argument.partition("::")[0]) for argument in config.args]
    if len({str(file) for file in files}) == 1 and files[0].is_file():
        return 0
    # While the workers collect, so that no test's timeout runs while kernels compile.
    config.stash[COMPILING] = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.shared_kernels"],
        cwd=config.rootpath,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(("src", "."))},
        stdout=subprocess.DEVNULL,
    )
    processors = len(os.sched_getaffinity(0))
    compile_tests(config.rootpath / "tests", processors)
    return WORKERS_PER_CPU * processors


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node):
    """Let tests begin when the kernels are there; the tests themselves say if they are not."""
    if (compiling := node.config.stash.get(COMPILING, None)) is not None:
        compiling.wait()


def pytest_unconfigure(config):
    """Leave no process behind when the tests never began."""
    if (folders := config.stash.get(FOLDERS_OF_A_USER, None)) is not None:
        folders.cleanup()
    if (compiling := config.stash.get(COMPILING, None)) is not None:
        compiling.kill()
        compiling.wait()


FOLDERS_OF_A_USER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config):
    """Be a user of one's own; share in a worker what another one compiled."""
    # What systems tell this user's clients, and his contexts, are no business of other runs.
    folders = config.stash[FOLDERS_OF_A_USER] = tempfile.TemporaryDirectory(prefix="spotline-user-")
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        os.environ[variable] = str(Path(folders.name) / variable.lower())
    os.environ["SPOTLINE_TABLES"] = str(Path(folders.name) / "tables")
    if hasattr(config, "workerinput"):
        share_kernels()


def _is_plant(item):
    return item.get_closest_marker("plants") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """In workers, take files in turn from those that mostly wait and those that mostly compute.

    The planted bugs take longest, and are no tail when they come first.
    """
    if not hasattr(config, "workerinput"):
        return
    files = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    planted = [path for path, held in files.items() if any(map(_is_plant, held))]
    waiting = [path for path in files if {"integration", "replay"} & set(path.parts)]
    computing = [path for path in files if path not in {*waiting, *planted}]
    mixed = itertools.chain.from_iterable(itertools.zip_longest(waiting, computing))
    turns = [*planted, *mixed]
    items[:] = [item for path in turns if path is not None for item in files[path]]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Spare the collector what stays to the end: modules and tests, half a second at each pass."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000, 20, 20)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def broker():
    """One nats-server for the session."""
    async with EmbeddedBroker() as running:
        async with NatsConnection(running.url, name="test") as connection:
            await (await jetstream_of(connection)).add_stream(name=KEPT, subjects=["kept"])
        yield running


@pytest.fixture
async def nats_connection(broker):
    """A connection to the session's broker, with no stream left over."""
    async with NatsConnection(broker.url, name="test", timeout_s=PATIENCE_S) as connection:
        js = await jetstream_of(connection)
        for info in await js.streams_info():
            if info.config.name == KEPT:
                continue
            try:
                await js.delete_stream(info.config.name)
            except nats.js.errors.NotFoundError:
                continue
        yield connection


@pytest.fixture
async def js(nats_connection):
    """JetStream itself, to ask the broker what it holds."""
    return await jetstream_of(nats_connection)


@pytest.fixture
async def event_stream(nats_connection):
    """An empty log."""
    return await NatsEventStream.open(nats_connection)


@pytest.fixture(scope="session")
def postgresql():
    """One PostgreSQL for the session; skips where none is installed."""
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_database(request, tmp_path):
    """The URL of a new database, of each kind that a ledger runs on."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store' / 'ledger.sqlite'}"
    return request.getfixturevalue("postgresql").fresh()


@pytest.fixture
async def statistics_stream(nats_connection, event_stream):
    """The empty stream of the statistics beside it."""
    return await NatsEventStream.open(nats_connection, part=StreamPart.STATISTICS)
