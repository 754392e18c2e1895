import asyncio

from spotline.agent.lease import InstanceLease, SessionRenewal
from tests.fakes.agent_parts import SteppedClock


async def test_a_lease_lasts_from_the_last_contact():
    clock = SteppedClock()
    lease = InstanceLease(clock, 60.0)

    async def contact() -> None:
        for _ in range(3):
            await clock.sleep(50.0)
            lease.renew()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(contact())
        await lease.ended()

    assert clock.now_s == 210.0
    assert lease.left_s <= 0


def test_the_next_session_is_due_when_half_of_one_is_over():
    clock = SteppedClock()
    renewal = SessionRenewal(clock, 600.0)

    clock.advance(299.0)
    assert not renewal.is_due
    clock.advance(1.0)
    assert renewal.is_due
    renewal.renew(100.0)
    assert not renewal.is_due
    clock.advance(50.0)
    assert renewal.is_due


def test_a_session_of_an_earlier_release_does_not_end():
    clock = SteppedClock()
    renewal = SessionRenewal(clock, 0.0)
    clock.advance(1e9)

    assert not renewal.is_due
