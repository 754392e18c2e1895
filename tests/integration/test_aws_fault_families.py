"""The families of faults that the fault machine draws, on a real actuator before a rehearsed AWS.

Each ends as an undisturbed run: nothing launched twice for a token, nothing left, losses told once,
and the settled ledger equal to the rehearsal's own bill (`AwsProcesses.check`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spotline.domain.events.capacity import InterruptionNoticed, LaunchRefused, RefusalClass
from tests.fakes.aws_processes import aws_processes
from tests.fakes.aws_rehearsal import REGION, market, warning

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

OFFERING_ID = "aws:default:use1-az1:p4d.24xlarge"
ACCOUNT_ID = "000000000001"
SPOT_QUOTA, SPOT_VCPUS = "L-7212CCBC", 96


@asynccontextmanager
async def running(folder: Path, *, fail: float = 0.0, seed: int = 0):
    async with aws_processes(
        folder, market(), OFFERING_ID, speed=60.0, fail=fail, seed=seed
    ) as run:
        await run.start()
        await asyncio.wait_for(run.log.begin(), 90)
        yield run
        await run.check()


@pytest.mark.parametrize("effect", ["before", "after"])
@pytest.mark.parametrize("operation", ["CreateFleet", "TerminateInstances", "DescribeInstances"])
async def test_owners_one_that_was_taken_over_in_the_middle_of_a_call_ends(
    tmp_path: Path, operation: str, effect: str
) -> None:
    """Its call goes on when the other has done all there is to do, and has no effect any more."""
    async with running(tmp_path) as run:
        await run.log.decided(1, 0)
        await run.all_run()
        await run.control("hold", operation=operation, effect=effect)
        deciding = asyncio.create_task(run.cycle())
        await run.held()
        former = await run.taken_over()
        await asyncio.wait_for(deciding, 120)
        await run.control("release")

        assert await run.ended(former) not in (0, -signal.SIGKILL)


async def test_owners_one_that_stood_still_and_goes_on_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        for _ in range(3):
            os.kill(run.pid, signal.SIGSTOP)
            former = await run.taken_over()
            await run.cycle()
            os.kill(former, signal.SIGCONT)
            assert await run.ended(former) not in (0, -signal.SIGKILL)
        await run.cycle()


async def test_duplicate_all_entries_come_again_long_after(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.log.decided(2, 1)
        instances = len(await run.instances())
        for number in range(2):
            assert await run.stored_again(f"again-{number}") > 5
        await run.log.decided(2, 1)
        assert len(await run.instances()) == instances
        await run.all_run()
        await run.log.decided(0, 0)


async def test_notice_one_that_comes_five_times_is_told_once(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.log.decided(2, 0)
        taken = min(await run.alive())
        body = warning(taken, run.log.now_ns())
        await run.told_of(body, 2)
        await run.told_of("no JSON", 1)
        await run.told_of(warning("i-00000000000000000", run.log.now_ns()), 2)
        await run.lost(taken)
        await run.told_of(body, 2)
        await run.log.decided(1, 0)
        noticed = [name for one in run.log.of(InterruptionNoticed) for name in one.instance_ids]
        assert noticed == [taken]
        await run.log.decided(0, 0)


async def test_launch_a_storm_of_throttling_is_waited_out(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        await run.log.decided(1, 0)
        for operation in ("CreateFleet", "TerminateInstances", "Describe*", "ReceiveMessage"):
            await run.control("fail", operation=operation, code="RequestLimitExceeded", times=6)
        await asyncio.wait_for(run.cycle(), 200)
        assert (await run.cloud.state())["failed"]["SCRIPTED"] > 6


async def test_launch_a_quota_is_a_refusal_until_it_is_raised(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        quota = {"account_id": ACCOUNT_ID, "region": REGION, "code": SPOT_QUOTA}
        await run.control("quota", **quota, vcpus=SPOT_VCPUS)
        await run.log.decide(2, 0)
        refused = await run.log.until(LaunchRefused, lambda _: True)
        await run.control("quota", **quota, vcpus=8 * SPOT_VCPUS)

        assert refused.refusal_class is RefusalClass.QUOTA
        assert len(await run.alive()) <= 1
        await asyncio.wait_for(run.cycle(), 200)


async def test_launch_answers_that_are_lost_leave_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        for operation in ("CreateFleet", "TerminateInstances", "ReceiveMessage", "Delete*"):
            for effect in ("after", "before"):
                await run.control(
                    "fail", operation=operation, code="ConnectionLost", effect=effect, times=2
                )
        await asyncio.wait_for(run.cycle(), 200)


@pytest.mark.parametrize("seed", range(3))
async def test_launch_a_quarter_of_all_calls_fail(tmp_path: Path, seed: int) -> None:
    async with running(tmp_path, fail=0.25, seed=seed) as run:
        for _ in range(3):
            await asyncio.wait_for(run.cycle(), 200)
