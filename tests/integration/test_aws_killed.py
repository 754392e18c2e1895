"""The actuator is killed between any two calls of AWS: nothing is bought twice, nothing is left."""

from __future__ import annotations

import pytest

from spotline.adapters.clouds.aws.launches import FleetLaunches
from spotline.domain.events.capacity import CapacityLost, InterruptionNoticed
from tests.fakes.aws_actuator import OFFERING_ID, AwsActuator, holdings_of

pytestmark = pytest.mark.integration

# Some of the 176 points of a story, the first right after a fleet was launched; `make test-slow` dies at
# each of them.
SOME = (33, 61, 100, 131, 165)


async def story(rig: AwsActuator) -> None:
    """Three are bought, two are taken back with notice, one of each kind stays, then all end."""
    world = rig.aws.world
    await rig.begin()
    await rig.open_slot(0)
    await settled(rig, [("j", 3, 0)])
    assert rig.alive() == rig.held()
    rig.aws.do(lambda: world.set_count(OFFERING_ID, "spot", 1))
    await rig.signal()
    rig.aws.pass_s(130)
    await rig.signal()
    rig.aws.pass_s(40)
    await rig.signal()
    await settled(rig, [("j", 1, 1)])
    assert rig.alive() == rig.held()
    await rig.open_slot(1)
    await settled(rig, [("j", 0, 0)])
    for _ in range(3):
        rig.aws.pass_s(40)
        await rig.signal()


async def settled(rig: AwsActuator, targets) -> None:
    """Decide, and keep at it until the slot has settled; refusals wait until they are over."""
    report = await rig.decide(targets)
    for _ in range(10):
        if report.settled and holdings_of(report) == wanted(targets):
            return
        rig.aws.pass_s(200)
        report = await rig.decide(targets)
    raise AssertionError(f"not settled: {report}")


def wanted(targets):
    return {
        (job_id, OFFERING_ID, kind): count
        for job_id, spot, on_demand in targets
        for kind, count in (("spot", spot), ("on_demand", on_demand))
        if count
    }


def check(rig: AwsActuator) -> None:
    asked_for = rig.asked_for()
    for token, launched in rig.launched_by_token().items():
        assert launched <= asked_for[token], f"{token} launched {launched}"
    assert rig.alive() == set(), "something is left"
    assert rig.held() == set()
    ever = set(rig.aws.world.state.instances)
    assert rig.booked() == ever, "an instance is on the bill and not in the ledger"
    told = [
        one
        for event in rig.published
        if isinstance(event, CapacityLost)
        for one in event.instance_ids
    ]
    assert len(told) == len(set(told)) == 2, "a loss is told once"


async def points_of(folder) -> int:
    """How many points an undisturbed story passes; its own outcome is checked, too."""
    rig = AwsActuator(folder)
    try:
        await story(rig)
        check(rig)
        noticed = [one for one in rig.published if isinstance(one, InterruptionNoticed)]
        assert sum(len(one.instance_ids) for one in noticed) == 2
        return rig.kill.passed
    finally:
        rig.close()


async def failing(folder, *, seed) -> None:
    """A third of all calls of EC2 fail, half of the lost ones after they took effect."""
    rig = AwsActuator(folder, fail_share=0.33, seed=seed)
    try:
        await story(rig)
        check(rig)
    finally:
        rig.close()


async def killed_at(folder, points) -> None:
    rig = AwsActuator(folder)
    rig.kill.at = set(points)
    try:
        await story(rig)
        assert rig.deaths == len(points)
        check(rig)
    finally:
        rig.close()


async def test_killed_again_and_again_it_ends_with_the_same_instances(tmp_path):
    await killed_at(tmp_path, SOME)


@pytest.mark.slow
async def test_killed_between_any_two_calls(tmp_path):
    passed = await points_of(tmp_path / "calm")

    for point in range(passed):
        await killed_at(tmp_path / str(point), {point})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
async def test_however_calls_fail_under_any_seed(tmp_path, seed):
    await failing(tmp_path, seed=seed)


@pytest.mark.slow
async def test_a_token_that_is_not_kept_is_caught(tmp_path, monkeypatch):
    """The proof can fail: planted, a launch is sent again with another token."""
    send = FleetLaunches._send

    async def forgetful(self, request, offering, place, fleet, *, again):
        sent = {**fleet, "ClientToken": "another"} if again else fleet
        return await send(self, request, offering, place, sent, again=again)

    monkeypatch.setattr(FleetLaunches, "_send", forgetful)

    with pytest.raises(AssertionError):
        await killed_at(tmp_path, SOME)
