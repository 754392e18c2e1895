"""When the market's next slot opens, and when market time stands still."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.market_ingest.settings import MarketIngestSettings
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.spec import derive_id
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed, JobOutcome, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import (
    PlacementDecided,
    PlacementEnd,
    PlacementEnded,
    PlacementOutcome,
)
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_jobs
from tests.fakes.placer import START_NS, id_of, submitted

MARKET = generate("mixed", seed=3, slots=16, slot_s=1800, start_ns=START_NS)
(JOB,) = generated_jobs(MARKET, 1, 3)
SUBMITTED = JobSubmitted(job=JOB, ts_event_ns=START_NS)


class Clock:
    """The handler, and what it has opened."""

    def __init__(
        self, options: IngestOptions | None = None, *, most: int = MARKET.slots + 1
    ) -> None:
        self.handler = IngestHandler(MARKET, options or IngestOptions(wait_for_work=True))
        self.state = self.handler.initial()
        self.slot = -1
        self.run(most=most)

    def hear(self, *events: Event) -> Clock:
        for event in events:
            self.handler.evolve(self.state, event)
        return self

    def run(self, *, most: int = MARKET.slots + 1) -> int:
        """Open what is due and settle it, `most` slots at most; return the last slot opened."""
        for _ in range(most):
            if not (timers := self.handler.due(self.state)):
                break
            (timer,) = timers
            self.hear(*timer.events)
            opened = timer.events[-1]
            if isinstance(opened, SlotOpened):
                self.slot = opened.slot
                self.hear(settled(opened.slot))
            else:
                assert isinstance(opened, MarketOpened)
        return self.slot


def settled(slot: int) -> CapacityReported:
    return CapacityReported(slot=slot, revision=0, offset_s=0, holdings=(), settled=True)


def admitted(slot: int, *, deadline_slot: int) -> JobAdmitted:
    return JobAdmitted(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=slot,
        policy_id="uniform_progress",
        offering_id=MARKET.offerings[0].offering_id,
        deadline_slot=deadline_slot,
        weight_ppb=1,
    )


def closed(slot: int, outcome: JobOutcome = JobOutcome.COMPLETED) -> JobClosed:
    return JobClosed(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=slot,
        outcome=outcome,
        policy_id="",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )


def placement(outcome: PlacementOutcome) -> PlacementDecided:
    return PlacementDecided(
        job_id=id_of(), tenant="research", ts_event_ns=START_NS, outcome=outcome, method_id="m"
    )


ENDED = PlacementEnded(
    job_id=id_of(),
    tenant="research",
    ts_event_ns=START_NS,
    end=PlacementEnd.COMPLETED,
    iterations_done=1,
    cost_micro_usd=0,
)


def test_without_waiting_the_whole_market_opens() -> None:
    assert Clock(IngestOptions()).slot == MARKET.slots - 1


def test_a_waiting_market_opens_its_first_slot_so_that_plans_and_placements_have_prices() -> None:
    assert Clock().slot == 0


def test_a_submitted_job_lets_slots_open() -> None:
    assert Clock().hear(SUBMITTED).run(most=3) == 3


def test_market_time_stands_still_again_when_the_selector_has_learned_from_the_job() -> None:
    clock = Clock().hear(SUBMITTED)
    clock.run(most=1)
    clock.hear(admitted(1, deadline_slot=6))
    clock.run(most=2)

    assert clock.hear(closed(2)).run() == 7


def test_a_job_that_outlives_its_deadline_keeps_the_market_open() -> None:
    clock = Clock().hear(SUBMITTED)
    clock.run(most=1)
    clock.hear(admitted(1, deadline_slot=3))

    assert clock.run(most=8) == 9
    assert clock.hear(closed(8, JobOutcome.COMPLETED_LATE)).run() == 9


def test_a_job_withdrawn_before_its_first_slot_needs_none() -> None:
    assert Clock().hear(SUBMITTED, closed(0, JobOutcome.CANCELLED)).run() == 0


def test_the_next_job_finds_the_market_where_the_last_one_left_it() -> None:
    clock = Clock().hear(SUBMITTED, admitted(1, deadline_slot=3))
    clock.run(most=2)
    assert clock.hear(closed(2)).run() == 4

    assert clock.hear(SUBMITTED).run(most=1) == 5


def test_a_pipeline_is_work_until_it_ends_and_for_the_slot_that_takes_its_instances_back() -> None:
    clock = Clock().hear(submitted(), placement(PlacementOutcome.PLACED))
    assert clock.run(most=2) == 2

    assert clock.hear(ENDED).run() == 3


@pytest.mark.parametrize(
    ("outcome", "slot"), [(PlacementOutcome.REFUSED, 0), (PlacementOutcome.WAITING, 3)]
)
def test_a_refused_pipeline_is_over_and_a_waiting_one_is_not(
    outcome: PlacementOutcome, slot: int
) -> None:
    assert Clock().hear(submitted(), placement(outcome)).run(most=3) == slot


def test_a_slot_that_is_not_settled_holds_the_next_one() -> None:
    clock = Clock().hear(SUBMITTED)
    (timer,) = clock.handler.due(clock.state)

    assert clock.hear(*timer.events).handler.due(clock.state) == ()


def test_wall_clock_and_waiting_exclude_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="choose one of the two"):
        IngestOptions(barrier=False, wait_for_work=True)

    monkeypatch.setenv("SPOTLINE_MARKET", "market.parquet")
    monkeypatch.setenv("SPOTLINE_WAIT_FOR_WORK", "true")
    assert MarketIngestSettings().ingest(1800) == IngestOptions(
        wait_for_work=True, price_sanity=True, stale_after_s=0
    )
    monkeypatch.setenv("SPOTLINE_WALL_CLOCK", "true")
    with pytest.raises(ValidationError, match="choose one of the two") as refused:
        MarketIngestSettings()
    assert refused.value.errors()[0]["loc"] == ("wait_for_work",)


def parked_slot(slot: int, event_id: str) -> EntryParked:
    return EntryParked(
        service="market_ingest",
        seq=9,
        place=0,
        event_id=event_id,
        kind=KINDS[SlotOpened],
        error="slot must be 3, the next one of the market, was 4",
        error_type="Unfit",
        slot=slot,
    )


def test_a_slot_of_somebody_else_that_was_parked_is_still_to_open() -> None:
    clock = Clock(IngestOptions(), most=5)
    assert clock.slot == 3

    clock.hear(parked_slot(4, "a-stranger"))

    assert clock.run(most=1) == 4


def test_the_market_goes_on_where_its_own_slot_was_parked() -> None:
    clock = Clock(IngestOptions(), most=5)
    (timer,) = clock.handler.due(clock.state)
    own_id = derive_id("market_ingest", timer.timer_id, len(timer.events) - 1)

    clock.hear(parked_slot(4, own_id))

    assert clock.run(most=1) == 5
