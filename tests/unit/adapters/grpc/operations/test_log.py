"""The log over gRPC: whole and in order, as fast as its reader takes it, for few at a time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from spotline.adapters.grpc.operations import log as reading
from spotline.adapters.grpc.operations.servicer import OperationsServicer
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ProviderUnavailable

pytestmark = pytest.mark.asyncio


class Aborted(Exception):
    """A call ended with a status."""


class Context:
    """A call that can only be ended."""

    code: grpc.StatusCode | None = None

    async def abort(self, code, details, trailing_metadata=()):
        self.code = code
        raise Aborted(details)


class CountedLog:
    """A log of entries of some bytes each; counts how many were read."""

    def __init__(self, entries: int, size: int = 10) -> None:
        self.entries = entries
        self.taken = 0
        self._size = size
        self.fails = False

    async def last_seq(self) -> int:
        if self.fails:
            raise ProviderUnavailable("the log is away")
        return self.entries

    async def read(self, subjects, *, first_seq=1, last_seq) -> Any:
        for seq in range(first_seq, last_seq + 1):
            self.taken += 1
            yield StoredEntry(
                seq=seq,
                stored_ns=seq * 10,
                subject="spotline.v1.x",
                headers={"ce-id": f"e{seq}", "ce-type": "spotline.v1.x"},
                payload=b"p" * self._size,
            )


def servicer(log: CountedLog | None) -> OperationsServicer:
    made = OperationsServicer(SimpleNamespace(state=None))  # type: ignore[arg-type]
    made.whole_log = log
    return made


async def responses(made: OperationsServicer, context: Context, **asked: Any) -> list[Any]:
    return [each async for each in made.ReadLog(pb.ReadLogRequest(**asked), context)]


async def test_entries_come_whole_in_order_and_in_portions():
    log = CountedLog(2_500)
    found = await responses(servicer(log), Context(), first_seq=3)

    entries = [entry for response in found for entry in response.entries]
    assert [entry.seq for entry in entries] == list(range(3, 2_501))
    assert (entries[0].stored_ns, entries[0].headers["ce-id"]) == (30, "e3")
    assert entries[0].payload == b"p" * 10
    assert {response.last_seq for response in found} == {2_500}
    assert max(len(response.entries) for response in found) == 1_000


async def test_large_entries_come_in_small_portions():
    found = await responses(servicer(CountedLog(10, size=200_000)), Context())

    assert [len(response.entries) for response in found] == [1] * 10


async def test_nothing_is_read_before_the_reader_takes_what_came():
    log = CountedLog(10_000)
    async with aclosing(servicer(log).ReadLog(pb.ReadLogRequest(), Context())) as stream:
        await anext(stream)
        taken = log.taken

    assert taken <= 1_001


async def test_a_reader_of_the_end_is_told_what_comes(monkeypatch):
    monkeypatch.setattr(reading, "_LOOK_AGAIN_S", 0.001)
    log = CountedLog(0)
    made = servicer(log)
    context = Context()
    stream = made.ReadLog(pb.ReadLogRequest(follow=True), context)
    empty = await anext(stream)
    log.entries = 2
    more = await anext(stream)
    made.end_reading()

    assert (list(empty.entries), empty.last_seq) == ([], 0)
    assert [entry.seq for entry in more.entries] == [1, 2]
    with pytest.raises(Aborted, match="stopping"):
        assert [each async for each in stream] == []
    assert made.log_readers == 0


async def test_few_read_at_a_time_and_each_makes_room():
    made = servicer(CountedLog(5_000))
    streams = [made.ReadLog(pb.ReadLogRequest(), Context()) for _ in range(reading.MOST_READERS)]
    for stream in streams:
        await anext(stream)
    context = Context()
    with pytest.raises(Aborted, match="read the log already"):
        await responses(made, context)
    await streams[0].aclose()
    again = await responses(made, Context())
    for stream in streams[1:]:
        await stream.aclose()

    assert context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(again) == 5
    assert made.log_readers == 0


@pytest.mark.parametrize(
    ("log", "asked", "code"),
    [
        (None, {}, grpc.StatusCode.UNAVAILABLE),
        (CountedLog(1), {"first_seq": -1}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_what_cannot_be_read_is_refused(log, asked, code):
    context = Context()
    with pytest.raises(Aborted):
        await responses(servicer(log), context, **asked)

    assert context.code is code


async def test_a_log_that_is_away_is_a_refusal_that_passes():
    log, context = CountedLog(1), Context()
    log.fails = True
    with pytest.raises(Aborted):
        await asyncio.wait_for(responses(servicer(log), context), 5)

    assert context.code is grpc.StatusCode.UNAVAILABLE
