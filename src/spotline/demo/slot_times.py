"""How long slots take, and how much of the log they fill: all services, a real broker, many jobs.

A slot opens as soon as the one before it is settled and the broker has answered a question, so
nothing waits but for work. What a slot costs is read from outside: times from the entries of the
log and from what the actuator applies, bytes and messages from the broker's own figures.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import nats
from nats.js.api import StreamInfo

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Timer
from spotline.bootstrap.system import SystemOptions, running_system
from spotline.domain.events.capacity import CapacityReported, ProvisioningCommanded
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S
from spotline.replay.jobs import generated_jobs

if TYPE_CHECKING:
    from spotline.bootstrap.identity import IdentityAt
    from spotline.bootstrap.parts import BusAddress

_START_NS = 1_767_225_600_000_000_000
_SLOT_S = 1800
# Jobs arrive in the first slot; what that takes (tables, compiled kernels) is not what is asked.
_WARM_UP_SLOTS = 4
_LEAST_SLOTS = 32
_JOBS_OF_THE_MARKET = 12
_LOG = "SPOTLINE_0"
_PATIENCE_S = 1_800.0
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotExtent:
    """`jobs` that run through `slots` measured slots; `most_events` of an entry, None: as it is.

    With `identity` broker and servers speak TLS and ask everybody who he is.
    """

    jobs: int = 600
    slots: int = 12
    seed: int = 1
    most_events: int | None = None
    identity: bool = False


@dataclass(slots=True)
class _Watched:
    """What is heard while it runs: of each slot, when its first command came, and when it settled."""

    first: int
    last: int
    commanded_ns: dict[int, int] = field(default_factory=dict)
    settled_ns: dict[int, int] = field(default_factory=dict)
    opened_ns: dict[int, int] = field(default_factory=dict)
    advanced: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    def actuator(self, event: Event, _envelope: object, _seq: int) -> None:
        if isinstance(event, ProvisioningCommanded):
            self.commanded_ns.setdefault(event.slot, time.time_ns())

    def ingest(self, event: Event, _envelope: object, _seq: int) -> None:
        if isinstance(event, CapacityReported) and event.settled:
            self.settled_ns[event.slot] = time.time_ns()
            if event.slot == self.last:
                self.settled.set()

    def selector(self, event: Event, _envelope: object, _seq: int) -> None:
        if isinstance(event, SlotOpened):
            self.opened_ns[event.slot] = time.time_ns()
        elif isinstance(event, JobAdvanced) and self.first <= event.slot < self.last:
            self.advanced += 1


@dataclass(slots=True)
class _Reading:
    """The figures of the broker and of the processes at one moment."""

    at_ns: int
    cpu_s: float
    broker_cpu_s: float
    streams: dict[str, tuple[int, int]]


async def measure_slots(extent: SlotExtent) -> dict[str, Any]:
    """Run the jobs and return what their slots took."""
    market = _market(extent)
    jobs = _jobs(market, extent)
    watched = _Watched(first=_WARM_UP_SLOTS, last=_WARM_UP_SLOTS + extent.slots)
    readings: list[_Reading] = []
    ready: asyncio.Future[tuple[JobClient, BusAddress]] = asyncio.get_running_loop().create_future()

    async def gate(timer: Timer) -> None:
        client, bus = await ready
        slot = int(timer.timer_id.removeprefix("slot:"))
        if slot == 0:
            for job in jobs:
                await client.submit(job)
        if slot in (watched.first, watched.last):
            readings.append(await _read(bus))
        if slot > watched.last:
            await asyncio.get_running_loop().create_future()

    with tempfile.TemporaryDirectory(prefix="spotline-slots-") as folder:
        store = Path(folder)
        more: dict[str, Any] = {}
        if extent.most_events is not None:
            more["most_events"] = extent.most_events
        if extent.identity:
            more["identity"] = _identity_in(store)
        options = SystemOptions(
            market=market,
            store=store,
            ingest=IngestOptions(),
            selector=SelectorOptions(rehearsals=0, forecast_timeout_s=60.0, clearing=True),
            allocate_timeout_s=120.0,
            outlooks=False,
            **more,
        )
        listeners = {
            "cloud_actuator": watched.actuator,
            "market_ingest": watched.ingest,
            "selector": watched.selector,
        }
        async with AsyncExitStack() as stack:
            system = await stack.enter_async_context(
                running_system(options, gate=gate, listeners=listeners)
            )
            client = await stack.enter_async_context(JobClient(system.allocator_address))
            ready.set_result((client, system.bus))
            async with asyncio.timeout(_PATIENCE_S):
                await watched.settled.wait()
            stored_ns = await _openings(system.bus)
            whole = await _read(system.bus)
        disk = _disk_bytes(store)
    return _figures(extent, watched, readings, stored_ns) | {
        "disk": {
            name: {"file_bytes": disk.get(name, 0), "message_bytes": held, "messages": messages}
            for name, (messages, held) in whole.streams.items()
        }
    }


def _market(extent: SlotExtent) -> Market:
    slots = max(_LEAST_SLOTS, _WARM_UP_SLOTS + extent.slots + 8)
    market = generate("mixed", seed=extent.seed, slots=slots, slot_s=_SLOT_S, start_ns=_START_NS)
    # Enough for all: what is asked is how long a slot takes, not who goes without.
    times = max(1, -(-extent.jobs // _JOBS_OF_THE_MARKET))
    return replace(
        market,
        spot_available=market.spot_available * times,
        on_demand_available=market.on_demand_available * times,
    )


def _jobs(market: Market, extent: SlotExtent) -> Sequence[Job]:
    """Generated jobs that all start with the market and last until the measured slots are over."""
    end_ns = market.start_ns + (_WARM_UP_SLOTS + extent.slots + 4) * _SLOT_S * NS_PER_S
    jobs = []
    for job in generated_jobs(market, extent.jobs, extent.seed):
        deadline = replace(
            job.deadline,
            at_ns=end_ns,
            expires_ns=end_ns + (job.deadline.expires_ns - job.deadline.at_ns),
        )
        jobs.append(replace(job, start_ns=market.start_ns, deadline=deadline))
    return jobs


def _identity_in(store: Path) -> IdentityAt:
    # Trees that this measures, too, have none.
    from spotline.bootstrap.identity import IdentityAt

    return IdentityAt(store=store)


async def _read(bus: BusAddress) -> _Reading:
    streams = {
        info.config.name or "": (info.state.messages, info.state.bytes)
        for info in await (_all_streams(bus) if _asks(bus) else _listed_streams(bus.nats_url))
    }
    return _Reading(time.time_ns(), time.process_time(), _broker_cpu_s(), streams)


def _asks(bus: BusAddress) -> bool:
    """Whether the broker asks who comes; the releases that could not have no such field."""
    return getattr(bus, "identity", None) is not None


async def _listed_streams(url: str) -> list[StreamInfo]:
    client = await nats.connect(url)
    try:
        found = await client.jetstream().streams_info()
    finally:
        await client.close()
    return [info for info in found if (info.config.name or "").startswith("SPOTLINE_")]


async def _all_streams(bus: BusAddress) -> list[StreamInfo]:
    """As the operator, who may look into each stream of ours, but not list those that there are."""
    from spotline.contracts.subjects import StreamPart, stream_name

    async with bus.connection("operator") as connection:
        js = (await connection.link(timeout_s=_ANSWER_S)).jetstream()
        return [await js.stream_info(stream_name(bus.partition, part)) for part in StreamPart]


def _broker_cpu_s() -> float:
    """CPU time of the servers that processes of ours have started."""
    ticks = 0
    ours = {os.getpid()}
    for _ in range(3):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) in ours:
                ours.add(int(stat.parent.name))
    for pid in ours - {os.getpid()}:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def _openings(bus: BusAddress) -> dict[int, int]:
    """When the opening of each slot was stored, by the broker's clock, which is this machine's."""
    from spotline.adapters.nats.connection import NatsConnection
    from spotline.adapters.nats.stream import NatsEventStream
    from spotline.contracts.build import event_of

    known = _asks(bus)
    reader = (
        bus.connection("operator") if known else NatsConnection(bus.nats_url, name="slot-times")
    )
    async with reader as connection:
        log = NatsEventStream(connection)
        found = {}
        async for entry in log.read(["spotline.v1.market.slot"], last_seq=await log.last_seq()):
            event = event_of(entry)
            if isinstance(event, SlotOpened):
                found[event.slot] = entry.stored_ns
    return found


def _disk_bytes(store: Path) -> dict[str, int]:
    """Bytes of the files that hold the messages of each stream."""
    found: dict[str, int] = {}
    for block in store.rglob("msgs/*.blk"):
        name = block.parent.parent.name
        found[name] = found.get(name, 0) + block.stat().st_size
    return found


def _figures(
    extent: SlotExtent,
    watched: _Watched,
    readings: Sequence[_Reading],
    stored_ns: dict[int, int],
) -> dict[str, Any]:
    slots = range(watched.first, watched.last)
    before, after = readings
    job_slots = max(1, watched.advanced)
    streams = {}
    for name, (messages, held) in after.streams.items():
        messages_before, held_before = before.streams.get(name, (0, 0))
        streams[name] = {
            "messages_per_slot": round((messages - messages_before) / extent.slots, 1),
            "message_bytes_per_job_and_slot": round((held - held_before) / job_slots, 1),
        }
    commands = [
        (watched.commanded_ns[slot] - stored_ns[slot]) / 1e6
        for slot in slots
        if slot in watched.commanded_ns
    ]
    settled = [(watched.settled_ns[slot] - stored_ns[slot]) / 1e9 for slot in slots]
    periods = [(stored_ns[slot + 1] - stored_ns[slot]) / 1e9 for slot in slots]
    return {
        "jobs": extent.jobs,
        "slots": extent.slots,
        "job_slots": watched.advanced,
        "event_to_first_command_ms": spread(commands),
        "first_commands_ms": [round(took, 3) for took in commands],
        "slot_to_settled_s": spread(settled),
        "slot_to_next_slot_s": spread(periods),
        "cpu_s_per_slot": round((after.cpu_s - before.cpu_s) / extent.slots, 4),
        "broker_cpu_s_per_slot": round(
            (after.broker_cpu_s - before.broker_cpu_s) / extent.slots, 4
        ),
        "log_bytes_per_job_and_slot": streams[_LOG]["message_bytes_per_job_and_slot"],
        "streams": streams,
    }


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, 99th percentile (the largest of fewer than a hundred) and how many."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": 0.0, "p99": 0.0, "n": 0}
    return {
        "p50": round(median(ordered), 4),
        "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 4),
        "n": len(ordered),
    }
