"""Which prices are believed: those within what an offering cost of late and its list price.

A spot price is believed from a fifth of its trailing median up to 1.1 times the on-demand list
price, an on-demand price from a fifth of its trailing median up to 1.1 times the list price. The
list price is what an operator states, else the trailing median of the believed on-demand prices:
it cannot be crept up on. What is believed once stays believed while nobody says another price.

The two factors are those that are asked for; `SanityRule` says where the others come from.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from spotline.domain.market.offering import (
    MOST_PRICE_MICRO_USD,
    Count,
    Offering,
    Provenance,
    Quote,
)
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S, S_PER_HOUR

_NOTHING_TO_BUY = Count(instances=0, provenance=Provenance.INFERRED)


class PriceField(Enum):
    """The prices of a quote; the value is the field's name."""

    SPOT = "spot_price_micro_usd"
    ON_DEMAND = "on_demand_price_micro_usd"

    def of(self, quote: Quote) -> int:
        """That price of a quote, micro-USD per instance-hour."""
        price: int = getattr(quote, self.value)
        return price


_DOUBTED = {
    PriceField.SPOT: "quarantined_spot_price_micro_usd",
    PriceField.ON_DEMAND: "quarantined_on_demand_price_micro_usd",
}


STANDS_FOR_S = 72 * S_PER_HOUR
"""As long as an offering is bought of which nothing has shown yet how often it is quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SanityRule:
    """What is believed. Where the numbers come from: docs/operating.md, measured on real traces.

    Parameters
    ----------
    list_prices_micro_usd
        On-demand list prices that an operator states, by offering id.
    window_s, most_samples
        The trailing median is that of the slots of so much market time, at most of so many.
    lowest_divisor, highest_percent
        The bounds: of the trailing median, and of the list price.
    first_spot_divisor
        The first spot price of an offering is at least the list price through this: the deepest
        discount in 34,693 listed prices is 91 %.
    dearest_gpu_micro_usd
        The first on-demand price of an offering is at most this for each GPU and hour: nearly
        three times the dearest that is listed anywhere in them.
    sustained_quotes, sustained_s
        What lies outside is believed after so many quotes in a row over so much market time that
        lie within a tenth of each other ...
    sustained_rise_percent, sustained_fall_divisor
        ... unless it is further off than this: a wrong unit (a price per GPU, in cents, per minute)
        stays wrong however often it is said. What a person stated as list price does not rise by
        being said often.
    stands_for_s
        So old may be what was believed last before no new spot is bought by it, in market time.
    """

    list_prices_micro_usd: Mapping[str, int] = field(default_factory=dict)
    window_s: int = 7 * 24 * S_PER_HOUR
    most_samples: int = 2016
    lowest_divisor: int = 5
    highest_percent: int = 110
    first_spot_divisor: int = 20
    dearest_gpu_micro_usd: int = 50 * MICRO_USD_PER_USD
    sustained_quotes: int = 6
    sustained_s: int = 24 * S_PER_HOUR
    sustained_rise_percent: int = 150
    sustained_fall_divisor: int = 20
    stands_for_s: int = STANDS_FOR_S

    def __post_init__(self) -> None:
        if self.stands_for_s < 0:
            raise ValueError(f"stands_for_s must be >= 0, was {self.stands_for_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A price that is not believed, and what would have been."""

    field: PriceField
    price_micro_usd: int
    lowest_micro_usd: int
    highest_micro_usd: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQuote:
    """What stands in a slot for a quote as it came, and what of it is doubted."""

    said: Quote
    stands: SlotQuote
    doubts: tuple[Doubt, ...] = ()


@dataclass(slots=True)
class TrailingPrices:
    """The believed prices of one field of an offering, slot by slot."""

    samples: deque[tuple[int, int]] = field(default_factory=deque)
    ordered: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The last believed price, 0 for none."""
        return self.samples[-1][1] if self.samples else 0

    @property
    def median(self) -> int:
        """The lower median, 0 for none."""
        return self.ordered[(len(self.ordered) - 1) // 2] if self.ordered else 0

    def add(self, at_ns: int, price: int, rule: SanityRule) -> None:
        """One more; those that are too old or too many go."""
        self.samples.append((at_ns, price))
        insort(self.ordered, price)
        oldest_ns = at_ns - rule.window_s * NS_PER_S
        while self.samples[0][0] < oldest_ns or len(self.samples) > rule.most_samples:
            _, gone = self.samples.popleft()
            del self.ordered[bisect_left(self.ordered, gone)]

    def begin_again(self) -> None:
        """Forget all: the price has another level."""
        self.samples.clear()
        self.ordered.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sustained:
    """Doubted quotes in a row: how many, since when, and between which prices."""

    quotes: int
    first_ns: int
    last_ns: int
    lowest: int
    highest: int

    @classmethod
    def of(cls, before: _Sustained | None, ts_ns: int, price: int) -> _Sustained:
        """Those before and one more; it begins again where it says something else."""
        if before is not None and ts_ns <= before.last_ns:
            return before
        if before is not None:
            lowest, highest = min(before.lowest, price), max(before.highest, price)
            if highest * 10 <= lowest * 11:
                return cls(
                    quotes=before.quotes + 1,
                    first_ns=before.first_ns,
                    last_ns=ts_ns,
                    lowest=lowest,
                    highest=highest,
                )
        return cls(quotes=1, first_ns=ts_ns, last_ns=ts_ns, lowest=price, highest=price)


@dataclass(slots=True)
class BelievedPrices:
    """What was believed of one offering, and what is doubted: a fold over quotes that were judged.

    `judge` changes nothing; `note_doubt` and `note_slot` take in what was made of its answer, from
    the log.
    """

    trailing: dict[PriceField, TrailingPrices] = field(
        default_factory=lambda: {each: TrailingPrices() for each in PriceField}
    )
    _sustained: dict[PriceField, _Sustained] = field(default_factory=dict)
    last: SlotQuote | None = None

    def judge(self, offering: Offering, quote: Quote, at_ns: int, rule: SanityRule) -> JudgedQuote:
        """Say what stands at `at_ns` for the latest quote of an offering.

        A doubted price is replaced by the last believed one, and the quote's age is then its age.
        Where none was ever believed, the highest that would be stands, and nothing can be bought
        for it.
        """
        if offering.reservation is not None:
            return as_said(quote, at_ns)
        doubts: list[Doubt] = []
        list_price = self._list_price(offering, rule)
        for each in (PriceField.ON_DEMAND, PriceField.SPOT):
            doubt = self._doubt(each, offering, quote, list_price, rule)
            if doubt is not None:
                doubts.append(doubt)
            elif each is PriceField.ON_DEMAND and not list_price:
                # The first: it is what the spot price beside it is compared with.
                list_price = quote.on_demand_price_micro_usd
        if not doubts:
            return as_said(quote, at_ns)
        return self._standing(quote, at_ns, tuple(doubts))

    def outdated(self, judged: JudgedQuote, rule: SanityRule) -> bool:
        """Whether what stands for a doubted price is too old to buy spot by, or was never said."""
        unknown = any(not self.trailing[doubt.field].last for doubt in judged.doubts)
        return unknown or bool(judged.doubts and judged.stands.age_s > rule.stands_for_s)

    def note_doubt(self, quote: Quote, name: str) -> None:
        """Take in that a quote's field of this name was doubted."""
        for each in PriceField:
            if each.value == name:
                self._sustained[each] = _Sustained.of(
                    self._sustained.get(each), quote.ts_event_ns, each.of(quote)
                )

    def note_slot(self, stood: SlotQuote, at_ns: int, rule: SanityRule) -> None:
        """Take in what stood in a slot that opened at `at_ns`."""
        for each in PriceField:
            price = each.of(stood.quote)
            if getattr(stood, _DOUBTED[each]) or not price:
                continue
            trailing = self.trailing[each]
            if _at_another_level(each, trailing.median, price, rule):
                trailing.begin_again()
            trailing.add(at_ns, price, rule)
            self._sustained.pop(each, None)
        self.last = stood

    def _list_price(self, offering: Offering, rule: SanityRule) -> int:
        stated = rule.list_prices_micro_usd.get(offering.offering_id, 0)
        return stated or self.trailing[PriceField.ON_DEMAND].median

    def _doubt(
        self, each: PriceField, offering: Offering, quote: Quote, list_price: int, rule: SanityRule
    ) -> Doubt | None:
        price, trailing = each.of(quote), self.trailing[each]
        stated = rule.list_prices_micro_usd.get(offering.offering_id, 0)
        if price == trailing.last and not stated:
            return None
        lowest, highest, why = _bounds(each, offering, trailing.median, list_price, rule)
        if stated:
            # A person's word brings the prices of an offering down as well as up.
            lowest = min(lowest, _through(stated, _first_divisor(each, rule)))
        if lowest <= price <= highest:
            return None
        track = _Sustained.of(self._sustained.get(each), quote.ts_event_ns, price)
        if _lasting(track, rule) and not stated and trailing.median:
            reference = list_price if price > highest else trailing.median
            if _near(reference, price, rule):
                return None
        return Doubt(
            field=each,
            price_micro_usd=price,
            lowest_micro_usd=lowest,
            highest_micro_usd=highest,
            detail=f"{each.value} of {offering.offering_id} must lie within "
            f"[{lowest}, {highest}] ({why}), was {price}",
        )

    def _standing(self, quote: Quote, at_ns: int, doubts: tuple[Doubt, ...]) -> JudgedQuote:
        changes: dict[str, object] = {}
        marks: dict[str, int] = {}
        for doubt in doubts:
            marks[_DOUBTED[doubt.field]] = doubt.price_micro_usd
            believed = self.trailing[doubt.field].last
            changes[doubt.field.value] = believed or max(1, doubt.highest_micro_usd)
            if not believed:
                there = doubt.field.value.replace("price_micro_usd", "available")
                changes[there] = _NOTHING_TO_BUY
        before = self.last
        if before is not None:
            # As old as what stands: the oldest price in it.
            changes["ts_event_ns"] = min(before.quote.ts_event_ns, quote.ts_event_ns)
        stands = replace(quote, **changes)  # type: ignore[arg-type]
        return JudgedQuote(
            said=quote,
            stands=SlotQuote(quote=stands, age_s=stands.age_s(at_ns), **marks),
            doubts=doubts,
        )


def as_said(quote: Quote, at_ns: int) -> JudgedQuote:
    """What stands where all is believed."""
    return JudgedQuote(said=quote, stands=SlotQuote(quote=quote, age_s=quote.age_s(at_ns)))


def _bounds(
    each: PriceField, offering: Offering, median: int, list_price: int, rule: SanityRule
) -> tuple[int, int, str]:
    """The lowest and the highest that is believed, and why."""
    times = f"{rule.highest_percent / 100:g} x the on-demand list price {list_price}"
    highest = list_price * rule.highest_percent // 100
    if not list_price:
        dearest = rule.dearest_gpu_micro_usd * offering.gpus_per_instance
        highest = min(MOST_PRICE_MICRO_USD, dearest)
        times = f"the first price of {offering.gpus_per_instance} GPUs"
    if median:
        lowest = _through(median, rule.lowest_divisor)
        return lowest, highest, f"trailing median {median} / {rule.lowest_divisor}, {times}"
    return _through(list_price, _first_divisor(each, rule)), highest, times


def _first_divisor(each: PriceField, rule: SanityRule) -> int:
    """Through which the list price is divided for the least of a first price."""
    return rule.first_spot_divisor if each is PriceField.SPOT else rule.lowest_divisor


def _through(price: int, divisor: int) -> int:
    """A price divided, rounded up: what is lower is lower."""
    return max(1, -(-price // divisor))


def _lasting(track: _Sustained, rule: SanityRule) -> bool:
    lasted_s = (track.last_ns - track.first_ns) // NS_PER_S
    return track.quotes >= rule.sustained_quotes and lasted_s >= rule.sustained_s


def _near(reference: int, price: int, rule: SanityRule) -> bool:
    """Whether a price is near enough to be believed once it lasts."""
    highest = reference * rule.sustained_rise_percent // 100
    return _through(reference, rule.sustained_fall_divisor) <= price <= highest


def _at_another_level(each: PriceField, median: int, price: int, rule: SanityRule) -> bool:
    """Whether a believed price has left the level of those before it for good."""
    fell = price < _through(median, rule.lowest_divisor)
    # Spot may rise to the list price at any time: its level is not what bounds it above.
    rose = each is PriceField.ON_DEMAND and price * 100 > median * rule.highest_percent
    return bool(median) and (fell or rose)
