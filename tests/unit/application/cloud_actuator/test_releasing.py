"""All instances are ended while no market is played; jobs and later slots are not touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.listings import PartialListing
from spotline.application.cloud_actuator.ports import InstanceState, OwnerFenced
from spotline.application.cloud_actuator.releasing import release_all
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.jobs.lot import Lot
from spotline.domain.ledger.instance_life import LifeState
from tests.fakes.actuator import OWNER, Killed, Rig, command, opened, quote


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    made.close()


async def give_up() -> bool:
    return False


def charged(rig: Rig) -> int:
    return sum(rig.ledger.spend_by_job().values())


async def test_what_is_held_ends_and_later_slots_cost_nothing(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=1, on_demand=1))])

    done = await release_all(rig.cloud, ThreadedLedger(rig.ledger), give_up)

    assert len(done.instance_ids) == 2
    assert done.still_there == ()
    assert rig.ledger.held() == []
    lives = await rig.lives_of(*done.instance_ids)
    assert {life.state for life in lives} == {LifeState.ENDED}
    await rig.feed(opened(1, quote()))
    after_the_slot = charged(rig)
    await rig.feed(opened(2, quote()))
    assert charged(rig) == after_the_slot > 0


async def test_an_instance_that_nobody_ordered_ends_too(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])
    rig.ledger.close()
    (rig.directory / "ledger.sqlite").unlink()
    rig.open()

    done = await release_all(rig.cloud, ThreadedLedger(rig.ledger), give_up)

    assert len(done.instance_ids) == 2
    shown = await rig.cloud.list(OWNER)
    assert {instance.state for instance in shown} == {InstanceState.ENDED}


async def test_again_it_finds_nothing(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])
    await release_all(rig.cloud, ThreadedLedger(rig.ledger), give_up)

    again = await release_all(rig.cloud, ThreadedLedger(rig.ledger), give_up)

    assert again.instance_ids == ()


class Deaf:
    """A cloud whose instances do not end."""

    def __init__(self, cloud):
        self._cloud = cloud

    async def list(self, owner):
        return await self._cloud.list(owner)

    async def terminate(self, owner, instance_ids):
        """Accept it, and do nothing."""


class Lagging:
    """A cloud that shows nothing, and finds nothing to end, before so many looks."""

    def __init__(self, cloud, looks, silent=()):
        self._cloud, self._looks, self._silent = cloud, looks, silent

    async def list(self, owner):
        self._looks -= 1
        shown = await self._cloud.list(owner) if self._looks < 0 else ()
        return PartialListing(shown, self._silent if self._looks >= 0 else ())

    async def terminate(self, owner, instance_ids):
        if self._looks < 0:
            await self._cloud.terminate(owner, instance_ids)


async def go_on() -> bool:
    return True


@pytest.mark.parametrize("seen_before", [False, True])
async def test_what_is_shown_late_is_ended_once_it_shows(rig, seen_before):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])
    lives = [replace(life, shown=seen_before) for life in rig.ledger.lives()]
    rig.ledger.lives = lambda: lives
    silent = (quote().offering_id,) if seen_before else ()

    done = await release_all(Lagging(rig.cloud, 3, silent), ThreadedLedger(rig.ledger), go_on)

    assert (len(done.instance_ids), done.still_there) == (2, ())
    shown = await rig.cloud.list(OWNER)
    assert {instance.state for instance in shown} == {InstanceState.ENDED}


async def test_what_never_shows_is_not_said_to_have_ended(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])
    lives, read = [replace(life, shown=False) for life in rig.ledger.lives()], rig.ledger.lives
    rig.ledger.lives = lambda: lives

    done = await release_all(Lagging(rig.cloud, 9), ThreadedLedger(rig.ledger), give_up)

    assert (len(done.still_there), done.still_there) == (2, done.instance_ids)
    rig.ledger.lives = read
    again = await release_all(rig.cloud, ThreadedLedger(rig.ledger), give_up)
    assert (again.instance_ids, again.still_there) == (done.instance_ids, ())


async def cut_off(rig) -> str:
    """A launch that was sent, and whose answer nobody wrote down; its token."""
    await rig.feed(opened(0, quote()))
    rig.call(command("a", Lot(offering_id=quote().offering_id, spot=2), 0))
    call = rig.call(SlotDecided(slot=0, revision=0, offset_s=0, commands=1))
    # After the launch itself.
    rig.kill.passed, rig.kill.at = 0, {3}
    with pytest.raises(Killed):
        await rig.perform(call)
    (intent,) = rig.ledger.pending()
    (launch,) = intent.launches
    return launch.token


async def test_what_a_launch_started_that_was_cut_off_is_waited_for_and_ended(rig):
    await cut_off(rig)

    done = await release_all(Lagging(rig.cloud, 3), ThreadedLedger(rig.ledger), go_on)

    assert (len(done.instance_ids), done.still_there, done.unheard) == (2, (), ())
    shown = await rig.cloud.list(OWNER)
    assert {instance.state for instance in shown} == {InstanceState.ENDED}


async def test_a_launch_of_which_nothing_is_heard_is_told_of(rig):
    token = await cut_off(rig)

    done = await release_all(Lagging(rig.cloud, 9), ThreadedLedger(rig.ledger), give_up)

    assert (done.instance_ids, done.unheard) == ((), (token,))


async def test_what_does_not_end_is_named_and_was_billed_no_further(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])

    done = await release_all(Deaf(rig.cloud), ThreadedLedger(rig.ledger), give_up)

    assert done.still_there == done.instance_ids
    lives = await rig.lives_of(*done.instance_ids)
    assert {life.state for life in lives} == {LifeState.STOPPING}


async def test_a_system_that_took_over_is_not_disturbed(rig):
    await rig.feed(opened(0, quote()))
    await rig.decide(0, 0, 0, [("a", Lot(offering_id=quote().offering_id, spot=2))])
    former = ThreadedLedger(rig.ledger)
    rig.open()

    with pytest.raises(OwnerFenced):
        await release_all(rig.cloud, former, give_up)

    shown = await rig.cloud.list(OWNER)
    assert {instance.state for instance in shown} == {InstanceState.RUNNING}
