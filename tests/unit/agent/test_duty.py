import asyncio
import itertools
import os
import socket
import sys
from dataclasses import replace
from functools import partial

import pytest

from spotline.adapters.grpc.agent.messages import Enrolled, Order, OrderState, Peer, RanksNews
from spotline.agent.agent import NOT_JOINED, Agent
from spotline.agent.rendezvous import is_free, master_port
from spotline.agent.settings import AgentSettings
from spotline.agent.timing import MachineClock
from spotline.domain.jobs.run import EnvironmentVariable, Launcher, RunPackage
from tests.eventually import eventually
from tests.fakes.agent_parts import enrolled_for, task_of, unknown_caller, unreachable

WAITS = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
    "print('ready', flush=True)\ntime.sleep(600)"
)


class Script:
    """A control plane that says what a test has it say."""

    def __init__(self, enrolled: Enrolled, *join_failures: Exception) -> None:
        self.enrolled = enrolled
        self.join_failures = list(join_failures)
        self.watch_failures: list[Exception] = []
        self.orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self.news: list = []
        self.pieces: list = []
        self.joins = 0

    def say(self, state: str, generation: int, *ids: str) -> None:
        peers = tuple(
            Peer(instance_id=peer, node_rank=rank, host="127.0.0.1")
            for rank, peer in enumerate(ids)
        )
        self.orders.put_nowait(
            Order(job_id="job-1", generation=generation, state=OrderState[state], peers=peers)
        )

    async def join(self, **_) -> Enrolled:
        self.joins += 1
        if self.join_failures:
            raise self.join_failures.pop(0)
        return self.enrolled

    async def watch(self):
        if self.watch_failures:
            raise self.watch_failures.pop(0)
        while (order := await self.orders.get()) is not None:
            yield order

    def end_watch(self) -> None:
        self.orders.put_nowait(None)

    async def heartbeat(self, generation: int) -> None:
        pass

    async def tell(self, news) -> None:
        self.news.append(news)

    async def send_output(self, pieces, task) -> None:
        self.pieces += pieces

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def ends(self) -> list[RanksNews]:
        return [n for n in self.news if isinstance(n, RanksNews) and n.exit_code is not None]

    def has_ended(self, times: int) -> bool:
        return len(self.ends) == times

    @property
    def starts(self) -> list[int]:
        return [n.generation for n in self.news if isinstance(n, RanksNews) and n.exit_code is None]


@pytest.fixture
def settings(tmp_path):
    return AgentSettings(
        control="127.0.0.1:1",
        control_ca=b"",
        instance_id="i-1",
        job_id="job-1",
        join_token="t",
        host="127.0.0.1",
        base_dir=tmp_path,
        environ=dict(os.environ),
    )


class Run:
    """An agent that runs beside the test; it must have ended when the block does."""

    def __init__(self, settings, script) -> None:
        self.agent = Agent(settings, clock=MachineClock(), uniform=lambda: 0.0, nonce="n" * 32)
        self._running = self.agent.run(script)

    async def __aenter__(self):
        self._group = asyncio.TaskGroup()
        tasks = await self._group.__aenter__()
        self.task = tasks.create_task(self._running)
        return self

    async def __aexit__(self, *exception):
        if exception[0] is not None:
            self.task.cancel()
        return await self._group.__aexit__(*exception)

    @property
    def code(self) -> int:
        return self.task.result()


def python(script: str, **fields):
    return task_of(command=(sys.executable, "-c", script), **fields)


async def test_a_job_that_ends_well_is_told_and_left(settings):
    script = Script(enrolled_for(python("print('hello')")))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script) as run:
        await eventually(lambda: script.ends)
        script.say("OVER", 1)

    assert run.code == 0
    assert script.ends == [RanksNews(generation=1, exit_code=0)]
    assert script.starts == [1]
    assert script.text == "hello\n"


async def test_a_resize_ends_one_generation_before_the_next(settings):
    script = Script(enrolled_for(python(WAITS, grace_s=20)))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: "ready" in script.text)
        script.say("RUN", 2, "i-0", "i-1")
        await eventually(lambda: script.text.count("ready") == 2)
        script.say("LEAVE", 2)

    kinds = [(n.generation, n.exit_code) for n in script.news if isinstance(n, RanksNews)]
    assert kinds == [(1, None), (1, 75), (2, None), (2, 75)]
    assert {piece.rank for piece in script.pieces if piece.generation == 2} == {1}


@pytest.mark.parametrize("state", ["STOP", "ABORT"])
async def test_a_generation_that_never_began_here_is_disowned(settings, state):
    script = Script(enrolled_for(task_of()))
    script.say(state, 3, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        script.say("LEAVE", 3)

    assert [(end.generation, end.exit_code) for end in script.ends] == [(3, 75)]
    assert script.starts == []


async def test_a_generation_without_this_instance_is_disowned(settings):
    script = Script(enrolled_for(task_of()))
    script.say("RUN", 1, "i-2")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        script.say("LEAVE", 1)

    assert script.starts == []


async def test_what_cannot_be_prepared_is_a_failure_that_says_why_and_is_tried_again(settings):
    environ = settings.environ
    script = Script(enrolled_for(task_of(secrets=("KEY", "OTHER"))))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        environ.update({"SPOTLINE_SECRET_KEY": "k", "SPOTLINE_SECRET_OTHER": "o"})
        script.say("RUN", 2, "i-1")
        await eventually(lambda: len(script.ends) == 2)
        script.say("OVER", 2)

    first, second = script.ends
    assert first.exit_code == 1
    assert "run.secrets KEY, OTHER: expected as variables" in first.detail
    assert second == RanksNews(generation=2, exit_code=0)


async def test_a_setup_that_fails_is_told_with_its_last_words_and_runs_once_when_it_works(settings):
    mark = settings.base_dir / "mark"
    line = f'echo attempt >> "{mark}"; echo no key $KEY; test $(wc -l < "{mark}") = 2 || exit 9'
    script = Script(
        enrolled_for(
            task_of(setup=line, environment=(EnvironmentVariable(name="KEY", value="here"),))
        )
    )
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        for generation in (2, 3):
            await eventually(partial(script.has_ended, generation - 1))
            script.say("RUN", generation, "i-1")
        await eventually(lambda: len(script.ends) == 3)
        script.say("OVER", 3)

    assert [end.exit_code for end in script.ends] == [9, 0, 0]
    assert script.ends[0].detail == "run.setup ended with 9: no key here"
    assert mark.read_text() == "attempt\n" * 2
    setup = [(piece.index, piece.text) for piece in script.pieces if piece.generation == 0]
    assert setup == [(0, "no key here\n"), (1, "no key here\n")]


async def test_a_package_that_is_not_the_one_that_was_packed_is_a_failure(settings, tmp_path):
    (tmp_path / "p.tar.gz").write_bytes(b"x")
    package = RunPackage(sha256="0" * 64, uri=str(tmp_path / "p.tar.gz"), size_bytes=1)
    script = Script(enrolled_for(task_of(package=package)))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        script.say("OVER", 1)

    assert script.ends[0].exit_code == 1
    assert "must have sha256" in script.ends[0].detail


async def test_a_stop_while_the_instance_is_prepared_starts_nothing(settings):
    gate = settings.base_dir / "gate"
    line = f'echo begun; while [ ! -e "{gate}" ]; do sleep 0.05; done'
    script = Script(enrolled_for(task_of(setup=line)))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: (settings.output_dir / "setup.log").exists())
        script.say("STOP", 1, "i-1")
        await eventually(lambda: script.ends)
        gate.touch()
        script.say("RUN", 2, "i-1")
        await eventually(lambda: len(script.ends) == 2)
        script.say("OVER", 2)

    assert [(end.generation, end.exit_code) for end in script.ends] == [(1, 75), (2, 0)]
    assert script.starts == [2]


async def test_an_image_is_run_by_the_engine_of_the_instance(settings, tmp_path):
    """The engine is a script that says what it is given, and runs what follows the image."""
    tools, said = tmp_path / "tools", tmp_path / "said"
    tools.mkdir()
    (tools / "podman").write_text(
        f'#!/bin/sh\necho "$@" >> "{said}"\n'
        '[ "$1" = rm ] && exit 0\nwhile [ "$1" != me/train:1 ]; do shift; done\nshift\nexec "$@"\n'
    )
    (tools / "podman").chmod(0o755)
    settings.environ["PATH"] = f"{tools}:/usr/bin:/bin"
    task = task_of(command=("sh", "-c", "pwd; exit 4"), image="me/train:1", location="s3://b/x")
    script = Script(enrolled_for(task))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        script.say("OVER", 1)

    assert script.ends[0] == RanksNews(generation=1, exit_code=4, detail=str(settings.work_dir))
    run, *ends = said.read_text().splitlines()
    assert run.startswith("run --rm --init --name spotline-i-1-1-0 --network host")
    assert f"--volume {settings.work_dir}:{settings.work_dir}" in run
    assert f"--volume {settings.run_dir}:{settings.run_dir}" in run
    assert "--env SPOTLINE_GENERATION" in run
    assert set(ends) == {"rm --force spotline-i-1-1-0"}


TORCHRUN = """
import os, subprocess, sys
options = [word for word in sys.argv[1:] if word.startswith("--")]
print(*options, flush=True)
script = sys.argv[1 + len(options):]
workers = [
    subprocess.Popen(
        [sys.executable, *script], start_new_session=True,
        env={**os.environ, "TORCHELASTIC_RUN_ID": "none", "LOCAL_RANK": str(rank)})
    for rank in range(2)]
codes = [worker.wait() for worker in workers]
if any(codes):
    print("Root Cause (first observed failure):\\n[0]:\\n"
          f"  exitcode  : {codes[0]} (pid: {workers[0].pid})", file=sys.stderr)
    sys.exit(1)
"""


async def test_workers_of_torchrun_are_told_to_stop_and_their_code_is_told(settings, tmp_path):
    """The launcher does what torchrun does to its workers: sessions of their own, exit code 1."""
    package = tmp_path / "lib" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package / "run.py").write_text(TORCHRUN)
    (tmp_path / "train.py").write_text(WAITS)
    script = Script(
        enrolled_for(
            task_of(
                command=(str(tmp_path / "train.py"),),
                launcher=Launcher.TORCHRUN,
                ranks_per_instance=2,
                grace_s=20,
                environment=(EnvironmentVariable(name="PYTHONPATH", value=str(tmp_path / "lib")),),
            )
        )
    )
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.text.count("ready") == 2)
        script.say("STOP", 1, "i-1")
        await eventually(lambda: script.ends)
        script.say("LEAVE", 1)

    assert script.ends[0].exit_code == 75
    assert "--nnodes=1 --node-rank=0 --nproc-per-node=2 --master-addr=127.0.0.1" in script.text


MEETS = """
import os, pathlib, socket, time
print("meets at", os.environ["MASTER_PORT"], flush=True)
while not pathlib.Path("gate").exists():
    time.sleep(0.02)
socket.create_server(("", int(os.environ["MASTER_PORT"]))).close()
"""


@pytest.fixture
def generation():
    """One whose port is free, and that of the next one: other tests run on this machine, too."""

    def suits(found: int) -> bool:
        return all(is_free(master_port("job-1", one)) for one in (found, found + 1))

    return next(found for found in itertools.count(1 + 97 * os.getpid()) if suits(found))


async def test_a_port_that_is_taken_before_the_ranks_start_is_no_failure(settings, generation):
    script = Script(enrolled_for(python("print('begun')")))
    port, members = master_port("job-1", generation), ("i-1", "i-2")
    script.say("RUN", generation, *members)

    with socket.create_server(("", port)):
        async with Run(settings, script):
            await eventually(lambda: script.ends)
            script.say("RUN", generation + 1, *members)
            await eventually(partial(script.has_ended, 2))
            script.say("OVER", generation + 1)

    assert [end.exit_code for end in script.ends] == [75, 0]
    assert f"MASTER_PORT {port} is taken" in script.ends[0].detail
    assert script.starts == [generation + 1]
    assert script.text == "begun\n"


@pytest.mark.parametrize("members", [("i-1",), ("i-1", "i-2")])
async def test_a_port_that_is_taken_as_the_ranks_start_is_no_failure(settings, generation, members):
    script = Script(enrolled_for(python(MEETS)))
    script.say("RUN", generation, *members)

    async with Run(settings, script):
        await eventually(lambda: script.text.endswith("\n"))
        with socket.create_server(("", int(script.text.split()[-1]))):
            (settings.work_dir / "gate").touch()
            await eventually(lambda: script.ends)
        script.say("RUN", generation + 1, *members)
        await eventually(partial(script.has_ended, 2))
        script.say("OVER", generation + 1)

    assert [end.exit_code for end in script.ends] == [75, 0]


async def test_a_port_that_is_taken_is_said_before_the_instance_is_ready(settings, generation):
    script = Script(enrolled_for(task_of(setup="sleep 600")))
    script.say("RUN", generation, "i-1", "i-2")

    with socket.create_server(("", master_port("job-1", generation))):
        async with Run(settings, script):
            await eventually(lambda: script.ends)
            script.say("OVER", generation)

    assert [end.exit_code for end in script.ends] == [75]


async def test_another_address_that_is_taken_is_the_programs_failure(settings, generation):
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        script = Script(enrolled_for(python(f"import socket; socket.create_server(('', {port}))")))
        script.say("RUN", generation, "i-1", "i-2")
        async with Run(settings, script):
            await eventually(lambda: script.ends)
            script.say("OVER", generation)

    assert script.ends[0].exit_code == 1
    assert "Address already in use" in script.ends[0].detail


async def test_the_port_is_the_first_members_alone(settings, generation):
    script = Script(enrolled_for(python("print('begun')")))
    script.say("RUN", generation, "i-0", "i-1")

    with socket.create_server(("", master_port("job-1", generation))):
        async with Run(settings, script):
            await eventually(lambda: script.ends)
            script.say("OVER", generation)

    assert script.ends == [RanksNews(generation=generation, exit_code=0)]


async def test_leaving_ends_a_setup_that_would_go_on(settings):
    script = Script(enrolled_for(task_of(setup="sleep 600")))
    script.say("WAIT", 0)

    async with Run(settings, script) as run:
        await eventually(lambda: (settings.output_dir / "setup.log").exists())
        script.say("LEAVE", 0)

    assert run.code == 0


async def test_a_disk_that_takes_nothing_is_a_failure_that_says_so(settings):
    settings.work_dir.write_text("in the way")
    script = Script(enrolled_for(task_of()))
    script.say("RUN", 1, "i-1")

    async with Run(settings, script):
        await eventually(lambda: script.ends)
        script.say("OVER", 1)

    assert script.ends[0].exit_code == 1
    assert str(settings.work_dir) in script.ends[0].detail


async def test_a_session_that_counts_no_more_is_asked_for_again(settings):
    script = Script(enrolled_for(task_of()))
    script.watch_failures = [unreachable(), unknown_caller(), unknown_caller()]
    script.say("LEAVE", 0)

    async with Run(settings, script) as run:
        pass

    assert run.code == 0
    assert script.joins == 3


async def test_a_watch_that_ended_is_followed_by_the_next_session_and_goes_on(settings):
    script = Script(enrolled_for(task_of()))
    script.say("WAIT", 0)
    script.end_watch()
    script.say("LEAVE", 0)

    async with Run(settings, script) as run:
        pass

    assert run.code == 0
    assert script.joins == 2


async def test_an_agent_whose_job_is_over_asks_for_no_further_session(settings):
    script = Script(enrolled_for(task_of()))
    script.say("OVER", 0)
    script.end_watch()

    async with Run(settings, script) as run:
        pass

    assert run.code == 0
    assert script.joins == 1


async def test_an_agent_asks_for_its_next_session_before_one_ends(settings):
    enrolled = replace(enrolled_for(task_of()), session_s=0.02, heartbeat_s=0.01)
    script = Script(enrolled)

    async with Run(settings, script) as run:
        await eventually(lambda: script.joins >= 4)
        script.join_failures = [unreachable(), unknown_caller()]
        before = script.joins
        await eventually(lambda: script.joins >= before + 4)
        script.say("LEAVE", 0)

    assert run.code == 0


async def test_an_agent_that_is_told_to_end_while_it_joins_ends(settings):
    script = Script(enrolled_for(task_of()), *(unreachable() for _ in range(1000)))

    async with Run(settings, script) as run:
        await eventually(lambda: script.joins)
        run.agent.end()

    assert run.code == 0


async def test_a_token_for_another_job_is_not_used(settings):
    other = enrolled_for(task_of())
    settings = AgentSettings(
        **{
            name: getattr(settings, name)
            for name in settings.__dataclass_fields__
            if name != "job_id"
        },
        job_id="job-2",
    )

    async with Run(settings, Script(other)) as run:
        pass

    assert run.code == NOT_JOINED
    assert not settings.run_dir.exists()
