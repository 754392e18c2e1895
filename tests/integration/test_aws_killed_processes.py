"""SIGKILL of a real actuator at each call that a rehearsed AWS gets: nothing twice, nothing left.

The actuator is the service of that name, over HTTP to `spotline rehearse aws`, with a real broker and
a ledger on disk between its lives. In one process, and at each point of ledger and cloud, the same is
shown by `test_aws_killed.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.aws_processes import aws_processes
from tests.fakes.aws_rehearsal import market

# Three processes with all their modules take six seconds of a processor to begin. The short form for
# every run is in one process (`test_aws_killed.py`); of these, the last one below.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

OFFERING_ID = "aws:default:use1-az1:p4d.24xlarge"
SPEED = 60.0
BEFORE_AND_AFTER = ("before", "after")
# Of what is asked again and again, every so manieth call.
POINTS = [
    pytest.param("CreateFleet", (*BEFORE_AND_AFTER, "late"), 1, id="launches"),
    pytest.param("TerminateInstances", (*BEFORE_AND_AFTER, "late"), 1, id="releases"),
    pytest.param("DescribeInstances", BEFORE_AND_AFTER, 3, id="looks"),
    pytest.param("ReceiveMessage", BEFORE_AND_AFTER, 5, id="queues"),
    pytest.param("DeleteMessageBatch", BEFORE_AND_AFTER, 2, id="deletions"),
    pytest.param("Get*", ("before",), 2, id="quotas and prices"),
]


async def killed(folder: Path, operation: str, effects: Sequence[str], step: int) -> int:
    """Live through cycle after cycle, killed once in each, until no call is left to be met."""
    async with aws_processes(folder, market(), OFFERING_ID, speed=SPEED) as run:
        await run.start()
        await asyncio.wait_for(run.log.begin(), 60)
        for effect in effects:
            skip = 0
            while await run.killed_at(operation, effect, skip, run.cycle):
                skip += step
            assert skip, f"no {operation} came"
        await run.check()
        return run.kills


@pytest.mark.parametrize(("operation", "effects", "step"), POINTS)
async def test_killed_at_any_call_nothing_is_bought_twice_and_nothing_is_left(
    tmp_path: Path, operation: str, effects: Sequence[str], step: int
) -> None:
    assert await killed(tmp_path, operation, effects, step) >= len(effects)


async def test_what_was_pending_as_it_was_ended_is_settled_at_its_minimum_at_most(
    tmp_path: Path,
) -> None:
    """The answer that said so is lost with the process, and the event history may not be read.

    The ledger is above the bill, never below. With the history it is the bill: `test_aws_lost_ends.py`.
    """
    minute_micro_usd = 10_000_000 * 60 // 3600

    async with aws_processes(tmp_path, market(), OFFERING_ID, speed=1.0) as run:
        await run.start()
        await asyncio.wait_for(run.log.begin(), 60)
        await run.log.decided(1, 0)
        (launched,) = await run.instances()
        denied = "AccessDeniedException"
        await run.control("fail", operation="LookupEvents", code=denied, times=100)

        met = await run.killed_at("TerminateInstances", "after", 0, lambda: run.log.decided(0, 0))

        assert (met, launched["state"]) == (True, "pending")
        await run.check(most_over_micro_usd=minute_micro_usd + 1)


async def test_killed_as_a_fleet_was_launched_and_not_answered(tmp_path: Path) -> None:
    async with aws_processes(tmp_path, market(), OFFERING_ID, speed=SPEED) as run:
        await run.start()
        await asyncio.wait_for(run.log.begin(), 60)

        met = await run.killed_at("CreateFleet", "after", 0, lambda: run.log.decided(2, 1))
        held = await run.alive()
        await run.log.decided(0, 0)

        assert met
        assert len(held) == 3
        await run.check()
