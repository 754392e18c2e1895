"""Running jobs against what was believed of their speed: reports in, better rates out.

`fold` takes in events, `follows` says what is to be published after one (which `fold` has seen).
Nothing here depends on the knowledge base: equal logs give equal estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from spotline.application.allocation.tasks import at_rates
from spotline.domain.configuration.configuration import MeasuredRun, RunOutcome
from spotline.domain.configuration.provenance import OriginKind
from spotline.domain.configuration.reestimation import (
    DEFAULT_WIDTH,
    Z_90,
    RateEstimate,
    RateObservation,
    estimate_all,
    prior_width,
)
from spotline.domain.events.capacity import CapacityLost, CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.lifecycle import JobClosed, JobProgressReported, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import DeadlineKind, Job, Throughput
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import interruption_s
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR

MONITORED: tuple[type[Event], ...] = (
    MarketOpened,
    SlotOpened,
    JobSubmitted,
    CapacityLost,
    CapacityReported,
    JobProgressReported,
    JobClosed,
    ThroughputReestimated,
)
"""What `fold` wants to see."""

LIVE_STACK = "live"
"""The stack that runs measured on our own jobs are filed under."""

# One report may be wrong. Of two that disagree the one nearer to the prediction is believed.
LEAST_REPORTS = 2
# What is learned for good takes more: a median that one wrong report does not move.
LEAST_REPORTS_OF_A_RUN = 3
# A measured rate, or work counted over at least five minutes.
LEAST_WEIGHT_OF_A_RUN = 0.5
# Believed rates are replaced when they are off by more than this, and by more than the 90 %
# interval of what is measured: then plans change, not only digits.
THRESHOLD = 0.05
# Rates drift (data, neighbours): older reports are forgotten.
_MOST_REPORTS = 40
# An interval this long says as much as a rate measured by the platform.
_FULL_INTERVAL_S = 600.0
# Rates keep this many digits at the smallest count: plans stay on a coarse grid (`WorkScale`).
_DIGITS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A rate as it was measured, and the GPU that it was measured on."""

    gpu_model: str
    observation: RateObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchor:
    """A progress report that a later one may be compared with; `epoch` is that of the holding."""

    done: float
    ts_event_ns: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class MonitoredJob:
    """One job as it is watched.

    `job` is as submitted, `believed` what is believed of it now. `lots` are held since
    `changed_ns`, an overhead may be pending until `steady_ns`, and `epoch` counts the changes.
    `offering_id` was held last, since `there_ns`. `evidence` is by the throughput it speaks of.
    `fresh` names the throughput that the latest event added to, and on how many instances.
    """

    job: Job
    believed: tuple[Throughput, ...]
    lots: tuple[Lot, ...] = ()
    offering_id: str = ""
    there_ns: int = 0
    steady_ns: int = 0
    epoch: int = 0
    anchor: _Anchor | None = None
    done: float = 0.0
    evidence: dict[str, list[Evidence]] = field(default_factory=dict)
    used: int = 0
    ignored: int = 0
    fresh: tuple[str, int] | None = None
    closed: bool = False


@dataclass(slots=True, kw_only=True)
class MonitoringState:
    """All jobs that are not over, and the slot grid; `ignored` counts reports that say nothing."""

    offerings: dict[str, Offering] = field(default_factory=dict)
    jobs: dict[str, MonitoredJob] = field(default_factory=dict)
    slot: int = -1
    slot_start_ns: int = 0
    slot_s: int = 0
    used: int = 0
    ignored: int = 0


def fold(state: MonitoringState, event: Event) -> None:
    """Apply one event, in place; those that are not `MONITORED` change nothing."""
    match event:
        case MarketOpened():
            state.offerings = {offering.offering_id: offering for offering in event.offerings}
        case SlotOpened():
            if event.slot > state.slot:
                state.slot, state.slot_s = event.slot, event.slot_s
                state.slot_start_ns = event.ts_event_ns
                state.jobs = {name: one for name, one in state.jobs.items() if not one.closed}
        case JobSubmitted():
            watched = MonitoredJob(job=event.job, believed=event.job.throughputs)
            state.jobs.setdefault(event.job.job_id, watched)
        case CapacityReported() if event.slot == state.slot:
            at_ns = state.slot_start_ns + event.offset_s * NS_PER_S
            reported = {holding.job_id: holding.lots for holding in event.holdings}
            for job_id in sorted(state.jobs):
                _note_holding(state, state.jobs[job_id], reported.get(job_id, ()), at_ns)
        case CapacityLost() | JobProgressReported() | JobClosed() | ThroughputReestimated():
            watched_or_none = state.jobs.get(event.job_id)
            if watched_or_none is not None:
                _fold_job(state, watched_or_none, event)
        case _:
            pass


def follows(state: MonitoringState, event: Event) -> tuple[Event, ...]:
    """What is to be published after an event that `state` reflects already."""
    match event:
        case JobProgressReported():
            watched = state.jobs.get(event.job_id)
            if watched is None or watched.fresh is None:
                return ()
            found = _reestimated(state, watched, *watched.fresh)
            return () if found is None else (found,)
        case JobClosed():
            watched = state.jobs.get(event.job_id)
            return () if watched is None else _measured_runs(watched)
        case _:
            return ()


# --- evidence ---------------------------------------------------------------------------------


def _fold_job(
    state: MonitoringState,
    watched: MonitoredJob,
    event: CapacityLost | JobProgressReported | JobClosed | ThroughputReestimated,
) -> None:
    match event:
        case CapacityLost() if event.slot == state.slot:
            at_ns = state.slot_start_ns + event.offset_s * NS_PER_S
            _unsettle(watched, at_ns, _interrupted_s(state, watched))
        case JobProgressReported() if not watched.closed:
            key = _note_report(state, watched, event)
            watched.fresh = key
            watched.used += key is not None
            watched.ignored += key is None
            state.used += key is not None
            state.ignored += key is None
        case JobClosed():
            watched.closed = True
            watched.fresh = None
        case ThroughputReestimated():
            watched.believed = at_rates(watched.job, event.throughputs).throughputs
        case _:
            pass


def _note_holding(
    state: MonitoringState, watched: MonitoredJob, lots: tuple[Lot, ...], at_ns: int
) -> None:
    before = watched.lots
    if lots == before:
        return
    watched.lots = lots
    if not lots:
        _unsettle(watched, at_ns, 0)
        return
    overheads = watched.job.overheads
    home = lots[0].offering_id
    moved = bool(watched.offering_id) and home != watched.offering_id
    if home != watched.offering_id:
        watched.offering_id = home
        watched.there_ns = at_ns
    if moved:
        overhead_s = max(overheads.launch_s, overheads.migrate_s)
        # Before it computes here, a rate "of late" is one of where it was.
        watched.there_ns += overhead_s * NS_PER_S
    elif not before:
        overhead_s = overheads.launch_s
    elif sum(lot.spot for lot in lots) < sum(lot.spot for lot in before):
        # Given back or taken away: at a slot's opening the report does not say which.
        overhead_s = _interrupted_s(state, watched)
    else:
        overhead_s = max(overheads.grow_s, overheads.shrink_s)
    _unsettle(watched, at_ns, overhead_s)


def _unsettle(watched: MonitoredJob, at_ns: int, overhead_s: int) -> None:
    watched.steady_ns = max(watched.steady_ns, at_ns + overhead_s * NS_PER_S)
    watched.epoch += 1


def _interrupted_s(state: MonitoringState, watched: MonitoredJob) -> int:
    offering = state.offerings.get(watched.offering_id)
    lead_s = None if offering is None else offering.notice_lead_s
    # While lost work is done again, nothing is gained.
    return sum(interruption_s(watched.job, lead_s))


def _note_report(
    state: MonitoringState, watched: MonitoredJob, report: JobProgressReported
) -> tuple[str, int] | None:
    """Keep what a report says of a rate: of which throughput, on how many instances; or nothing."""
    at_ns = report.ts_event_ns
    # A platform on another clock than the market's would measure that clock.
    if at_ns > state.slot_start_ns + 2 * state.slot_s * NS_PER_S:
        return None
    if not (math.isfinite(report.done) and math.isfinite(report.rate_per_hour)):
        return None
    since = _since_anchor(watched, report.done, at_ns)
    watched.done = max(watched.done, report.done)
    rate, count, weight = report.rate_per_hour, report.instances, 1.0
    if rate > 0 and count > 0:
        if 0 < at_ns < watched.there_ns:
            return None
    elif since is not None:
        done, elapsed_s = since
        rate = done / elapsed_s * S_PER_HOUR
        count = watched.lots[0].spot + watched.lots[0].on_demand
        weight = min(1.0, elapsed_s / _FULL_INTERVAL_S)
    else:
        return None
    return _keep(state, watched, rate, count, weight)


def _since_anchor(watched: MonitoredJob, done: float, at_ns: int) -> tuple[float, float] | None:
    """Work and seconds since a report from which on nothing changed; moves the anchor on."""
    amount = watched.job.work.amount
    # What is complete may have been so for long. Several lots are a move under way.
    if at_ns < max(1, watched.steady_ns) or len(watched.lots) != 1 or done >= amount:
        watched.anchor = None
        return None
    anchor = watched.anchor
    here = _Anchor(done=done, ts_event_ns=at_ns, epoch=watched.epoch)
    if anchor is None or anchor.epoch != watched.epoch:
        watched.anchor = here
        return None
    if at_ns <= anchor.ts_event_ns or done <= anchor.done:
        # A platform that counts in large steps shows none now and then: the interval grows.
        return None
    watched.anchor = here
    return done - anchor.done, (at_ns - anchor.ts_event_ns) / NS_PER_S


def _keep(
    state: MonitoringState, watched: MonitoredJob, rate: float, count: int, weight: float
) -> tuple[str, int] | None:
    offering = state.offerings.get(watched.offering_id)
    if offering is None or count not in watched.job.allowed_counts:
        return None
    # Work over seconds may leave what a number can hold; what was recorded must be accepted.
    if not (math.isfinite(rate) and rate > 0):
        return None
    stated = watched.job.throughput_on(offering.offering_id, offering.instance_type)
    if stated is None:
        return None
    kept = watched.evidence.setdefault(stated.offering, [])
    kept.append(
        Evidence(
            gpu_model=offering.gpu_model,
            observation=RateObservation(
                count=count,
                believed_per_hour=stated.rate_per_hour(count),
                measured_per_hour=rate,
                weight=weight,
            ),
        )
    )
    del kept[:-_MOST_REPORTS]
    return stated.offering, count


# --- estimates --------------------------------------------------------------------------------


def _learnable(job: Job) -> dict[str, float]:
    """The throughputs that their owner did not state, with how far each may be off (log scale)."""
    configuration = job.configuration
    if configuration is None:
        return {}
    widths = {}
    for throughput in job.throughputs:
        origin = configuration.origin_of(f"throughput.{throughput.offering}")
        if origin is None:
            origin = configuration.origin_of("throughput")
        if origin is None:
            widths[throughput.offering] = DEFAULT_WIDTH
        elif origin.kind is not OriginKind.USER:
            known = 0 < origin.low <= origin.high
            widths[throughput.offering] = (
                prior_width(origin.low, origin.high) if known else DEFAULT_WIDTH
            )
    return widths


def _reestimated(
    state: MonitoringState, watched: MonitoredJob, key: str, count: int
) -> ThroughputReestimated | None:
    """Say what is measured, where it differs enough from what is believed."""
    job = watched.job
    widths = _learnable(job)
    reports = len(watched.evidence[key])
    if key not in widths or reports < LEAST_REPORTS:
        return None
    estimates = estimate_all(
        {
            name: [evidence.observation for evidence in kept]
            for name, kept in watched.evidence.items()
        },
        widths,
        reference_count=job.max_instances,
    )
    found = estimates[key]
    believed = _of(watched.believed, key).rate_per_hour(count)
    stated = _of(job.throughputs, key).rate_per_hour(count)
    if not _worth_saying(state, watched, key, count, found, believed / stated):
        return None
    factor, half_width = found.factor(count), found.half_width(count)
    caution = math.exp(-_caution(job, found, count))
    return ThroughputReestimated(
        job_id=job.job_id,
        tenant=job.tenant,
        throughputs=tuple(
            _scaled(throughput, job, estimates[throughput.offering], caution)
            if throughput.offering in estimates
            else throughput
            for throughput in job.throughputs
        ),
        reports=reports,
        factor_ppm=round(factor * PPM),
        half_width_ppm=round(half_width * PPM),
        explanation=(
            f"{reports} reports, the last on {count} x {key}: {factor:.2f} +- {half_width:.2f} of "
            f"the rate it was submitted with, {believed / stated:.2f} was believed"
        ),
    )


def _worth_saying(
    state: MonitoringState,
    watched: MonitoredJob,
    key: str,
    count: int,
    found: RateEstimate,
    believed_factor: float,
) -> bool:
    off = abs(found.log_factor_at(count) - math.log(believed_factor))
    deviation = found.deviation_at(count)
    # What would be planned with must differ too: an interval that narrows a little is no news.
    planned = found.log_factor_at(count) - _caution(watched.job, found, count)
    news = abs(planned - math.log(believed_factor)) > math.log1p(THRESHOLD)
    if news and off > max(math.log1p(THRESHOLD), Z_90 * deviation):
        return True
    # A deadline that hangs on it makes a smaller difference matter.
    job = watched.job
    largest = job.max_instances
    stated = _of(job.throughputs, key).rate_per_hour(largest)
    before = _of(watched.believed, key).rate_per_hour(largest)
    caution = math.exp(-_caution(job, found, count))
    left_s = (job.deadline.at_ns - state.slot_start_ns) / NS_PER_S
    feasible = [
        (job.work.amount - watched.done) / rate * S_PER_HOUR <= left_s
        for rate in (before, stated * found.factor(largest) * caution)
    ]
    return off > deviation and feasible[0] != feasible[1]


def _caution(job: Job, found: RateEstimate, count: int) -> float:
    """How far below the estimate (log scale) a job is planned.

    A hard deadline that is met in half of all cases is not met: it is planned at the low end of
    the interval, which the estimate comes closer to with every report. All instance types alike,
    so that none looks better for being unknown.
    """
    return Z_90 * found.deviation_at(count) if job.deadline.kind is DeadlineKind.HARD else 0.0


def _of(throughputs: Sequence[Throughput], key: str) -> Throughput:
    return next(throughput for throughput in throughputs if throughput.offering == key)


def _scaled(throughput: Throughput, job: Job, found: RateEstimate, caution: float) -> Throughput:
    """A throughput at `caution` times the rates found: a line stays one if none bends the curve."""
    counts = job.allowed_counts
    rates = found.rates_per_hour({n: throughput.rate_per_hour(n) * caution for n in counts})
    digits = _DIGITS - 1 - math.floor(math.log10(min(rates.values())))
    if not throughput.table and found.slope == 0.0:
        factor = found.factor(found.reference_count) * caution
        line = replace(
            throughput,
            alpha=round(throughput.alpha * factor, digits),
            beta=round(throughput.beta * factor, digits),
        )
        # Rounding may undo a line whose ends nearly cancel at the smallest count.
        if all(abs(line.rate_per_hour(n) / rates[n] - 1.0) < 0.02 for n in counts):
            return line
    # Counts that are not allowed have no rate that anybody looks at.
    table = tuple(round(rates.get(n, 0.0), digits) for n in range(1, job.max_instances + 1))
    return Throughput(offering=throughput.offering, table=table)


# --- what is learned for good -----------------------------------------------------------------


def _measured_runs(watched: MonitoredJob) -> tuple[RunMeasured, ...]:
    """The job's configuration at every count it was measured at often enough."""
    job = watched.job
    if job.configuration is None:
        return ()
    rates: dict[int, list[float]] = {}
    for key in sorted(watched.evidence):
        for evidence in watched.evidence[key]:
            seen = evidence.observation
            # A few seconds may tell an estimate something, which knows their weight; not for good.
            if (
                evidence.gpu_model == job.configuration.configuration.gpu_model
                and seen.weight >= LEAST_WEIGHT_OF_A_RUN
            ):
                rates.setdefault(seen.count, []).append(seen.measured_per_hour)
    found = []
    for count in sorted(rates):
        run = None
        if len(rates[count]) >= LEAST_REPORTS_OF_A_RUN:
            run = _measured_run(job, count, median(rates[count]))
        if run is not None:
            found.append(RunMeasured(run=run, job_id=job.job_id))
    return tuple(found)


def _measured_run(job: Job, count: int, rate_per_hour: float) -> MeasuredRun | None:
    """A run of the configuration on `count` instances; None where it has no such share."""
    if job.configuration is None:
        return None
    whole = job.configuration.configuration
    tokens = {"tokens": 1, "samples": whole.tokens_per_sample}.get(job.work.unit)
    largest = job.max_instances
    batch = whole.batch_size * (count if job.configuration.weak_scaling else largest)
    gpus = whole.gpus * count
    if tokens is None or gpus % largest or batch % largest:
        return None
    gpus //= largest
    if gpus % whole.expert_parallel:
        return None
    nodes = max(1, whole.nodes * count // largest)
    return MeasuredRun(
        configuration=replace(
            whole,
            gpus=gpus,
            nodes=nodes if gpus % nodes == 0 else 1,
            batch_size=batch // largest,
        ),
        stack=LIVE_STACK,
        outcome=RunOutcome.SUCCEEDED,
        tokens_per_s=rate_per_hour * tokens / S_PER_HOUR,
    )
