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
from spotline.domain.events import (
    allocation,
    capacity,
    forecast,
    knowledge,
    law,
    lifecycle,
    market,
    placement,
    selection,
    statistics,
)
from spotline.domain.events.event import Event

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
        market.MarketOpened: Route(kind="market.opened"),
        market.QuoteObserved: Route(kind="market.quote", fields=("quote.offering_id",)),
        market.SlotOpened: Route(kind="market.slot"),
        forecast.ForecastIssued: Route(kind="forecast.issued"),
        forecast.ForecastOverdue: Route(kind="forecast.overdue"),
        lifecycle.JobSubmitted: Route(kind="job.submitted", fields=("job.tenant", "job.job_id")),
        lifecycle.JobCancelled: Route(kind="job.cancelled", fields=_BY_JOB),
        lifecycle.JobProgressReported: Route(kind="job.progress", fields=_BY_JOB),
        lifecycle.JobAdmitted: Route(kind="job.admitted", fields=_BY_JOB),
        lifecycle.JobAdvanced: Route(kind="job.advanced", fields=_BY_JOB),
        lifecycle.JobClosed: Route(kind="job.closed", fields=_BY_JOB),
        allocation.AllocationAnswered: Route(kind="allocation.answered"),
        allocation.AllocationDecided: Route(kind="decision", fields=_BY_JOB),
        capacity.ProvisioningCommanded: Route(kind="provisioning.command", fields=_BY_JOB),
        capacity.SlotDecided: Route(kind="provisioning.slot"),
        capacity.CapacityReported: Route(kind="capacity.report"),
        capacity.LaunchRefused: Route(kind="capacity.refused", fields=_BY_JOB),
        capacity.InterruptionNoticed: Route(kind="capacity.noticed", fields=_BY_JOB),
        capacity.CapacityLost: Route(kind="capacity.lost", fields=_BY_JOB),
        capacity.CostAccrued: Route(kind="cost", fields=_BY_JOB),
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
