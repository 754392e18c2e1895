import pytest

from spotline.agent.joining import Joining, NotJoined, join
from tests.fakes.agent_parts import (
    SteppedClock,
    enrolled_for,
    refused,
    task_of,
    unknown_caller,
    unreachable,
)

JOINING = Joining(join_token="t", instance_id="i-1", nonce="n" * 32, host="h", release="1")


class Door:
    def __init__(self, *failures):
        self.failures = list(failures)
        self.asked = []

    async def join(self, **said):
        self.asked.append(said)
        if self.failures:
            raise self.failures.pop(0)
        return enrolled_for(task_of())


async def test_joining_tries_again_with_the_same_nonce():
    door, clock = Door(unreachable(), unreachable()), SteppedClock()

    enrolled = await join(door, JOINING, clock, lambda: 0.0)

    assert enrolled.session == "s"
    assert [said["nonce"] for said in door.asked] == ["n" * 32] * 3
    assert clock.slept == [0.1, 0.2]


@pytest.mark.parametrize("failure", [refused, unknown_caller])
async def test_a_refusal_is_final(failure):
    door = Door(failure())

    with pytest.raises(NotJoined, match="refused to let it join"):
        await join(door, JOINING, SteppedClock(), lambda: 0.0)
    assert len(door.asked) == 1


async def test_joining_ends_after_five_minutes():
    door, clock = Door(*(unreachable() for _ in range(1000))), SteppedClock()

    with pytest.raises(NotJoined, match="within 300 s"):
        await join(door, JOINING, clock, lambda: 0.5)
    assert 290 < clock.now_s <= 300
