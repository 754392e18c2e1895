"""A service's trail: nothing is begun without its record, what was done is never forgotten."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spotline.adapters.audit.trail import ThreadedTrail, _Asked
from spotline.application.identity.audit import (
    DONE,
    Act,
    AuditDoor,
    AuditRecord,
    origin_of,
    recorded,
)
from spotline.contracts.errors import AuditUnavailable
from tests.eventually import PATIENCE_S

ACT = Act(ts_ns=1, door=AuditDoor.GRPC, action="a test", outcome=DONE)


class MemoryChain:
    """A chain in memory, whose disk can be full or slow."""

    chain = "allocator"

    def __init__(self) -> None:
        self.head = origin_of(self.chain)
        self.records: list[AuditRecord] = []
        self.appends = 0
        self.full = False
        self.breaks = False
        self.closed = False
        self.go = threading.Event()
        self.go.set()
        self.waits = threading.Event()

    def append(self, acts: Sequence[Act]) -> list[AuditRecord]:
        self.appends += 1
        self.waits.set()
        self.go.wait()
        if self.full:
            raise AuditUnavailable("the disk is full")
        if self.breaks:
            raise ValueError("no record")
        new = []
        for act in acts:
            new.append(recorded(self.head, act))
            self.head = new[-1].head
        self.records += new
        return new

    def close(self) -> None:
        self.closed = True

    def subjects(self) -> list[str]:
        return [record.act.subject for record in self.records]


async def test_a_thousand_at_once_are_few_writes_to_the_disk():
    chain = MemoryChain()
    chain.go.clear()
    with ThreadedTrail(chain) as trail:
        asked = [asyncio.ensure_future(trail.write(ACT)) for _ in range(1_000)]
        await asyncio.sleep(0)
        await asyncio.to_thread(chain.waits.wait)
        chain.go.set()
        seqs = await asyncio.gather(*asked)

    assert sorted(seqs) == list(range(1, 1_001))
    assert chain.appends < 10
    assert chain.closed


async def test_a_full_disk_refuses_what_was_not_begun_and_owes_what_was_done():
    chain = MemoryChain()
    with ThreadedTrail(chain) as trail:
        chain.full = True
        with pytest.raises(AuditUnavailable, match="full"):
            await trail.write(replace(ACT, subject="refused"))
        await trail.settle(replace(ACT, subject="done"))
        owed = trail.figures.owed
        chain.full = False
        await trail.write(replace(ACT, subject="next"))

    assert owed == 1
    assert chain.subjects() == ["done", "next"]
    assert trail.figures.owed == 0


async def test_a_chain_that_breaks_refuses_what_was_not_begun_and_goes_on_when_it_can():
    chain = MemoryChain()
    with ThreadedTrail(chain) as trail:
        chain.breaks = True
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(AuditUnavailable, match="ValueError: no record"):
                await trail.write(replace(ACT, subject="refused"))
        chain.breaks = False
        await trail.write(replace(ACT, subject="next"))

    assert chain.subjects() == ["next"]


async def test_what_is_owed_is_written_at_the_end():
    chain = MemoryChain()
    with ThreadedTrail(chain) as trail:
        chain.full = True
        await trail.settle(ACT)
        chain.full = False

    assert len(chain.records) == 1


async def test_what_was_done_is_recorded_though_its_caller_went_away():
    chain = MemoryChain()
    chain.go.clear()
    with ThreadedTrail(chain) as trail:
        settling = asyncio.ensure_future(trail.settle(ACT))
        await asyncio.sleep(0)
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
        chain.go.set()

    assert len(chain.records) == 1


async def test_what_was_given_up_before_it_was_taken_is_not_recorded():
    chain = MemoryChain()
    chain.go.clear()
    with ThreadedTrail(chain) as trail:
        first = asyncio.ensure_future(trail.write(replace(ACT, subject="first")))
        await asyncio.sleep(0)
        await asyncio.to_thread(chain.waits.wait)
        second = asyncio.ensure_future(trail.write(replace(ACT, subject="second")))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        chain.go.set()
        await first

    assert chain.subjects() == ["first"]


async def test_a_closed_trail_records_nothing_more():
    chain = MemoryChain()
    trail = ThreadedTrail(chain)
    trail.close()
    trail.close()

    with pytest.raises(AuditUnavailable, match="closed"):
        await trail.write(ACT)


async def test_what_is_asked_while_the_trail_closes_is_answered():
    class Overtaken(queue.SimpleQueue):  # type: ignore[type-arg]
        """Lets the trail be closed between the look whether it is open and what is put."""

        def put(self, item: object, *how: object) -> None:
            if item is not None:
                closing.start()
                # For as long as an end could overtake it: one that waits for this does not.
                closing.join(0.05)
            super().put(item)

    trail = ThreadedTrail(MemoryChain())
    closing = threading.Thread(target=trail.close)
    idle, trail._asked = trail._asked, Overtaken()
    idle.put(_Asked(ACT, owed=False))  # the thread waits for one of the queue that it knows
    asked = trail._ask(ACT, owed=False)
    closing.join()

    assert await asyncio.wait_for(asyncio.wrap_future(asked.written), PATIENCE_S) == 2
