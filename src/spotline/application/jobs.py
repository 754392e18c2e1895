"""The allocator's read model: jobs and where they stand, the market they would run on.

What platforms say over RPC becomes observations, made by the service's shell; everything it answers
is folded from the log. A submission is checked here before it is recorded. The one thing that it
does by itself is to build the value tables that the selector asks for, away from any decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spotline.application.allocation import program_of
from spotline.application.requests import JobState, JobStatus
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer, derive_id
from spotline.application.value_tables import terms_of
from spotline.domain.events import (
    AllocationDecided,
    Event,
    ForecastIssued,
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobProgressReported,
    JobSubmitted,
    MarketOpened,
    SlotOpened,
    SlotQuote,
    ValueTableReady,
    ValueTableRequested,
)
from spotline.domain.jobs.job import DeadlineKind, Job, Throughput
from spotline.domain.jobs.program import compile_program
from spotline.domain.market.offering import Offering
from spotline.domain.solvers.value_table import table_of
from spotline.domain.units import NS_PER_S, PPM, utc_iso

SPEC = Spec(
    service="allocator",
    consumes=(
        MarketOpened,
        SlotOpened,
        ForecastIssued,
        JobSubmitted,
        JobCancelled,
        JobAdmitted,
        AllocationDecided,
        JobAdvanced,
        JobClosed,
        JobProgressReported,
        ValueTableRequested,
    ),
    produces=(JobSubmitted, JobCancelled, JobProgressReported, ValueTableReady),
    decides=(ValueTableReady,),
)

# Slots of the past that planning learns from; with 10-minute slots more than a day.
HISTORY_SLOTS = 192

# A forecast this many slots old still says something; an older one is no forecast.
_STALE_SLOTS = 2

# Programs hold a value per slot and a rate per count: bounds that no sensible job reaches keep
# one absurd submission from exhausting the services.
MOST_SLOTS = 50_000
MOST_INSTANCES = 256
_MOST_QUANTA = 2**61


def job_id_for(tenant: str, client_request_id: str) -> str:
    """The id of a job: the same request of the same tenant is the same job."""
    return derive_id(tenant, f"job:{client_request_id}")


# --- the market as a job would meet it --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """The market at one moment, as planning and admission need it.

    `next_slot` is the first that a job submitted now can get. `quotes` are the latest slot's,
    empty before the first; step 1 of `forecast` is `next_slot`. `ended` says that no slot follows.
    """

    offerings: tuple[Offering, ...]
    slot_s: int
    next_slot: int
    next_slot_start_ns: int
    quotes: tuple[SlotQuote, ...]
    forecast: ForecastIssued | None
    history: tuple[SlotOpened, ...]
    ended: bool = False

    @property
    def slot_ns(self) -> int:
        """Slot length, nanoseconds."""
        return self.slot_s * NS_PER_S

    def first_slot(self, job: Job) -> tuple[int, int]:
        """The number of a new job's first slot, and when it opens (ns since the epoch)."""
        waits = max(0, -(-(job.start_ns - self.next_slot_start_ns) // self.slot_ns))
        return self.next_slot + waits, self.next_slot_start_ns + waits * self.slot_ns

    def runnable(self, job: Job) -> tuple[tuple[Offering, Throughput], ...]:
        """The offerings the job can run on, with its throughput there, by offering id."""
        found = []
        for offering in sorted(self.offerings, key=lambda o: o.offering_id):
            throughput = job.throughput_on(offering.offering_id, offering.instance_type)
            if throughput is not None:
                found.append((offering, throughput))
        return tuple(found)


# --- state ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class JobsState:
    """All jobs by id, and the recent market. `applied` counts the events folded in."""

    offerings: tuple[Offering, ...] = ()
    slot_s: int = 0
    first_slot_start_ns: int = 0
    opened: SlotOpened | None = None
    forecast: ForecastIssued | None = None
    history: deque[SlotOpened] = field(default_factory=lambda: deque(maxlen=HISTORY_SLOTS))
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    applied: int = 0

    @property
    def now_ns(self) -> int:
        """Market time: when the latest slot opened, before that when the first one will."""
        return self.first_slot_start_ns if self.opened is None else self.opened.ts_event_ns

    def market(self) -> MarketView | None:
        """The market as it stands, None before it opened."""
        if not self.offerings:
            return None
        opened = self.opened
        slot, start_ns = -1, self.first_slot_start_ns - self.slot_s * NS_PER_S
        if opened is not None:
            slot, start_ns = opened.slot, opened.ts_event_ns
        return MarketView(
            offerings=self.offerings,
            slot_s=self.slot_s,
            next_slot=slot + 1,
            next_slot_start_ns=start_ns + self.slot_s * NS_PER_S,
            quotes=() if opened is None else opened.quotes,
            forecast=None if self.forecast is None else _seen_from(self.forecast, slot),
            history=tuple(self.history),
            ended=opened is not None and opened.last,
        )


def _seen_from(forecast: ForecastIssued, slot: int) -> ForecastIssued | None:
    """The forecast with the steps that are still ahead of `slot`; None when too old."""
    lag = slot - forecast.slot
    if not 0 <= lag <= _STALE_SLOTS:
        return None
    if lag == 0:
        return forecast
    return replace(
        forecast,
        slot=slot,
        forecasts=tuple(replace(f, steps=f.steps[lag:]) for f in forecast.forecasts),
    )


class JobsHandler:
    """Folds the log into the read model."""

    spec = SPEC

    def initial(self) -> JobsState:
        """No market, no jobs."""
        return JobsState()

    def decide(self, state: JobsState, event: Event, ctx: Context) -> Outcome:
        """Build the table that is asked for."""
        if not isinstance(event, ValueTableRequested):
            return NOTHING
        status = state.statuses.get(event.job_id)
        spec = event.table
        if status is None:
            return NOTHING
        try:
            program = program_of(
                status.job,
                spec.offering_id,
                spec.instance_type,
                spec.slot_s,
                spec.first_slot_start_ns,
            )
            terms = terms_of(spec, program, event.named.law)
        except ValueError:
            # A request that contradicts itself, which our selector does not make: the job goes on
            # without a table, and its decisions say so.
            return NOTHING
        table = table_of(terms)
        ready = ValueTableReady(
            job_id=event.job_id,
            tenant=event.tenant,
            slot=event.slot,
            table_id=spec.table_id,
            size_bytes=table.size_bytes,
        )
        return Outcome(events=(ready,))

    def due(self, state: JobsState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()

    def evolve(self, state: JobsState, event: Event) -> None:
        """Apply `event` to `state`."""
        state.applied += 1
        match event:
            case MarketOpened():
                state.offerings = event.offerings
                state.slot_s = event.slot_s
                state.first_slot_start_ns = event.first_slot_start_ns
            case SlotOpened():
                if state.opened is None or event.slot > state.opened.slot:
                    state.opened = event
                    state.history.append(event)
            case ForecastIssued():
                if state.forecast is None or event.slot >= state.forecast.slot:
                    state.forecast = event
            case JobSubmitted():
                state.statuses.setdefault(
                    event.job.job_id,
                    JobStatus(
                        job=event.job, state=JobState.PENDING, submitted_ns=event.ts_event_ns
                    ),
                )
            case (
                JobCancelled()
                | JobProgressReported()
                | JobAdmitted()
                | AllocationDecided()
                | JobAdvanced()
                | JobClosed()
            ):
                status = state.statuses.get(event.job_id)
                if status is not None:
                    if isinstance(event, JobCancelled):
                        state.cancelled.add(event.job_id)
                    state.statuses[event.job_id] = _after(status, event)
            case _:
                pass


def _after(status: JobStatus, event: Event) -> JobStatus:
    """Where a job stands after an event of its own."""
    match event:
        case JobAdmitted():
            return replace(
                status,
                state=JobState.RUNNING,
                policy_id=event.policy_id,
                offering_id=event.offering_id,
                deadline_slot=event.deadline_slot,
                last_slot=event.slot,
            )
        case AllocationDecided():
            return replace(
                status,
                offering_id=event.lots[0].offering_id if event.lots else status.offering_id,
                lots=event.lots,
                last_slot=event.slot,
                last_reason=event.reason,
                last_explanation=event.explanation,
            )
        case JobAdvanced():
            return replace(
                status, progress_ppm=event.progress_ppm, cost_micro_usd=event.cost_micro_usd
            )
        case JobProgressReported():
            # The greatest report counts, and never more than all of the work.
            done_ppm = min(PPM, int(event.done * PPM / status.job.work.amount))
            return replace(status, progress_ppm=max(status.progress_ppm, done_ppm))
        case JobClosed():
            return replace(
                status,
                state=JobState.from_outcome(event.outcome),
                lots=(),
                last_slot=event.slot,
                progress_ppm=event.progress_ppm,
                cost_micro_usd=event.cost_micro_usd,
                value_micro_usd=event.value_micro_usd,
            )
        case _:
            return status


# --- admission --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The job can be recorded, or was before by an equal request."""

    job_id: str
    already_submitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a job is not taken: the field at fault, what was expected.

    `earliest_feasible_deadline_ns` is the earliest deadline that on-demand instances could meet,
    0 where the deadline is not the matter. `permanent` says that no other input would help now.
    """

    field: str
    message: str
    earliest_feasible_deadline_ns: int = 0
    permanent: bool = False


def check_submission(state: JobsState, job: Job) -> Accepted | Refused:
    """Say whether `job` can be recorded as it is.

    Raises
    ------
    ValueError
        No market is open: there is nothing to check against.
    """
    expected_id = job_id_for(job.tenant, job.client_request_id)
    if job.job_id != expected_id:
        return Refused(
            field="job.job_id",
            message=f"must be empty or {expected_id} (from tenant and client_request_id), "
            f"was {job.job_id}",
        )
    known = state.statuses.get(job.job_id)
    if known is not None:
        return _repeated(known.job, job)
    market = state.market()
    if market is None:
        raise ValueError("no market is open yet")
    refused = check_job(market, job)
    return refused or Accepted(job_id=job.job_id, already_submitted=False)


def _repeated(before: Job, job: Job) -> Accepted | Refused:
    if before == job:
        return Accepted(job_id=job.job_id, already_submitted=True)
    differs = [
        name for name in Job.__dataclass_fields__ if getattr(before, name) != getattr(job, name)
    ]
    return Refused(
        field="job.client_request_id",
        message=f"{job.client_request_id!r} was used by {job.tenant} for another job, which "
        f"differs in {', '.join(differs)}; use a new request id for a new job",
        permanent=True,
    )


def check_job(market: MarketView, job: Job) -> Refused | None:
    """Say why `job` could not run on `market`, None where it can."""
    if market.ended:
        return Refused(
            field="job.start_ns",
            message="the replayed market has ended: no slot opens any more",
            permanent=True,
        )
    return _absurd(market, job) or _unknown_offering(market, job) or _infeasible(market, job)


def _absurd(market: MarketView, job: Job) -> Refused | None:
    if job.max_instances > MOST_INSTANCES:
        return Refused(
            field="job.allowed_counts",
            message=f"must be <= {MOST_INSTANCES}, was {job.max_instances}",
        )
    last_ns = market.next_slot_start_ns + MOST_SLOTS * market.slot_ns
    if max(job.deadline.expires_ns, job.start_ns) > last_ns:
        return Refused(
            field="job.deadline",
            message=f"must lie within {MOST_SLOTS} slots, before {utc_iso(last_ns)}, "
            f"was {utc_iso(job.deadline.expires_ns)}",
        )
    return None


def _unknown_offering(market: MarketView, job: Job) -> Refused | None:
    ids = sorted(offering.offering_id for offering in market.offerings)
    types = sorted({offering.instance_type for offering in market.offerings})
    known = f"known are the offerings {', '.join(ids)} and the instance types {', '.join(types)}"
    for index, name in enumerate(job.offerings):
        if name not in ids and name not in types:
            return Refused(
                field=f"job.offerings[{index}]",
                message=f"must be a known offering or instance type, was {name!r}; {known}",
            )
    if not market.runnable(job):
        stated = ", ".join(throughput.offering for throughput in job.throughputs)
        allowed = f" within {', '.join(job.offerings)}" if job.offerings else ""
        return Refused(
            field="job.throughputs",
            message=f"must be stated for an offering of the market{allowed}, "
            f"was for {stated}; {known}, and * is any",
        )
    return None


def _infeasible(market: MarketView, job: Job) -> Refused | None:
    first_slot, first_ns = market.first_slot(job)
    earliest_ns = 0
    for _, throughput in market.runnable(job):
        program = compile_program(
            job, throughput, slot_s=market.slot_s, first_slot_start_ns=first_ns
        )
        rate = program.rate_quanta_per_s[program.max_instances]
        if rate < 1 or rate * program.slot_s > _MOST_QUANTA:
            return Refused(
                field="job.throughputs",
                message=f"on {throughput.offering} must be within twelve orders of magnitude of "
                f"the work per hour, was {throughput.rate_per_hour(program.max_instances)} "
                f"for {job.work.amount}",
            )
        slots = program.slots_on_demand(program.work_quanta, program.launch_s)
        finish_ns = first_ns + slots * market.slot_ns
        earliest_ns = min(earliest_ns or finish_ns, finish_ns)
    hard = job.deadline.kind is DeadlineKind.HARD
    if earliest_ns <= job.deadline.at_ns or (not hard and earliest_ns < job.deadline.expires_ns):
        return None
    # A message carries whole seconds; rounded down, the answer itself would be refused.
    earliest_ns = -(-earliest_ns // NS_PER_S) * NS_PER_S
    asked_ns = job.deadline.at_ns if hard else job.deadline.expires_ns
    return Refused(
        field="job.deadline",
        message=f"cannot be met: {utc_iso(asked_ns)} was asked for, but {job.max_instances} "
        f"on-demand instances from slot {first_slot} ({utc_iso(first_ns)}) on are done at "
        f"{utc_iso(earliest_ns)} at the earliest",
        earliest_feasible_deadline_ns=earliest_ns,
    )
