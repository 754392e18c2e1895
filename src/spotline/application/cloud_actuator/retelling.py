"""What a log lost of jobs and spend, and the ledger still knows: what is to be said again.

A job keeps its id, its market time and the ids of its events, so that whoever has it has it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spotline.contracts.envelope import derive_id
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobSubmitted, JobUpdated
from spotline.domain.ledger.job_records import JobRecord

TAKES = (JobSubmitted, JobUpdated, JobCancelled, JobClosed, CostAccrued)
"""What of a log is compared with the ledger."""

_ALLOCATOR, _ACTUATOR = "allocator", "cloud_actuator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retold:
    """An event to be said again, as the service `source` said it."""

    event: Event
    event_id: str
    correlation_id: str
    source: str


@dataclass(slots=True)
class LogOfJobs:
    """What a log holds of jobs and costs: fold its events with `fold`."""

    event_ids: set[str] = field(default_factory=set)
    submitted: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    costs: Counter[CostAccrued] = field(default_factory=Counter)

    def fold(self, event: Event, event_id: str) -> None:
        """Apply an event of the log; one that comes again changes nothing."""
        if event_id in self.event_ids:
            return
        match event:
            case JobSubmitted():
                self.submitted.add(event.job.job_id)
            case JobClosed():
                self.closed.add(event.job_id)
            case JobCancelled():
                self.cancelled.add(event.job_id)
            case CostAccrued():
                # A ledger does not tell those that are estimated from others.
                self.costs[replace(event, estimated=False)] += 1
            case JobUpdated():
                pass
            case _:
                return
        self.event_ids.add(event_id)


def unknown_jobs(
    admitted: Iterable[str], records: Iterable[JobRecord], log: LogOfJobs
) -> list[str]:
    """Jobs that the ledger admitted, the log does not know, and nobody can say again."""
    told = {record.job_id for record in records if isinstance(record.event, JobSubmitted)}
    return sorted(set(admitted) - log.submitted - told)


def lost_jobs(records: Iterable[JobRecord], log: LogOfJobs) -> list[str]:
    """Jobs that the ledger holds as submitted and not closed, and the log does not know."""
    records = list(records)
    closed = {record.job_id for record in records if isinstance(record.event, JobClosed)}
    return sorted(
        {
            record.job_id
            for record in records
            if isinstance(record.event, JobSubmitted)
            and record.job_id not in log.submitted | closed
        }
    )


def retold(
    records: Sequence[JobRecord], costs: Iterable[CostAccrued], log: LogOfJobs
) -> Iterator[Retold]:
    """What is to be said again, in order: jobs first, then what was spent by them.

    A job that has ended, by the ledger, is not started again: where the log believes it open, it is
    withdrawn. Said again into a log that holds all of it, nothing is.

    Parameters
    ----------
    records
        All that the ledger holds of jobs, in its order.
    costs
        All that the ledger charged.
    """
    tenants = {
        record.job_id: record.event.tenant
        for record in records
        if isinstance(record.event, JobClosed)
    }
    closed = set(tenants)
    alive = {record.job_id for record in records} - closed
    for record in records:
        if record.job_id in alive and record.event_id not in log.event_ids:
            if isinstance(record.event, JobSubmitted) and record.job_id in log.submitted:
                continue
            yield Retold(
                event=record.event,
                event_id=record.event_id,
                correlation_id=record.correlation_id,
                source=_ALLOCATOR,
            )
    for job_id in sorted((closed & log.submitted) - log.closed - log.cancelled):
        yield Retold(
            event=JobCancelled(job_id=job_id, tenant=tenants[job_id]),
            event_id=derive_id(job_id, "ended in a log that is lost"),
            correlation_id=job_id,
            source=_ALLOCATOR,
        )
    # Of one that ended, and that the log knows, what it lost may be charges of before the end.
    yield from _costs_of(alive | (closed & log.submitted), costs, log)


def _costs_of(job_ids: set[str], costs: Iterable[CostAccrued], log: LogOfJobs) -> Iterator[Retold]:
    seen: Counter[CostAccrued] = Counter()
    for cost in costs:
        if cost.job_id not in job_ids:
            continue
        seen[cost] += 1
        if seen[cost] <= log.costs[cost]:
            continue
        cause = "\x1f".join(
            (
                *(cost.job_id, str(cost.slot), cost.offering_id, cost.capacity_type.value),
                *(str(cost.instances), str(cost.held_s), str(cost.cost_micro_usd)),
                str(seen[cost]),
            )
        )
        yield Retold(
            event=cost,
            event_id=derive_id(cause, "charged in a log that is lost"),
            correlation_id=cost.job_id,
            source=_ACTUATOR,
        )
