"""What programs wrote, in the output stream of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.nats.configured import StreamLimits
from spotline.adapters.nats.connection import BrokerLink, NatsConnection
from spotline.adapters.nats.passing import passing_consumer
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.allocator.output import OutputChunk
from spotline.contracts.envelope import Envelope, derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import decode_value, encode_value
from spotline.contracts.subjects import OUTPUT_KIND, StreamPart, output_subject

_log = structlog.get_logger(__name__)

# A week of it, a gigabyte at most.
OUTPUT_KEPT = StreamLimits(max_age_s=7 * 86_400.0, max_bytes=1 << 30)
_IDLE_S = 5.0


class NatsOutput:
    """The port `OutputStore` on a stream; several readers may follow one job."""

    def __init__(self, connection: NatsConnection, stream: NatsEventStream) -> None:
        self._connection = connection
        self._stream = stream
        self._arrivals: dict[str, asyncio.Event] = {}
        self._marks: dict[str, int] = {}

    @classmethod
    async def open(
        cls, connection: NatsConnection, *, partition: int = 0, limits: StreamLimits = OUTPUT_KEPT
    ) -> NatsOutput:
        """Create the stream if it does not exist; `ConfigError` where it is another one."""
        stream = await NatsEventStream.open(
            connection, partition=partition, part=StreamPart.OUTPUT, limits=limits
        )
        return cls(connection, stream)

    async def append(self, chunk: OutputChunk) -> None:
        """Store a piece; see the port."""
        process = f"{OUTPUT_KIND}:{chunk.instance_id}:{chunk.generation}:{chunk.rank}"
        envelope = Envelope(
            event_id=derive_id(chunk.job_id, process, chunk.index),
            kind=OUTPUT_KIND,
            source="allocator",
            subject=output_subject(chunk.tenant, chunk.job_id),
            causation_id="",
            correlation_id=chunk.job_id,
            index=chunk.index,
            ts_event_ns=0,
            payload=encode_value(chunk),
            job_id=chunk.job_id,
        )
        await self._stream.publish([envelope])
        self._marks[chunk.job_id] = self.mark(chunk.job_id) + 1
        arrived = self._arrivals.pop(chunk.job_id, None)
        if arrived is not None:
            arrived.set()

    async def begin(self, tenant: str, job_id: str, *, last: int) -> int:
        """The place to read from; see the port. Counted by the server: nothing is transferred."""
        if last < 1:
            return 1
        subject = output_subject(tenant, job_id)
        low, high = 1, await self._stream.last_seq() + 1
        if await self._count_from(subject, low) <= last:
            return low
        while high - low > 1:
            middle = (low + high) // 2
            if await self._count_from(subject, middle) >= last:
                low = middle
            else:
                high = middle
        return low

    async def _count_from(self, subject: str, seq: int) -> int:
        """How many pieces on a subject are stored from a place on."""

        async def count(link: BrokerLink) -> int:
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=seq,
                ack_policy=AckPolicy.NONE,
                filter_subjects=[subject],
                inactive_threshold=_IDLE_S,
                mem_storage=True,
            )
            async with passing_consumer(link, self._stream.name, config) as made:
                return made.num_pending or 0

        return await self._stream.ask(count)

    async def read(
        self, tenant: str, job_id: str, *, first_seq: int
    ) -> AsyncIterator[tuple[int, OutputChunk]]:
        """Yield what is stored of a job; see the port."""
        last_seq = await self._stream.last_seq()
        subjects = [output_subject(tenant, job_id)]
        async for entry in self._stream.read(subjects, first_seq=first_seq, last_seq=last_seq):
            try:
                chunk = decode_value(OutputChunk, OUTPUT_KIND, entry.payload)
            except ContractError as error:
                _log.warning("output_unreadable", seq=entry.seq, error=str(error))
                continue
            # Two names may share a subject.
            if (chunk.tenant, chunk.job_id) == (tenant, job_id):
                yield entry.seq, chunk

    def mark(self, job_id: str) -> int:
        """How many pieces of a job have come through this process."""
        return self._marks.get(job_id, 0)

    async def arrival(self, job_id: str, mark: int, *, timeout_s: float) -> None:
        """Return when more have come than when `mark` was taken, or in the end."""
        if self.mark(job_id) != mark:
            return
        arrived = self._arrivals.setdefault(job_id, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await arrived.wait()
