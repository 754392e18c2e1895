"""Jobs as a running system shows them, each with a view: for what prints and draws them."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.allocator.happenings import JobHappening
from spotline.application.allocator.messages import JobState, JobStatus
from spotline.application.board.messages import (
    FleetView,
    JobCounts,
    JobFlag,
    JobMoney,
    JobPhase,
    JobView,
    WaitingFor,
)
from spotline.application.explaining.messages import (
    AlternativeCut,
    ConsideredAlternative,
    DecisionExplanation,
    DecisionInput,
)
from spotline.application.market_view import ClockReading, MarketState, MarketStatus
from spotline.cli.live.feed import FeedBroken
from spotline.cli.status_view import JobBoard
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, SLOT_NS, SLOT_S, START_NS, job, slot_opened

WALL_NS = 1_795_000_000 * NS_PER_S
# What somebody may call a job to do harm with.
HOSTILE = "x\x1b[2J\u202e[bold]\x07"


def outlook(slot: int = 0, *, on_time_ppm: int = 970_000) -> JobOutlook:
    """What is expected of the test job."""
    return JobOutlook(
        slot=slot,
        futures=64,
        on_time_probability_ppm=on_time_ppm,
        expected_cost_micro_usd=45_000_000,
        cost_p10_micro_usd=38_000_000,
        cost_p50_micro_usd=44_000_000,
        cost_p90_micro_usd=61_000_000,
        finish_p10_ns=START_NS + 20 * SLOT_NS,
        finish_p50_ns=START_NS + 24 * SLOT_NS,
        finish_p90_ns=0,
        expected_utility_micro_usd=155_000_000,
    )


def running() -> JobStatus:
    """A job that trains, and what is known of it."""
    return JobStatus(
        job=job("running"),
        state=JobState.RUNNING,
        submitted_ns=START_NS,
        policy_id="sdp",
        offering_id=EAST,
        progress_ppm=420_000,
        cost_micro_usd=12_300_000,
        deadline_slot=30,
        last_slot=9,
        view=JobView(
            phase=JobPhase.RUNNING,
            since_ns=START_NS + 2 * SLOT_NS,
            headline="Runs on 3 spot + 1 on-demand in use1-az1; 42 % done, done by 04:00 UTC.",
            held=(Lot(offering_id=EAST, spot=3, on_demand=1),),
            wanted=(Lot(offering_id=EAST, spot=3, on_demand=1),),
            why="spot is cheap: 3.00 USD per instance hour",
            latest_on_demand_start_ns=START_NS + 17 * SLOT_NS,
            slack_s=8 * SLOT_S,
            outlook=outlook(9),
            quoted=outlook(),
            money=JobMoney(
                spent_micro_usd=12_300_000,
                billed_micro_usd=12_300_000,
                on_demand_micro_usd=31_000_000,
                msu_micro_usd=14_000_000,
            ),
            counts=JobCounts(interruptions=3, noticed=2, starts=4, checkpoints=9),
            last_report_ns=START_NS + 9 * SLOT_NS,
            last_report_wall_ns=WALL_NS,
        ),
    )


def at_risk() -> JobStatus:
    """A job that waits for capacity and is at risk, of which nothing was heard for long."""
    status = running()
    view = status.view
    assert view is not None
    return replace(
        status,
        job=job("at risk"),
        view=replace(
            view,
            phase=JobPhase.WAITING,
            waiting_for=WaitingFor.CAPACITY,
            flags=(JobFlag.AT_RISK, JobFlag.STALLED),
            headline="Waits for capacity; 42 % done, on time with 31 %.",
            held=(),
            outlook=outlook(9, on_time_ppm=310_000),
            slack_s=-SLOT_S,
        ),
    )


def hostile() -> JobStatus:
    """A job whose owner named it to do harm, without a view."""
    return replace(running(), job=replace(job("hostile"), name=HOSTILE, tenant=HOSTILE), view=None)


def market(slot: int = 9, state: MarketState = MarketState.OPEN) -> MarketStatus:
    """The market in a slot."""
    return MarketStatus(
        state=state,
        next_slot_start_ns=START_NS + (slot + 1) * SLOT_NS,
        ends_ns=START_NS + 144 * SLOT_NS,
        source="a test",
        clock=ClockReading(
            market_ns=START_NS + slot * SLOT_NS, slot=slot, slot_s=SLOT_S, wall_ns=WALL_NS
        ),
        quotes=slot_opened(slot).quotes,
    )


EXPLANATION = DecisionExplanation(
    decision=AllocationDecided(
        job_id=running().job.job_id,
        tenant="research",
        slot=9,
        revision=0,
        policy_id="sdp",
        lots=(Lot(offering_id=EAST, spot=3, on_demand=1),),
        reason=DecisionReason.POLICY,
        explanation="3 spot + 1 on-demand by sdp",
        offset_s=0,
        forecast_used=True,
    ),
    seq=77,
    ts_event_ns=START_NS + 9 * SLOT_NS,
    summary="It takes 3 spot + 1 on-demand: 2.10 USD less than nothing now.",
    alternatives=(
        ConsideredAlternative(
            lots=(Lot(offering_id=EAST, spot=3, on_demand=1),),
            chosen=True,
            immediate_cost_micro_usd=3_170_000,
            cost_to_go_micro_usd=29_000_000,
            utility_micro_usd=155_000_000,
            on_time_probability_ppm=970_000,
            worse_by_micro_usd=0,
        ),
        ConsideredAlternative(
            lots=(),
            chosen=False,
            immediate_cost_micro_usd=0,
            cost_to_go_micro_usd=34_270_000,
            utility_micro_usd=152_900_000,
            on_time_probability_ppm=880_000,
            worse_by_micro_usd=2_100_000,
            cut=AlternativeCut.SAFETY_NET,
            cut_detail="on-demand must begin by 02:50 UTC",
        ),
    ),
    method="the job's value table, on 64 futures",
    inputs=(DecisionInput(kind="forecast", id="f1", seq=70, age_s=600, text="4 spot, 90 %"),),
    chain=(),
)


def board(*statuses: JobStatus) -> JobBoard:
    """Some jobs with their market."""
    fleet = FleetView(
        spot=3,
        on_demand=1,
        micro_usd_per_hour=19_000_000,
        billed_micro_usd=24_600_000,
        open_jobs=len(statuses),
        at_risk=1,
        stalled=1,
    )
    return JobBoard(
        statuses=statuses or (running(), at_risk(), hostile()), market=market(), fleet=fleet
    )


class FakeFeed:
    """Answers the live view with a board that a test may change; `broken` says nothing answers."""

    def __init__(self, shown: JobBoard) -> None:
        self.shown = shown
        self.broken = ""

    async def board(self) -> JobBoard:
        if self.broken:
            raise FeedBroken(self.broken)
        return self.shown

    async def quotes(self, offering_id: str) -> tuple[SlotQuote, ...]:
        slots = [
            slot_opened(slot, spot=slot % 5, spot_price=3_000_000 + slot) for slot in range(40)
        ]
        return tuple(
            quoted
            for slot in slots
            for quoted in slot.quotes
            if quoted.quote.offering_id == offering_id
        )

    async def explanation(self, job_id: str) -> DecisionExplanation:
        return EXPLANATION

    async def events(self, job_id: str) -> tuple[JobHappening, ...]:
        if self.broken:
            raise FeedBroken(self.broken)
        return (
            JobHappening(
                seq=1, kind="job.submitted", ts_event_ns=START_NS, text=f"submitted {HOSTILE}"
            ),
            JobHappening(
                seq=7, kind="capacity.lost", ts_event_ns=START_NS + SLOT_NS, text="i-1 gone"
            ),
        )
