"""The event log, entry by entry, for whoever folds it elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from spotline.adapters.grpc.kit.answering import refuse
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, invalid
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.operations.ports import LogReading
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ProviderUnavailable
from spotline.contracts.reasons import Reason

# Each reads from the broker on its own; the broker is there for those that decide.
MOST_READERS = 4
# Of a response: far below what a message may have, so that neither side holds much at a time.
_RESPONSE_BYTES = 256 * 1024
_RESPONSE_ENTRIES = 1_000
# A reader of the end of the log is behind by so much at most.
_LOOK_AGAIN_S = 0.5
# What went away is noticed when something is sent.
_QUIET_LOOKS = 30


class LogRpcs(OperationsAsked):
    """The event log as it is stored."""

    async def ReadLog(
        self, request: pb.ReadLogRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadLogResponse]:
        """Entries from a place on; nothing is read before the reader has taken what came before."""
        counted = False
        try:
            log = self._readable(request)
            self.log_readers += 1
            counted = True
            async for response in self._responses(log, request):
                yield response
        except (RpcRefused, ProviderUnavailable) as error:
            await refuse(context, error)
        finally:
            self.log_readers -= counted

    def end_reading(self) -> None:
        """End all that follow the log: the server stops."""
        self.ended.set()

    def _readable(self, request: pb.ReadLogRequest) -> LogReading:
        if request.first_seq < 0:
            raise invalid(ValueError(f"first_seq must be >= 0, was {request.first_seq}"))
        if self.whole_log is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "this server does not read the log",
                reason=Reason.BUS_UNAVAILABLE,
            )
        if self.log_readers >= MOST_READERS:
            raise RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{MOST_READERS} callers read the log already; try again later",
                reason=Reason.TOO_MANY_REQUESTS,
            )
        return self.whole_log

    async def _responses(
        self, log: LogReading, request: pb.ReadLogRequest
    ) -> AsyncIterator[pb.ReadLogResponse]:
        next_seq, quiet = max(1, request.first_seq), 0
        while True:
            last_seq = await log.last_seq()
            if last_seq >= next_seq:
                quiet = 0
                async for response in _portions(log, next_seq, last_seq):
                    yield response
                next_seq = last_seq + 1
            elif not quiet:
                # Told at once, so that a reader knows that it has all.
                yield pb.ReadLogResponse(last_seq=last_seq)
            if not request.follow:
                return
            quiet = (quiet + 1) % _QUIET_LOOKS
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self.ended.wait()
        except TimeoutError:
            return
        raise RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            "the allocator is stopping; read again",
            reason=Reason.SERVER_STOPPING,
        )


async def _portions(
    log: LogReading, first_seq: int, last_seq: int
) -> AsyncIterator[pb.ReadLogResponse]:
    response, size = pb.ReadLogResponse(last_seq=last_seq), 0
    async for entry in log.read((), first_seq=first_seq, last_seq=last_seq):
        message = _message(entry)
        grown = message.ByteSize()
        if response.entries and (
            size + grown > _RESPONSE_BYTES or len(response.entries) >= _RESPONSE_ENTRIES
        ):
            yield response
            response, size = pb.ReadLogResponse(last_seq=last_seq), 0
        response.entries.append(message)
        size += grown
    if response.entries:
        yield response


def _message(entry: StoredEntry) -> pb.LogEntry:
    return pb.LogEntry(
        seq=entry.seq,
        stored_ns=entry.stored_ns,
        subject=entry.subject,
        headers=dict(entry.headers),
        payload=entry.payload,
    )
