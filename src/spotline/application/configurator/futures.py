"""Possible futures of the offerings, sampled once per slot and shared by all drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spotline.application.market_view import MarketView
from spotline.application.scenarios import ScenarioSpec, on_demand_in, sample_paths
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.compiled import MarketSeries

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

PATHS = 32
# Lengths are rounded up to powers of two from here, so that drafts share futures; what lies
# beyond the longest is the same again: a fitted chain has forgotten its start long before.
_SHORTEST = 64
_LONGEST = 1024
_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Futures:
    """`paths` futures of one offering behind one another in `series`, `slots` each.

    `share[n, t]` is the mean share of the first t + 1 slots in which n spot instances are there,
    shape (most + 1, slots); `spot_price[t]` the mean spot price over them, micro-USD.
    """

    offering_id: str
    slots: int
    paths: int
    series: MarketSeries
    share: FloatArray
    spot_price: FloatArray
    on_demand_price: int
    on_demand_available: int

    def first_slots(self, waits: int) -> IntArray:
        """Where a job that starts `waits` slots from the next begins on every path."""
        return np.arange(self.paths, dtype=np.int64) * self.slots + waits


def futures_of(
    market: MarketView, offering_id: str, *, slots: int, most_spot: int
) -> Futures | None:
    """Sample the futures of an offering, at least `slots` long; None where it has no quote.

    Equal markets give equal futures, whatever else was asked before.
    """
    quotes = [
        slot_quote.quote
        for slot_quote in market.quotes
        if slot_quote.quote.offering_id == offering_id
    ]
    if not quotes:
        return None
    length = _SHORTEST
    while length < min(slots, _LONGEST):
        length *= 2
    forecasts = () if market.forecast is None else market.forecast.forecasts
    forecast = next((issued for issued in forecasts if issued.offering_id == offering_id), None)
    sampled = _sampled(
        _Past(market.history, market.next_slot),
        quotes[0],
        forecast if forecast is not None and forecast.steps else None,
        most_spot,
        length,
    )
    repeats = -(-slots // length)
    return sampled if repeats == 1 else _repeated(sampled, repeats)


def most_seen(market: MarketView) -> Mapping[str, int]:
    """The largest spot count of every offering that has told any, now or in the recent past."""
    most = dict(_most_seen(_Past(market.history, market.next_slot)))
    _raise_to(most, market.quotes)
    return most


@lru_cache(maxsize=4)
def _most_seen(past: _Past) -> Mapping[str, int]:
    most: dict[str, int] = {}
    for opened in past.history:
        _raise_to(most, opened.quotes)
    return most


def _raise_to(most: dict[str, int], quotes: Sequence[SlotQuote]) -> None:
    for slot_quote in quotes:
        quote = slot_quote.quote
        count = quote.spot_available
        if count.known and count.instances > most.get(quote.offering_id, -1):
            most[quote.offering_id] = count.instances


class _Past:
    """A market's past as a key: equal where slots are, hashed by the last one alone."""

    __slots__ = ("_hash", "history", "next_slot")

    def __init__(self, history: tuple[SlotOpened, ...], next_slot: int) -> None:
        self.history = history
        self.next_slot = next_slot
        last = history[-1].ts_event_ns if history else 0
        self._hash = hash((len(history), last, next_slot))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        # Comparing tuples passes over members that are the same object: cheap in a live service.
        return (
            isinstance(other, _Past)
            and self.next_slot == other.next_slot
            and self.history == other.history
        )


@lru_cache(maxsize=_KEPT)
def _sampled(
    past: _Past,
    quote: Quote,
    forecast: OfferingForecast | None,
    most_spot: int,
    slots: int,
) -> Futures:
    spec = ScenarioSpec(
        quote=quote,
        forecast=forecast,
        history=past.history,
        most_spot=most_spot,
        slots=slots,
        paths=PATHS,
        seed=f"completion\x1f{quote.offering_id}\x1f{past.next_slot}",
    )
    counts, prices = sample_paths(spec)
    on_demand_available = on_demand_in(spec)
    elapsed = np.arange(1, slots + 1)
    there = (counts[None, :, :] >= np.arange(most_spot + 1)[:, None, None]).mean(axis=1)
    return Futures(
        offering_id=quote.offering_id,
        slots=slots,
        paths=PATHS,
        series=_series(prices, counts, quote.on_demand_price_micro_usd, on_demand_available),
        share=np.cumsum(there, axis=1) / elapsed,
        spot_price=np.cumsum(prices.mean(axis=0)) / elapsed,
        on_demand_price=quote.on_demand_price_micro_usd,
        on_demand_available=on_demand_available,
    )


def _series(
    prices: IntArray, counts: IntArray, on_demand_price: int, on_demand_available: int
) -> MarketSeries:
    """Futures as one series, without forecasts: what is planned with needs none."""
    return MarketSeries(
        spot_price=prices.reshape(-1),
        on_demand_price=np.full(prices.size, on_demand_price, dtype=np.int64),
        spot_available=counts.reshape(-1),
        on_demand_available=np.full(prices.size, on_demand_available, dtype=np.int64),
    )


def _repeated(futures: Futures, repeats: int) -> Futures:
    shape = (futures.paths, futures.slots)
    last = np.full((repeats - 1) * futures.slots, futures.slots - 1)
    columns = np.concatenate([np.arange(futures.slots), last])
    return Futures(
        offering_id=futures.offering_id,
        slots=futures.slots * repeats,
        paths=futures.paths,
        series=_series(
            np.tile(futures.series.spot_price.reshape(shape), repeats),
            np.tile(futures.series.spot_available.reshape(shape), repeats),
            futures.on_demand_price,
            futures.on_demand_available,
        ),
        share=futures.share[:, columns],
        spot_price=futures.spot_price[columns],
        on_demand_price=futures.on_demand_price,
        on_demand_available=futures.on_demand_available,
    )
