"""Where a job stands, as people are shown it: a pure function of the board, the market, the moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spotline.application.board.entry import BoardEntry
from spotline.application.board.fold import BoardState
from spotline.application.board.headline import Standpoint, headline_of, why_of
from spotline.application.board.messages import (
    FleetView,
    JobFlag,
    JobMoney,
    JobPhase,
    JobView,
)
from spotline.application.board.otherwise import OtherCosts
from spotline.application.board.phases import PhaseSince, phase_of
from spotline.application.board.slack import JobPace, pace_of
from spotline.application.market_view import MarketFold
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import NS_PER_S, PPM

# How likely to be on time is asked for where nobody says.
HARD_ON_TIME_PPM = 99 * PPM // 100
SOFT_ON_TIME_PPM = PPM // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceLimit:
    """How long a program may be silent: the larger of so many slots and so many seconds."""

    slots: int = 3
    seconds: int = 900

    def __post_init__(self) -> None:
        for name in ("slots", "seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} of silence must be >= 0, was {getattr(self, name)}")

    def silence_s(self, slot_s: int) -> int:
        """Seconds that a program may be silent."""
        return max(self.slots * slot_s, self.seconds)


def view_of(
    board: BoardState,
    job: Job,
    market: MarketFold,
    *,
    outlook: JobOutlook | None = None,
    otherwise: OtherCosts | None = None,
    silence: SilenceLimit | None = None,
    last_report_wall_ns: int = 0,
) -> JobView:
    """Say where a job stands.

    Parameters
    ----------
    job
        As it is believed now, with what its owner has changed.
    market
        Folded to the same place of the log as `board`.
    outlook
        What is expected of it now, None where that was not worked out.
    otherwise
        What `other_costs` says; None where that was not worked out.
    last_report_wall_ns
        When the log stored what its program said last.

    Raises
    ------
    KeyError
        The job is not on the board.
    """
    entry = board.entries[job.job_id]
    now_ns = max(board.now_ns, market.now_ns)
    at = phase_of(entry, job, market, now_ns, board.freezes)
    decided = at.phase.over or at.phase is JobPhase.MARKET_ENDED
    pace = JobPace(now_ns=now_ns) if decided else pace_of(entry, job, market, now_ns)
    stalled_ns = stalled_since_ns(entry, at, _silence_s(job, market.slot_s, silence))
    is_stalled = 0 < stalled_ns <= now_ns
    at_risk = _at_risk(job, at, outlook, pace.slack_s)
    standpoint = Standpoint(
        entry=entry,
        job=job,
        at=at,
        pace=pace,
        offerings=market.offerings,
        now_ns=now_ns,
        outlook=outlook,
        stalled=is_stalled,
        at_risk=at_risk,
    )
    other = otherwise or OtherCosts()
    return JobView(
        phase=at.phase,
        since_ns=at.since_ns,
        waiting_for=at.waiting_for,
        flags=(*(JobFlag.AT_RISK,) * at_risk, *(JobFlag.STALLED,) * is_stalled),
        headline=headline_of(standpoint),
        held=entry.held,
        wanted=entry.wanted,
        why=why_of(standpoint),
        yielded=None if at.phase.over else entry.yielded,
        latest_on_demand_start_ns=pace.latest_start_ns,
        slack_s=pace.slack_s,
        outlook=outlook,
        quoted=entry.quoted,
        money=JobMoney(
            spent_micro_usd=entry.spent_micro_usd,
            billed_micro_usd=entry.billed_micro_usd,
            egress_micro_usd=entry.egress_micro_usd,
            on_demand_micro_usd=other.on_demand_micro_usd,
            msu_micro_usd=other.msu_micro_usd,
            budget_micro_usd=job.budget_micro_usd,
        ),
        counts=entry.counts,
        last_report_ns=entry.last_report_ns,
        last_report_wall_ns=last_report_wall_ns,
    )


def fleet_of(
    board: BoardState, market: MarketFold, views: Iterable[JobView] | None = None
) -> FleetView:
    """Say what all jobs hold together; `views` of the open jobs say which deserve a look."""
    prices = {
        slot_quote.quote.offering_id: slot_quote.quote
        for slot_quote in (() if market.opened is None else market.opened.quotes)
    }
    spot = on_demand = per_hour = 0
    for job_id in board.holding:
        for lot in board.entries[job_id].held:
            spot += lot.spot
            on_demand += lot.on_demand
            quote = prices.get(lot.offering_id)
            if quote is not None:
                per_hour += lot.spot * quote.spot_price_micro_usd
                per_hour += lot.on_demand * quote.on_demand_price_micro_usd
    flags = [view.flags for view in views or ()]
    return FleetView(
        spot=spot,
        on_demand=on_demand,
        micro_usd_per_hour=per_hour,
        billed_micro_usd=sum(entry.billed_micro_usd for entry in board.entries.values()),
        open_jobs=sum(not entry.over for entry in board.entries.values()),
        at_risk=sum(JobFlag.AT_RISK in raised for raised in flags),
        stalled=sum(JobFlag.STALLED in raised for raised in flags),
        fairness_cost_micro_usd=board.fairness_cost_micro_usd,
    )


def _silence_s(job: Job, slot_s: int, silence: SilenceLimit | None) -> int:
    """Seconds that a job's program may be silent: what its owner states counts most."""
    if job.run is not None and (job.run.stalled_after_s or silence is None):
        return job.run.seconds_to_stall(slot_s)
    return (silence or SilenceLimit()).silence_s(slot_s)


def stalled_since_ns(entry: BoardEntry, at: PhaseSince, silence_s: int) -> int:
    """From when on a job that says nothing more is stalled (market ns); 0: it may be silent.

    Only what holds instances can be silent, and only of what Spotline runs, or what has reported
    once, a word is expected.
    """
    expected = entry.is_run or entry.has_reported
    if at.phase.over or at.phase in _MAY_BE_SILENT or not entry.held or not expected:
        return 0
    heard_ns = max(entry.last_report_ns, entry.held_ns)
    return heard_ns + silence_s * NS_PER_S


_MAY_BE_SILENT = (JobPhase.MARKET_ENDED,)


def _at_risk(job: Job, at: PhaseSince, outlook: JobOutlook | None, slack_s: int) -> bool:
    if at.phase.over or at.phase in (JobPhase.MARKET_ENDED, JobPhase.FINISHING):
        return False
    hard = job.deadline.kind is DeadlineKind.HARD
    asked_ppm = HARD_ON_TIME_PPM if hard else SOFT_ON_TIME_PPM
    unlikely = outlook is not None and outlook.on_time_probability_ppm < asked_ppm
    return unlikely or slack_s < 0
