import os
import signal
import subprocess
import sys

import pytest

from spotline.agent.processes import (
    MARKER,
    all_processes,
    processes_of,
    rank_processes,
    send_signal,
)
from tests.eventually import eventually

WAITS = "import time; time.sleep(600)"


@pytest.fixture
def marker(tmp_path):
    return f"test/{os.getpid()}/{tmp_path.name}"


@pytest.fixture
def start(marker):
    """Starts marked processes, and leaves none behind."""
    started = []

    def starting(*words: str, marked: bool = True, **fields) -> subprocess.Popen:
        env = {**os.environ, **({MARKER: marker} if marked else {}), **fields}
        started.append(subprocess.Popen(words, env=env, start_new_session=True))
        return started[-1]

    yield starting
    send_signal(processes_of(marker), signal.SIGKILL)
    for process in started:
        process.kill()
        process.wait()


async def test_a_process_is_found_in_a_session_of_its_own_and_below_one_that_is_marked(
    start, marker
):
    orphan = f"import os, sys\nif os.fork(): sys.exit()\nos.setsid()\n{WAITS}"
    unmarked = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {WAITS!r}], env={{}})\ntime.sleep(600)"
    )
    first = start(sys.executable, "-c", orphan)
    start(sys.executable, "-c", unmarked)
    start(sys.executable, "-c", WAITS, marked=False)

    # The orphan, the parent, and its child that emptied its environment.
    await eventually(lambda: first.poll() is not None and len(processes_of(marker)) == 3)
    assert processes_of(marker + "0") == set()
    assert processes_of(marker.rpartition("/")[0] + "/") == processes_of(marker)


async def test_a_process_that_ended_is_not_found_while_nobody_waited_for_it(start, marker):
    process = start("true")

    await eventually(lambda: process.pid not in all_processes())
    assert processes_of(marker) == set()
    assert send_signal([process.pid], signal.SIGTERM) == 1  # its parent, this test, has it still
    process.wait()
    assert send_signal([process.pid], signal.SIGTERM) == 0


async def test_the_rank_is_what_a_shell_runs_and_not_its_helpers(start, marker):
    helper = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {WAITS!r}])\ntime.sleep(600)"
    )
    shell = start("sh", "-c", f'"{sys.executable}" -c "$CODE"; exit $?', CODE=helper)

    await eventually(lambda: len(processes_of(marker)) == 3)
    (rank,) = rank_processes(shell.pid, launched=False)

    processes = all_processes()
    assert processes[rank].parent == shell.pid
    assert [p.pid for p in processes.values() if p.parent == rank]


async def test_the_ranks_of_a_launcher_are_its_workers_once_it_has_some(start, marker, tmp_path):
    launcher = (
        "import os, subprocess, sys, time\n"
        "while not os.path.exists(os.environ['FLAG']): time.sleep(0.01)\n"
        f"waits = [sys.executable, '-c', {WAITS!r}]\n"
        "subprocess.Popen(waits)\n"
        "for _ in range(2):\n"
        "    env = {**os.environ, 'TORCHELASTIC_RUN_ID': 'x'}\n"
        "    subprocess.Popen(waits, env=env, start_new_session=True)\n"
        "time.sleep(600)"
    )
    root = start(sys.executable, "-c", launcher, FLAG=str(tmp_path / "flag"))
    assert rank_processes(root.pid, launched=True) == {root.pid}

    (tmp_path / "flag").touch()
    await eventually(lambda: len(rank_processes(root.pid, launched=True)) == 2)

    assert root.pid not in rank_processes(root.pid, launched=True)
    assert len(processes_of(marker)) == 4


def test_what_does_not_live_has_no_ranks(start):
    process = start("true")
    process.wait()

    assert rank_processes(process.pid, launched=False) == set()
