"""A swap of on-demand for spot keeps what it replaces until the spot is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.domain.events.capacity import LaunchRefused, SlotDecided
from spotline.domain.events.market import MarketOpened
from spotline.domain.market.offering import CapacityType
from tests.fakes.actuator import SLOT_S, Rig, command, lot, opened, quote, reported, running_in
from tests.fakes.renting import offering


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path)
    await made.actuation.start()
    await made.feed(
        MarketOpened(
            offerings=(offering("a"),), slot_s=SLOT_S, first_slot_start_ns=0, source="test"
        )
    )
    yield made
    made.close()


async def carried_out(rig, asked, revision=0):
    await rig.feed(replace(asked, revision=revision))
    return await rig.feed(SlotDecided(slot=0, revision=revision, offset_s=0, commands=1))


async def swapped(rig, spot_there, *, keep):
    """Three on-demand instances are held, and three of spot asked for in their place."""
    await rig.feed(opened(0, quote(spot=spot_there)))
    await carried_out(rig, command("j", lot(on_demand=3), 0))
    asked = replace(command("j", lot(spot=3), 0, 1), keep_until_granted=keep)
    return await carried_out(rig, asked, revision=1)


@pytest.mark.parametrize(
    ("there", "held"),
    [
        (0, lot(on_demand=3)),
        (1, lot(spot=1, on_demand=2)),
        (3, lot(spot=3)),
    ],
)
async def test_as_many_are_kept_as_are_not_granted(rig, there, held):
    answers = await swapped(rig, there, keep=True)

    assert [holding.lots for holding in reported(answers).holdings] == [(held,)]
    refused = [event for event in answers if isinstance(event, LaunchRefused)]
    assert len(refused) == (there < 3)
    assert reported(answers).settled is (there == 3)
    kinds = [instance.capacity_type for instance in await running_in(rig.cloud)]
    assert kinds.count(CapacityType.SPOT) == held.spot
    assert kinds.count(CapacityType.ON_DEMAND) == held.on_demand


async def test_without_the_word_what_is_replaced_goes_first(rig):
    answers = await swapped(rig, 0, keep=False)

    assert reported(answers).holdings == ()
