"""What makes a market another one than that of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.application.market_ingest.continuing import MarketOfLog, differences
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import LinkObserved, RegionObserved
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Disks
from spotline.domain.placement.geography import Geography, RegionSeries
from spotline.domain.placement.graph import Link, Region
from spotline.replay.recorded import market_seen
from tests.fakes.reserved import with_one

START_NS = 1_772_323_200 * 10**9  # 2026-03-01T00:00:00Z
HOUR_NS = 3600 * 10**9
MARKET = generate("mixed", seed=11, slots=24, slot_s=1800, start_ns=START_NS)
GEOGRAPHY = Geography(
    [
        RegionSeries(region=Region(region_id=name, gpus=8, energy_usd_per_kwh=0.2))
        for name in ("ireland", "virginia")
    ],
    [Link(source="ireland", destination="virginia", bytes_per_s=1e9)],
)


def dear_from(market: Market, *, slot: int, times: int) -> Market:
    prices = market.spot_price_micro_usd.copy()
    prices[slot:] *= times
    return replace(market, spot_price_micro_usd=prices)


def log_of(
    market: Market, *, slots: tuple[int, ...], geography: Geography | None = None
) -> MarketOfLog:
    handler = IngestHandler(market, IngestOptions(), geography)
    (opened,) = handler.due(IngestState())[0].events
    assert isinstance(opened, MarketOpened)
    events = [event for slot in slots for event in handler.slot_events(slot)]
    return MarketOfLog(
        opened=opened,
        slots=[event for event in events if isinstance(event, SlotOpened)],
        seen=[event for event in events if isinstance(event, RegionObserved | LinkObserved)],
    )


def said(log: MarketOfLog, market: Market, geography: Geography | None = None) -> list[str]:
    return list(differences(log, market, geography))


def test_the_same_market_goes_on() -> None:
    assert said(log_of(MARKET, slots=(0, 7), geography=None), MARKET) == []
    with_places = log_of(MARKET, slots=(0,), geography=GEOGRAPHY)
    assert said(with_places, MARKET, GEOGRAPHY) == []


def with_disks(market: Market, gb: int) -> Market:
    """A market with a reservation, and disks in all of its offerings."""
    disks = Disks(gb=gb, micro_usd_per_gb_month=80_000)
    offerings = tuple(replace(each, disks=disks) for each in market.offerings)
    return with_one(replace(market, offerings=offerings), instances=2)


def test_a_market_with_disks_goes_on_and_is_seen_without_them_in_its_prices() -> None:
    market = with_disks(MARKET, 200)
    log = log_of(market, slots=tuple(range(24)))

    seen = market_seen(log.opened, log.slots)

    assert said(log, market) == []
    assert seen.offerings == market.offerings
    assert np.array_equal(seen.on_demand_price_micro_usd, market.on_demand_price_micro_usd)
    assert np.array_equal(seen.spot_price_micro_usd, market.spot_price_micro_usd)


def test_other_disks_of_a_reservation_are_another_market_and_of_others_are_not() -> None:
    log = log_of(with_disks(MARKET, 200), slots=(0,))

    (problem,) = said(log, with_disks(MARKET, 300))

    assert "/reserved/" in problem
    assert "with disks for 0.021918 USD/h, found" in problem


def test_a_market_of_an_older_release_goes_on_without_a_notice_and_an_end() -> None:
    log = log_of(MARKET, slots=(0,))
    older = replace(
        log.opened,
        ends_ns=0,
        offerings=tuple(replace(each, notice_lead_s=None) for each in log.opened.offerings),
    )

    assert said(replace(log, opened=older), MARKET) == []


def test_a_longer_market_goes_on_and_one_that_is_over_does_not() -> None:
    shorter = generate("mixed", seed=11, slots=4, slot_s=1800, start_ns=START_NS)

    assert said(log_of(MARKET, slots=(7,)), shorter) == [
        "slots: expected more than the 8 that were opened, found 4"
    ]


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (
            generate("mixed", seed=11, slots=72, slot_s=600, start_ns=START_NS),
            "slot length: expected 1800 s, found 600 s",
        ),
        (
            MARKET.beginning_at(START_NS + HOUR_NS),
            "first slot: expected 2026-03-01T00:00:00Z, found 2026-03-01T01:00:00Z",
        ),
        (
            generate("cloud-gang", seed=11, slots=24, slot_s=1800, start_ns=START_NS),
            "offerings: expected cloud:east-1a:a100-1x, cloud:east-1b:a100-1x, "
            "neocloud:neo-1:a100-1x, found ",
        ),
        (
            replace(
                MARKET,
                offerings=tuple(replace(each, gpus_per_instance=8) for each in MARKET.offerings),
            ),
            "offering cloud:east-1a:a100-1x: expected 1 x a100-80gb as a100-1x in cloud:east-1, "
            "found 8 x a100-80gb",
        ),
        (
            generate("mixed", seed=12, slots=24, slot_s=1800, start_ns=START_NS),
            "slot 7: expected ",
        ),
    ],
)
def test_another_market_does_not(other: Market, problem: str) -> None:
    found = said(log_of(MARKET, slots=(7,)), other)

    assert found
    assert found[0].startswith(problem)


def test_a_price_that_was_not_believed_is_compared_as_it_came() -> None:
    dear = dear_from(MARKET, slot=7, times=1000)
    handler = IngestHandler(dear, IngestOptions(price_sanity=True))
    state = handler.initial()
    slots = []
    for slot in range(8):
        for event in handler.slot_events(slot, state):
            handler.evolve(state, event)
            slots += [event] if isinstance(event, SlotOpened) else []
    log = replace(log_of(dear, slots=(0,)), slots=(slots[0], slots[7]))

    assert slots[7].quotes[0].doubted
    assert said(log, dear) == []
    assert said(log, MARKET)[0].startswith("slot 7: expected ")


def test_another_geography_does_not() -> None:
    without, with_places = (
        log_of(MARKET, slots=(0,)),
        log_of(MARKET, slots=(0,), geography=GEOGRAPHY),
    )
    places = "ireland of 8 GPUs at 0.2 USD/kWh, ireland to virginia at 1e+09 B/s, "

    assert said(with_places, MARKET) == [
        f"geography: expected {places}virginia of 8 GPUs at 0.2 USD/kWh, found none"
    ]
    assert said(without, MARKET, GEOGRAPHY) == [
        f"geography: expected none, found {places}virginia of 8 GPUs at 0.2 USD/kWh"
    ]


def test_a_log_without_a_slot_has_shown_no_geography_yet() -> None:
    assert said(log_of(MARKET, slots=()), MARKET, GEOGRAPHY) == []
