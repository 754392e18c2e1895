"""What all jobs together hold, cost and are short of, slot by slot: the chapter of the first page."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.board.slack import pace_of
from spotline.application.page.applied import Applied
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InstancesEnded,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
)
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S

MOST_SLOTS = 4_500
"""More than a month of slots of ten minutes."""
MOST_REFUSALS = 2_000
MOST_SLACKS = 240
_OF_ALL = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Instances that are held; `reserved` are those that are paid for anyway."""

    spot: int = 0
    on_demand: int = 0
    reserved: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.spot + self.on_demand + self.reserved


@dataclass(slots=True, kw_only=True)
class SlotSums:
    """A slot's numbers by tenant; the empty one is all of them.

    `held` is what the slot's last report says, `billed_micro_usd` what the ledger charged for the
    slot, `reasons` how many decisions of each reason were made in it.
    """

    slot: int
    held: dict[str, Holdings] = field(default_factory=dict)
    billed_micro_usd: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefusal:
    """A launch that was refused, at `at_ns` of market time; `refusal_class` is its name, "" unknown."""

    at_ns: int
    refusal_class: str
    offering_id: str
    job_id: str
    tenant: str
    missing: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenNotice:
    """An instance that the cloud is about to take back at `ends_ns` of market time."""

    instance_id: str
    job_id: str
    tenant: str
    offering_id: str
    noticed_ns: int
    ends_ns: int


@dataclass(frozen=True, slots=True)
class SlackAt:
    """A job's slack when a slot opened, seconds; below 0 on-demand alone is late by so much."""

    slot: int
    slack_s: int


@dataclass(slots=True)
class FleetChapter:
    """The last slots' numbers, open notices by instance, recent refusals, and slack by open job.

    `set_aside` is the last quote of each offering that was not believed, until a slot shows none.
    `quoted_on_demand` is what a job alone on on-demand was to cost when it was admitted, micro-USD.
    """

    slots: deque[SlotSums] = field(default_factory=lambda: deque(maxlen=MOST_SLOTS))
    notices: dict[str, GivenNotice] = field(default_factory=dict)
    refusals: deque[LaunchRefusal] = field(default_factory=lambda: deque(maxlen=MOST_REFUSALS))
    slacks: dict[str, deque[SlackAt]] = field(default_factory=dict)
    set_aside: dict[str, QuoteQuarantined] = field(default_factory=dict)
    quoted_on_demand: dict[str, int] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        match event := told.event:
            case SlotOpened():
                self._open(event, jobs)
            case CapacityReported():
                self._hold(event, jobs)
            case CostAccrued():
                self._bill(event)
            case AllocationDecided():
                self._decide(event)
            case LaunchRefused():
                self._refuse(event, told.market_ns)
            case InterruptionNoticed():
                self._notice(event, told.market_ns)
            case InterruptionWithdrawn() | CapacityLost() | InstancesEnded():
                for instance_id in event.instance_ids:
                    self.notices.pop(instance_id, None)
            case JobAdmitted() if event.on_demand_quote_micro_usd:
                self.quoted_on_demand[event.job_id] = event.on_demand_quote_micro_usd
            case JobClosed():
                self.slacks.pop(event.job_id, None)
                self._forget(notice for notice in self._of_job(event.job_id))
            case QuoteQuarantined():
                self.set_aside[event.quote.offering_id] = event
            case _:
                pass

    def refused_since(self, since_ns: int, tenant: str) -> list[LaunchRefusal]:
        """Refusals from a moment of market time on, oldest first, of a tenant (empty: of all)."""
        return [
            refusal
            for refusal in self.refusals
            if refusal.at_ns > since_ns and tenant in (_OF_ALL, refusal.tenant)
        ]

    def _open(self, event: SlotOpened, jobs: JobsState) -> None:
        before = self.slots[-1] if self.slots else None
        # Until the slot's first report, what was held before is what is known.
        held = {} if before is None else dict(before.held)
        self.slots.append(SlotSums(slot=event.slot, held=held))
        self._forget(notice for notice in self.notices.values() if notice.ends_ns < jobs.now_ns)
        still = {
            quoted.quote.offering_id
            for quoted in event.quotes
            if quoted.quarantined_spot_price_micro_usd
            or quoted.quarantined_on_demand_price_micro_usd
        }
        self.set_aside = {key: found for key, found in self.set_aside.items() if key in still}
        now_ns = max(jobs.board.now_ns, jobs.now_ns)
        for job_id, entry in jobs.board.entries.items():
            if entry.over:
                continue
            pace = pace_of(entry, jobs.statuses[job_id].job, jobs.recent, now_ns)
            if pace.latest_start_ns:
                at = SlackAt(event.slot, pace.slack_s)
                self.slacks.setdefault(job_id, deque(maxlen=MOST_SLACKS)).append(at)

    def _hold(self, event: CapacityReported, jobs: JobsState) -> None:
        sums = self._slot(event.slot)
        if sums is None:
            return
        reserved = {o.offering_id for o in jobs.recent.offerings if o.reservation is not None}
        counted: dict[str, list[int]] = {_OF_ALL: [0, 0, 0]}
        for holding in event.holdings:
            tenant = jobs.tenant_of(holding.job_id) or ""
            for whose in {_OF_ALL, tenant}:
                numbers = counted.setdefault(whose, [0, 0, 0])
                for lot in holding.lots:
                    if lot.offering_id in reserved:
                        numbers[2] += lot.spot + lot.on_demand
                    else:
                        numbers[0] += lot.spot
                        numbers[1] += lot.on_demand
        sums.held = {
            whose: Holdings(spot=spot, on_demand=on_demand, reserved=own)
            for whose, (spot, on_demand, own) in sorted(counted.items())
        }

    def _bill(self, event: CostAccrued) -> None:
        sums = self._slot(event.slot)
        if sums is not None:
            for whose in (_OF_ALL, event.tenant):
                before = sums.billed_micro_usd.get(whose, 0)
                sums.billed_micro_usd[whose] = before + event.cost_micro_usd

    def _decide(self, event: AllocationDecided) -> None:
        sums = self._slot(event.slot)
        if sums is not None:
            for whose in (_OF_ALL, event.tenant):
                reasons = sums.reasons.setdefault(whose, {})
                reasons[event.reason.value] = reasons.get(event.reason.value, 0) + 1

    def _refuse(self, event: LaunchRefused, at_ns: int) -> None:
        known = event.refusal_class
        self.refusals.append(
            LaunchRefusal(
                at_ns=at_ns,
                refusal_class="" if known is None else known.value,
                offering_id=event.offering_id,
                job_id=event.job_id,
                tenant=event.tenant,
                missing=event.requested - event.granted,
                detail=event.detail,
            )
        )

    def _notice(self, event: InterruptionNoticed, at_ns: int) -> None:
        for instance_id in event.instance_ids:
            self.notices[instance_id] = GivenNotice(
                instance_id=instance_id,
                job_id=event.job_id,
                tenant=event.tenant,
                offering_id=event.offering_id,
                noticed_ns=at_ns,
                ends_ns=at_ns + event.lead_s * NS_PER_S,
            )

    def _of_job(self, job_id: str) -> Iterator[GivenNotice]:
        return (notice for notice in self.notices.values() if notice.job_id == job_id)

    def _forget(self, notices: Iterable[GivenNotice]) -> None:
        for notice in list(notices):
            self.notices.pop(notice.instance_id, None)

    def _slot(self, slot: int) -> SlotSums | None:
        """The numbers of a slot among the last ones: reports and bills come soon after it."""
        for sums in reversed(self.slots):
            if sums.slot <= slot:
                return sums if sums.slot == slot else None
        return None
