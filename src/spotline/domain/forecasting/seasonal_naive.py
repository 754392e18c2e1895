"""What was at the same time of day: counts of recent days, and yesterday's price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.market.forecast import CountProbability, OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.units import S_PER_HOUR

_DAY_S = 24 * S_PER_HOUR
_DAYS = 7
_OLDER_DAY = 0.8  # weight of a day relative to the one after it
_BESIDE = ((0, 1.0), (-1, 0.5), (1, 0.5))  # slots around the same time of day, with weights


@dataclass(slots=True, kw_only=True)
class _Past:
    """Counts and prices (micro-USD) of the last `_DAYS` days, by slot."""

    counts: dict[int, int] = field(default_factory=dict)
    prices: dict[int, int] = field(default_factory=dict)
    said: dict[int, tuple[CountProbability, ...]] = field(default_factory=dict)
    last: int | None = None
    slot: int = -1

    def distribution(self, slot: int, season_slots: int) -> tuple[CountProbability, ...]:
        """Distribution of the count in a slot to come."""
        if slot in self.said:
            return self.said[slot]
        masses = []
        weight = 1.0
        for day in range(1, _DAYS + 1):
            for beside, share in _BESIDE:
                then = slot - day * season_slots + beside
                if then in self.counts:
                    masses.append((self.counts[then], weight * share))
            weight *= _OLDER_DAY
        if not masses:
            return certain(self.last or 0)
        counts = quantised(masses)
        if slot - season_slots + 1 <= self.slot:
            # All of its past has passed: nothing that comes before the slot will change this.
            self.said[slot] = counts
        return counts


@dataclass(slots=True, kw_only=True)
class SeasonalNaiveModel:
    """The recent past of every offering."""

    horizon_slots: int
    past: dict[str, _Past] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Remember the slot, and drop what is too old."""
        oldest = opened.slot - (_DAYS * _season_slots(opened) + 1)
        for offering_id, quote in quotes.items():
            past = self.past.setdefault(offering_id, _Past())
            past.slot = opened.slot
            past.said.pop(opened.slot, None)
            past.prices[opened.slot] = quote.spot_price_micro_usd
            if quote.spot_available.known:
                past.last = quote.spot_available.instances
                past.counts[opened.slot] = past.last
            for kept in (past.prices, past.counts, past.said):
                while next(iter(kept), oldest) < oldest:
                    del kept[next(iter(kept))]

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Forecast the same times of recent days."""
        season_slots = _season_slots(opened)
        steps = range(opened.slot + 1, opened.slot + 1 + self.horizon_slots)
        return tuple(
            offering_forecast(
                offering_id,
                quote,
                self.past[offering_id].last,
                [
                    self.past[offering_id].prices.get(
                        slot - season_slots, quote.spot_price_micro_usd
                    )
                    for slot in steps
                ],
                [self.past[offering_id].distribution(slot, season_slots) for slot in steps],
            )
            for offering_id, quote in quotes.items()
        )

    def forget(self, offering_id: str) -> None:
        """Days age by themselves."""


def _season_slots(opened: SlotOpened) -> int:
    return max(1, round(_DAY_S / opened.slot_s))


class SeasonalNaiveForecaster(
    PreparedForecaster, name="seasonal_naive", model=SeasonalNaiveModel, versions={"format": "1"}
):
    """Forecasts what was at the same time on the last seven days, recent days first."""

    model_id = "seasonal_naive-1"
