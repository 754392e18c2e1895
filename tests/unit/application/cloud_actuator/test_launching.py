"""What follows from a refusal, by its class, and from an answer that never comes."""

from dataclasses import replace

import pytest

from spotline.application.cloud_actuator.launching import PATIENCE_CALLS
from spotline.application.cloud_actuator.ports import Refusal
from spotline.contracts.errors import UnknownOutcome
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.instance_life import LifeState
from spotline.domain.policies.answer import DecisionReason
from tests.fakes.nasty_cloud import CALM
from tests.fakes.nasty_rig import NastyRig, holdings_of
from tests.fakes.renting import SLOT_S, offering

DECIDED = AllocationDecided(
    job_id="j",
    tenant="acme",
    slot=0,
    revision=0,
    offset_s=0,
    policy_id="p",
    lots=(),
    reason=DecisionReason.SAFETY_NET,
    forecast_used=False,
    explanation="",
)


@pytest.fixture
async def rig():
    made = NastyRig(0, CALM)
    await made.start()
    market = MarketOpened(
        offerings=(offering("a"), offering("b")), slot_s=SLOT_S, first_slot_start_ns=0, source="t"
    )
    await made.feed(market)
    await made.open_slot(0)
    return made


def refusal(refusal_class, retry_after_s=0):
    return Refusal(refusal_class=refusal_class, detail="no", retry_after_s=retry_after_s)


def refused(rig):
    return [event for event in rig.published if isinstance(event, LaunchRefused)]


async def asks(rig, offering_id="a", spot=1, on_demand=0):
    """Whether the cloud is asked when a job wants this now."""
    before = len(rig.cloud.launches)
    await rig.decide([(f"j{rig.revision}", spot, on_demand, offering_id)])
    return len(rig.cloud.launches) > before


async def test_a_stock_out_cools_its_kind_of_the_offering_and_says_for_how_long(rig):
    rig.cloud.scripted = [refusal(RefusalClass.NO_CAPACITY)]
    assert await asks(rig)
    rig.wait(60)

    assert not await asks(rig)
    assert await asks(rig, spot=0, on_demand=1)
    assert await asks(rig, "b")
    rig.wait(120)
    assert await asks(rig)

    told, cooling = refused(rig)
    assert (told.refusal_class, told.detail, told.retry_after_s) == (
        RefusalClass.NO_CAPACITY,
        "no",
        180,
    )
    assert (cooling.refusal_class, cooling.retry_after_s) == (RefusalClass.NO_CAPACITY, 120)
    assert cooling.detail == "not asked again yet: no"


async def test_a_grant_ends_what_the_stock_outs_before_it_added_up_to(rig):
    for _ in range(2):
        rig.cloud.scripted = [refusal(RefusalClass.NO_CAPACITY)]
        await rig.decide([("j", 1, 0, "a")])
        rig.wait(400)
    await rig.decide([("j", 1, 0, "a")])
    rig.cloud.scripted = [refusal(RefusalClass.NO_CAPACITY)]
    await rig.decide([("k", 1, 0, "a")])

    assert [event.retry_after_s for event in refused(rig)] == [180, 360, 180]


async def test_a_quota_waits_for_its_kind_of_the_pool_within_the_same_revision(rig):
    rig.cloud.scripted = [refusal(RefusalClass.QUOTA)]

    await rig.decide([("x", 1, 1, "a"), ("y", 1, 0, "b")])

    assert [request.capacity_type.value for request in rig.cloud.launches] == ["spot", "on_demand"]
    assert [event.refusal_class for event in refused(rig)] == [RefusalClass.QUOTA] * 2


async def test_a_missing_permission_stops_all_launches_until_a_restart(rig):
    rig.cloud.scripted = [refusal(RefusalClass.UNAUTHORISED)]
    assert await asks(rig)
    rig.wait(100)

    assert not await asks(rig, "b", spot=0, on_demand=1)
    rig.open()
    await rig.start()
    assert await asks(rig, "b", spot=0, on_demand=1)


async def test_what_is_not_supported_there_is_not_asked_for_until_a_restart(rig):
    rig.cloud.scripted = [refusal(RefusalClass.UNSUPPORTED)]
    await asks(rig)
    rig.wait(3000)

    assert not await asks(rig)
    assert await asks(rig, "b")


@pytest.mark.parametrize("refusal_class", [RefusalClass.NO_CAPACITY, RefusalClass.NETWORK])
@pytest.mark.parametrize("spot", [0, 1])
async def test_a_safety_net_of_on_demand_is_asked_for_whatever_cools(rig, refusal_class, spot):
    rig.cloud.scripted = [refusal(refusal_class)]
    assert await asks(rig, spot=spot, on_demand=1 - spot)
    rig.wait(60)
    net = f"j{rig.revision}"
    for reason in (DecisionReason.POLICY, DecisionReason.SAFETY_NET):
        decided = replace(DECIDED, job_id=net, revision=rig.revision + 1, reason=reason)
        await rig.feed(decided)

        asked = await asks(rig, spot=spot, on_demand=1 - spot)

        # Spot is no safety net.
        assert asked is (reason is DecisionReason.SAFETY_NET and not spot)
        net = f"j{rig.revision}"


async def test_a_safety_net_does_not_ask_for_what_is_not_permitted(rig):
    rig.cloud.scripted = [refusal(RefusalClass.UNAUTHORISED)]
    assert await asks(rig, spot=0, on_demand=1)
    net = replace(DECIDED, job_id=f"j{rig.revision}", revision=rig.revision + 1)
    await rig.feed(net)

    assert not await asks(rig, spot=0, on_demand=1)


async def test_a_fault_of_the_network_cools_its_zone(rig):
    rig.cloud.scripted = [refusal(RefusalClass.NETWORK)]
    await asks(rig)
    rig.wait(10)

    assert not await asks(rig, spot=0, on_demand=1)
    assert await asks(rig, "b")


@pytest.mark.parametrize("refusal_class", [RefusalClass.THROTTLED, RefusalClass.SERVER])
async def test_what_passes_is_asked_again_with_the_same_token_and_cools_nothing(rig, refusal_class):
    rig.cloud.scripted = [refusal(refusal_class)] * 2

    report = await rig.decide([("j", 1, 0, "a")])

    assert holdings_of(report) == {("j", "a", "spot"): 1}
    assert len({request.token for request in rig.cloud.launches}) == 1
    assert (len(rig.cloud.launches), refused(rig)) == (3, [])


@pytest.mark.parametrize("refusal_class", [RefusalClass.THROTTLED, RefusalClass.SERVER])
async def test_patience_ends_with_a_refusal_of_that_class(rig, refusal_class):
    rig.cloud.scripted = [refusal(refusal_class)] * PATIENCE_CALLS

    await rig.decide([("j", 1, 0, "a")])

    assert [event.refusal_class for event in refused(rig)] == [refusal_class]
    assert await asks(rig)


async def test_what_a_provider_launched_before_it_failed_is_held_when_patience_ends(rig):
    rig.cloud.scripted = [refusal(RefusalClass.SERVER)] * PATIENCE_CALLS
    rig.cloud.works_before_failing = True

    report = await rig.decide([("j", 2, 0, "a")])

    assert (holdings_of(report), refused(rig)) == ({("j", "a", "spot"): 2}, [])


async def test_cool_downs_outlive_the_process(rig):
    rig.cloud.scripted = [refusal(RefusalClass.NO_CAPACITY)]
    await asks(rig)
    rig.wait(60)
    rig.open()
    await rig.start()

    assert not await asks(rig)


async def test_an_unanswered_launch_that_shows_is_granted(rig):
    rig.cloud.nasty = CALM
    rig.cloud.lose_answers = 1

    report = await rig.decide([("j", 2, 0, "a")])

    assert (report.settled, holdings_of(report)) == (True, {("j", "a", "spot"): 2})


async def test_an_unanswered_launch_keeps_others_from_buying_it_twice_until_it_is_given_up(rig):
    rig.cloud.scripted = [UnknownOutcome("nasty", "t", "reset by peer")]
    await rig.decide([("j", 1, 0, "a")])
    (told,) = refused(rig)
    assert (told.refusal_class, told.detail, told.retry_after_s) == (
        RefusalClass.UNKNOWN_OUTCOME,
        "reset by peer",
        300,
    )
    rig.wait(100)

    await rig.decide([("j", 1, 0, "a"), ("k", 1, 0, "a")])

    assert [request.job_id for request in rig.cloud.launches] == ["j", "k"]
    assert refused(rig)[-1].retry_after_s == 200
    rig.wait(200)
    await rig.signal()
    rig.wait(30)
    await rig.signal()
    assert await asks(rig)
    launch_life = rig.memory.lives[rig.cloud.launches[0].token]
    assert (launch_life.is_launch, launch_life.state) == (True, LifeState.ENDED)


async def test_as_long_as_nobody_can_say_what_a_launch_did_no_other_is_sent(rig):
    rig.cloud.silent = frozenset({"a"})
    rig.cloud.scripted = [UnknownOutcome("nasty", "t", "reset by peer")]
    await rig.decide([("j", 1, 0, "a")])
    for _ in range(5):
        rig.wait(120)
        await rig.signal()

    await rig.decide([("j", 1, 0, "a")])

    assert len(rig.cloud.launches) == 1
    told = refused(rig)[-1]
    assert (told.refusal_class, told.retry_after_s) == (RefusalClass.UNKNOWN_OUTCOME, 30)
    rig.cloud.silent = frozenset()
    for _ in range(2):
        await rig.signal()
        rig.wait(30)
    await rig.decide([("j", 1, 0, "a")])
    assert len(rig.cloud.launches) == 2


async def test_a_token_that_was_used_before_is_looked_up(rig):
    rig.cloud.scripted = [refusal(RefusalClass.TOKEN_MISMATCH)]

    await rig.decide([("j", 1, 0, "a")])

    assert [event.refusal_class for event in refused(rig)] == [RefusalClass.TOKEN_MISMATCH]
    assert await asks(rig)
    assert len({request.token for request in rig.cloud.launches}) == 2
