"""What a period came to, for those who were not there: what a written report says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spotline.application.board.messages import JobPhase
from spotline.application.page.jobs import job_row
from spotline.application.page.money import BilledCharge
from spotline.application.page.spend import (
    ChargeFilter,
    FailedSpend,
    IdleReservation,
    SpendRow,
    chosen,
    failed_spend,
    idle_reservations,
    spend_by,
    steps_of,
)
from spotline.application.page.state import PageState
from spotline.application.page.waterfall import Waterfall, waterfall
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.units import NS_PER_S, S_PER_HOUR, utc_month

_KEPT = (JobPhase.COMPLETED,)
_UNDECIDED = (JobPhase.CANCELLED, JobPhase.MARKET_ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarMonth:
    """A month of UTC: from its first moment to that of the next."""

    from_ns: int
    to_ns: int

    @classmethod
    def read(cls, text: str) -> CalendarMonth:
        """Read `YYYY-MM`.

        Raises
        ------
        ValueError
            It is none.
        """
        at = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
        from_ns, to_ns = utc_month(int(at.timestamp()) * NS_PER_S)
        return cls(from_ns=from_ns, to_ns=to_ns)

    def slots_of(self, state: PageState) -> ChargeFilter:
        """The slots of a market that open in it."""
        slot_ns = state.slot_s * NS_PER_S
        origin = state.jobs.recent.first_slot_start_ns
        return ChargeFilter(
            first_slot=max(0, -((origin - self.from_ns) // slot_ns)),
            last_slot=-((origin - self.to_ns) // slot_ns) - 1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job in a period; money is micro-USD.

    `on_time` is None while nobody can say, and of what was cancelled. `on_demand_micro_usd` is what
    its instances would have cost on on-demand, there and then.
    """

    job_id: str
    name: str
    tenant: str
    phase: JobPhase
    deadline_kind: DeadlineKind
    deadline_ns: int
    on_time: bool | None
    cost_micro_usd: int
    on_demand_micro_usd: int
    instance_hours: float
    interruptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodSummary:
    """A period, from the opening of its first slot to the end of its last; money is micro-USD.

    `unexplained` are charges that no decision stands behind. `forgotten` older charges were no longer
    listed, and are in none of the sums.
    """

    from_ns: int
    to_ns: int
    jobs: tuple[JobSummary, ...]
    cost_micro_usd: int
    on_demand_micro_usd: int
    waterfall: Waterfall
    by_tenant: Sequence[SpendRow]
    by_offering: Sequence[SpendRow]
    by_kind: Sequence[SpendRow]
    failed: Sequence[FailedSpend]
    idle: Sequence[IdleReservation]
    unexplained: Sequence[BilledCharge]
    forgotten: int

    @property
    def kept(self) -> int:
        """Deadlines that were kept."""
        return sum(job.on_time is True for job in self.jobs)

    @property
    def missed(self) -> int:
        """Deadlines that were not."""
        return sum(job.on_time is False for job in self.jobs)

    @property
    def failed_micro_usd(self) -> int:
        """What was paid while no progress was made."""
        return sum(row.cost_micro_usd for row in self.failed)

    @property
    def idle_micro_usd(self) -> int:
        """What reservations cost that nobody used."""
        return sum(row.idle_micro_usd for row in self.idle)

    @property
    def unexplained_micro_usd(self) -> int:
        """What no decision explains."""
        return sum(charge.cost_micro_usd for charge in self.unexplained)


def period_summary(
    state: PageState, month: CalendarMonth | None = None, job_id: str = ""
) -> PeriodSummary:
    """Sum up a log, or one job of it, at the state's place: all of its time, or a month of it."""
    wanted = ChargeFilter() if month is None else month.slots_of(state)
    last = state.slot
    if wanted.last_slot is not None:
        last = min(last, wanted.last_slot)
    first = wanted.first_slot or 0
    if job_id:
        wanted = replace(wanted, job_id=job_id)
    charges = chosen(state.money, wanted)
    steps = steps_of(state, wanted)
    idle = [] if job_id else idle_reservations(charges, state.jobs.recent, first, last)
    return PeriodSummary(
        from_ns=state.start_ns(first),
        to_ns=state.start_ns(max(first, last + 1)),
        jobs=tuple(_jobs(state, charges, everybody=month is None, job_id=job_id)),
        cost_micro_usd=sum(charge.cost_micro_usd for charge in charges),
        on_demand_micro_usd=sum(charge.on_demand_micro_usd for charge in charges),
        waterfall=waterfall(charges, steps, state.money.quoted_micro_usd, state.money.closed),
        by_tenant=spend_by(charges, "tenant"),
        by_offering=spend_by(charges, "offering"),
        by_kind=spend_by(charges, "kind"),
        failed=failed_spend(charges, steps, state.money.closed),
        idle=idle,
        unexplained=[charge for charge in charges if not charge.explained],
        forgotten=state.money.forgotten,
    )


def _jobs(
    state: PageState, charges: Iterable[BilledCharge], *, everybody: bool, job_id: str
) -> Iterable[JobSummary]:
    """The jobs that were charged, with `everybody` also those that were not; what cost most first."""
    charged: dict[str, list[BilledCharge]] = {}
    for charge in charges:
        charged.setdefault(charge.job_id, []).append(charge)
    names = state.jobs.statuses if everybody else charged
    found = [
        _summary_of(state, name, charged.get(name, []))
        for name in names
        if name in state.jobs.statuses and job_id in ("", name)
    ]
    return sorted(found, key=lambda job: (-job.cost_micro_usd, job.job_id))


def _summary_of(state: PageState, job_id: str, charges: Sequence[BilledCharge]) -> JobSummary:
    row = job_row(state, job_id)
    job, phase = row.status.job, row.view.phase
    on_time = None
    if phase.over and phase not in _UNDECIDED:
        on_time = phase in _KEPT
    return JobSummary(
        job_id=job_id,
        name=row.name,
        tenant=job.tenant,
        phase=phase,
        deadline_kind=job.deadline.kind,
        deadline_ns=job.deadline.at_ns,
        on_time=on_time,
        cost_micro_usd=sum(charge.cost_micro_usd for charge in charges),
        on_demand_micro_usd=sum(charge.on_demand_micro_usd for charge in charges),
        instance_hours=sum(charge.instances * charge.held_s for charge in charges) / S_PER_HOUR,
        interruptions=row.view.counts.interruptions,
    )
