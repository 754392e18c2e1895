"""The sentence that says all that matters of a job, and the one that says why it holds what it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spotline.application.board.entry import BoardEntry
from spotline.application.board.messages import JobPhase, WaitingFor
from spotline.application.board.phases import PhaseSince
from spotline.application.board.slack import JobPace
from spotline.application.board.wording import (
    duration_text,
    lots_text,
    moment_text,
    place_text,
    usd_text,
    work_text,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.limits.freezes import Freeze, FreezeReason
from spotline.domain.market.offering import Offering
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class Standpoint:
    """What a sentence about a job is made of."""

    entry: BoardEntry
    job: Job
    at: PhaseSince
    pace: JobPace
    offerings: tuple[Offering, ...]
    now_ns: int
    outlook: JobOutlook | None
    stalled: bool
    at_risk: bool

    def moment(self, ts_ns: int) -> str:
        """A moment as it is written now."""
        return moment_text(ts_ns, self.now_ns)

    @property
    def held(self) -> str:
        """What it holds and where."""
        return lots_text(self.entry.held, self.offerings)

    @property
    def work(self) -> str:
        """Work done of all work."""
        entry = self.entry
        return work_text(self.job, entry.progress_ppm, entry.done if entry.is_run else None)


def headline_of(point: Standpoint) -> str:
    """All that matters, in one sentence."""
    if point.at.phase.over:
        return _ended(point)
    if point.at.phase is JobPhase.MARKET_ENDED:
        return _market_ended(point)
    parts = (*_doing(point), point.work, *_outlook(point), *_alarms(point))
    if point.entry.cancelled_ns:
        parts = ("withdrawn by its owner: ends with the next decision", *_doing(point), point.work)
    return ", ".join(part for part in parts if part)


# --- jobs that are over -------------------------------------------------------------------------


def _ended(point: Standpoint) -> str:
    entry, at, deadline_ns = point.entry, point.at, point.job.deadline.at_ns
    when = point.moment(at.since_ns)
    early_s = (deadline_ns - at.since_ns) // NS_PER_S
    match at.phase:
        case JobPhase.COMPLETED | JobPhase.LATE:
            what = f"done at {when}, {_by_deadline(early_s)}"
        case JobPhase.MISSED:
            what = f"not done in time: {point.work} at {when}"
        case JobPhase.FAILED:
            what = f"failed at {when}: {entry.failure or 'its program ended'}, {_retries(point)}"
        case JobPhase.STOPPED_BY_LIMIT:
            budget = usd_text(point.job.budget_micro_usd)
            what = f"stopped at {when}: its budget of {budget} is used up, {point.work}"
        case _:
            what = f"withdrawn by its owner at {when}, {point.work}"
    if entry.held:
        return f"{what}; {point.held} still to be released"
    if at.phase is JobPhase.CANCELLED and entry.launched:
        what += "; all that it held was released"
    return f"{what}; {_paid(point)}"


def _paid(point: Standpoint) -> str:
    counts, entry = point.entry.counts, point.entry
    told = f"{usd_text(entry.billed_micro_usd)} billed"
    if counts.interruptions:
        told += f", {_times(counts.interruptions, 'instance')} taken back"
    return told


def _retries(point: Standpoint) -> str:
    count = point.entry.counts.retries
    return (
        f"after {count} retries" if count > 1 else "after a retry" if count else "no retry is left"
    )


def _market_ended(point: Standpoint) -> str:
    told = f"the market ended at {point.moment(point.at.since_ns)}, {point.work}"
    if point.entry.cancelled_ns:
        return f"{told}; withdrawn by its owner: {point.held} to be released"
    told += ": nothing more is decided"
    if point.entry.held:
        told += f"; it goes on holding {point.held} until it is cancelled"
    return told


# --- jobs that go on ----------------------------------------------------------------------------


def _doing(point: Standpoint) -> Iterator[str]:
    entry, at = point.entry, point.at
    since = point.moment(at.since_ns)
    match at.phase:
        case JobPhase.RUNNING:
            yield f"holds {point.held}"
        case JobPhase.FINISHING:
            yield f"its work is done since {since}, its program has not ended yet"
            yield f"holds {point.held}"
        case JobPhase.SAVING:
            soonest_ns = min(entry.notices.values())
            yield (
                f"saves: {_times(len(entry.notices), 'instance')} will be taken back at "
                f"{point.moment(soonest_ns)}"
            )
            yield f"holds {point.held}"
        case JobPhase.INTERRUPTED:
            taken = lots_text(entry.lost, point.offerings)
            if entry.times_interrupted == 1:
                yield f"interrupted: {taken} taken back at {since}"
            else:
                yield f"{_interrupted(entry)}, last at {since} ({taken})"
            yield _waits(point)
        case JobPhase.MOVING:
            where = place_text(entry.offering_id, point.offerings)
            yield (
                f"moves from {place_text(entry.moved_from, point.offerings)} to {where} "
                f"since {since}"
            )
            yield _waits(point)
        case _:
            yield _waits(point)
            if entry.counts.interruptions:
                yield f"{_interrupted(entry)} so far"


STOPS = {
    FreezeReason.PAUSED: "buying is paused",
    FreezeReason.PARKED: "an entry about it could not be taken",
    FreezeReason.UNDECIDED: "log, ledger and cloud do not agree",
    FreezeReason.BREAKER: "too many instances are unwell",
    FreezeReason.STALE_QUOTES: "the quotes are too old",
    FreezeReason.PRICE: "its price is not believed",
    FreezeReason.CRASH_LOOP: "its program ends again and again",
    FreezeReason.NOT_LIVE: "its account is not live",
}
"""Why buying is stopped, for people."""

_WAITS = {
    WaitingFor.MARKET: "waits for the market to open",
    WaitingFor.SLOT: "waits for the next slot, which takes it up",
}


def _waits(point: Standpoint) -> str:
    if point.at.stopped is not None and point.at.waiting_for is WaitingFor.BUYING:
        return f"waits: {_stopped(point, point.at.stopped)}"
    return _waits_for(point)


def _waits_for(point: Standpoint) -> str:
    entry, waits = point.entry, point.at.waiting_for
    if waits in _WAITS:
        return _WAITS[waits]
    place = place_text(entry.offering_id, point.offerings) if entry.offering_id else ""
    match waits:
        case WaitingFor.START:
            return f"waits for its start at {point.moment(point.job.start_ns)}"
        case WaitingFor.PRICE:
            return f"holds nothing and waits for more or cheaper spot in {place}"
        case WaitingFor.CAPACITY if not place:
            return "waits for capacity: nowhere can it run now"
        case WaitingFor.CAPACITY:
            refusals = entry.counts.refusals
            why = f"refused {_often(refusals)}" if entry.refused else "none is there"
            return f"waits for capacity in {place}: {why}"
        case WaitingFor.INSTANCES if entry.held and entry.is_run:
            return f"holds {point.held} and waits for its program to go on"
        case WaitingFor.INSTANCES if entry.held:
            return f"holds {point.held} and starts again"
        case WaitingFor.INSTANCES:
            return f"waits for {lots_text(entry.wanted, point.offerings)} to come up"
        case WaitingFor.RETRY:
            return f"its program failed ({entry.failure}), {_next_try(point)}"
        case WaitingFor.LIMIT if entry.refused:
            return f"waits: a cap or quota of instances leaves it none in {place}"
        case WaitingFor.LIMIT:
            return (
                f"waits: its budget of {usd_text(point.job.budget_micro_usd)} allows no more, "
                f"{usd_text(entry.spent_micro_usd)} are spent"
            )
        case _:
            return "waits"


def _stopped(point: Standpoint, stopped: Freeze) -> str:
    since = f", since {point.moment(stopped.ts_event_ns)}" * bool(stopped.ts_event_ns)
    goes_on = f"; it goes on with `{stopped.continue_with}`" * bool(stopped.continue_with)
    return f"{STOPS[stopped.reason]} ({stopped.detail}){since}{goes_on}"


def _next_try(point: Standpoint) -> str:
    not_before_ns = point.entry.not_before_ns
    if not_before_ns > point.now_ns:
        return f"tried again at {point.moment(not_before_ns)}"
    return "tried again with the next slot"


def _outlook(point: Standpoint) -> Iterator[str]:
    """When it will be done, by the futures where they were sampled, else at the present pace."""
    outlook, deadline_ns = point.outlook, point.job.deadline.at_ns
    if point.at.phase is JobPhase.FINISHING:
        return
    finish_ns = outlook.finish_p50_ns if outlook is not None else 0
    expected = "expected"
    if outlook is None and point.at.phase is JobPhase.RUNNING:
        finish_ns, expected = point.pace.done_at_ns, "at this pace done"
    if finish_ns:
        early_s = (deadline_ns - finish_ns) // NS_PER_S
        yield f"{expected} {point.moment(finish_ns)}"
        yield _by_deadline(early_s)
    else:
        yield f"deadline {point.moment(deadline_ns)}"


def _alarms(point: Standpoint) -> Iterator[str]:
    if point.at_risk:
        if point.outlook is not None:
            share = point.outlook.on_time_probability_ppm * 100 / PPM
            yield f"at risk: on time in {share:.0f} % of the futures"
        else:
            yield "at risk: on-demand alone would be too late"
    if point.stalled:
        heard_ns = point.entry.last_report_ns
        since = f"since {point.moment(heard_ns)}" if heard_ns else "since it got its instances"
        yield f"stalled: no report {since}"
    stopped = point.at.stopped
    if stopped is not None and stopped.reason is FreezeReason.CRASH_LOOP and point.entry.held:
        # What it still holds goes on; what ends is not launched again.
        yield f"buys nothing: {_stopped(point, stopped)}"
    if point.entry.parked:
        # Nothing is bought for it until somebody has looked at it.
        yield f"buys nothing: {point.entry.parked[min(point.entry.parked)]}, see spotline parked list"
    if point.entry.unseen:
        yield f"shown without its last {point.entry.unseen}"


# --- why ----------------------------------------------------------------------------------------


def why_of(point: Standpoint) -> str:
    """Why it holds what was decided last; empty where nothing was decided."""
    entry = point.entry
    if entry.reason is None or point.at.phase.over:
        return ""
    what = lots_text(entry.wanted, point.offerings)
    slack_s = point.pace.slack_s
    if not point.pace.latest_start_ns:
        slack = ""
    elif slack_s >= 0:
        slack = f"; on-demand alone could wait {duration_text(slack_s)} more"
    else:
        slack = f"; on-demand alone would be {duration_text(slack_s)} late"
    why = f"{what}: {_REASONS[entry.reason].format(policy=entry.policy_id)}"
    return f"{why}{_yielded(point)}{slack}"


def _yielded(point: Standpoint) -> str:
    """What spot it left to which job, and what that gained; empty for none."""
    yielded = point.entry.yielded
    if yielded is None:
        return ""
    where = place_text(yielded.offering_id, point.offerings)
    to = f"job {point.entry.yielded_to}" if point.entry.yielded_to else "a job of another tenant"
    gain = yielded.gain_micro_usd
    worth = f"{usd_text(abs(gain))} {'more' if gain > 0 else 'less'}" if gain else "no less"
    fair = ", yielded for fairness between tenants" * (gain < 0)
    return f"; yielded {yielded.spot} spot in {where} to {to}: worth {worth} there{fair}"


_REASONS = {
    DecisionReason.POLICY: "so decides its policy {policy}",
    DecisionReason.SAFETY_NET: "the safety net holds on-demand where waiting would cost the deadline",
    DecisionReason.FORECAST_OVERDUE: "decided without a forecast, which did not come in time",
    DecisionReason.FORECAST_UNTRUSTED: "decided without the forecast, which was wrong too often",
    DecisionReason.ALLOCATOR_UNAVAILABLE: "decided by the fallback rule, as no allocator answered",
    DecisionReason.LAUNCH_REFUSED: "decided again, as a launch was refused",
    DecisionReason.INTERRUPTED: "decided again, as instances were taken back",
    DecisionReason.BUDGET: "its budget allows no more",
    DecisionReason.CLOSED: "it is over",
    DecisionReason.AFTER_DEADLINE: "after its deadline, idle spot or on-demand as long as that still pays",
    DecisionReason.NO_CAPACITY: "too few instances are left for it",
    DecisionReason.RETRYING: "its program failed and is tried again later",
    DecisionReason.FINISHING: "kept until its program has ended",
}


def _interrupted(entry: BoardEntry) -> str:
    instances = _times(entry.counts.interruptions, "instance")
    return f"interrupted {_often(entry.times_interrupted)} ({instances})"


def _by_deadline(early_s: int) -> str:
    if not early_s:
        return "at its deadline"
    return f"{duration_text(early_s)} {'before' if early_s > 0 else 'after'} its deadline"


def _often(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
