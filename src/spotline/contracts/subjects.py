"""Where every event is published: `spotline.v1.<kind>[.<routing tokens>]`.

The table `ROUTES` is the one list of events; its kinds also name them in `ce-type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from spotline.contracts.envelope import OPERATOR
from spotline.contracts.errors import ContractError
from spotline.domain.events import (
    agreement,
    allocation,
    capacity,
    forecast,
    freeze,
    knowledge,
    law,
    lifecycle,
    limits,
    market,
    modes,
    parking,
    placement,
    selection,
    statistics,
    training,
)
from spotline.domain.events.event import Event

PREFIX = "spotline.v1."
DEAD_LETTER_KIND = "deadletter"
BATCH_KIND = "batch"
OUTPUT_KIND = "output"
HEALTH_KIND = "health"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An event's kind, and the fields whose values become its routing tokens.

    With `by_source` the last token is the service that says it: several may, and the broker lets
    each on its own subject only. Releases before 0.4 wrote these without that token.
    """

    kind: str
    fields: tuple[str, ...] = ()
    by_source: bool = False


_BY_JOB = ("tenant", "job_id")

ROUTES: Mapping[type[Event], Route] = MappingProxyType(
    {
        market.MarketOpened: Route(kind="market.opened"),
        market.QuoteObserved: Route(kind="market.quote", fields=("quote.offering_id",)),
        market.SlotOpened: Route(kind="market.slot"),
        forecast.ForecastIssued: Route(kind="forecast.issued"),
        forecast.ForecastOverdue: Route(kind="forecast.overdue"),
        lifecycle.JobSubmitted: Route(kind="job.submitted", fields=("job.tenant", "job.job_id")),
        lifecycle.JobCancelled: Route(kind="job.cancelled", fields=_BY_JOB),
        lifecycle.JobProgressReported: Route(kind="job.progress", fields=_BY_JOB),
        lifecycle.JobUpdated: Route(kind="job.updated", fields=_BY_JOB),
        lifecycle.JobExited: Route(kind="job.exited", fields=_BY_JOB),
        lifecycle.JobRetryScheduled: Route(kind="job.retried", fields=_BY_JOB),
        lifecycle.AdmissionRecorded: Route(kind="job.recorded", fields=_BY_JOB),
        lifecycle.JobAdmitted: Route(kind="job.admitted", fields=_BY_JOB),
        lifecycle.JobQuoted: Route(kind="job.quoted", fields=_BY_JOB),
        lifecycle.JobAdvanced: Route(kind="job.advanced", fields=_BY_JOB),
        lifecycle.JobClosed: Route(kind="job.closed", fields=_BY_JOB),
        allocation.AllocationAnswered: Route(kind="allocation.answered"),
        allocation.AllocationDecided: Route(kind="decision", fields=_BY_JOB),
        allocation.ShadowPricesUpdated: Route(kind="allocation.prices"),
        capacity.ProvisioningCommanded: Route(kind="provisioning.command", fields=_BY_JOB),
        capacity.SlotDecided: Route(kind="provisioning.slot"),
        capacity.ProbeCommanded: Route(kind="provisioning.probe", fields=_BY_JOB),
        capacity.OfferingProbed: Route(kind="capacity.probed", fields=_BY_JOB),
        capacity.CapacityReported: Route(kind="capacity.report"),
        capacity.LaunchRefused: Route(kind="capacity.refused", fields=_BY_JOB),
        capacity.CapacitySignalled: Route(kind="capacity.signalled"),
        capacity.InterruptionNoticed: Route(kind="capacity.noticed", fields=_BY_JOB),
        capacity.CapacityLost: Route(kind="capacity.lost", fields=_BY_JOB),
        capacity.CostAccrued: Route(kind="cost", fields=_BY_JOB),
        capacity.InterruptionWithdrawn: Route(kind="capacity.withdrawn", fields=_BY_JOB),
        capacity.InstancesEnded: Route(kind="capacity.ended", fields=_BY_JOB),
        training.AgentJoined: Route(kind="job.agent", fields=_BY_JOB),
        training.GenerationFormed: Route(kind="job.generation", fields=_BY_JOB),
        training.TrainingRestarted: Route(kind="job.restarted", fields=_BY_JOB),
        training.CheckpointCommitted: Route(kind="job.checkpoint.committed", fields=_BY_JOB),
        training.CheckpointFailed: Route(kind="job.checkpoint.failed", fields=_BY_JOB),
        training.NoticeAcknowledged: Route(kind="job.notice", fields=_BY_JOB),
        training.JobSilent: Route(kind="job.silent", fields=_BY_JOB),
        training.JobHeard: Route(kind="job.heard", fields=_BY_JOB),
        training.JobStalled: Route(kind="job.stalled", fields=_BY_JOB),
        training.JobStallEnded: Route(kind="job.stall.ended", fields=_BY_JOB),
        selection.PolicyWeightsUpdated: Route(kind="selection.weights"),
        law.MarketLawLearned: Route(kind="law.learned", fields=("offering_id",)),
        law.ValueTableRequested: Route(kind="table.requested", fields=_BY_JOB),
        law.ValueTableReady: Route(kind="table.ready", fields=_BY_JOB),
        knowledge.RunMeasured: Route(kind="knowledge.measured"),
        knowledge.ThroughputReestimated: Route(kind="knowledge.throughput", fields=_BY_JOB),
        placement.RegionObserved: Route(kind="network.region", fields=("region.region_id",)),
        placement.LinkObserved: Route(
            kind="network.link", fields=("link.source", "link.destination")
        ),
        placement.PipelineSubmitted: Route(
            kind="placement.submitted", fields=("pipeline.tenant", "pipeline.job_id")
        ),
        placement.PipelineReleased: Route(kind="placement.released", fields=_BY_JOB),
        placement.PlacementDecided: Route(kind="placement.decided", fields=_BY_JOB),
        placement.PlacementEnded: Route(kind="placement.ended", fields=_BY_JOB),
        placement.PipelineProvisioningCommanded: Route(
            kind="provisioning.pipeline", fields=_BY_JOB
        ),
        statistics.MarketStatisticsIssued: Route(kind="stats.market", fields=("offering_id",)),
        statistics.PlatformStatisticsIssued: Route(kind="stats.platform", fields=("tenant",)),
        parking.EntryParked: Route(kind="parked.entry", by_source=True),
        parking.ParkedEntryRetried: Route(kind="parked.retried"),
        parking.ParkedEntryDropped: Route(kind="parked.dropped"),
        freeze.BuyingFrozen: Route(kind="buying.frozen", by_source=True),
        freeze.BuyingUnfrozen: Route(kind="buying.unfrozen", by_source=True),
        freeze.BuyingExcepted: Route(kind="buying.excepted", fields=_BY_JOB),
        limits.QuoteQuarantined: Route(kind="market.quarantined", fields=("quote.offering_id",)),
        limits.LimitReached: Route(kind="limit.reached", fields=_BY_JOB),
        limits.LimitSet: Route(kind="limit.set"),
        agreement.AgreementChecked: Route(kind="agreement.checked"),
        agreement.IncarnationBegun: Route(kind="log.incarnation"),
        agreement.OrphanFound: Route(kind="orphan.found"),
        agreement.OrphanSettled: Route(kind="orphan.settled"),
        agreement.OrphanReapRequested: Route(kind="orphan.reap"),
        modes.AccountModeSet: Route(kind="account.mode", by_source=True),
    }
)

KINDS: Mapping[type[Event], str] = MappingProxyType(
    {event_type: route.kind for event_type, route in ROUTES.items()}
)
EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType(
    {kind: event_type for event_type, kind in KINDS.items()}
)

# What a plain client of the broker follows: the log holds these in batches alone, and each is
# published on its own subject beside the log.
_FANNED_OUT: tuple[type[Event], ...] = (
    allocation.AllocationDecided,
    lifecycle.JobAdmitted,
    lifecycle.JobRetryScheduled,
    lifecycle.JobClosed,
    capacity.CapacityReported,
    capacity.LaunchRefused,
    capacity.CapacitySignalled,
    capacity.InterruptionNoticed,
    capacity.CapacityLost,
    capacity.InterruptionWithdrawn,
    selection.PolicyWeightsUpdated,
)
_STATISTICS: tuple[type[Event], ...] = (
    statistics.MarketStatisticsIssued,
    statistics.PlatformStatisticsIssued,
)
# Kept out of batches: the clock and the market of everybody, and what plain clients follow as the
# log holds it.
_SINGLE: tuple[type[Event], ...] = (
    market.MarketOpened,
    market.SlotOpened,
    placement.PipelineSubmitted,
    placement.PipelineReleased,
    placement.PlacementDecided,
    placement.PlacementEnded,
    *_STATISTICS,
    # Any service may say these: they are rare, and everybody who follows them finds them.
    parking.EntryParked,
    parking.ParkedEntryRetried,
    parking.ParkedEntryDropped,
    freeze.BuyingFrozen,
    freeze.BuyingUnfrozen,
    agreement.AgreementChecked,
    agreement.IncarnationBegun,
    agreement.OrphanFound,
    agreement.OrphanSettled,
    agreement.OrphanReapRequested,
    modes.AccountModeSet,
    limits.LimitSet,
)
# Whose batches hold what; a consumer of a kind that is not listed follows all batches.
PRODUCERS: Mapping[str, tuple[type[Event], ...]] = MappingProxyType(
    {
        "allocator": (
            lifecycle.JobSubmitted,
            lifecycle.JobUpdated,
            lifecycle.JobCancelled,
            lifecycle.JobExited,
            lifecycle.JobProgressReported,
            lifecycle.JobQuoted,
            law.ValueTableReady,
            training.AgentJoined,
            training.GenerationFormed,
            training.TrainingRestarted,
            training.CheckpointCommitted,
            training.CheckpointFailed,
            training.NoticeAcknowledged,
            training.JobSilent,
            training.JobHeard,
            training.JobStalled,
            training.JobStallEnded,
        ),
        "cloud_actuator": (
            capacity.LaunchRefused,
            capacity.InterruptionNoticed,
            capacity.InterruptionWithdrawn,
            capacity.CapacityLost,
            capacity.InstancesEnded,
            capacity.CapacityReported,
            capacity.CapacitySignalled,
            capacity.CostAccrued,
            capacity.OfferingProbed,
            lifecycle.AdmissionRecorded,
            freeze.BuyingExcepted,
        ),
        "configurator": (knowledge.RunMeasured, knowledge.ThroughputReestimated),
        "forecaster": (forecast.ForecastIssued, law.MarketLawLearned),
        "market_ingest": (
            market.QuoteObserved,
            limits.QuoteQuarantined,
            placement.RegionObserved,
            placement.LinkObserved,
        ),
        "placer": (placement.PipelineProvisioningCommanded,),
        "selector": (
            forecast.ForecastOverdue,
            allocation.AllocationAnswered,
            lifecycle.JobAdmitted,
            lifecycle.JobAdvanced,
            lifecycle.JobRetryScheduled,
            lifecycle.JobClosed,
            allocation.AllocationDecided,
            capacity.ProvisioningCommanded,
            capacity.ProbeCommanded,
            capacity.SlotDecided,
            selection.PolicyWeightsUpdated,
            law.ValueTableRequested,
            allocation.ShadowPricesUpdated,
            limits.LimitReached,
        ),
    }
)
ONLY_IN_BATCHES: frozenset[str] = frozenset(KINDS[event_type] for event_type in _FANNED_OUT)
SINGLE_KINDS: frozenset[str] = frozenset(
    {DEAD_LETTER_KIND, *(KINDS[event_type] for event_type in _SINGLE)}
)

_OTHER = re.compile(r"[^a-z0-9_-]")
_SERVICE = re.compile(r"[a-z0-9_-]+")


@lru_cache(maxsize=4096)
def token(name: str) -> str:
    """Write `name` as one subject token: lower case, `[a-z0-9_-]`, anything else as `_`.

    Two names may share a token: it routes and filters, the true name is in the payload.

    Raises
    ------
    ContractError
        `name` is empty.
    """
    if not name:
        raise ContractError("subject", "a routing token must not be empty")
    return _OTHER.sub("_", name.lower())


def subject_of(event: Event, source: str) -> str:
    """The subject `event` is published on by the service `source`.

    Raises
    ------
    ContractError
        A routing field is empty.
    """
    head, tokens = _ROUTING[type(event)]
    subject = head + "".join([f".{token(get(event))}" for get in tokens])
    return f"{subject}.{token(source)}" if head in _BY_SOURCE else subject


def filter_of(event_type: type[Event]) -> str:
    """The subject filter that matches every event of a type, as it is published now, and no other."""
    route = ROUTES[event_type]
    if route.by_source:
        return f"{PREFIX}{route.kind}.*"
    return PREFIX + route.kind + (".>" if route.fields else "")


def filters_of(event_type: type[Event]) -> tuple[str, ...]:
    """The filters that match every event of a type, also as releases before wrote it."""
    route = ROUTES[event_type]
    former = (PREFIX + route.kind,) if route.by_source else ()
    return (*former, filter_of(event_type))


def own_filter_of(event_type: type[Event], service: str) -> str:
    """The filter that matches every event of a type that `service` may publish."""
    if ROUTES[event_type].by_source:
        return f"{PREFIX}{KINDS[event_type]}.{token(service)}"
    return filter_of(event_type)


def speaker_of(kind: str, subject: str) -> str | None:
    """The service that a subject of a kind names, as a token; None where it names none."""
    head = PREFIX + kind
    if head not in _BY_SOURCE or not subject.startswith(f"{head}."):
        return None
    return subject.removeprefix(f"{head}.")


def subjects_with(event_types: Iterable[type[Event]], *also_by: str) -> list[str]:
    """Where the log holds events of these types, alone or in batches.

    `also_by` are services to be followed beside those that are known to publish them.
    """
    wanted = list(event_types)
    in_batches = [event_type for event_type in wanted if KINDS[event_type] not in SINGLE_KINDS]
    services = {
        service
        for service, produced in PRODUCERS.items()
        if any(event_type in produced for event_type in in_batches)
    }
    services.update(also_by)
    listed = {event_type for produced in PRODUCERS.values() for event_type in produced}
    if not listed.issuperset(in_batches):
        services = {"*"}
    if "*" not in services:
        # What was parked and is published again comes in batches of its own.
        services.add(OPERATOR)
    return [
        *(subject for event_type in wanted for subject in filters_of(event_type)),
        *(f"{PREFIX}{BATCH_KIND}.{service}" for service in sorted(services)),
    ]


def dead_letter_subject(service: str) -> str:
    """Where `service` puts what it cannot read."""
    if not _SERVICE.fullmatch(service):
        raise ContractError("subject", f"a service's name must match [a-z0-9_-]+, was {service!r}")
    return f"{PREFIX}{DEAD_LETTER_KIND}.{service}"


def batch_subject(service: str) -> str:
    """Where `service` puts several events at once."""
    if not _SERVICE.fullmatch(service):
        raise ContractError("subject", f"a service's name must match [a-z0-9_-]+, was {service!r}")
    return f"{PREFIX}{BATCH_KIND}.{service}"


def output_subject(tenant: str, job_id: str) -> str:
    """Where what the program of a job wrote is put; `ContractError` as `token`."""
    return f"{PREFIX}{OUTPUT_KIND}.{token(tenant)}.{token(job_id)}"


def health_subject(service: str) -> str:
    """Where `service` tells how it is, `*` for where all do; no stream takes it."""
    if service != "*" and not _SERVICE.fullmatch(service):
        raise ContractError("subject", f"a service's name must match [a-z0-9_-]+, was {service!r}")
    return f"{PREFIX}{HEALTH_KIND}.{service}"


def on_subject(kind: str, subject: str) -> bool:
    """Whether `subject` is one that events of `kind` are published on."""
    head = PREFIX + kind
    return subject == head or subject.startswith(head + ".")


class StreamPart(Enum):
    """The streams of a partition: its log, what is published beside it, statistics, and output."""

    LOG = ""
    DECISIONS = "_DECISIONS"
    STATISTICS = "_STATISTICS"
    OUTPUT = "_OUTPUT"


def stream_name(partition: int = 0, part: StreamPart = StreamPart.LOG) -> str:
    """The name of a partition's stream."""
    return f"SPOTLINE_{partition}{part.value}"


def stream_subjects(part: StreamPart = StreamPart.LOG) -> tuple[str, ...]:
    """What a stream takes; no two take the same, and none takes heartbeats."""
    match part:
        case StreamPart.DECISIONS:
            return tuple(filter_of(event_type) for event_type in _FANNED_OUT)
        case StreamPart.STATISTICS:
            return tuple(filter_of(event_type) for event_type in _STATISTICS)
        case StreamPart.OUTPUT:
            return (f"{PREFIX}{OUTPUT_KIND}.>",)
        case StreamPart.LOG:
            elsewhere = {*_FANNED_OUT, *_STATISTICS}
            return (
                *(
                    subject
                    for event_type in ROUTES
                    if event_type not in elsewhere
                    for subject in filters_of(event_type)
                ),
                f"{PREFIX}{BATCH_KIND}.*",
                f"{PREFIX}{DEAD_LETTER_KIND}.*",
            )


_ROUTING: Mapping[type[Event], tuple[str, tuple[Callable[[Any], str], ...]]] = {
    event_type: (PREFIX + route.kind, tuple(attrgetter(field) for field in route.fields))
    for event_type, route in ROUTES.items()
}
_BY_SOURCE = frozenset(PREFIX + route.kind for route in ROUTES.values() if route.by_source)
