"""The examples of the documents, as somebody would start them."""

from __future__ import annotations

import asyncio
import lzma
import runpy
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spotline.application.allocator.messages import JobState
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.domain.market.generate import generate
from tests.eventually import PATIENCE_S
from tests.fakes.placer import START_NS
from tests.fakes.processes import ROOT

pytestmark = pytest.mark.integration

EXAMPLES = ROOT / "docs" / "examples"
MARKET = generate("mixed", seed=3, slots=100, slot_s=1800, start_ns=START_NS)


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

    assert code == 0, ended
    assert ended.startswith("completed ")
    assert decision.split()[1] == job_id
    assert decision.split()[-1].startswith("DECISION_REASON_")
    assert over
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
