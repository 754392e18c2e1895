"""The metrics of a process: what there is, who feeds it, and which events count towards what.

Everything here is listed in docs/telemetry.yaml. Labels take only values that are few and known:
services, kinds of events, methods, outcomes, capacity types, classes of refusals, states; never a
job, tenant or offering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any

from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, Observation

from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided, CallOutcome
from spotline.domain.events.capacity import (
    CapacityLost,
    InterruptionNoticed,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.limits import LimitAction, LimitReached, QuoteQuarantined
from spotline.domain.events.placement import PlacementDecided, PlacementOutcome
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointKind,
    GenerationFormed,
    JobSilent,
    NoticeAcknowledged,
    NoticeAction,
)
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.runtime.cloud_metrics import CLOUD_ATTRIBUTES, CLOUD_COUNTS, CLOUD_GAUGES
from spotline.runtime.health_metrics import CONDITION, CONDITION_GAUGES, HEALTHY
from spotline.runtime.watched import Watched

SERVICE = "spotline.service"
KIND = "spotline.kind"
CALL = "spotline.call"
OUTCOME = "spotline.outcome"
REASON = "spotline.reason"
CAPACITY_TYPE = "spotline.capacity_type"
REFUSAL_CLASS = "spotline.refusal_class"
INSTANCE_STATE = "spotline.instance_state"
DISAGREEMENT = "spotline.disagreement"
HTTP_STATUS = "http.response.status_code"
AGENT_STATE = "spotline.agent_state"
NOTICE_ACTION = "spotline.notice_action"
CHECKPOINT_KIND = "spotline.checkpoint_kind"
RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"

Attributes = Mapping[str, str]
Readings = Iterable[tuple[float, Attributes]]
Reader = Callable[[], Readings]
"""Reads a metric when it is asked for: values, each with its attributes. Any thread may call it."""

_RPC = (RPC_SYSTEM, RPC_METHOD, RPC_STATUS)
# From what a cache answers to what a solver takes; seconds.
_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
# Notices of clouds: none, 30 s, two minutes, more.
_LEADS_S = (0.0, 15.0, 30.0, 60.0, 90.0, 120.0, 300.0, 600.0, 1800.0)
# Checkpoints, in seconds of the market: from an adapter's to a large model's.
_SAVES_S = (1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_BOUNDARIES = {"spotline.notice.lead": _LEADS_S, "spotline.checkpoint.save": _SAVES_S}


class Form(Enum):
    """What a metric is; an observed one is read when it is asked for."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    OBSERVED_COUNTER = "observed counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric: its unit as UCUM writes it, and the attributes its values carry."""

    name: str
    form: Form
    unit: str
    meaning: str
    attributes: tuple[str, ...]


# By form and unit: names, and what they count.
_MEANINGS: Mapping[tuple[Form, str], Mapping[str, str]] = {
    (Form.OBSERVED_COUNTER, "{message}"): {
        "spotline.messages.handled": "Inputs handled since the start, refolded ones not counted.",
        "spotline.messages.dead_lettered": "Inputs that broke the contract.",
        "spotline.entries.parked": "Inputs that are left out because the service cannot take them, by kind.",
        "spotline.entries.not_believed": "Of those parked, that nobody published who may, or that nothing bears out.",
        "spotline.messages.published": "Events stored.",
        "spotline.notifications.taken": "Messages that receivers of webhooks took, since the outbox was made.",
        "spotline.notifications.given_up": "Messages that a receiver of webhooks did not take for a day, since the outbox was made.",
        **CLOUD_COUNTS,
    },
    (Form.OBSERVED_COUNTER, "{snapshot}"): {
        "spotline.snapshots.set_aside": "Snapshots that could not be used: the service learnt again from the log.",
    },
    (Form.GAUGE, "{message}"): {
        "spotline.log.backlog": "Inputs stored for the service that it has not taken yet.",
        "spotline.notifications.waiting": "Messages that a receiver of webhooks has not taken yet.",
    },
    (Form.GAUGE, "s"): {
        "spotline.log.lag": "How long the last input had been stored when it was handled; 0 when idle.",
        "spotline.service.started": "When the service was started, Unix time; a restart changes it.",
    },
    (Form.GAUGE, "1"): {
        "spotline.service.healthy": "1 while the service follows its log without a backlog, else 0.",
        "spotline.spend.cap_used": "The greatest share of its cap that a job holding instances has spent.",
        **CLOUD_GAUGES,
    },
    (Form.HISTOGRAM, "s"): {
        "messaging.process.duration": "Handling of one input, with the calls it made.",
        "spotline.call.duration": "One attempt at a call that a handler asked for.",
        "spotline.decision.duration": "From taking up a slot's opening to having stored its first decision.",
        "rpc.server.call.duration": "A gRPC request, as its server sees it.",
        "rpc.client.call.duration": "A gRPC request, as its caller sees it.",
        "spotline.notice.lead": "Time between an interruption notice and the loss it announces.",
        "spotline.checkpoint.save": "Writing a checkpoint, in market time, by what it was written for.",
    },
    (Form.GAUGE, "{agent}"): {
        "spotline.agents": "Agents of running programs by what they are told to do; silent ones apart.",
    },
    (Form.COUNTER, "{agent}"): {
        "spotline.agents.silenced": "Agents that were not heard of for too long.",
    },
    (Form.COUNTER, "{generation}"): {
        "spotline.generations.formed": "Starts of training programs.",
    },
    (Form.COUNTER, "{notice}"): {
        "spotline.notices.acknowledged": "What agents did on notices: saved, skipped, not_saved, or forwarded.",
    },
    (Form.GAUGE, "{job}"): {
        "spotline.jobs.stalled": "Jobs whose program has reported nothing for too long.",
        "spotline.disagreement.jobs": "Open jobs that cannot buy because log, ledger and cloud differ.",
    },
    (Form.COUNTER, "{job}"): {
        "spotline.jobs.submitted": "Jobs recorded.",
        "spotline.jobs.admitted": "Jobs taken up by the selector.",
        "spotline.jobs.closed": "Jobs that are over, by how they ended.",
    },
    (Form.OBSERVED_COUNTER, "{job}"): {
        "spotline.quotes.dropped": "Jobs that were not quoted: too many others waited, or the log did not answer.",
    },
    (Form.OBSERVED_COUNTER, "{outlook}"): {
        "spotline.outlooks.failed": "Outlooks of jobs that failed: a bug, told in the allocator's log.",
    },
    (Form.COUNTER, "{quote}"): {
        "spotline.quotes.quarantined": "Prices that were not believed.",
    },
    (Form.GAUGE, "{offering}"): {
        "spotline.offerings.doubted": "Offerings of which no new spot is bought, by why.",
    },
    (Form.COUNTER, "{decision}"): {
        "spotline.decisions": "Allocations decided, by reason.",
        "spotline.placements.decided": "Decisions on pipelines, by outcome.",
        "spotline.limits.reached": "Times that jobs reached a limit, by what followed.",
    },
    (Form.COUNTER, "{freeze}"): {
        "spotline.buying.frozen": "Stops of buying that began, by why.",
    },
    (Form.COUNTER, "{answer}"): {
        "spotline.allocations.answered": "Answers of the allocator to the selector; only `answered` is a good one.",
    },
    (Form.COUNTER, "{instance}"): {
        "spotline.instances.excepted": "On-demand bought for hard deadlines against a stop or a limit.",
        "spotline.instances.refused": "Instances asked for and not granted, for want of capacity or by a cap.",
        "spotline.instances.interrupted": "Instances whose interruption was noticed.",
        "spotline.instances.lost": "Instances that are gone without our having released them.",
    },
    (Form.COUNTER, "{launch}"): {
        "spotline.launch.failures": "Launches that were granted less than they asked for, by why.",
    },
    (Form.GAUGE, "{instance}"): {
        "spotline.instances.held": "Instances held, as the ledger has it.",
        "spotline.orphans": "Instances of ours that belong to no job, and run.",
        "spotline.instance.state": "Instances and unanswered launches by what the cloud has shown of them.",
    },
    (Form.GAUGE, "{disagreement}"): {
        "spotline.disagreements": "In how much log, ledger and cloud differ, by kind, since the last comparison; nothing is bought for what is undecided.",
    },
    (Form.GAUGE, "{launch}"): {
        "spotline.unknown_outcomes": "Launches of which nobody knows what they did; looked up by their token.",
    },
    (Form.OBSERVED_COUNTER, "{instance}"): {
        "spotline.orphans.reaped": "Instances that belong to no job, asked to end since the start.",
    },
    (Form.OBSERVED_COUNTER, "{observation}"): {
        "spotline.statistics.late": "Observations that came after their window closed, merged or dropped.",
    },
    (Form.OBSERVED_COUNTER, "{request}"): {
        "spotline.http.requests": "HTTP requests answered since the start, by status.",
        "spotline.callers.denied": "Calls that were turned away at a door since the start, by reason.",
        "spotline.joins.refused": "Agents that were not let in since the start, by reason.",
    },
    (Form.OBSERVED_COUNTER, "{record}"): {
        "spotline.audit.records": "Records of the audit that were written since the start.",
    },
    (Form.OBSERVED_COUNTER, "{write}"): {
        "spotline.audit.failures": "Writes to the audit that failed since the start: calls were refused for it.",
    },
    (Form.GAUGE, "{reader}"): {
        "spotline.http.watches": "Readers that follow changes over HTTP.",
    },
    (Form.OBSERVED_COUNTER, "USD"): {
        "spotline.spend": "All charges in the ledger, over its whole life.",
    },
}
# What their values carry besides the service.
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "messaging.process.duration": (KIND,),
    "spotline.call.duration": (CALL, OUTCOME),
    "rpc.server.call.duration": _RPC,
    "rpc.client.call.duration": _RPC,
    "spotline.jobs.closed": (OUTCOME,),
    "spotline.decisions": (REASON,),
    "spotline.callers.denied": (REASON,),
    "spotline.joins.refused": (REASON,),
    "spotline.limits.reached": (REASON,),
    "spotline.buying.frozen": (REASON,),
    "spotline.offerings.doubted": (REASON,),
    "spotline.entries.parked": (KIND,),
    "spotline.allocations.answered": (OUTCOME,),
    "spotline.placements.decided": (OUTCOME,),
    "spotline.instances.refused": (CAPACITY_TYPE,),
    "spotline.instances.held": (CAPACITY_TYPE,),
    "spotline.instance.state": (INSTANCE_STATE,),
    "spotline.launch.failures": (REFUSAL_CLASS,),
    "spotline.disagreements": (DISAGREEMENT,),
    "spotline.statistics.late": (OUTCOME,),
    "spotline.checkpoint.save": (CHECKPOINT_KIND,),
    "spotline.agents": (AGENT_STATE,),
    "spotline.http.requests": (HTTP_STATUS,),
    "spotline.notices.acknowledged": (NOTICE_ACTION,),
    HEALTHY: (CONDITION,),
} | CLOUD_ATTRIBUTES

INSTRUMENTS: Mapping[str, Instrument] = MappingProxyType(
    {
        name: Instrument(name, form, unit, meaning, (SERVICE, *_ATTRIBUTES.get(name, ())))
        for (form, unit), meanings in (
            *_MEANINGS.items(),
            *(((Form.GAUGE, unit), gauges) for unit, gauges in CONDITION_GAUGES.items()),
        )
        for name, meaning in meanings.items()
    }
)


class Metrics:
    """The instruments of one process, made once; every service of the process feeds them."""

    def __init__(self, meter: Meter) -> None:
        self._recording: dict[str, Counter | Histogram] = {}
        self._readers: dict[str, list[Reader]] = {}
        self._watched: dict[str, Watched] = {}
        for instrument in INSTRUMENTS.values():
            self._make(meter, instrument)
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
        """Show a service; what bore its name before is shown no more."""
        self._watched[service] = watched

    def count(self, service: str, event: Event) -> None:
        """Count an event that the service has stored for the first time."""
        for counted in COUNTED.get(type(event), ()):
            amount, attributes = counted.of(event)
            self.record(counted.name, amount, {SERVICE: service, **attributes})

    def expect(self, service: str, event_types: Iterable[type[Event]]) -> None:
        """Show what the service may record as 0 from the start.

        A counter that begins at its first count looks to Prometheus as if it never rose.
        """
        for event_type in event_types:
            for counted in COUNTED.get(event_type, ()):
                if INSTRUMENTS[counted.name].form is not Form.COUNTER:
                    continue
                for attributes in counted.each:
                    self.record(counted.name, 0, {SERVICE: service, **attributes})

    def _make(self, meter: Meter, instrument: Instrument) -> None:
        if instrument.form is Form.COUNTER:
            self._recording[instrument.name] = meter.create_counter(
                instrument.name, instrument.unit, instrument.meaning
            )
        elif instrument.form is Form.HISTOGRAM:
            self._recording[instrument.name] = meter.create_histogram(
                instrument.name,
                instrument.unit,
                instrument.meaning,
                explicit_bucket_boundaries_advisory=_BOUNDARIES.get(instrument.name, _BUCKETS_S),
            )
        else:
            self._readers[instrument.name] = []
            make = (
                meter.create_observable_gauge
                if instrument.form is Form.GAUGE
                else meter.create_observable_counter
            )
            make(
                instrument.name,
                [partial(self._read, instrument.name)],
                instrument.unit,
                instrument.meaning,
            )

    def _read(self, name: str, _: CallbackOptions) -> Iterable[Observation]:
        for reader in tuple(self._readers[name]):
            for value, attributes in reader():
                yield Observation(value, attributes)

    def _parked(self) -> Readings:
        for service, watched in tuple(self._watched.items()):
            for kind, entries in tuple(watched.counters.parked.items()):
                yield float(entries), {SERVICE: service, KIND: kind}

    def _watch_all(self) -> None:
        def show(name: str, value_of: Callable[[Watched], float]) -> None:
            def read() -> Readings:
                for service, watched in tuple(self._watched.items()):
                    yield value_of(watched), {SERVICE: service}

            self.observe(name, read)

        show("spotline.messages.handled", lambda service: service.counters.handled)
        show("spotline.messages.dead_lettered", lambda service: service.counters.dead_lettered)
        self.observe("spotline.entries.parked", self._parked)
        show("spotline.entries.not_believed", lambda service: service.counters.not_believed)
        show("spotline.messages.published", lambda service: service.counters.published)
        show(
            "spotline.snapshots.set_aside",
            lambda service: service.counters.snapshots_set_aside,
        )
        show("spotline.log.backlog", lambda service: service.backlog)
        show("spotline.log.lag", lambda service: service.lag_s)
        show("spotline.service.healthy", lambda service: float(service.healthy))
        show("spotline.service.started", lambda service: service.started_s)


@dataclass(frozen=True, slots=True)
class Counted:
    """Which counter an event counts towards, by how much, and with which attributes: one of `each`."""

    name: str
    of: Callable[[Any], tuple[float, Attributes]] = lambda _: (1, {})
    each: tuple[Attributes, ...] = ({},)


def _instances(event: InterruptionNoticed | CapacityLost) -> tuple[float, Attributes]:
    return len(event.instance_ids), {}


def _by(
    name: str,
    attribute: str,
    values: type[Enum],
    of: Callable[[Any], Enum],
    amount: Callable[[Any], float] = lambda _: 1,
) -> Counted:
    """Count by one attribute, which is a member of `values`."""
    return Counted(
        name,
        of=lambda event: (amount(event), {attribute: str(of(event).value)}),
        each=tuple({attribute: str(value.value)} for value in values),
    )


def _by_outcome(name: str, outcomes: type[Enum]) -> Counted:
    return _by(name, OUTCOME, outcomes, lambda event: event.outcome)


COUNTED: Mapping[type[Event], tuple[Counted, ...]] = MappingProxyType(
    {
        JobSubmitted: (Counted("spotline.jobs.submitted"),),
        JobAdmitted: (Counted("spotline.jobs.admitted"),),
        JobClosed: (_by_outcome("spotline.jobs.closed", JobOutcome),),
        QuoteQuarantined: (Counted("spotline.quotes.quarantined"),),
        AllocationDecided: (
            _by("spotline.decisions", REASON, DecisionReason, lambda event: event.reason),
        ),
        LimitReached: (
            _by("spotline.limits.reached", REASON, LimitAction, lambda event: event.action),
        ),
        BuyingFrozen: (
            _by("spotline.buying.frozen", REASON, FreezeReason, lambda event: event.freeze.reason),
        ),
        BuyingExcepted: (
            Counted("spotline.instances.excepted", of=lambda event: (event.instances, {})),
        ),
        AllocationAnswered: (_by_outcome("spotline.allocations.answered", CallOutcome),),
        PlacementDecided: (_by_outcome("spotline.placements.decided", PlacementOutcome),),
        LaunchRefused: (
            _by(
                "spotline.instances.refused",
                CAPACITY_TYPE,
                CapacityType,
                lambda event: event.capacity_type,
                amount=lambda event: event.requested - event.granted,
            ),
            _by(
                "spotline.launch.failures",
                REFUSAL_CLASS,
                RefusalClass,
                lambda event: event.refusal_class or RefusalClass.LIMIT,
            ),
        ),
        InterruptionNoticed: (
            Counted("spotline.instances.interrupted", of=_instances),
            Counted("spotline.notice.lead", of=lambda event: (event.lead_s, {})),
        ),
        CapacityLost: (Counted("spotline.instances.lost", of=_instances),),
        GenerationFormed: (Counted("spotline.generations.formed"),),
        JobSilent: (Counted("spotline.agents.silenced"),),
        NoticeAcknowledged: (
            _by(
                "spotline.notices.acknowledged",
                NOTICE_ACTION,
                NoticeAction,
                lambda event: event.action,
            ),
        ),
        CheckpointCommitted: (
            _by(
                "spotline.checkpoint.save",
                CHECKPOINT_KIND,
                CheckpointKind,
                lambda event: event.kind,
                amount=lambda event: event.save_s,
            ),
        ),
    }
)
