"""What every cloud promises its port; a new cloud needs its line in the registry and its rig here."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.ports import ActuatorMode, Owner, OwnerFenced
from spotline.bootstrap.clouds import CLOUDS, Cloud, open_cloud
from spotline.contracts.errors import ConfigError
from tests.fakes.actuator import OWNER, launch, moment, quote

SETTINGS = SimulatedCloudSettings(interruption_per_instance_hour=1.0)
US = Owner(name=OWNER, epoch=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRig:
    """How the suite uses one cloud: `open` opens it on what it left in a directory.

    A cloud whose stock does not follow the quotes it is shown has `bounded` False, unless its
    `open` stands a server of recorded answers in front of it.
    """

    open: Callable[[Path], Cloud]
    bounded: bool = True


def _simulated(store: Path) -> Cloud:
    return open_cloud("simulated", ActuatorMode.LIVE, store, SETTINGS)


RIGS = {"simulated": CloudRig(open=_simulated)}


@pytest.fixture(params=sorted(RIGS))
def rig(request):
    return RIGS[request.param]


@pytest.fixture
def another(rig, tmp_path):
    """Opens the cloud; called again, as another process would."""
    opened = []

    def once_more():
        opened.append(rig.open(tmp_path))
        return opened[-1]

    yield once_more
    for cloud in opened:
        cloud.close()


def test_every_cloud_has_its_rig():
    assert sorted(RIGS) == sorted(CLOUDS), "write the rig of each cloud in RIGS"


async def test_a_launch_is_idempotent_by_token_across_processes(another):
    await another().observe(moment(), [quote(spot=3)])

    grants = [await another().launch(launch("t", 2)) for _ in range(3)]

    assert grants[0] == grants[1] == grants[2]
    assert len(await another().list_instances(OWNER)) == 2


async def test_a_short_grant_is_repeated_even_when_stock_has_come_back(rig, another):
    if not rig.bounded:
        pytest.skip("grants everything")
    cloud = another()
    await cloud.observe(moment(), [quote(spot=1)])
    first = await cloud.launch(launch("t", 2))
    await cloud.observe(moment(1), [quote(spot=9)])

    assert await cloud.launch(launch("t", 2)) == first
    assert len(first.instances) == 1


async def test_instances_outlive_whoever_launched_them_and_carry_their_tags(another):
    cloud = another()
    await cloud.observe(moment(), [quote()])
    granted = (await cloud.launch(launch("t", 2))).instances
    cloud.close()

    listed = await another().list_instances(OWNER)

    assert tuple(listed) == granted
    assert {(one.token, one.job_id, one.tenant) for one in listed} == {("t", "j", "acme")}


async def test_listing_shows_one_owner_only(another):
    cloud = another()
    await cloud.observe(moment(), [quote()])
    await cloud.launch(launch("t", 1))

    assert await cloud.list_instances("someone else") == ()


async def test_terminating_is_idempotent_and_the_unknown_is_ended(another):
    cloud = another()
    await cloud.observe(moment(), [quote()])
    (instance,) = (await cloud.launch(launch("t", 1))).instances

    for _ in range(2):
        await cloud.terminate(US, [instance.instance_id, "never-was"])

    assert await cloud.list_instances(OWNER) == ()


async def test_an_older_epoch_is_fenced(another):
    cloud = another()
    await cloud.observe(moment(), [quote()])
    await cloud.launch(launch("t", 1, epoch=2))

    with pytest.raises(OwnerFenced):
        await cloud.launch(launch("u", 1, epoch=1))
    with pytest.raises(OwnerFenced):
        await cloud.terminate(US, ["sim"])
    assert len(await cloud.list_instances(OWNER)) == 1


async def test_observing_a_slot_again_says_the_same(another):
    cloud = another()
    await cloud.observe(moment(), [quote(spot=4)])
    await cloud.launch(launch("t", 4))

    first = await cloud.observe(moment(1), [quote(spot=1)])
    again = await another().observe(moment(1), [quote(spot=1)])

    assert list(first) == list(again)


async def test_signals_are_idempotent_by_token_across_processes(another):
    cloud = another()
    await cloud.observe(moment(), [quote()])
    await cloud.launch(launch("t", 4))

    first = await cloud.signals("s", moment())
    again = await another().signals("s", moment())

    assert list(first) == list(again)
    assert len({signal.lost_s for signal in first}) <= 1


def test_an_unknown_cloud_is_a_configuration_error_and_shadow_needs_none(tmp_path):
    with pytest.raises(ConfigError, match=r"cloud must be one of .*simulated.*, was 'moon'"):
        open_cloud("moon", ActuatorMode.LIVE, tmp_path, SETTINGS)

    open_cloud("moon", ActuatorMode.SHADOW, tmp_path, SETTINGS).close()
