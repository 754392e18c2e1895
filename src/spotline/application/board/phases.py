"""Which one thing a job is doing, since when, and for what it waits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.board.entry import BoardEntry
from spotline.application.board.messages import JobPhase, WaitingFor
from spotline.application.market_view import MarketFold
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.job import Job
from spotline.domain.limits.freezes import Freeze, Freezes, Purchase
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S

_ENDS = {
    JobOutcome.COMPLETED: JobPhase.COMPLETED,
    JobOutcome.COMPLETED_LATE: JobPhase.LATE,
    JobOutcome.MISSED_DEADLINE: JobPhase.MISSED,
    JobOutcome.EXPIRED: JobPhase.MISSED,
    JobOutcome.CANCELLED: JobPhase.CANCELLED,
    JobOutcome.FAILED: JobPhase.FAILED,
    JobOutcome.STOPPED_BY_LIMIT: JobPhase.STOPPED_BY_LIMIT,
}
# For these a job waits whether or not anything may be bought.
_BEFORE_BUYING = (WaitingFor.MARKET, WaitingFor.START, WaitingFor.SLOT, WaitingFor.RETRY)
_LIMITS = (RefusalClass.LIMIT, RefusalClass.QUOTA)
_UNAVAILABLE = (DecisionReason.NO_CAPACITY, DecisionReason.LAUNCH_REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSince:
    """What a job is doing, since when (market ns), and for what it waits.

    `stopped` is what stands against buying for it.
    """

    phase: JobPhase
    since_ns: int
    waiting_for: WaitingFor | None = None
    stopped: Freeze | None = None


def phase_of(
    entry: BoardEntry, job: Job, market: MarketFold, now_ns: int, freezes: Freezes | None = None
) -> PhaseSince:
    """Say what a job is doing at `now_ns` of market time; `job_view.proto` says when it is what."""
    at = _phase_of(entry, job, market, now_ns)
    if at.phase.over or at.phase is JobPhase.MARKET_ENDED or freezes is None:
        return at
    stopped = stopped_by(entry, job, market, freezes)
    waits = WaitingFor.BUYING if stopped is not None and not entry.held else at.waiting_for
    if at.waiting_for in _BEFORE_BUYING:
        waits = at.waiting_for
    return replace(at, stopped=stopped, waiting_for=waits if at.waiting_for else None)


def stopped_by(entry: BoardEntry, job: Job, market: MarketFold, freezes: Freezes) -> Freeze | None:
    """What stands against buying anything for a job; None where it may buy spot or on-demand."""
    accounts = {o.offering_id: o.account_key for o in market.offerings}
    found = [
        freezes.blocking(
            Purchase(
                job_id=job.job_id,
                tenant=job.tenant,
                offering_id=entry.offering_id,
                account=accounts.get(entry.offering_id, ""),
                capacity_type=kind,
            )
        )
        for kind in CapacityType
    ]
    return None if None in found else found[0]


def _phase_of(entry: BoardEntry, job: Job, market: MarketFold, now_ns: int) -> PhaseSince:
    if entry.outcome is not None:
        return PhaseSince(phase=_ENDS[entry.outcome], since_ns=entry.closed_ns)
    if market.opened is not None and market.opened.last:
        ended_ns = market.opened.ts_event_ns + market.slot_s * NS_PER_S
        return PhaseSince(phase=JobPhase.MARKET_ENDED, since_ns=ended_ns)
    if entry.finished_ns and entry.awaits_exit:
        return PhaseSince(phase=JobPhase.FINISHING, since_ns=entry.finished_ns)
    if entry.failed_ns and not entry.trains_ns:
        waits = WaitingFor.RETRY if not entry.wanted else WaitingFor.INSTANCES
        return PhaseSince(phase=JobPhase.WAITING, since_ns=entry.failed_ns, waiting_for=waits)
    if entry.notices and entry.held:
        return PhaseSince(phase=JobPhase.SAVING, since_ns=entry.saves_ns)
    if entry.held and entry.trains_ns:
        return PhaseSince(phase=JobPhase.RUNNING, since_ns=entry.trains_ns)
    waits = waiting_for(entry, job, market, now_ns)
    changed_ns = max(entry.lost_ns, entry.moved_ns)
    if changed_ns:
        phase = JobPhase.MOVING if entry.moved_ns > entry.lost_ns else JobPhase.INTERRUPTED
        return PhaseSince(phase=phase, since_ns=changed_ns, waiting_for=waits)
    since_ns = entry.held_ns or entry.idle_ns
    return PhaseSince(phase=JobPhase.WAITING, since_ns=since_ns, waiting_for=waits)


def waiting_for(entry: BoardEntry, job: Job, market: MarketFold, now_ns: int) -> WaitingFor:
    """For what a job waits that does not train."""
    if market.opened is None:
        return WaitingFor.MARKET
    if entry.first_slot < 0:
        return _awaits_admission(entry, job, market, now_ns)
    if entry.held:
        return WaitingFor.INSTANCES
    if entry.not_before_ns > now_ns:
        return WaitingFor.RETRY
    if entry.reason is None:
        return WaitingFor.SLOT
    if entry.refused and entry.refusal in _LIMITS:
        return WaitingFor.LIMIT
    if entry.refused:
        return WaitingFor.CAPACITY
    if entry.wanted:
        return WaitingFor.INSTANCES
    if entry.reason is DecisionReason.BUDGET:
        return WaitingFor.LIMIT
    if entry.reason in _UNAVAILABLE or not _has_any(entry, market):
        return WaitingFor.CAPACITY
    return WaitingFor.PRICE


def _awaits_admission(entry: BoardEntry, job: Job, market: MarketFold, now_ns: int) -> WaitingFor:
    if job.start_ns > now_ns:
        return WaitingFor.START
    opened_ns = market.now_ns
    if opened_ns > max(entry.submitted_ns, job.start_ns):
        # A slot has opened for it, and it was not taken up: nowhere can it run now.
        return WaitingFor.CAPACITY
    return WaitingFor.SLOT


def _has_any(entry: BoardEntry, market: MarketFold) -> bool:
    """Whether its offering is quoted with any instance; an unknown count may be some."""
    for slot_quote in () if market.opened is None else market.opened.quotes:
        quote = slot_quote.quote
        if quote.offering_id == entry.offering_id:
            counts = (quote.spot_available, quote.on_demand_available)
            return any(not count.known or count.instances > 0 for count in counts)
    return False
