"""A log that is followed over gRPC: whole, once, and on again where the system was away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.bootstrap.page_of_system import FollowedLog
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.event import Event
from tests.fakes.allocator import market_opened, slot_opened

pytestmark = pytest.mark.asyncio


def entry(seq: int, event: Event) -> StoredEntry:
    envelope = envelope_for(
        event,
        event_id=f"event-{seq}",
        source="market_ingest",
        causation_id="",
        correlation_id="c",
    )
    return StoredEntry(
        seq=seq,
        stored_ns=seq * 1_000,
        subject=envelope.subject,
        headers=envelope.headers(),
        payload=envelope.payload,
    )


AWAY = RpcFailed("UNAVAILABLE", "the allocator cannot be reached", unreachable=True)
REFUSED = RpcFailed("PERMISSION_DENIED", "ReadLog asks for another role")


class ScriptedClient:
    """Answers each reading with its part of a script; remembers from where it was asked."""

    def __init__(self, *parts: Any) -> None:
        self._parts = list(parts)
        self.asked: list[int] = []

    async def read_log(self, first_seq: int = 0, *, follow: bool = False) -> Any:
        self.asked.append(first_seq)
        assert follow
        for said in self._parts.pop(0) if self._parts else ():
            if isinstance(said, Exception):
                raise said
            yield said
        if not self._parts:
            await asyncio.Event().wait()


async def followed(client: ScriptedClient) -> tuple[list[Any], FollowedLog]:
    """What was taken when all is read."""
    taken: list[Any] = []
    log = FollowedLog(client=client, take=taken.append, again_s=0.0)  # type: ignore[arg-type]
    running = asyncio.create_task(log.run())
    await asyncio.wait_for(log.caught_up.wait(), 10)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return taken, log


async def test_events_come_with_their_places_and_times():
    client = ScriptedClient([((entry(1, market_opened()), entry(2, slot_opened(0))), 2)])
    taken, _ = await followed(client)

    assert [(each.seq, each.kind, each.wall_ns) for each in taken] == [
        (1, "market.opened", 1_000),
        (2, "market.slot", 2_000),
    ]


async def test_it_goes_on_behind_what_it_has_where_the_system_was_away():
    one, two = entry(1, market_opened()), entry(2, slot_opened(0))
    # An answer that was cut off may come again.
    client = ScriptedClient([((one,), 2), AWAY], [AWAY], [((one, two), 2)])
    taken, log = await followed(client)

    assert client.asked == [1, 2, 2]
    assert [each.kind for each in taken] == ["market.opened", "market.slot"]
    assert log.next_seq == 3


async def test_what_cannot_be_read_is_passed_over():
    unreadable = StoredEntry(
        seq=2, stored_ns=1, subject="x", headers={"ce-type": "spotline.v1.none"}, payload=b"\xff"
    )
    client = ScriptedClient([((entry(1, market_opened()), unreadable), 2)])
    taken, log = await followed(client)

    assert (len(taken), log.next_seq) == (1, 3)


async def test_an_empty_log_is_read_whole_too():
    taken, _ = await followed(ScriptedClient([((), 0)]))

    assert taken == []


async def test_a_refusal_ends_it():
    log = FollowedLog(client=ScriptedClient([REFUSED]), take=print, again_s=0.0)  # type: ignore[arg-type]

    with pytest.raises(RpcFailed, match="another role"):
        await asyncio.wait_for(log.run(), 10)
