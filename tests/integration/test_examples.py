"""The examples of the documents, as somebody would start them."""

from __future__ import annotations

import asyncio
import lzma
import re
import runpy
import shutil
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spotline.application.allocator.messages import JobState
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.cli.main import app
from spotline.domain.market.generate import generate
from tests.eventually import PATIENCE_S
from tests.fakes.placer import START_NS
from tests.fakes.processes import ROOT
from tools.documents.commands import commands_of, leaf
from tools.documents.nav import nav_of, pages_in

pytestmark = pytest.mark.integration

EXAMPLES = ROOT / "docs" / "examples"
MARKET = generate("mixed", seed=3, slots=100, slot_s=1800, start_ns=START_NS)


COMMANDS = typer.main.get_command(app)
# What reads from a running system; the documents show it for the job that a reader has.
READING = {
    *(("events",), ("explain",), ("logs",), ("limits", "show"), ("market", "status")),
    *(("auth", "whoami"), ("orphans", "list"), ("parked", "list"), ("pipelines", "status")),
    *(("promote",), ("stats",), ("status",), ("watch",)),
}


def shown_questions(job_id: str) -> list[list[str]]:
    """Every line of the documents that reads from a system, of this job and of nothing else."""
    pages = {"README.md", *pages_in(nav_of(ROOT))} - {"CHANGELOG.md", "docs/bad-input.md"}
    lines = {
        said.words[1:]
        for page in sorted(pages)
        for said in commands_of((ROOT / page).read_text(), page)
        if said.whole and leaf(COMMANDS, said) in READING
    }
    # Others are asked for what only their reader has: an entry, a log, an account.
    whole = [words for words in sorted(lines) if not any(map(_of_the_reader, words))]
    return [[job_id if word == "JOB" else word for word in words] for words in whole]


def _of_the_reader(word: str) -> bool:
    return (word.isupper() and word != "JOB") or word in ("--log", "--slot", "--to", "3f0a")


@asynccontextmanager
async def started(name: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)).decode().strip()


def unpacked_log(folder: Path) -> Path:
    """The log of a rehearsal on AWS."""
    packed = ROOT / "tests" / "data" / "page" / "rehearsed-aws"
    shutil.copy(packed / "manifest.json", folder)
    for file in packed.glob("*.xz"):
        (folder / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
    return folder


class Refused(Exception):
    """As Airflow's: no other try."""


class Sensor:
    """What the example needs of Airflow's sensors, which is not installed here."""

    def __init__(self, **options: Any) -> None:
        self.options = options


@pytest.fixture
def sensor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's class, on stand-ins for the two modules of Airflow that it imports."""
    for name, parts in {
        "airflow": {},
        "airflow.exceptions": {"AirflowFailException": Refused},
        "airflow.sensors": {},
        "airflow.sensors.base": {"BaseSensorOperator": Sensor},
    }.items():
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
    return runpy.run_path(str(EXAMPLES / "airflow_wait.py"))["SpotlineJob"]


async def test_a_job_is_handed_over_followed_and_waited_for(tmp_path: Path, sensor: Any) -> None:
    options = SystemOptions(
        market=MARKET,
        store=tmp_path / "store",
        ingest=IngestOptions(wait_for_work=True),
        selector=SelectorOptions(rehearsals=0),
        outlooks=False,
    )

    async with (
        running_system(options) as system,
        started("follow.py", system.bus.nats_url, "research") as follower,
    ):
        assert await line_of(follower) == "following research"
        async with started("submit.py", system.allocator_address) as submitting:
            job_id = (await line_of(submitting)).removeprefix("job ")
            ended = await line_of(submitting)
            code = await asyncio.wait_for(submitting.wait(), PATIENCE_S)
        decision = await line_of(follower)
        waiting = sensor(task_id="wait", job_id=job_id, address=system.allocator_address)
        over = await asyncio.to_thread(waiting.poke, {})
        addresses = {
            "SPOTLINE_ALLOCATOR_ADDRESS": system.allocator_address,
            "SPOTLINE_ANALYTICS_ADDRESS": system.analytics_address,
            "SPOTLINE_PLACER_ADDRESS": system.placer_address,
        }
        answers = {
            " ".join(words): await asyncio.to_thread(CliRunner().invoke, app, words, env=addresses)
            for words in shown_questions(job_id)
        }

    assert code == 0, ended
    assert ended.startswith("completed ")
    assert decision.split()[1] == job_id
    assert decision.split()[-1].startswith("DECISION_REASON_")
    assert over
    assert len(answers) >= 15
    # 1: something is not well, as at the end of a market.
    wrong = {line: said.output for line, said in answers.items() if said.exit_code not in (0, 1)}
    assert wrong == {}
    refused = {line: said.output for line, said in answers.items() if said.exit_code == 1}
    assert set(refused) <= {"status --system"}, refused
    assert waiting.options == {"mode": "reschedule", "poke_interval": 60, "task_id": "wait"}


@pytest.mark.parametrize("state", list(JobState), ids=lambda state: state.value)
def test_airflow_waits_until_a_job_is_over_and_fails_where_it_did_not_complete(
    sensor: Any, monkeypatch: pytest.MonkeyPatch, state: JobState
) -> None:
    class Standing:
        """A client of a system that has one job, in that state."""

        def __init__(self, address: str) -> None:
            assert address == "host:7"

        def __enter__(self) -> Standing:
            return self

        def __exit__(self, *exception: object) -> None:
            return None

        def get(self, job_id: str) -> SimpleNamespace:
            assert job_id == "j"
            return SimpleNamespace(state=state)

    monkeypatch.setitem(sensor.poke.__globals__, "Client", Standing)
    waiting = sensor(job_id="j", address="host:7")

    if state in (JobState.COMPLETED, JobState.COMPLETED_LATE):
        assert waiting.poke({}) is True
    elif state.over:
        with pytest.raises(Refused, match=f"j ended as {state.value}"):
            waiting.poke({})
    else:
        assert waiting.poke({}) is False


def test_a_policy_of_ones_own_is_held_against_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_policy.py"))

    own, rule = (line.split() for line in capsys.readouterr().out.splitlines())
    assert (own[0], rule[0]) == ("cheap_spot", "msu")
    assert own[-2:] == rule[-2:] == ["on", "time"]
    # It waits while spot is dear, and has the time to.
    assert float(own[1]) < float(rule[1])


@pytest.mark.slow
def test_a_what_if_is_asked_of_a_recorded_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = unpacked_log(tmp_path)
    monkeypatch.setattr(sys, "argv", ["what_if.py", str(log), "+12h"])

    runpy.run_path(str(EXAMPLES / "what_if.py"))

    said = capsys.readouterr().out.splitlines()
    assert "jobs cost" in said[0]
    assert [line.split(":")[0] for line in said[1:]] == ["msu", "on_demand_only", "left out"]


@pytest.mark.slow
async def test_the_pages_of_a_recorded_log_are_served(tmp_path: Path) -> None:
    program = "from spotline.cli.main import app; app(prog_name='spotline')"
    serving = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "web", str(unpacked_log(tmp_path))),
        *("--http-address", "127.0.0.1:0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said = await line_of(serving)
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert address, said
        opened = await asyncio.to_thread(urllib.request.urlopen, address[0], timeout=PATIENCE_S)
        with opened:
            assert opened.status == 200
            assert b"<html" in opened.read()
    finally:
        serving.terminate()
        await serving.wait()
