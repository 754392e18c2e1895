import asyncio

from spotline.agent.lease import InstanceLease
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
