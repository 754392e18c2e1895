"""What an offering's slots say of a window: prices, availability, transitions, runs; all integers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from spotline.domain.statistics.figures import CountTime, MarketFigures, PriceFigures
from spotline.domain.statistics.panes import Arrival, cuts
from spotline.domain.units import PPM

UNKNOWN = -1
"""A count that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPiece:
    """The part of a slot's quote that lies in one pane; prices in micro-USD per instance-hour.

    `available` is the count of spot instances, `UNKNOWN` where it is not known. All pieces of a
    slot have the same `arrival`, whose `at_s` is the slot's opening.
    """

    arrival: Arrival
    start_s: int
    end_s: int
    spot_price: int
    on_demand_price: int
    available: int


def market_pieces(
    arrival: Arrival,
    *,
    slot_s: int,
    spot_price: int,
    on_demand_price: int,
    available: int,
    pane_s: int,
) -> Iterator[MarketPiece]:
    """Cut a slot's quote at the borders of panes."""
    for start_s, end_s in cuts(arrival.at_s, arrival.at_s + slot_s, pane_s):
        yield MarketPiece(
            arrival=arrival,
            start_s=start_s,
            end_s=end_s,
            spot_price=spot_price,
            on_demand_price=on_demand_price,
            available=available,
        )


@dataclass(slots=True, kw_only=True)
class PriceTally:
    """A price over time; `weighted` is the sum of price times seconds."""

    weighted: int = 0
    low: int = 0
    high: int = 0
    first: int = 0
    last: int = 0
    changes: int = 0

    def append(self, other: PriceTally, *, adjacent: bool, empty: bool) -> None:
        """Add what lies behind; `adjacent`: right behind, `empty`: nothing lies before."""
        if empty:
            self.low, self.high, self.first = other.low, other.high, other.first
        if adjacent and self.last != other.first:
            self.changes += 1
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.weighted += other.weighted
        self.changes += other.changes
        self.last = other.last

    def figures(self, covered_s: int) -> PriceFigures:
        """The price over `covered_s` > 0 seconds."""
        return PriceFigures(
            mean_micro_usd=(2 * self.weighted + covered_s) // (2 * covered_s),
            low_micro_usd=self.low,
            high_micro_usd=self.high,
            spread_micro_usd=self.high - self.low,
            changes=self.changes,
            # What is free, a reservation, was so before.
            change_ppm=(self.last - self.first) * PPM // max(1, self.first),
        )


@dataclass(slots=True, kw_only=True)
class MarketTally:
    """What pieces add up to. Appending is associative, so panes may be put together in any groups.

    `first_*` and `last_*` are what the neighbours before and behind are compared with; an empty tally
    has `last_*` of what lies before it. `runs` is how many stretches there are without and with
    instances.
    """

    slots: int = 0
    covered_s: int = 0
    spot: PriceTally = field(default_factory=PriceTally)
    on_demand: PriceTally = field(default_factory=PriceTally)
    counts: dict[int, int] = field(default_factory=dict)
    ups: int = 0
    downs: int = 0
    runs: list[int] = field(default_factory=lambda: [0, 0])
    first_slot: str = ""
    last_slot: str = ""
    first_s: int = 0
    last_s: int = -1
    first_available: int = UNKNOWN
    last_available: int = UNKNOWN

    def append(self, other: Self) -> None:
        """Add what lies behind."""
        if not other.slots:
            return
        empty = not self.slots
        adjacent = self.last_s == other.first_s
        self._join(other, adjacent, empty)
        self.spot.append(other.spot, adjacent=adjacent, empty=empty)
        self.on_demand.append(other.on_demand, adjacent=adjacent, empty=empty)
        self.slots += other.slots - (not empty and self.last_slot == other.first_slot)
        self.covered_s += other.covered_s
        for instances, held_s in other.counts.items():
            self.counts[instances] = self.counts.get(instances, 0) + held_s
        self.ups += other.ups
        self.downs += other.downs
        if empty:
            self.first_slot, self.first_s = other.first_slot, other.first_s
            self.first_available = other.first_available
        self.last_slot, self.last_s = other.last_slot, other.last_s
        self.last_available = other.last_available

    def _join(self, other: MarketTally, adjacent: bool, empty: bool) -> None:
        """Transitions at the border; a run that goes on across it is one, if it is in here."""
        runs = self.runs
        runs[0] += other.runs[0]
        runs[1] += other.runs[1]
        before, behind = self.last_available, other.first_available
        if not adjacent or UNKNOWN in (before, behind):
            return
        was, is_now = before > 0, behind > 0
        if was == is_now:
            runs[is_now] -= not empty
        elif is_now:
            self.ups += 1
        else:
            self.downs += 1

    def figures(self) -> MarketFigures:
        """The figures; there must be a piece."""
        known_s = sum(self.counts.values())
        unavailable_s = self.counts.get(0, 0)
        available_s = known_s - unavailable_s
        return MarketFigures(
            slots=self.slots,
            covered_s=self.covered_s,
            spot_price=self.spot.figures(self.covered_s),
            on_demand_price=self.on_demand.figures(self.covered_s),
            known_s=known_s,
            available_s=available_s,
            available_ppm=available_s * PPM // known_s if known_s else 0,
            counts=tuple(
                CountTime(instances=instances, held_s=held_s)
                for instances, held_s in sorted(self.counts.items())
            ),
            ups=self.ups,
            downs=self.downs,
            available_runs=self.runs[1],
            unavailable_runs=self.runs[0],
            mean_available_run_s=_mean(available_s, self.runs[1]),
            mean_unavailable_run_s=_mean(unavailable_s, self.runs[0]),
        )


def _mean(total_s: int, runs: int) -> int:
    return (2 * total_s + runs) // (2 * runs) if runs else 0


class MarketPaneLaw:
    """How the pieces of an offering add up."""

    def empty(self, before: MarketTally | None = None) -> MarketTally:
        """Nothing, right behind `before`: what changes from there to here changes here."""
        if before is None:
            return MarketTally()
        return MarketTally(
            spot=PriceTally(last=before.spot.last),
            on_demand=PriceTally(last=before.on_demand.last),
            last_s=before.last_s,
            last_available=before.last_available,
        )

    def add(self, tally: MarketTally, piece: MarketPiece) -> None:
        """Count a piece behind all that were counted."""
        held_s = piece.end_s - piece.start_s
        known = piece.available != UNKNOWN
        available = piece.available > 0
        tally.append(
            MarketTally(
                slots=1,
                covered_s=held_s,
                spot=_price(piece.spot_price, held_s),
                on_demand=_price(piece.on_demand_price, held_s),
                counts={piece.available: held_s} if known else {},
                runs=[int(known and not available), int(known and available)],
                first_slot=piece.arrival.event_id,
                last_slot=piece.arrival.event_id,
                first_s=piece.start_s,
                last_s=piece.end_s,
                first_available=piece.available,
                last_available=piece.available,
            )
        )


def _price(price: int, held_s: int) -> PriceTally:
    return PriceTally(weighted=price * held_s, low=price, high=price, first=price, last=price)
