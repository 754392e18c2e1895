"""A live market: its slots show what feeds said by their opening, whoever was there to open them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.application.market_ingest.live_vetting import LiveVetting
from spotline.application.market_ingest.said import SaidQuotes
from spotline.application.market_ingest.vetting import Verdict
from spotline.application.unfit import Unfit
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.limits.freezes import FreezeReason
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.offering import Disks, Quote
from spotline.domain.market.overrides import (
    NO_OVERRIDES,
    PriceOverride,
    PriceOverrides,
    SavingsPlan,
)
from spotline.domain.units import NS_PER_S
from tests.fakes.recorded_run import START_NS, small_market
from tests.fakes.reserved import with_one

RECORDED = small_market(slots=4)
SLOT_S = RECORDED.slot_s
SLOT_NS = SLOT_S * NS_PER_S
LIVE = LiveMarket(
    source="feeds", offerings=RECORDED.offerings[:2], slot_s=SLOT_S, start_ns=START_NS
)
FIRST, SECOND = (offering.offering_id for offering in LIVE.offerings)
BY_CLOCK = IngestOptions(
    barrier=False, wall_clock=True, price_sanity=True, stale_after_s=0, slot_interval_s=SLOT_S
)


def quote(offering: int = 0, *, after_s: float = 0.0, **changes: object) -> Quote:
    said = RECORDED.quote(0, offering)
    return replace(said, ts_event_ns=START_NS + round(after_s * NS_PER_S), **changes)


class Live:
    """market_ingest of a live market, folding what it and a feed record."""

    def __init__(
        self,
        market: LiveMarket = LIVE,
        clock: MarketClock = WALL_TIME,
        log: Sequence[Event] = (),
        overrides: PriceOverrides = NO_OVERRIDES,
    ) -> None:
        self.handler = IngestHandler(market, BY_CLOCK, clock=clock, overrides=overrides)
        self.state: IngestState = self.handler.initial()
        self.vetting = LiveVetting(market, lambda: self.state)
        self.log: list[Event] = []
        for event in log:
            self.record(event)

    def record(self, *events: Event) -> None:
        for event in events:
            self.log.append(event)
            self.handler.evolve(self.state, event)

    def say(self, said: Quote) -> Verdict:
        vetted = self.vetting.judge(said)
        self.record(*self.vetting.answered(said.offering_id, said.ts_event_ns), *vetted.events)
        return vetted.verdict

    def open(self, now_ns: int = 0) -> SlotOpened:
        """Open the next slot, or by wall time the present one, and what comes with it."""
        (timer,) = self.handler.due(self.state)
        timer = timer.at_wall_ns(now_ns)
        self.record(*timer.events)
        last = timer.events[-1]
        if isinstance(last, MarketOpened):
            return self.open(now_ns)
        assert isinstance(last, SlotOpened)
        return last

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.log if isinstance(event, kind)]


def prices(opened: SlotOpened) -> dict[str, int]:
    return {each.quote.offering_id: each.quote.spot_price_micro_usd for each in opened.quotes}


def test_a_slot_shows_what_was_said_last_by_its_opening_and_how_old_that_is():
    live = Live()
    live.say(quote(0))
    live.say(quote(1))
    live.open()
    live.say(quote(0, after_s=600, spot_price_micro_usd=quote().spot_price_micro_usd + 7))
    live.say(quote(0, after_s=SLOT_S + 1, spot_price_micro_usd=quote().spot_price_micro_usd + 9))

    opened = live.open()

    assert opened.ts_event_ns == START_NS + SLOT_NS
    assert not opened.last
    assert prices(opened)[FIRST] == quote().spot_price_micro_usd + 7
    ages = {each.quote.offering_id: each.age_s for each in opened.quotes}
    assert ages == {FIRST: SLOT_S - 600, SECOND: SLOT_S}
    assert prices(live.open())[FIRST] == quote().spot_price_micro_usd + 9


def test_slots_that_were_missed_show_what_was_known_then_though_more_is_known_by_now():
    live = Live()
    live.say(quote(0))
    live.open()
    price = quote().spot_price_micro_usd
    live.say(quote(0, after_s=3 * SLOT_S - 1, spot_price_micro_usd=price + 3))
    live.say(quote(0, after_s=4 * SLOT_S, spot_price_micro_usd=price + 4))

    shown = [prices(live.open())[FIRST] - price for _ in range(4)]

    assert shown == [0, 0, 3, 4]


def test_the_first_slot_begins_in_its_middle_with_what_is_quoted_then():
    live = Live()
    live.say(quote(0, after_s=900.0))

    opened = live.open()

    assert opened.slot == 0
    said, unsaid = opened.quotes
    assert (said.quote.ts_event_ns, said.age_s) == (START_NS, 0)
    assert said.quote.spot_price_micro_usd == quote().spot_price_micro_usd
    assert not said.doubted
    assert unsaid.quote.offering_id == SECOND


def test_an_offering_that_was_never_quoted_can_not_be_bought_and_teaches_nothing():
    live = Live()
    live.say(quote(0))

    for _ in range(3):
        stood = live.open().quotes[1]
        assert stood.quote.spot_available.instances == 0
        assert stood.quote.on_demand_available.instances == 0
        assert stood.quote.spot_available.known
        assert stood.doubted
    assert live.say(quote(1, after_s=2.5 * SLOT_S)) is Verdict.RECORDED
    stood = live.open().quotes[1]
    assert stood.quote.spot_price_micro_usd == quote(1).spot_price_micro_usd
    assert not stood.doubted
    assert not live.of(QuoteQuarantined)


def test_the_first_slot_waits_for_first_quotes_and_no_slot_for_more():
    live = Live(clock=MarketClock(market_s_per_s=3600.0))
    live.record(*live.handler.due(live.state)[0].events)
    waits = live.handler.due(live.state)[0].after_s
    live.say(quote(0))
    live.say(quote(1))

    assert waits == SLOT_S / 3600.0
    assert live.handler.due(live.state)[0].after_s == 0.0


def test_slots_open_by_the_clock_of_the_market():
    clock = MarketClock(wall_ns=5_000 * NS_PER_S, market_ns=START_NS, market_s_per_s=600.0)
    live = Live(clock=clock)
    live.open()

    (timer,) = live.handler.due(live.state)

    assert timer.not_before_ns == 5_000 * NS_PER_S + SLOT_S * NS_PER_S // 600


def test_the_market_opens_without_an_end():
    live = Live()
    live.open()

    (opened,) = live.of(MarketOpened)
    assert isinstance(opened, MarketOpened)
    assert (opened.ends_ns, opened.first_slot_start_ns) == (0, START_NS)


def test_a_restart_goes_on_with_what_the_log_says():
    live = Live()
    live.say(quote(0))
    live.open()
    live.say(quote(1, after_s=60.0))

    again = Live(log=live.log)

    assert again.open() == live.open()


@given(
    st.lists(st.tuples(st.integers(0, 6 * SLOT_S), st.integers(1, 10**6)), max_size=30),
    st.integers(0, 5),
)
def test_whatever_comes_in_whatever_order_a_slot_shows_the_latest_by_then(said, slot):
    """Law: what is kept is enough for every slot that is still to open."""
    kept = SaidQuotes(start_ns=START_NS, slot_s=SLOT_S)
    told = [quote(0, after_s=at_s, spot_price_micro_usd=price) for at_s, price in said]
    for each in told:
        kept.note(each)
    for earlier in range(slot):
        kept.note_slot(START_NS + earlier * SLOT_NS)

    at_ns = START_NS + slot * SLOT_NS
    shown = kept.at(FIRST, at_ns)

    by_then = [each for each in told if each.ts_event_ns <= at_ns]
    if not by_then:
        assert shown is None
    else:
        assert shown is not None
        assert shown.quote.ts_event_ns == max(each.ts_event_ns for each in by_then)


def test_a_doubted_price_is_recorded_as_such_once_and_the_believed_one_stands():
    live = Live()
    for slot in range(3):
        live.say(quote(0, after_s=slot * SLOT_S))
        live.open()

    verdict = live.say(quote(0, after_s=2.5 * SLOT_S, spot_price_micro_usd=10**9))
    opened = live.open()

    assert verdict is Verdict.QUARANTINED
    assert prices(opened)[FIRST] == quote().spot_price_micro_usd
    assert opened.quotes[0].quarantined_spot_price_micro_usd == 10**9
    assert len(live.of(QuoteQuarantined)) == 1


def test_that_nothing_has_changed_is_recorded_once_in_a_slot():
    live = Live()
    verdicts = [live.say(quote(0, after_s=60.0 * minute)) for minute in range(61)]

    assert [number for number, verdict in enumerate(verdicts) if verdict is Verdict.RECORDED] == [
        *(0, 30, 60)
    ]


def test_of_two_feeds_the_newest_quote_stands():
    live = Live()
    other = LiveVetting(LIVE, lambda: live.state)
    live.say(quote(0, after_s=60))

    late = other.judge(quote(0, after_s=30, spot_price_micro_usd=1_000_000))

    assert late.verdict is Verdict.KNOWN
    assert other.judge(quote(0, after_s=90, spot_price_micro_usd=1_000_000)).events


def test_what_is_not_traded_here_is_left_out():
    other = Live(replace(LIVE, offerings=LIVE.offerings[:1]))

    assert other.say(quote(1)) is Verdict.KNOWN
    assert not other.log


def test_a_feed_that_does_not_answer_stops_new_spot_until_it_answers_again():
    live = Live()
    live.say(quote(0))
    live.open()

    events = live.vetting.unanswered(START_NS + 900 * NS_PER_S)
    live.record(*events)
    (begun,) = events
    assert isinstance(begun, BuyingFrozen)
    assert (begun.freeze.key, begun.freeze.reason) == (FIRST, FreezeReason.STALE_QUOTES)
    assert not live.vetting.unanswered(START_NS + 1000 * NS_PER_S)
    for _ in range(2):
        live.open()
    assert not live.of(BuyingUnfrozen)

    # Nothing has changed, but it answers.
    assert live.say(quote(0)) is Verdict.KNOWN
    assert [event.freeze_id for event in live.of(BuyingUnfrozen)] == [begun.freeze.freeze_id]
    live.open()
    assert len(live.of(BuyingFrozen)) == 1


def test_a_dead_feed_stops_new_spot_though_its_quotes_were_too_old_before():
    live = Live()
    live.say(quote(0))
    live.open()
    for _ in range(200):
        live.open()
    assert live.of(BuyingFrozen)
    # It has spoken since, of a slot that is still to open, and then no more.
    live.say(quote(0, after_s=202 * SLOT_S))
    begun = len(live.of(BuyingFrozen))

    live.record(*live.vetting.unanswered(START_NS + 203 * SLOT_NS))
    for _ in range(3):
        live.open()

    assert len(live.of(BuyingFrozen)) == begun + 1
    assert not [event for event in live.of(BuyingUnfrozen) if event.freeze_id.endswith(FIRST)]


def test_a_silence_outlasts_a_restart_and_ends_when_the_feed_answers_the_next_process():
    live = Live()
    live.say(quote(0))
    live.open()
    live.record(*live.vetting.unanswered(START_NS + 900 * NS_PER_S))

    again = Live(log=live.log)
    again.open()
    assert not again.of(BuyingUnfrozen)
    again.say(quote(0, after_s=2 * SLOT_S))
    assert len(again.of(BuyingUnfrozen)) == 1


def test_what_another_feed_has_quoted_since_is_not_silent():
    live = Live()
    other = LiveVetting(LIVE, lambda: live.state)
    live.record(*other.judge(quote(0)).events, *other.judge(quote(1)).events)
    live.say(quote(0, after_s=950.0, spot_price_micro_usd=quote().spot_price_micro_usd + 1))

    frozen = other.unanswered(START_NS + 900 * NS_PER_S)

    assert [event.freeze.key for event in frozen if isinstance(event, BuyingFrozen)] == [SECOND]


def test_what_a_source_says_is_stale_stays_so_until_it_says_something_newer():
    live = Live()
    live.say(quote(0))
    live.record(*live.vetting.fell_silent([FIRST, "of another"], START_NS))
    live.open()

    live.say(quote(0))
    assert not live.of(BuyingUnfrozen)
    live.say(quote(0, after_s=SLOT_S / 2))
    assert live.of(BuyingUnfrozen)


def test_a_reservation_is_quoted_by_nobody_and_there_until_it_ends():
    offerings = with_one(RECORDED, instances=2, slots=2).offerings
    reserved = offerings[-1]
    live = Live(replace(LIVE, offerings=(LIVE.offerings[0], reserved)))
    live.say(quote(0))

    there = [live.open().quotes[1].quote.on_demand_available.instances for _ in range(3)]

    assert there == [2, 2, 0]
    assert not live.of(QuoteQuarantined)
    assert [type(event) for event in live.of(QuoteObserved)] == [QuoteObserved]


def test_a_live_market_is_opened_by_time_alone():
    with pytest.raises(ValueError, match="wall_clock must be set"):
        IngestHandler(LIVE, IngestOptions())


def test_prices_are_judged_as_listed_and_shown_as_this_buyer_pays_them():
    # A tenth of what is listed: as a listed price it would not be believed.
    own = PriceOverride(offerings=FIRST, on_demand_discount_ppm=900_000)
    live = Live(overrides=PriceOverrides(stated=(own,)))
    listed = quote().on_demand_price_micro_usd
    for slot in range(3):
        live.say(quote(0, after_s=slot * SLOT_S))
        shown = live.open().quotes[0]
        assert shown.quote.on_demand_price_micro_usd == -(-listed // 10)
        assert shown.listed_on_demand_price_micro_usd == listed
        assert not shown.doubted
    assert not live.of(QuoteQuarantined)
    assert {event.quote.on_demand_price_micro_usd for event in live.of(QuoteObserved)} == {listed}


def test_disks_are_in_what_a_slot_shows_and_not_in_what_is_judged():
    disks = Disks(gb=730, micro_usd_per_gb_month=2_000_000)
    offerings = tuple(replace(each, disks=disks) for each in LIVE.offerings)
    own = PriceOverride(offerings=FIRST, on_demand_discount_ppm=500_000)
    live = Live(
        with_one(replace(LIVE, offerings=offerings), instances=2),
        overrides=PriceOverrides(stated=(own,)),
    )
    listed = quote().on_demand_price_micro_usd
    live.say(quote(0))
    live.say(quote(1))

    first, second, reserved = live.open().quotes

    assert first.quote.on_demand_price_micro_usd == -(-listed // 2) + 2_000_000
    assert first.listed == quote()
    assert second.quote.spot_price_micro_usd == second.listed.spot_price_micro_usd + 2_000_000
    assert reserved.quote.on_demand_price_micro_usd == 2_000_000
    assert {event.quote.on_demand_price_micro_usd for event in live.of(QuoteObserved)} == {
        listed,
        second.listed.on_demand_price_micro_usd,
    }


def test_a_savings_plan_is_dearer_once_what_is_held_uses_it_up():
    listed = quote().on_demand_price_micro_usd
    plan = PriceOverride(
        offerings="*", savings_plan=SavingsPlan(micro_usd_per_hour=listed, discount_ppm=500_000)
    )
    live = Live(overrides=PriceOverrides(stated=(plan,)))
    live.say(quote(0))
    before = live.open().quotes[0].quote.on_demand_price_micro_usd
    held = JobHolding(job_id="a", lots=(Lot(offering_id=FIRST, spot=0, on_demand=4),))
    live.record(CapacityReported(slot=0, revision=0, offset_s=0, holdings=(held,), settled=True))

    after = live.open().quotes[0].quote.on_demand_price_micro_usd

    assert (before, after) == (-(-listed // 2), listed * 3 // 4)


def present(slot: int, *, after_s: int = 60) -> int:
    """Wall time in a slot."""
    return START_NS + slot * SLOT_NS + after_s * NS_PER_S


@pytest.mark.parametrize(
    ("now_ns", "slot"),
    [
        (present(1), 1),
        (present(2, after_s=-1), 1),
        (present(2, after_s=0), 2),
        (present(7), 7),
        # A clock that was set back: nothing was missed.
        (present(0), 1),
    ],
)
def test_slots_that_are_over_do_not_open_and_the_one_that_does_says_how_many(now_ns, slot):
    live = Live()
    live.say(quote(0))
    live.open()
    price = quote().spot_price_micro_usd
    live.say(quote(0, after_s=3 * SLOT_S, spot_price_micro_usd=price + 7))

    opened = live.open(now_ns)

    assert (opened.slot, opened.missed) == (slot, slot - 1)
    assert opened.ts_event_ns == START_NS + slot * SLOT_NS
    assert prices(opened)[FIRST] == (price + 7 if slot >= 3 else price)
    assert live.open().slot == slot + 1


def test_the_first_slot_of_a_market_opens_however_late():
    live = Live()
    live.say(quote(0))

    assert (live.open(present(3)).slot, live.open(present(3)).slot) == (0, 3)


def test_what_opens_after_a_gap_has_ids_of_its_own():
    live = Live()
    live.open()
    (timer,) = live.handler.due(live.state)

    assert timer.timer_id == "slot:1"
    assert timer.at_wall_ns(present(1)).timer_id == "slot:1"
    assert timer.at_wall_ns(present(4)).timer_id == "slot:4"


def test_slots_that_somebody_else_says_were_missed_are_refused():
    live = Live()
    live.open()
    (timer,) = live.handler.due(live.state)
    later = timer.at_wall_ns(present(4)).events[-1]
    assert isinstance(later, SlotOpened)

    for missed in (0, 2, 4):
        with pytest.raises(Unfit):
            live.handler.evolve(live.state, replace(later, missed=missed))


def test_a_recorded_market_opens_every_slot_however_late():
    by_clock = IngestHandler(RECORDED, IngestOptions(barrier=False, wall_clock=True))
    state = by_clock.initial()
    (timer,) = by_clock.due(state)
    by_clock.evolve(state, timer.events[0])

    (timer,) = by_clock.due(state)

    assert timer.at_wall_ns(present(3)) is timer
