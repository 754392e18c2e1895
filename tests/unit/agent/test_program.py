import asyncio
import os
import signal
import sys

import pytest

from spotline.agent.output import OutputSpool, RankOutput
from spotline.agent.processes import processes_of
from spotline.agent.program import Ending, Program
from spotline.agent.ranks import RankStart
from spotline.agent.secrets import Masker
from spotline.agent.timing import MachineClock
from tests.eventually import eventually

SAVES = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(75)))\n"
    "print('ready', flush=True)\ntime.sleep(600)"
)
DEAF = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\ntime.sleep(600)"
)


class Running:
    """A program of Python scripts, one a rank."""

    def __init__(self, folder, *scripts: str, words=None, **fields) -> None:
        self.marker = f"test/{os.getpid()}/{folder.name}"
        self.program = Program(marker=self.marker, clock=MachineClock(), **fields)
        self.heard: dict[int, list[str]] = {rank: [] for rank in range(len(scripts))}
        self.outputs = {
            rank: RankOutput(
                generation=1,
                rank=rank,
                spool=OutputSpool(),
                masker=Masker(),
                clock=MachineClock(),
                heed=heard.append,
            )
            for rank, heard in self.heard.items()
        }
        self.starts = [
            RankStart(
                rank=rank,
                words=words or (sys.executable, "-c", script),
                environment={**os.environ, "SCRIPT": script},
            )
            for rank, script in enumerate(scripts)
        ]
        self.folder = folder

    async def start(self) -> Ending | None:
        return await self.program.start(self.starts, self.outputs, self.folder)

    async def wait(self) -> Ending:
        async with asyncio.timeout(100):
            ending = await self.program.wait()
        assert processes_of(self.marker) == set()
        return ending

    async def ready(self) -> None:
        await eventually(lambda: all("ready" in heard for heard in self.heard.values()))


async def test_ranks_that_end_well_end_with_0(tmp_path):
    running = Running(tmp_path, "print('one')", "print('two')")

    assert await running.start() is None
    assert await running.wait() == Ending(exit_code=0)
    assert running.heard == {0: ["one"], 1: ["two"]}


async def test_stop_has_all_ranks_save(tmp_path):
    running = Running(tmp_path, SAVES, SAVES, grace_s=60)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        running.program.stop()
        running.program.stop()

    assert waiting.result().exit_code == 75
    assert running.heard == {0: ["ready", "saved"], 1: ["ready", "saved"]}


async def test_stop_reaches_what_a_shell_runs_and_gets_its_code(tmp_path):
    line = ("sh", "-c", f'"{sys.executable}" -c "$SCRIPT"; code=$?; echo then; exit $code')
    running = Running(tmp_path, SAVES, words=line, grace_s=60)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        running.program.stop()

    assert waiting.result().exit_code == 75
    assert running.heard[0] == ["ready", "saved", "then"]


async def test_what_is_left_after_the_grace_is_killed(tmp_path):
    running = Running(tmp_path, DEAF, grace_s=0.1)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        running.program.stop()

    assert waiting.result().exit_code == -signal.SIGKILL


async def test_kill_ends_a_grace_that_runs(tmp_path):
    running = Running(tmp_path, DEAF, grace_s=1000)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        running.program.stop()
        await asyncio.sleep(0)
        running.program.kill()

    assert waiting.result().exit_code == -signal.SIGKILL


async def test_one_rank_that_fails_ends_the_others_and_is_the_one_that_is_told(tmp_path):
    running = Running(tmp_path, SAVES, "import sys; sys.exit('out of memory')", grace_s=60)
    await running.start()

    assert await running.wait() == Ending(exit_code=1, detail="out of memory")


async def test_children_that_outlive_their_rank_are_killed_and_hold_nothing_up(tmp_path):
    leaves = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {DEAF!r}], start_new_session=True)\n"
    )
    running = Running(tmp_path, leaves)
    await running.start()

    assert (await running.wait()).exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"), [(("no-such-command",), 127), (("/",), 126), (("./nothing",), 127)]
)
async def test_a_command_that_cannot_be_run_is_an_ending(tmp_path, words, code):
    running = Running(tmp_path, "", "", words=words)

    ending = await running.start()

    assert ending is not None
    assert ending.exit_code == code
    assert ending.detail.startswith(f"run.command '{words[0]}' cannot be run")
    assert running.heard[0] == [ending.detail]


async def test_the_code_of_a_worker_is_read_off_what_torchrun_says(tmp_path):
    report = (
        "import sys\nsys.exit('''torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
        "train.py FAILED\nFailures:\n[1]:\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -15 (pid: 12)\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n"
        "  exitcode  : 75 (pid: 11)\n  error_file: <N/A>''')"
    )
    running, plain = (Running(tmp_path, report, launched=launched) for launched in (True, False))
    await running.start()
    assert (await running.wait()).exit_code == 75

    await plain.start()
    assert (await plain.wait()).exit_code == 1


async def test_a_wait_that_is_cancelled_leaves_no_process(tmp_path):
    running = Running(tmp_path, DEAF)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        waiting.cancel()

    await eventually(lambda: not processes_of(running.marker))


# It starts one process after the other, and whoever lists them misses the next ones.
STARTS_ON = (
    "import os, time\nprint('ready', flush=True)\n"
    "for _ in range(300):\n"
    "    os.fork() or (time.sleep(600), os._exit(0))\n"
    "    time.sleep(0.001)\ntime.sleep(600)"
)


async def test_a_wait_that_is_cancelled_leaves_nothing_that_is_started_meanwhile(tmp_path):
    running = Running(tmp_path, STARTS_ON)
    await running.start()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(running.wait())
        await running.ready()
        await eventually(lambda: len(processes_of(running.marker)) > 10)
        waiting.cancel()

    assert processes_of(running.marker) == set()


@pytest.mark.parametrize("steps", range(0, 12, 3))
async def test_a_start_that_is_cancelled_at_any_moment_leaves_no_process(tmp_path, steps):
    running = Running(tmp_path, DEAF, DEAF)

    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(running.start())
        for _ in range(steps):
            await asyncio.sleep(0.001)
        starting.cancel()

    if not starting.cancelled():
        running.program.kill()
        await running.wait()
    await eventually(lambda: not processes_of(running.marker))


async def test_containers_are_ended_with_the_program(tmp_path):
    ended = []

    async def end_containers() -> None:
        ended.append(1)

    running = Running(tmp_path, "pass", end_containers=end_containers)
    await running.start()

    await running.wait()
    assert ended
