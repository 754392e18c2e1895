"""A program that dies right after its start is not replaced without bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.events.capacity import CapacityLost, LaunchRefused
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.ledger.crash_loops import CrashRules, EarlyEnd, crashed, is_loop
from spotline.domain.limits.freezes import FreezeReason, FreezeScope
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import submitted
from tests.fakes.nasty_cloud import CALM
from tests.fakes.nasty_rig import NastyRig

WANTED = [("x", 1, 0, "a")]


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture
async def rig():
    made = NastyRig(1, CALM)
    await made.start()
    await made.feed(submitted("x"))
    await made.open_slot(0)
    return made


async def die_after(rig, seconds):
    """Launch, and have the instance end so long after it."""
    await rig.decide(WANTED)
    rig.wait(seconds)
    for instance_id in rig.cloud.running():
        rig.cloud.take(instance_id)
    await rig.signal()


async def test_after_three_deaths_in_a_row_nothing_is_launched_until_the_pause_is_over(rig):
    for _ in range(3):
        await die_after(rig, 20)
    launched = len(rig.cloud.launches)
    await rig.decide(WANTED)

    (frozen,) = of_kind(rig.published, BuyingFrozen)
    assert (frozen.freeze.scope, frozen.freeze.key) == (FreezeScope.JOB, "x")
    assert frozen.freeze.reason is FreezeReason.CRASH_LOOP
    assert frozen.freeze.continue_with == "spotline resume --freeze crash-loop/x"
    assert "ended 3 times within 300 s" in frozen.freeze.detail
    assert len(rig.cloud.launches) == launched
    assert of_kind(rig.published, LaunchRefused)

    rig.wait(3000)
    await rig.open_slot(1)
    await rig.decide(WANTED)

    assert [one.freeze_id for one in of_kind(rig.published, BuyingUnfrozen)] == ["crash-loop/x"]
    assert len(rig.cloud.launches) == launched + 1


async def test_a_person_may_go_on_before(rig):
    for _ in range(3):
        await die_after(rig, 20)
    await rig.feed(BuyingUnfrozen(freeze_id="crash-loop/x", by="operator"))
    launched = len(rig.cloud.launches)

    await rig.decide(WANTED)

    assert len(rig.cloud.launches) == launched + 1


async def test_what_lived_for_a_while_is_no_loop(rig):
    for _ in range(5):
        await die_after(rig, 400)

    assert len(of_kind(rig.published, CapacityLost)) == 5
    assert of_kind(rig.published, BuyingFrozen) == []


async def test_what_the_cloud_takes_back_after_a_notice_is_no_loop(rig):
    for _ in range(5):
        await rig.decide(WANTED)
        rig.wait(10)
        (instance_id,) = rig.cloud.running()
        rig.cloud.notice(instance_id, 30)
        await rig.signal()
        rig.wait(30)
        rig.cloud.take(instance_id)
        await rig.signal()

    assert len(of_kind(rig.published, CapacityLost)) == 5
    assert of_kind(rig.published, BuyingFrozen) == []


GAPS = st.lists(st.integers(1, 4000), min_size=1, max_size=40)


@given(gaps=GAPS)
def test_pauses_double_up_to_their_bound_and_begin_at_the_same_count(gaps):
    rules = CrashRules()
    cooldowns, now_s, before = (), 0, 0
    for gap in gaps:
        now_s += gap
        end = EarlyEnd(job_id="j", launched_ns=(now_s - 1) * NS_PER_S, ended_ns=now_s * NS_PER_S)
        cooldowns = crashed([end, end], cooldowns, rules)
        (cooldown,) = cooldowns
        rest_s = cooldown.rest_s(now_s * NS_PER_S)
        assert cooldown.refusals == before + 1
        assert is_loop(cooldown, rules) is (cooldown.refusals >= rules.ends)
        assert rest_s == (
            min(rules.longest_s, rules.first_s * 2 ** (cooldown.refusals - rules.ends))
            if cooldown.refusals >= rules.ends
            else 0
        )
        before = cooldown.refusals


def test_ends_far_apart_are_not_in_a_row():
    rules = CrashRules(within_s=100)
    cooldowns = ()
    for now_s in (10, 200, 400, 600):
        end = EarlyEnd(job_id="j", launched_ns=now_s * NS_PER_S - 1, ended_ns=now_s * NS_PER_S)
        cooldowns = crashed([end], cooldowns, rules)

    assert cooldowns[0].refusals == 1


@pytest.mark.parametrize("name", ["early_s", "ends", "within_s", "first_s", "longest_s"])
def test_rules_are_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be > 0, was 0"):
        CrashRules(**{name: 0})
