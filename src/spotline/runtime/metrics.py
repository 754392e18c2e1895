"""The metrics of a process: what there is, who feeds it, and which events count towards what.

Everything here is listed in docs/telemetry.yaml. Labels take only values that are few and known:
services, kinds of events, methods, outcomes, capacity types; never a job, tenant or offering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import CapacityLost, InterruptionNoticed, LaunchRefused
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.placement import PlacementDecided, PlacementOutcome
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason

SERVICE = "spotline.service"
KIND = "spotline.kind"
CALL = "spotline.call"
OUTCOME = "spotline.outcome"
REASON = "spotline.reason"
CAPACITY_TYPE = "spotline.capacity_type"
RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"

Attributes = Mapping[str, str]
Readings = Iterable[tuple[float, Attributes]]
Reader = Callable[[], Readings]
"""Reads a metric when it is asked for: values, each with its attributes. Any thread may call it."""

_RPC = (SERVICE, RPC_SYSTEM, RPC_METHOD, RPC_STATUS)
# From what a cache answers to what a solver takes; seconds.
_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)


class Form(Enum):
    """What a metric is; an observed one is read when somebody asks."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    OBSERVED_COUNTER = "observed counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric: its unit as UCUM writes it, and the attributes its values carry."""

    name: str
    form: Form
    unit: str
    meaning: str
    attributes: tuple[str, ...] = (SERVICE,)


INSTRUMENTS: Mapping[str, Instrument] = MappingProxyType(
    {
        one.name: one
        for one in (
            Instrument(
                name="spotline.messages.handled",
                form=Form.OBSERVED_COUNTER,
                unit="{message}",
                meaning="Inputs handled since the start, refolded ones not counted.",
            ),
            Instrument(
                name="spotline.messages.dead_lettered",
                form=Form.OBSERVED_COUNTER,
                unit="{message}",
                meaning="Inputs that broke the contract.",
            ),
            Instrument(
                name="spotline.messages.published",
                form=Form.OBSERVED_COUNTER,
                unit="{message}",
                meaning="Events stored.",
            ),
            Instrument(
                name="spotline.log.backlog",
                form=Form.GAUGE,
                unit="{message}",
                meaning="Inputs stored for the service that it has not taken yet.",
            ),
            Instrument(
                name="spotline.log.lag",
                form=Form.GAUGE,
                unit="s",
                meaning="How long the last input had been stored when it was handled; 0 when idle.",
            ),
            Instrument(
                name="spotline.service.healthy",
                form=Form.GAUGE,
                unit="1",
                meaning="1 while the service follows its log without a backlog, else 0.",
            ),
            Instrument(
                name="spotline.service.started",
                form=Form.GAUGE,
                unit="s",
                meaning="When the service was started, Unix time; a restart changes it.",
            ),
            Instrument(
                name="messaging.process.duration",
                form=Form.HISTOGRAM,
                unit="s",
                meaning="Handling of one input, with the calls it made.",
                attributes=(SERVICE, KIND),
            ),
            Instrument(
                name="spotline.call.duration",
                form=Form.HISTOGRAM,
                unit="s",
                meaning="One attempt at a call that a handler asked for.",
                attributes=(SERVICE, CALL, OUTCOME),
            ),
            Instrument(
                name="spotline.decision.duration",
                form=Form.HISTOGRAM,
                unit="s",
                meaning="From taking up a slot's opening to having stored its first decision.",
            ),
            Instrument(
                name="rpc.server.call.duration",
                form=Form.HISTOGRAM,
                unit="s",
                meaning="A gRPC request, as its server sees it.",
                attributes=_RPC,
            ),
            Instrument(
                name="rpc.client.call.duration",
                form=Form.HISTOGRAM,
                unit="s",
                meaning="A gRPC request, as its caller sees it.",
                attributes=_RPC,
            ),
            Instrument(
                name="spotline.jobs.submitted",
                form=Form.COUNTER,
                unit="{job}",
                meaning="Jobs recorded.",
            ),
            Instrument(
                name="spotline.jobs.admitted",
                form=Form.COUNTER,
                unit="{job}",
                meaning="Jobs taken up by the selector.",
            ),
            Instrument(
                name="spotline.jobs.closed",
                form=Form.COUNTER,
                unit="{job}",
                meaning="Jobs that are over, by how they ended.",
                attributes=(SERVICE, OUTCOME),
            ),
            Instrument(
                name="spotline.decisions",
                form=Form.COUNTER,
                unit="{decision}",
                meaning="Allocations decided, by reason.",
                attributes=(SERVICE, REASON),
            ),
            Instrument(
                name="spotline.allocations.answered",
                form=Form.COUNTER,
                unit="{answer}",
                meaning="Answers of the allocator to the selector; only `answered` is a good one.",
                attributes=(SERVICE, OUTCOME),
            ),
            Instrument(
                name="spotline.placements.decided",
                form=Form.COUNTER,
                unit="{decision}",
                meaning="Decisions on pipelines, by outcome.",
                attributes=(SERVICE, OUTCOME),
            ),
            Instrument(
                name="spotline.instances.refused",
                form=Form.COUNTER,
                unit="{instance}",
                meaning="Instances asked for and not granted, for want of capacity or by a cap.",
                attributes=(SERVICE, CAPACITY_TYPE),
            ),
            Instrument(
                name="spotline.instances.interrupted",
                form=Form.COUNTER,
                unit="{instance}",
                meaning="Instances whose interruption was noticed.",
            ),
            Instrument(
                name="spotline.instances.lost",
                form=Form.COUNTER,
                unit="{instance}",
                meaning="Instances that are gone without our having released them.",
            ),
            Instrument(
                name="spotline.instances.held",
                form=Form.GAUGE,
                unit="{instance}",
                meaning="Instances held, as the ledger has it.",
                attributes=(SERVICE, CAPACITY_TYPE),
            ),
            Instrument(
                name="spotline.statistics.late",
                form=Form.OBSERVED_COUNTER,
                unit="{observation}",
                meaning="Observations that came after their window closed, merged or dropped.",
                attributes=(SERVICE, OUTCOME),
            ),
            Instrument(
                name="spotline.spend",
                form=Form.OBSERVED_COUNTER,
                unit="USD",
                meaning="All charges in the ledger, over its whole life.",
            ),
            Instrument(
                name="spotline.spend.cap_used",
                form=Form.GAUGE,
                unit="1",
                meaning="The greatest share of its cap that a job holding instances has spent.",
            ),
        )
    }
)


@dataclass(slots=True, kw_only=True)
class HostCounters:
    """What one host has done since it started."""

    handled: int = 0
    dead_lettered: int = 0
    published: int = 0


class Watched(Protocol):
    """A running service, as its metrics are read off it."""

    counters: HostCounters

    @property
    def backlog(self) -> int:
        """Inputs that are stored for it and not taken yet."""
        ...

    @property
    def lag_s(self) -> float:
        """How long the last input had waited, 0 when nothing waits."""
        ...

    @property
    def started_s(self) -> float:
        """When it was started, Unix time."""
        ...

    @property
    def healthy(self) -> bool:
        """Whether it is well."""
        ...


class Metrics:
    """The instruments of one process, made once; every service of the process feeds them."""

    def __init__(self, meter: Meter) -> None:
        self._recording: dict[str, Counter | Histogram] = {}
        self._readers: dict[str, list[Reader]] = {}
        self._watched: dict[str, Watched] = {}
        for one in INSTRUMENTS.values():
            self._make(meter, one)
        self._watch_all()

    def record(self, name: str, value: float, attributes: Attributes) -> None:
        """Add to a counter, or count into a histogram."""
        instrument = self._recording[name]
        if isinstance(instrument, Counter):
            instrument.add(value, attributes)
        else:
            instrument.record(value, attributes)

    def observe(self, name: str, reader: Reader) -> Callable[[], None]:
        """Have a gauge or an observed counter read by `reader`, until the result is called."""
        readers = self._readers[name]
        readers.append(reader)
        return lambda: readers.remove(reader) if reader in readers else None

    def watch(self, service: str, watched: Watched) -> None:
        """Show a service; whoever bore its name before is shown no more."""
        self._watched[service] = watched

    def count(self, service: str, event: Event) -> None:
        """Count an event that the service has stored for the first time."""
        counted = COUNTED.get(type(event))
        if counted is not None:
            amount, attributes = counted.of(event)
            self.record(counted.name, amount, {SERVICE: service, **attributes})

    def expect(self, service: str, event_types: Iterable[type[Event]]) -> None:
        """Show what the service may record as 0 from the start.

        A counter that begins at its first count looks to Prometheus as if it never rose.
        """
        for event_type in event_types:
            counted = COUNTED.get(event_type)
            if counted is None:
                continue
            for attributes in counted.each:
                self.record(counted.name, 0, {SERVICE: service, **attributes})

    def _make(self, meter: Meter, one: Instrument) -> None:
        if one.form is Form.COUNTER:
            self._recording[one.name] = meter.create_counter(one.name, one.unit, one.meaning)
        elif one.form is Form.HISTOGRAM:
            self._recording[one.name] = meter.create_histogram(
                one.name, one.unit, one.meaning, explicit_bucket_boundaries_advisory=_BUCKETS_S
            )
        else:
            self._readers[one.name] = []
            make = (
                meter.create_observable_gauge
                if one.form is Form.GAUGE
                else meter.create_observable_counter
            )
            make(one.name, [partial(self._read, one.name)], one.unit, one.meaning)

    def _read(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        for reader in tuple(self._readers[name]):
            for value, attributes in reader():
                yield Observation(value, attributes)

    def _watch_all(self) -> None:
        def show(name: str, value_of: Callable[[Watched], float]) -> None:
            def read() -> Readings:
                for service, watched in tuple(self._watched.items()):
                    yield value_of(watched), {SERVICE: service}

            self.observe(name, read)

        show("spotline.messages.handled", lambda one: one.counters.handled)
        show("spotline.messages.dead_lettered", lambda one: one.counters.dead_lettered)
        show("spotline.messages.published", lambda one: one.counters.published)
        show("spotline.log.backlog", lambda one: one.backlog)
        show("spotline.log.lag", lambda one: one.lag_s)
        show("spotline.service.healthy", lambda one: float(one.healthy))
        show("spotline.service.started", lambda one: one.started_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Which counter an event counts towards, by how much, and with which attributes: one of `each`."""

    name: str
    of: Callable[[Any], tuple[float, Attributes]]
    each: tuple[Attributes, ...] = ({},)


def _each(attribute: str, values: type[Enum]) -> tuple[Attributes, ...]:
    return tuple({attribute: str(one.value)} for one in values)


COUNTED: Mapping[type[Event], Counted] = MappingProxyType(
    {
        JobSubmitted: Counted(name="spotline.jobs.submitted", of=lambda _: (1, {})),
        JobAdmitted: Counted(name="spotline.jobs.admitted", of=lambda _: (1, {})),
        JobClosed: Counted(
            name="spotline.jobs.closed",
            of=lambda event: (1, {OUTCOME: event.outcome.value}),
            each=_each(OUTCOME, JobOutcome),
        ),
        AllocationDecided: Counted(
            name="spotline.decisions",
            of=lambda event: (1, {REASON: event.reason.value}),
            each=_each(REASON, DecisionReason),
        ),
        AllocationAnswered: Counted(
            name="spotline.allocations.answered",
            of=lambda event: (1, {OUTCOME: event.outcome.value}),
            each=_each(OUTCOME, CallOutcome),
        ),
        PlacementDecided: Counted(
            name="spotline.placements.decided",
            of=lambda event: (1, {OUTCOME: event.outcome.value}),
            each=_each(OUTCOME, PlacementOutcome),
        ),
        LaunchRefused: Counted(
            name="spotline.instances.refused",
            of=lambda event: (
                event.requested - event.granted,
                {CAPACITY_TYPE: event.capacity_type.value},
            ),
            each=_each(CAPACITY_TYPE, CapacityType),
        ),
        InterruptionNoticed: Counted(
            name="spotline.instances.interrupted", of=lambda event: (len(event.instance_ids), {})
        ),
        CapacityLost: Counted(
            name="spotline.instances.lost", of=lambda event: (len(event.instance_ids), {})
        ),
    }
)
