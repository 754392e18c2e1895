"""Jobs that policies do not decide: those that end inside a slot, wait for a retry, or are finishing.

A job ends with the next revision of the slot that is decided anyway, and where the slot is settled
with one that is made for it. A failed job holds nothing until its retry; it runs again from the
first slot that opens then. A job whose work is done and whose program has not ended keeps what it
holds: another set would start the program again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.application.selector.freezing import blocking
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.state import SelectorState, SlotPhase
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobOutcome,
    JobRetryScheduled,
)
from spotline.domain.events.limits import LimitAction
from spotline.domain.jobs.job import OnLimit
from spotline.domain.jobs.program import IDLE, Holding
from spotline.domain.ledger.billing import OfferingPrice
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.units import NS_PER_S, PPM, utc_iso

# The first retry waits so long, each further one twice as long, none longer than the second.
FIRST_RETRY_S = 60
LONGEST_RETRY_S = 3600

# With this code a program that Spotline runs has saved and wants to go on (sysexits.h).
EX_TEMPFAIL = 75


# --- what owners and programs say of a job ----------------------------------------------------


def note_cancelled(state: SelectorState, run: JobRun, event: JobCancelled) -> None:
    """Take a cancellation; one that says when it was ends a running job now."""
    # A job that is over has its feedback to come: nothing else would let go of it.
    if run.phase is RunPhase.CLOSED:
        return
    run.cancelled = True
    if event.ts_event_ns and run.phase is RunPhase.RUNNING:
        run.ending = JobOutcome.CANCELLED
        _reopen(state, run, event, event.ts_event_ns)


def note_exited(state: SelectorState, run: JobRun, event: JobExited) -> None:
    """Take the end of a job's program; that of a start which is over already says nothing new."""
    if run.job.run is not None and event.exit_code == EX_TEMPFAIL:
        # It has saved and wants to go on: another start of it follows.
        return
    waiting = run.failure is not None or run.waits_at(event.ts_event_ns)
    known = 0 < event.generation <= run.ended_generation or event.generation < run.generation
    if run.phase is not RunPhase.RUNNING or run.ending is not None:
        return
    if known if event.generation else waiting:
        return
    run.ended_generation = max(run.ended_generation, event.generation)
    if event.exit_code == 0:
        run.ending = JobOutcome.COMPLETED
    elif run.retry >= run.job.retries:
        run.ending = JobOutcome.FAILED
    else:
        run.failure = event
    _reopen(state, run, event, event.ts_event_ns)


def note_retry(state: SelectorState, run: JobRun, event: JobRetryScheduled) -> None:
    """Hold nothing until the retry."""
    run.failure = None
    run.retry = event.retry
    run.not_before_ns = event.not_before_ns
    run.fail_at(state.offset_s)


def _reopen(state: SelectorState, run: JobRun, event: Event, ts_event_ns: int) -> None:
    """Decide the rest of a settled slot again, where the job holds something in it."""
    if state.phase is SlotPhase.SETTLED and run.held_lots:
        reopen(state, event, moment_s(state, ts_event_ns))


def reopen(state: SelectorState, trigger: Event, offset_s: int) -> None:
    """Begin another revision of the slot at this moment."""
    state.offset_s = offset_s
    state.revision += 1
    state.refused = {}
    state.limited = {}
    state.affected = ()
    state.phase = SlotPhase.ALLOCATING
    state.trigger = trigger


def moment_s(state: SelectorState, ts_event_ns: int) -> int:
    """Seconds into the open slot at which something takes effect: never before what is decided.

    The last slot of a market is billed whole when it is settled: what comes then comes at its end.
    """
    opened = state.current
    if opened.last:
        return opened.slot_s
    elapsed_s = (ts_event_ns - opened.ts_event_ns) // NS_PER_S
    return min(max(elapsed_s, state.offset_s, 1), opened.slot_s)


def unheeded(state: SelectorState) -> bool:
    """Whether a slot that has just been settled does not show yet how jobs ended or failed."""
    return any(
        run.ending is not None
        or (run.target.instances > 0 and run.waits_at(state.current.ts_event_ns))
        for run in state.running()
    )


# --- what follows -----------------------------------------------------------------------------


def retry_of(run: JobRun, slot: int) -> JobRetryScheduled | None:
    """The retry of a job that has just failed, None where it has not."""
    failure = run.failure
    if failure is None:
        return None
    return JobRetryScheduled(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot,
        retry=run.retry + 1,
        not_before_ns=_retry_ns(run, failure),
        detail=failure.detail or f"exit code {failure.exit_code}",
    )


def _retry_ns(run: JobRun, failure: JobExited) -> int:
    wait_s = min(FIRST_RETRY_S << min(run.retry, 16), LONGEST_RETRY_S)
    return failure.ts_event_ns + wait_s * NS_PER_S


def endings(state: SelectorState, decided: Sequence[AllocationDecided]) -> Mapping[str, JobOutcome]:
    """The jobs that end with this revision, and how."""
    found = {run.job.job_id: run.ending for run in state.running() if run.ending is not None}
    for decision in decided:
        run = state.runs[decision.job_id]
        spent = decision.reason is DecisionReason.BUDGET and not decision.lots
        if spent and run.job.on_limit is OnLimit.STOP:
            found[decision.job_id] = JobOutcome.STOPPED_BY_LIMIT
    return found


def ended(
    state: SelectorState, run: JobRun, outcome: JobOutcome, offset_s: int
) -> tuple[Event, ...]:
    """How a job ends inside the open slot: what the slot brought it, then its outcome."""
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    quote = quotes[run.offering_id]
    price = OfferingPrice(
        offering_id=run.offering_id,
        spot_micro_usd=quote.spot_price_micro_usd,
        on_demand_micro_usd=quote.on_demand_price_micro_usd,
    )
    now, slot_cost = run.ended_at(price, offset_s)
    program = run.compiled
    exited = outcome is JobOutcome.COMPLETED
    progress_ppm = PPM if exited else now.progress_quanta * PPM // program.work_quanta
    cost = run.spent_micro_usd + slot_cost
    value = 0
    if exited or (outcome is JobOutcome.CANCELLED and now.progress_quanta >= program.work_quanta):
        # A job that ends in a slot took that slot.
        elapsed = run.elapsed_slots(state.slot) + bool(offset_s)
        outcome, value = completed(run, elapsed)
    events: list[Event] = []
    if offset_s:
        events.append(
            JobAdvanced(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                lots=run.lots(now.holding),
                progress_ppm=progress_ppm,
                slot_cost_micro_usd=slot_cost,
                cost_micro_usd=cost,
            )
        )
    events.append(
        JobClosed(
            job_id=run.job.job_id,
            tenant=run.job.tenant,
            slot=state.slot if offset_s else state.slot - 1,
            outcome=outcome,
            policy_id=run.policy_id,
            cost_micro_usd=cost,
            value_micro_usd=value,
            progress_ppm=progress_ppm,
        )
    )
    return tuple(events)


def completed(run: JobRun, elapsed: int) -> tuple[JobOutcome, int]:
    """How a job is done after n slots, and what that is worth."""
    program = run.compiled
    on_time = elapsed <= program.deadline_slots
    value = program.value_micro_usd[elapsed] if elapsed <= program.end_slots else 0
    return (JobOutcome.COMPLETED if on_time else JobOutcome.COMPLETED_LATE), value


# --- jobs that no policy decides --------------------------------------------------------------


def undecided(state: SelectorState) -> list[AllocationDecided]:
    """What jobs are to hold that wait for a retry or are finishing, in order of their ids.

    All of them when a slot is first decided, later those that do not hold it.
    """
    now_ns = state.current.ts_event_ns
    aside = [
        run
        for run in state.running()
        if run.ending is None and (run.waits_at(now_ns) or run.is_finishing or run.is_at_limit)
    ]
    if not aside:
        return []
    residual = state.residual()
    for other in state.running():
        residual.take_what_is_left(other.held_lots)
    found = []
    for run in aside:
        if run.waits_at(now_ns):
            holding, reason = IDLE, DecisionReason.RETRYING
            until_ns = run.not_before_ns if run.failure is None else _retry_ns(run, run.failure)
            why = f"nothing before {utc_iso(until_ns)}: its program failed"
        elif run.is_at_limit and not run.is_finishing:
            holding, reason = _at_limit(state, run), DecisionReason.BUDGET
            why = f"{holding.spot} spot + {holding.on_demand} on-demand: {said_of_limit(run)}"
        else:
            holding, reason = _until_exit(state, run, residual), DecisionReason.FINISHING
            why = f"{holding.spot} spot + {holding.on_demand} on-demand until its program has ended"
        if state.revision and run.held == holding and run.target == holding:
            continue
        found.append(
            AllocationDecided(
                job_id=run.job.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                revision=state.revision,
                offset_s=state.offset_s,
                policy_id=run.policy_id,
                lots=run.lots(holding),
                reason=reason,
                forecast_used=False,
                explanation=why,
            )
        )
    return found


def _until_exit(state: SelectorState, run: JobRun, residual: ResidualCapacity) -> Holding:
    """What a finishing job holds: what it has, and where that is broken the least that runs."""
    home = run.offering_id
    stopped = any(blocking(state, run, home, kind) is not None for kind in CapacityType)
    if stopped or run.held.instances in run.job.allowed_counts:
        return run.held
    least = run.job.allowed_counts[0]
    kept = min(run.held.on_demand, least)
    if residual.on_demand(run.offering_id) + kept >= least:
        return Holding(on_demand=least)
    if residual.spot(run.offering_id) + min(run.held.spot, least) >= least:
        return Holding(spot=least)
    return IDLE


# --- jobs at a limit --------------------------------------------------------------------------


def kept(state: SelectorState, run: JobRun) -> Holding:
    """Of what a job holds, what the market has not taken back as the slot opened."""
    quotes = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}
    available = quotes[run.offering_id].spot_available
    spot = min(run.held.spot, available.instances) if available.known else run.held.spot
    return Holding(spot=spot, on_demand=run.held.on_demand)


def _at_limit(state: SelectorState, run: JobRun) -> Holding:
    """What a job holds that has reached a limit: what it has while it winds down, else nothing."""
    said = run.at_limit
    winds_down = said is not None and said.action is LimitAction.WIND_DOWN
    return kept(state, run) if winds_down else IDLE


def said_of_limit(run: JobRun) -> str:
    """What has been said of the limit that a job is at, for people."""
    said = run.at_limit
    if said is None:
        return ""
    if said.action is LimitAction.WIND_DOWN:
        return f"it ends at {utc_iso(said.until_ns)}, {said.limit}: {said.detail}"
    return f"{said.limit}: {said.detail}"
