"""Stops of buying in the actuator: it launches nothing against one, but what a deadline is excepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.events.capacity import LaunchRefused, RefusalClass, SlotDecided
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.caps import Caps
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.limits.spending import Spending
from tests.fakes.actuator import SLOT_S, Rig, command, lot, opened, quote, reported
from tests.fakes.renting import offering

WHERE = offering("a")
SCOPES = {
    FreezeScope.SYSTEM: "",
    FreezeScope.ACCOUNT: f"{WHERE.provider}/{WHERE.account}",
    FreezeScope.OFFERING: "a",
    FreezeScope.TENANT: "acme",
    FreezeScope.JOB: "j",
}


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path)
    await made.actuation.start()
    await made.feed(
        MarketOpened(offerings=(WHERE,), slot_s=SLOT_S, first_slot_start_ns=0, source="t")
    )
    await made.feed(opened(0, quote()))
    yield made
    made.close()


def stop(scope=FreezeScope.SYSTEM, key="", reason=FreezeReason.PAUSED):
    return BuyingFrozen(
        freeze=Freeze(freeze_id="f-1", scope=scope, key=key, reason=reason, detail="for a test")
    )


async def carried_out(rig, *commands, revision=0):
    for each in commands:
        await rig.feed(replace(each, revision=revision))
    return await rig.feed(
        SlotDecided(slot=0, revision=revision, offset_s=0, commands=len(commands))
    )


@pytest.mark.parametrize("scope", list(SCOPES))
async def test_a_launch_under_a_stop_is_refused_as_a_limit_that_names_it(rig, scope):
    await rig.feed(stop(scope, SCOPES[scope]))

    answers = await carried_out(rig, command("j", lot(spot=2, on_demand=1), 0))

    refused = [event for event in answers if isinstance(event, LaunchRefused)]
    assert [event.refusal_class for event in refused] == [RefusalClass.LIMIT] * 2
    assert [event.limit_scope for event in refused] == [scope] * 2
    assert all("f-1" in event.detail and "for a test" in event.detail for event in refused)
    assert reported(answers).holdings == ()


async def test_a_stop_of_somebody_else_refuses_nothing(rig):
    await rig.feed(stop(FreezeScope.JOB, "another"))

    answers = await carried_out(rig, command("j", lot(spot=2), 0))

    assert [holding.lots for holding in reported(answers).holdings] == [(lot(spot=2),)]


async def test_under_a_stop_instances_are_kept_and_released(rig):
    await carried_out(rig, command("j", lot(spot=3), 0))
    await rig.feed(stop())

    answers = await carried_out(rig, command("j", lot(spot=1), 0, 1), revision=1)

    assert [holding.lots for holding in reported(answers).holdings] == [(lot(spot=1),)]


async def test_a_stop_that_is_over_refuses_nothing(rig):
    await rig.feed(stop())
    await rig.feed(BuyingUnfrozen(freeze_id="f-1"))

    answers = await carried_out(rig, command("j", lot(spot=1), 0))

    assert len(reported(answers).holdings) == 1


async def test_what_a_deadline_is_excepted_is_launched_against_a_breaker_and_recorded(rig):
    await rig.feed(stop(reason=FreezeReason.BREAKER))
    excepted = replace(
        command("j", lot(spot=1, on_demand=3), 0), excepted_on_demand=2, quote_left_micro_usd=77
    )

    answers = await carried_out(rig, excepted)

    assert [holding.lots for holding in reported(answers).holdings] == [(lot(on_demand=2),)]
    (told,) = [event for event in answers if isinstance(event, BuyingExcepted)]
    assert (told.job_id, told.instances, told.against, told.quote_left_micro_usd) == (
        "j",
        2,
        "f-1",
        77,
    )


async def test_nothing_is_excepted_from_a_pause(rig):
    await rig.feed(stop(reason=FreezeReason.PAUSED))
    excepted = replace(command("j", lot(on_demand=3), 0), excepted_on_demand=3)

    answers = await carried_out(rig, excepted)

    assert reported(answers).holdings == ()
    assert not [event for event in answers if isinstance(event, BuyingExcepted)]


async def test_a_killed_actuator_records_the_exception_once(tmp_path):
    points = 0
    while True:
        made = Rig(tmp_path / str(points))
        await made.actuation.start()
        await made.feed(opened(0, quote()))
        await made.feed(stop(reason=FreezeReason.BREAKER))
        made.kill.at, made.kill.passed = {points}, 0
        excepted = replace(command("j", lot(on_demand=2), 0), excepted_on_demand=2)
        answers = await carried_out(made, excepted)
        made.close()
        assert [type(event) for event in answers].count(BuyingExcepted) == 1, points
        assert reported(answers).holdings[0].lots == (lot(on_demand=2),)
        if made.kill.passed <= points:
            break
        points += 1
    assert points > 3


async def test_a_quota_yields_to_a_deadline_and_to_nothing_else(tmp_path):
    rig = Rig(tmp_path, caps=Caps(spending=Spending(quotas={"pool": 1})))
    await rig.actuation.start()
    await rig.feed(opened(0, quote()))

    answers = await carried_out(
        rig,
        command("other", lot(spot=4), 0),
        replace(command("j", lot(spot=1, on_demand=3), 0), excepted_on_demand=2),
    )
    rig.close()

    held = {holding.job_id: holding.lots for holding in reported(answers).holdings}
    assert held == {"other": (lot(spot=1),), "j": (lot(on_demand=2),)}
    (told,) = [event for event in answers if isinstance(event, BuyingExcepted)]
    assert (told.against, told.instances) == ("limit quota of pool", 2)


async def test_launches_per_minute_yield_to_a_deadline_and_to_nothing_else(tmp_path):
    rig = Rig(tmp_path, caps=Caps(launches_per_minute=1))
    await rig.actuation.start()
    await rig.feed(opened(0, quote()))

    answers = await carried_out(
        rig,
        command("other", lot(spot=4), 0),
        replace(command("j", lot(on_demand=3), 0), excepted_on_demand=3),
    )
    rig.close()

    held = {holding.job_id: holding.lots for holding in reported(answers).holdings}
    assert held == {"other": (lot(spot=1),), "j": (lot(on_demand=3),)}
    (told,) = [event for event in answers if isinstance(event, BuyingExcepted)]
    assert told.against == "cap launches per minute"
