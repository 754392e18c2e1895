"""Stories of one job for the board: what happens, and how that is shown."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.board.fold import BoardState
from spotline.application.board.messages import JobView
from spotline.application.board.view import view_of
from spotline.application.market_view import MarketFold
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobClosed,
    JobOutcome,
    JobSubmitted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, Move, Yielded
from tests.fakes.allocator import EAST, START_NS, job, market_opened, slot_opened

NO_LOTS: tuple[Lot, ...] = ()


def spot(count: int, offering_id: str = EAST) -> tuple[Lot, ...]:
    return (Lot(offering_id=offering_id, spot=count),)


def outlook(*, on_time_ppm: int = 1_000_000, finish_ns: int = 0, slot: int = 0) -> JobOutlook:
    return JobOutlook(
        slot=slot,
        futures=64,
        on_time_probability_ppm=on_time_ppm,
        expected_cost_micro_usd=3,
        cost_p10_micro_usd=1,
        cost_p50_micro_usd=2,
        cost_p90_micro_usd=5,
        finish_p10_ns=finish_ns,
        finish_p50_ns=finish_ns,
        finish_p90_ns=finish_ns,
        expected_utility_micro_usd=0,
    )


class BoardStory:
    """What happens to one job; every method returns the story, `view` says how it is shown."""

    def __init__(self, stated: Job | None = None) -> None:
        self.job = stated or job(instance_hours=5.0)
        self.board = BoardState()
        self.market = MarketFold()
        self.slot = 0

    def tell(self, *events: Event) -> BoardStory:
        for event in events:
            self.market.fold(event)
            self.board.fold(event, self.market)
        return self

    def of_job(self, event_type: type[Event], **fields: object) -> BoardStory:
        return self.tell(event_type(job_id=self.job.job_id, tenant=self.job.tenant, **fields))

    def view(self, **more: object) -> JobView:
        return view_of(self.board, self.job, self.market, **more)

    # --- the market and the job's life ----------------------------------------------------------

    def submitted(self) -> BoardStory:
        return self.tell(market_opened(), JobSubmitted(job=self.job, ts_event_ns=START_NS))

    def opened(self, slot: int, **market: object) -> BoardStory:
        self.slot = slot
        return self.tell(slot_opened(slot, **market))

    def admitted(self) -> BoardStory:
        return self.of_job(
            JobAdmitted,
            slot=self.slot,
            policy_id="sdp",
            offering_id=EAST,
            deadline_slot=29,
            weight_ppb=1,
        )

    def decided(
        self,
        lots: tuple[Lot, ...],
        reason: DecisionReason = DecisionReason.POLICY,
        *,
        move_from: str = "",
        offset_s: int = 0,
        cleared: bool = False,
        yielded: Yielded | None = None,
    ) -> BoardStory:
        move = Move(from_offering_id=move_from, overhead_s=90, cost_micro_usd=0)
        return self.of_job(
            AllocationDecided,
            slot=self.slot,
            revision=int(offset_s > 0),
            offset_s=offset_s,
            policy_id="sdp",
            lots=lots,
            reason=reason,
            forecast_used=True,
            explanation="as the selector says",
            move=move if move_from else None,
            cleared=cleared,
            yielded=yielded,
        )

    def reported(self, lots: tuple[Lot, ...], *, offset_s: int = 0) -> BoardStory:
        names = tuple(f"i-{n}" for n in range(sum(lot.spot + lot.on_demand for lot in lots)))
        holding = JobHolding(job_id=self.job.job_id, lots=lots, instance_ids=names)
        return self.tell(
            CapacityReported(
                slot=self.slot,
                revision=0,
                offset_s=offset_s,
                settled=True,
                holdings=(holding,) if lots else (),
            )
        )

    def advanced(self, progress_ppm: int, lots: tuple[Lot, ...], cost: int = 0) -> BoardStory:
        """The slot before the open one is over."""
        return self.of_job(
            JobAdvanced,
            slot=self.slot - 1,
            lots=lots,
            progress_ppm=progress_ppm,
            slot_cost_micro_usd=cost,
            cost_micro_usd=cost,
        )

    def closed(self, outcome: JobOutcome, *, progress_ppm: int = 1_000_000) -> BoardStory:
        return self.of_job(
            JobClosed,
            slot=self.slot - 1,
            outcome=outcome,
            policy_id="sdp",
            cost_micro_usd=7,
            value_micro_usd=0,
            progress_ppm=progress_ppm,
        )

    def running(self, count: int = 2) -> BoardStory:
        """Up to holding `count` spot in slot 0."""
        return self.submitted().opened(0).admitted().decided(spot(count)).reported(spot(count))

    # --- what providers do ----------------------------------------------------------------------

    def noticed(self, *instance_ids: str, lead_s: int = 120) -> BoardStory:
        return self.of_job(
            InterruptionNoticed,
            offering_id=EAST,
            instance_ids=instance_ids,
            slot=self.slot,
            offset_s=60,
            lead_s=lead_s,
            kind=InterruptionKind.CAPACITY_RECLAIMED,
        )

    def withdrawn(self, *instance_ids: str) -> BoardStory:
        return self.of_job(
            InterruptionWithdrawn,
            offering_id=EAST,
            instance_ids=instance_ids,
            slot=self.slot,
            offset_s=90,
        )

    def lost(self, *instance_ids: str, offset_s: int = 180) -> BoardStory:
        return self.of_job(
            CapacityLost,
            offering_id=EAST,
            instance_ids=instance_ids,
            slot=self.slot,
            offset_s=offset_s,
        )

    def refused(self, refusal: RefusalClass | None = RefusalClass.NO_CAPACITY) -> BoardStory:
        return self.of_job(
            LaunchRefused,
            command_id="c",
            offering_id=EAST,
            capacity_type=CapacityType.SPOT,
            slot=self.slot,
            requested=2,
            granted=0,
            detail="none left",
            refusal_class=refusal,
        )

    def billed(self, micro_usd: int, *, instances: int = 1) -> BoardStory:
        return self.of_job(
            CostAccrued,
            offering_id=EAST,
            quota_pool="us-east-1",
            capacity_type=CapacityType.SPOT,
            slot=self.slot,
            instances=instances,
            held_s=600,
            price_micro_usd=1,
            cost_micro_usd=micro_usd,
        )


def awaiting(stated: Job, **fields: object) -> Job:
    """A job whose program ends it."""
    return replace(stated, awaits_exit=True, **fields)
