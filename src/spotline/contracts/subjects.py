"""Where every event is published: `spotline.v1.<kind>[.<routing tokens>]`.

The table `ROUTES` is the one list of events; its kinds also name them in `ce-type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain import events
from spotline.domain.events import Event

PREFIX = "spotline.v1."
STREAM_SUBJECTS: tuple[str, ...] = (f"{PREFIX}>",)
DEAD_LETTER_KIND = "deadletter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An event's kind, and the fields whose values become its routing tokens."""

    kind: str
    fields: tuple[str, ...] = ()


_BY_JOB = ("tenant", "job_id")

ROUTES: Mapping[type[Event], Route] = MappingProxyType(
    {
        events.MarketOpened: Route(kind="market.opened"),
        events.QuoteObserved: Route(kind="market.quote", fields=("quote.offering_id",)),
        events.SlotOpened: Route(kind="market.slot"),
        events.ForecastIssued: Route(kind="forecast.issued"),
        events.ForecastOverdue: Route(kind="forecast.overdue"),
        events.JobSubmitted: Route(kind="job.submitted", fields=("job.tenant", "job.job_id")),
        events.JobCancelled: Route(kind="job.cancelled", fields=_BY_JOB),
        events.JobProgressReported: Route(kind="job.progress", fields=_BY_JOB),
        events.JobAdmitted: Route(kind="job.admitted", fields=_BY_JOB),
        events.JobAdvanced: Route(kind="job.advanced", fields=_BY_JOB),
        events.JobClosed: Route(kind="job.closed", fields=_BY_JOB),
        events.AllocationAnswered: Route(kind="allocation.answered"),
        events.AllocationDecided: Route(kind="decision", fields=_BY_JOB),
        events.ProvisioningCommanded: Route(kind="provisioning.command", fields=_BY_JOB),
        events.SlotDecided: Route(kind="provisioning.slot"),
        events.CapacityReported: Route(kind="capacity.report"),
        events.LaunchRefused: Route(kind="capacity.refused", fields=_BY_JOB),
        events.InterruptionNoticed: Route(kind="capacity.noticed", fields=_BY_JOB),
        events.CapacityLost: Route(kind="capacity.lost", fields=_BY_JOB),
        events.CostAccrued: Route(kind="cost", fields=_BY_JOB),
        events.PolicyWeightsUpdated: Route(kind="selection.weights"),
        events.MarketLawLearned: Route(kind="law.learned", fields=("offering_id",)),
        events.ValueTableRequested: Route(kind="table.requested", fields=_BY_JOB),
        events.ValueTableReady: Route(kind="table.ready", fields=_BY_JOB),
        events.RunMeasured: Route(kind="knowledge.measured"),
        events.ThroughputReestimated: Route(kind="knowledge.throughput", fields=_BY_JOB),
        events.RegionObserved: Route(kind="network.region", fields=("region.region_id",)),
        events.LinkObserved: Route(kind="network.link", fields=("link.source", "link.destination")),
        events.PipelineSubmitted: Route(
            kind="placement.submitted", fields=("pipeline.tenant", "pipeline.job_id")
        ),
        events.PipelineReleased: Route(kind="placement.released", fields=_BY_JOB),
        events.PlacementDecided: Route(kind="placement.decided", fields=_BY_JOB),
        events.PlacementEnded: Route(kind="placement.ended", fields=_BY_JOB),
        events.PipelineProvisioningCommanded: Route(kind="provisioning.pipeline", fields=_BY_JOB),
        events.MarketStatisticsIssued: Route(kind="stats.market", fields=("offering_id",)),
        events.PlatformStatisticsIssued: Route(kind="stats.platform", fields=("tenant",)),
    }
)

KINDS: Mapping[type[Event], str] = MappingProxyType(
    {event_type: route.kind for event_type, route in ROUTES.items()}
)
EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType(
    {kind: event_type for event_type, kind in KINDS.items()}
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


def subject_of(event: Event) -> str:
    """The subject `event` is published on.

    Raises
    ------
    ContractError
        A routing field is empty.
    """
    head, tokens = _ROUTING[type(event)]
    return head + "".join([f".{token(get(event))}" for get in tokens])


def filter_of(event_type: type[Event]) -> str:
    """The subject filter that matches every event of a type and no other."""
    route = ROUTES[event_type]
    return PREFIX + route.kind + (".>" if route.fields else "")


def job_filter(event_type: type[Event], tenant: str, job_id: str) -> str:
    """The subject of one job's events of a type; others may share it (see `token`)."""
    return f"{PREFIX}{ROUTES[event_type].kind}.{token(tenant)}.{token(job_id)}"


def dead_letter_subject(service: str) -> str:
    """Where `service` puts what it cannot read."""
    if not _SERVICE.fullmatch(service):
        raise ContractError("subject", f"a service's name must match [a-z0-9_-]+, was {service!r}")
    return f"{PREFIX}{DEAD_LETTER_KIND}.{service}"


def on_subject(kind: str, subject: str) -> bool:
    """Whether `subject` is one that events of `kind` are published on."""
    head = PREFIX + kind
    return subject == head or subject.startswith(head + ".")


def stream_name(partition: int = 0) -> str:
    """The name of a partition's stream."""
    return f"SPOTLINE_{partition}"


_ROUTING: Mapping[type[Event], tuple[str, tuple[Callable[[Any], str], ...]]] = {
    event_type: (PREFIX + route.kind, tuple(attrgetter(field) for field in route.fields))
    for event_type, route in ROUTES.items()
}
