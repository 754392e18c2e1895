"""On-demand stock that nobody publishes: what the selector believes of it, and keeps in reserve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.application.selector.state import SlotPhase
from spotline.domain.beliefs.stock_laws import shipped_stock
from spotline.domain.events.capacity import CapacityReported, LaunchRefused, RefusalClass
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import (
    UNKNOWN_COUNT,
    CapacityType,
    Count,
    Provenance,
    Reservation,
)
from spotline.replay.jobs import generated_jobs
from tests.unit.application.selector.test_revisions import MARKET, Driver

JOB = generated_jobs(MARKET, 1, 2)[0]
BELIEVING = where_uncounted(SelectorOptions(rehearsals=0, stock_beliefs=shipped_stock().sha256))
EARLIER = replace(BELIEVING, stock_beliefs="")


class Market:
    """A job's home on a market of one kind of GPU, whose stock is not published."""

    def __init__(self, options, gpu_model="h100", stock=UNKNOWN_COUNT, reservation=None):
        self.driver, self.stock = Driver(options), stock
        self.clock = IngestHandler(MARKET, IngestOptions())
        offerings = tuple(
            replace(offering, gpu_model=gpu_model, reservation=reservation)
            for offering in MARKET.offerings
        )
        self.driver.feed(
            MarketOpened(
                offerings=offerings,
                slot_s=MARKET.slot_s,
                first_slot_start_ns=MARKET.start_ns,
                source="test",
            )
        )
        self.driver.feed(JobSubmitted(job=replace(JOB, start_ns=MARKET.start_ns), ts_event_ns=0))
        self.slot = -1
        self.next_slot()

    @property
    def state(self):
        return self.driver.state

    @property
    def home(self):
        return self.state.runs[JOB.job_id].offering_id

    def next_slot(self):
        self.slot += 1
        opened = self.clock.slot_events(self.slot)[-1]
        quotes = tuple(
            replace(quoted, quote=replace(quoted.quote, on_demand_available=self.stock))
            for quoted in opened.quotes
        )
        self.driver.feed(replace(opened, quotes=quotes))

    def reserve(self, *, ahead=False):
        if ahead:
            return self.state.stock_ahead(JOB.allowed_counts, self.home)[0]
        return self.state.on_demand_stock(JOB, self.home)[0]

    def refuse(self, refusal_class=RefusalClass.NO_CAPACITY, *, granted=0):
        self.driver.feed(
            LaunchRefused(
                command_id="c",
                job_id=JOB.job_id,
                tenant=JOB.tenant,
                offering_id=self.home,
                capacity_type=CapacityType.ON_DEMAND,
                slot=self.slot,
                requested=4,
                granted=granted,
                detail="test",
                refusal_class=refusal_class,
            )
        )

    def hold(self, on_demand):
        self.state.phase = SlotPhase.AWAITING_CAPACITY
        lot = Lot(offering_id=self.home, spot=0, on_demand=on_demand)
        held = (JobHolding(job_id=JOB.job_id, lots=(lot,)),) if on_demand else ()
        self.driver.feed(
            CapacityReported(
                slot=self.slot,
                revision=self.state.revision,
                offset_s=0,
                settled=True,
                holdings=held,
            )
        )


def test_an_h100_is_asked_for_early_until_a_launch_was_granted():
    market = Market(BELIEVING)
    first = market.reserve()

    market.hold(on_demand=4)

    assert first > MARKET.slots
    assert market.reserve() < 8
    assert market.reserve(ahead=True) <= market.reserve()


def test_what_is_held_on_is_no_launch():
    market = Market(BELIEVING)
    market.hold(on_demand=4)
    market.next_slot()
    before = market.reserve()

    market.hold(on_demand=4)

    assert market.reserve() == before


def test_of_older_machines_nothing_is_kept_until_a_launch_is_refused():
    market = Market(BELIEVING, gpu_model="v100")
    assert market.reserve() == 0

    market.refuse()

    assert market.reserve() > Market(EARLIER, gpu_model="v100").reserve()
    assert market.reserve() > 4


def test_a_part_that_was_granted_shows_that_there_was_no_more():
    market = Market(BELIEVING)
    before = market.reserve()

    market.refuse(granted=2)
    market.hold(on_demand=2)

    assert market.reserve() >= before


@pytest.mark.parametrize("refusal_class", [RefusalClass.QUOTA, RefusalClass.UNKNOWN_OUTCOME])
def test_what_is_refused_for_another_reason_tells_nothing_of_stock(refusal_class):
    market = Market(BELIEVING)
    chance = market.state.stock_beliefs.offerings[market.home].out_chance()

    market.refuse(refusal_class)

    assert market.state.stock_beliefs.offerings[market.home].out_chance() == chance


def test_without_priors_a_first_launch_is_expected_at_once_as_before():
    market = Market(EARLIER)
    assert market.state.stock_beliefs is None
    assert market.reserve() == market.reserve(ahead=True) == 0

    market.refuse()

    assert market.reserve() == 1


def test_a_count_that_is_published_is_no_belief():
    counted = Market(BELIEVING, stock=Count(instances=64, provenance=Provenance.OBSERVED))

    assert counted.state.stock_beliefs.offerings == {}
    assert counted.reserve() == 0


def test_a_reservation_is_there_for_us():
    market = Market(BELIEVING, reservation=Reservation(instances=64))

    assert market.state.stock_beliefs.offerings == {}


def test_priors_of_another_release_are_refused_by_name():
    with pytest.raises(ValueError, match="stock_beliefs"):
        SelectorOptions(stock_beliefs="0" * 64)
