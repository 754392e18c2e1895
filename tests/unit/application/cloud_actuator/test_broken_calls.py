"""Cloud calls that break off with an error that no port names: asked again, looked up, no crash."""

import pytest

from spotline.application.cloud_actuator.fencing import FencedCloud
from spotline.application.cloud_actuator.ports import Owner
from spotline.contracts.errors import ProviderUnavailable, UnknownOutcome
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.ledger.instance_life import Graces, LifeInput, LifeState
from tests.fakes.actuator import OWNER, launch, moment
from tests.fakes.memory_ledger import LedgerMemory, MemoryLedger
from tests.fakes.nasty_cloud import CALM, NastyCloud
from tests.fakes.nasty_rig import NastyRig

BREAKS = (TimeoutError(), ConnectionResetError("reset by peer"), OSError("no route"), EOFError())


class BreakingCloud:
    """Breaks every call off after it was done."""

    notice_lead_s = 0

    def __init__(self, inner, error):
        self._inner, self._error = inner, error

    def __getattr__(self, name):
        attribute = getattr(self._inner, name)

        async def call(*arguments):
            await attribute(*arguments)
            raise self._error

        return call


def fenced(error):
    memory = LedgerMemory()
    inner = NastyCloud(seed=1, nasty=CALM)
    return FencedCloud(BreakingCloud(inner, error), MemoryLedger(memory, OWNER)), inner


@pytest.mark.parametrize("error", BREAKS, ids=lambda error: type(error).__name__)
async def test_a_launch_that_broke_off_may_have_launched(error):
    cloud, inner = fenced(error)

    with pytest.raises(UnknownOutcome, match=type(error).__name__) as unknown:
        await cloud.launch(launch("t", 2))

    assert unknown.value.token == "t"
    assert len(inner.running()) == 2


@pytest.mark.parametrize("error", BREAKS, ids=lambda error: type(error).__name__)
async def test_every_other_call_that_broke_off_is_made_again(error):
    cloud, _ = fenced(error)

    for call in (
        lambda: cloud.terminate(Owner(name=OWNER, epoch=1), ["i"]),
        lambda: cloud.list(OWNER),
        lambda: cloud.events("token", moment()),
    ):
        with pytest.raises(ProviderUnavailable, match=type(error).__name__):
            await call()


async def test_a_bug_of_an_adapter_is_no_cloud_that_does_not_answer():
    cloud, _ = fenced(KeyError("state"))

    with pytest.raises(KeyError):
        await cloud.list(OWNER)


async def test_a_time_out_of_a_launch_ends_with_one_set_of_instances():
    rig = NastyRig(1, CALM)
    await rig.start()
    rig.cloud.scripted.append(TimeoutError())
    await rig.open_slot(0)

    await rig.decide([("x", 2, 0, "a")])
    (refused,) = [event for event in rig.published if isinstance(event, LaunchRefused)]
    for _ in range(3):
        rig.wait(200)
        await rig.signal()
    await rig.decide([("x", 2, 0, "a")])

    assert refused.refusal_class is RefusalClass.UNKNOWN_OUTCOME
    assert len(rig.cloud.running()) == 2
    rig.check_agreement()


async def test_a_fresh_launch_that_is_not_listed_yet_is_pending_and_neither_lost_nor_ended():
    rig = NastyRig(1, CALM)
    await rig.start()
    await rig.open_slot(0)
    do = rig.cloud._start

    def unlisted(request, index):
        instance = do(request, index)
        rig.cloud.truths[instance.instance_id].shown_ns = 600 * 10**9
        return instance

    rig.cloud._start = unlisted
    await rig.decide([("x", 1, 0, "a")])
    (truth,) = rig.cloud.truths.values()

    for _ in range(5):
        rig.wait(110)
        await rig.signal()
        (life,) = rig.memory.lives.values()
        assert life.state is LifeState.PENDING
    rig.wait(100)
    await rig.signal()

    assert not truth.asked
    rig.check_agreement()
    history = [transition.what for transition in rig.memory.transitions]
    assert LifeInput.STOP_ASKED not in history


async def test_an_end_is_asked_for_until_it_is_seen():
    rig = NastyRig(1, CALM, Graces())
    await rig.start()
    await rig.open_slot(0)
    await rig.decide([("x", 1, 0, "a")])
    (instance_id,) = rig.cloud.running()
    asked = []
    do = rig.cloud.terminate

    async def unheard(owner, instance_ids):
        asked.append(tuple(instance_ids))
        if len(asked) > 3:
            await do(owner, instance_ids)

    rig.cloud.terminate = unheard
    await rig.decide([("x", 0, 0, "a")])
    for _ in range(8):
        rig.wait(40)
        await rig.signal()

    assert asked.count((instance_id,)) >= 4
    assert rig.cloud.running() == set()
