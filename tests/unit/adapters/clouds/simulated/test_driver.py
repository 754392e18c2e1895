"""The simulated cloud's time is played by the actuator's calls, before they are performed."""

import pytest

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, OpenSlotRequest
from spotline.application.cloud_actuator.ports import CloudEventKind, InstanceState, Owner
from spotline.application.spec import Call
from spotline.domain.events.capacity import CapacitySignalled, InterruptionKind
from spotline.domain.ledger.billing import SlotPrices
from tests.fakes.actuator import OWNER, SLOT_S, launch, moment, quote

ANSWER = (CapacitySignalled(slot=0, offset_s=0),)


@pytest.fixture
def cloud(tmp_path):
    made = SimulatedCloud(
        tmp_path / "cloud.sqlite", SimulatedCloudSettings(interruption_per_instance_hour=1.0)
    )
    yield made
    made.close()


def call(request):
    return Call(name="cloud.any", digest="d", request=request)


def opening(slot, spot):
    return call(OpenSlotRequest(at=moment(slot), quotes=(quote(spot=spot),), unbilled=()))


def revision(slot, offset_s=0):
    return call(
        ApplyRevisionRequest(
            revision=0,
            at=moment(slot, offset_s),
            prices=SlotPrices(slot=slot, slot_s=SLOT_S, prices=()),
        )
    )


async def test_the_cloud_has_the_quotes_of_a_slot_before_its_opening_is_performed(cloud):
    granted = []

    async def perform(performed):
        granted.append(await cloud.launch(launch(f"t{len(granted)}", 9)))
        return ANSWER

    answers = await SimulatedCloudDriver(cloud, perform)(opening(3, spot=2))

    assert answers == ANSWER
    assert len(granted[0].instances) == 2
    assert cloud.now_ns() == moment(3).ts_ns


async def test_time_stands_still_at_the_opening_and_goes_on_with_a_revision(cloud):
    told = []

    async def perform(performed):
        at = performed.request.at
        told.append(await cloud.events(f"taking-{len(told)}", at))
        return ()

    drive = SimulatedCloudDriver(cloud, perform)
    await drive(opening(0, spot=4))
    await cloud.launch(launch("t", 4))
    await drive(opening(1, spot=2))
    await drive(revision(1))

    still, on = told[1:]
    assert [(event.kind, event.at_ns) for event in still] == [
        (CloudEventKind.NOTICE, moment(1).ts_ns)
    ] * 2
    assert any(event.state is InstanceState.ENDED for event in on)


async def test_a_call_performed_again_opens_no_slot_again(cloud):
    async def perform(performed):
        return ()

    drive = SimulatedCloudDriver(cloud, perform)
    await drive(opening(1, spot=1))
    await drive(opening(1, spot=9))
    await drive(opening(0, spot=9))

    assert len((await cloud.launch(launch("t", 9))).instances) == 1
    assert cloud.now_ns() == moment(1).ts_ns


async def test_a_call_between_two_revisions_hears_of_nothing_that_has_not_happened(cloud):
    told = []

    async def perform(performed):
        told.append(await cloud.events(f"taking-{len(told)}", moment(2)))
        return ANSWER

    drive = SimulatedCloudDriver(cloud, perform)
    await drive(opening(2, spot=4))
    (first, *_) = (await cloud.launch(launch("t", 4))).instances
    await cloud.terminate(Owner(name=OWNER, epoch=1), [first.instance_id])

    assert await drive(call("something else")) == ANSWER
    assert cloud.now_ns() == moment(2).ts_ns
    await drive(revision(2))

    between, after = told[1:]
    assert [event.instance.instance_id for event in between] == [first.instance_id]
    assert {event.interruption for event in after} == {InterruptionKind.CAPACITY_RECLAIMED}
