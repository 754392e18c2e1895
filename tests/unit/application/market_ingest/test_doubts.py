"""Prices that are not believed, old quotes, odd slots: what market_ingest makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.application.unfit import Unfit
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.limits.freezes import FreezeReason, FreezeScope
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.depth import examples
from tests.fakes.reserved import with_one

START_NS = 1_772_323_200 * NS_PER_S
MARKET = generate("mixed", seed=3, slots=48, slot_s=1800, start_ns=START_NS)
FIRST = MARKET.offerings[0].offering_id
# What was believed last stands for no time: what follows then is tried here.
JUDGED = IngestOptions(price_sanity=True, stale_after_s=0, stands_for_s=0)
FROM = 30


def times(market: Market, factor: float, *, first: int = FROM, end: int | None = None) -> Market:
    """The market with all prices so many times as high in some slots."""
    changed = {}
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
        prices = getattr(market, name).copy()
        prices[first:end] = np.maximum(1, np.rint(prices[first:end] * factor)).astype(np.int64)
        changed[name] = prices
    return replace(market, **changed)


def silent(market: Market, column: int, *, first: int, end: int) -> Market:
    """The market in which nothing is said of an offering in some slots."""
    changed = {}
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd", "quoted_ns"):
        said = getattr(market, name).copy()
        said[first:end, column] = said[first - 1, column]
        changed[name] = said
    return replace(market, **changed)


class Run:
    """A market that opens slot by slot; a restart folds what was said before."""

    def __init__(self, market: Market, options: IngestOptions = JUDGED) -> None:
        self.market, self.options = market, options
        self.events: list[Event] = []
        self.restart()

    def restart(self, options: IngestOptions | None = None) -> Run:
        self.handler = IngestHandler(self.market, options or self.options)
        self.state: IngestState = self.handler.initial()
        for event in self.events:
            self.handler.evolve(self.state, event)
        return self

    def hear(self, *events: Event) -> Run:
        for event in events:
            self.events.append(event)
            self.handler.evolve(self.state, event)
        return self

    def run(self, slots: int | None = None) -> Run:
        """Open slots until there is none, or so many are open."""
        end = self.market.slots if slots is None else slots
        while self.state.slot < end - 1 and (timers := self.handler.due(self.state)):
            self.hear(*timers[0].events)
            if self.state.slot >= 0:
                self.hear(settled(self.state.slot))
        return self

    def of(self, *kinds: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]

    @property
    def slots(self) -> list[SlotOpened]:
        return [event for event in self.events if isinstance(event, SlotOpened)]


def settled(slot: int) -> CapacityReported:
    return CapacityReported(slot=slot, revision=0, offset_s=0, holdings=(), settled=True)


def unjudged(events: list[Event]) -> list[Event]:
    return [e for e in events if isinstance(e, SlotOpened | QuoteObserved | MarketOpened)]


def test_a_market_of_which_all_is_believed_opens_as_without_judgement() -> None:
    assert Run(MARKET).run().events == Run(MARKET, IngestOptions()).run().events


@pytest.mark.parametrize("factor", [1_000, 100, 60, 1e-3, 1e-2])
def test_prices_in_a_wrong_unit_are_set_aside_and_the_last_believed_ones_stand(
    factor: float,
) -> None:
    run = Run(times(MARKET, factor)).run()

    doubted = [event for event in run.events if isinstance(event, QuoteQuarantined)]
    assert {event.field for event in doubted} == {
        "spot_price_micro_usd",
        "on_demand_price_micro_usd",
    }
    assert len(doubted) == 2 * len(MARKET.offerings) * (MARKET.slots - FROM)
    for event in doubted:
        price = getattr(event.quote, event.field)
        assert not event.lowest_micro_usd <= price <= event.highest_micro_usd
        assert event.field in event.detail
    believed = {quoted.quote.offering_id: quoted.quote for quoted in run.slots[FROM - 1].quotes}
    for opened in run.slots[FROM:]:
        assert [quoted.quote.spot_available for quoted in opened.quotes] == [
            quote.spot_available for quote in MARKET.quotes(opened.slot)
        ]
        for quoted, said in zip(opened.quotes, run.market.quotes(opened.slot), strict=True):
            last = believed[quoted.quote.offering_id]
            assert quoted.quote.spot_price_micro_usd == last.spot_price_micro_usd
            assert quoted.quote.on_demand_price_micro_usd == last.on_demand_price_micro_usd
            assert quoted.age_s == last.age_s(opened.ts_event_ns)
            assert quoted.quarantined_spot_price_micro_usd == said.spot_price_micro_usd
            assert quoted.worst_price(CapacityType.ON_DEMAND) == max(
                said.on_demand_price_micro_usd, last.on_demand_price_micro_usd
            )


def test_new_spot_is_frozen_once_while_a_price_is_doubted_and_goes_on_after() -> None:
    run = Run(times(MARKET, 1_000, end=FROM + 5)).run()

    begun = [event.freeze for event in run.events if isinstance(event, BuyingFrozen)]
    assert [
        (freeze.scope, freeze.key, freeze.reason, freeze.capacity_type, freeze.slot)
        for freeze in begun
    ] == [
        (
            FreezeScope.OFFERING,
            offering.offering_id,
            FreezeReason.PRICE,
            CapacityType.SPOT,
            FROM,
        )
        for offering in MARKET.offerings
    ]
    assert all(freeze.yields_to_deadlines for freeze in begun)
    ended = [event for event in run.events if isinstance(event, BuyingUnfrozen)]
    assert [(event.freeze_id, event.slot, event.by) for event in ended] == [
        (freeze.freeze_id, FROM + 5, "") for freeze in begun
    ]
    first = run.events.index(run.of(BuyingFrozen)[0])
    assert first < run.events.index(run.slots[FROM])


def test_what_was_believed_last_buys_spot_until_it_is_too_old() -> None:
    slots = 4
    judged = replace(JUDGED, stands_for_s=slots * MARKET.slot_s)

    run = Run(times(MARKET, 1_000), judged).run()

    begun = [event.freeze.slot for event in run.events if isinstance(event, BuyingFrozen)]
    # What was believed last is of the slot before the first that is doubted.
    assert begun == [FROM + slots] * len(MARKET.offerings)
    assert not Run(times(MARKET, 1_000, end=FROM + slots), judged).run().of(BuyingFrozen)


@pytest.mark.parametrize("stop", [FROM - 1, FROM, FROM + 1, FROM + 5, FROM + 6])
def test_a_restart_judges_as_the_process_before_it(stop: int) -> None:
    market = times(MARKET, 1_000, end=FROM + 5)

    assert Run(market).run(stop).restart().run().events == Run(market).run().events


@st.composite
def troubled(draw: st.DrawFn) -> Market:
    """A market with runs of wrong prices and of silence."""
    market = MARKET
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(1, MARKET.slots - 2))
        end = draw(st.integers(first + 1, MARKET.slots))
        if draw(st.booleans()):
            factor = draw(st.sampled_from([1_000, 100, 8, 3, 1.3, 0.5, 0.1, 0.01, 0.001]))
            market = times(market, factor, first=first, end=end)
        else:
            market = silent(market, draw(st.integers(0, 2)), first=first, end=end)
    return market


@given(troubled(), st.integers(0, MARKET.slots))
@settings(max_examples=examples(40), deadline=None)
def test_whatever_is_said_freezes_begin_and_end_in_turn_and_a_restart_changes_nothing(
    market: Market, stop: int
) -> None:
    run = Run(market).run()

    in_force: set[str] = set()
    slot: SlotOpened | None = None
    for event in run.events:
        match event:
            case BuyingFrozen():
                assert event.freeze.freeze_id not in in_force
                in_force.add(event.freeze.freeze_id)
            case BuyingUnfrozen():
                in_force.remove(event.freeze_id)
            case SlotOpened():
                slot = event
                doubted = {f"price:{q.quote.offering_id}" for q in event.quotes if q.doubted}
                assert {each for each in in_force if each.startswith("price:")} == doubted
            case _:
                pass
    assert slot is not None
    assert slot.slot == MARKET.slots - 1
    assert Run(market).run(stop).restart().run().events == run.events


def test_without_price_sanity_a_freeze_that_is_in_force_ends_and_prices_are_taken() -> None:
    run = Run(times(MARKET, 1_000)).run(FROM + 2).restart(IngestOptions()).run()

    ended = [event for event in run.events if isinstance(event, BuyingUnfrozen)]
    assert {event.slot for event in ended} == {FROM + 2}
    assert len(ended) == len(MARKET.offerings)
    assert not any(quoted.doubted for quoted in run.slots[FROM + 2].quotes)


def test_what_a_person_has_lifted_is_not_frozen_again_for_the_same_trouble() -> None:
    run = Run(times(MARKET, 1_000, end=FROM + 6)).run(FROM + 2)
    lifted = f"price:{FIRST}"

    run.hear(BuyingUnfrozen(freeze_id=lifted, by="operator", slot=FROM + 1)).run()

    begun = Counter(e.freeze.freeze_id for e in run.events if isinstance(e, BuyingFrozen))
    assert begun[lifted] == 1


def test_a_list_price_that_a_person_states_is_believed_at_once() -> None:
    rise = times(MARKET, 3)
    stated = {
        offering.offering_id: int(rise.on_demand_price_micro_usd[FROM, column])
        for column, offering in enumerate(MARKET.offerings)
    }

    believed = Run(rise, replace(JUDGED, list_prices_micro_usd=stated)).run()

    assert Run(rise).run().of(QuoteQuarantined)
    late = [event for event in believed.slots[FROM:] for quoted in event.quotes if quoted.doubted]
    assert late == []


def test_where_no_price_was_ever_believed_there_is_nothing_to_buy() -> None:
    run = Run(times(MARKET, 1_000, first=0)).run()

    for opened in run.slots:
        for quoted in opened.quotes:
            assert quoted.doubted
            assert quoted.quote.spot_available.instances == 0
            assert quoted.quote.on_demand_available.instances == 0
    assert len(run.of(BuyingFrozen)) == len(MARKET.offerings)


def test_a_reservation_is_never_doubted_nor_stale() -> None:
    reserved = with_one(MARKET, instances=2)
    free = reserved.offerings[-1].offering_id
    column = len(reserved.offerings) - 1

    run = Run(silent(reserved, column, first=2, end=48)).run()

    assert not [e for e in run.events if isinstance(e, BuyingFrozen) and e.freeze.key == free]


def test_an_offering_of_which_nothing_is_said_for_too_long_is_frozen_once_until_it_is() -> None:
    run = Run(silent(MARKET, 0, first=20, end=40)).run()

    begun = [event.freeze for event in run.events if isinstance(event, BuyingFrozen)]
    ended = [event for event in run.events if isinstance(event, BuyingUnfrozen)]
    assert [(f.key, f.reason, f.capacity_type, f.slot) for f in begun] == [
        # Said last in slot 19; four slots are the least that a pace allows.
        (FIRST, FreezeReason.STALE_QUOTES, CapacityType.SPOT, 24)
    ]
    assert [(event.freeze_id, event.slot) for event in ended] == [(begun[0].freeze_id, 40)]
    ages = [opened.quotes[0].age_s for opened in run.slots]
    assert ages[19:41] == [*(1800 * n for n in range(21)), 0]


def test_an_age_that_is_stated_holds_whatever_the_pace() -> None:
    run = Run(silent(MARKET, 0, first=20, end=40), IngestOptions(stale_after_s=10 * 1800)).run()

    assert [e.freeze.slot for e in run.events if isinstance(e, BuyingFrozen)] == [30]


def test_a_feed_that_dies_lets_slots_open_and_freezes_each_offering_once() -> None:
    dead = MARKET
    for column in range(len(MARKET.offerings)):
        dead = silent(dead, column, first=20, end=48)

    run = Run(dead).run()

    assert len(run.slots) == MARKET.slots
    begun = [event.freeze.key for event in run.events if isinstance(event, BuyingFrozen)]
    assert sorted(begun) == sorted(offering.offering_id for offering in MARKET.offerings)
    assert not run.of(BuyingUnfrozen)


@pytest.mark.parametrize("odd", [0, 5, 9])
def test_an_old_slot_that_is_said_again_stops_nothing(odd: int) -> None:
    run = Run(MARKET).run(10)
    slot = replace(run.slots[3], slot=odd)

    run.hear(slot).run()

    opened = [event.slot for event in run.slots if event is not slot]
    assert opened == list(range(MARKET.slots))


@pytest.mark.parametrize("odd", [11, 40, 48, 10**7])
def test_a_slot_from_afar_is_not_taken_and_stops_nothing(odd: int) -> None:
    run = Run(MARKET).run(10)
    slot = replace(
        run.slots[3], slot=odd, ts_event_ns=MARKET.start_ns + odd * MARKET.slot_s * NS_PER_S
    )

    with pytest.raises(Unfit, match="slot must be 10, the next one of the market"):
        run.handler.evolve(run.state, slot)

    assert [event.slot for event in run.run().slots] == list(range(MARKET.slots))
