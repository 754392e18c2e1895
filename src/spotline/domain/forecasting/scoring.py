"""Online scores of forecasts against persistence, exponentially weighted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotline.domain.events import ForecastScore, ForecastStep, OfferingForecast, SlotOpened
from spotline.domain.forecasting.distribution import crps_milli
from spotline.domain.market.offering import Quote
from spotline.domain.units import PPM

_KEPT = 0.99  # a score remembers about the last hundred slots


def relative_error_ppm(expected_micro_usd: int, actual_micro_usd: int) -> int:
    """Absolute price error as parts per million of the actual price, rounded half up."""
    miss = abs(expected_micro_usd - actual_micro_usd) * PPM
    return (miss + actual_micro_usd // 2) // actual_micro_usd


@dataclass(slots=True, kw_only=True)
class _Issued:
    """A forecast that waits for its truth, with the persistence forecast of the same slot."""

    slot: int
    steps: dict[str, tuple[ForecastStep, ...]]
    price_micro_usd: dict[str, int]
    count: dict[str, int]


@dataclass(slots=True, kw_only=True)
class _Averages:
    """Decayed sums of one offering and step; counts weigh separately, they may be unknown."""

    crps_milli: float = 0.0
    persistence_crps_milli: float = 0.0
    count_weight: float = 0.0
    price_ppm: float = 0.0
    persistence_price_ppm: float = 0.0
    price_weight: float = 0.0


@dataclass(slots=True, kw_only=True)
class ForecastScoring:
    """Scores forecasts step by step as the truth arrives.

    Feed every slot to `observe`, then that slot's forecast to `issue`.
    """

    horizon_slots: int
    issued: list[_Issued] = field(default_factory=list)
    averages: dict[str, list[_Averages]] = field(default_factory=dict)

    def observe(self, slot: int, quotes: Mapping[str, Quote]) -> None:
        """Score what was forecast for `slot` in the slots before it."""
        self.issued = [i for i in self.issued if slot - i.slot <= self.horizon_slots]
        for issued in self.issued:
            step = slot - issued.slot
            for offering_id, steps in issued.steps.items():
                quote = quotes.get(offering_id)
                if quote is not None and step <= len(steps):
                    self._score(issued, offering_id, step, steps[step - 1], quote)

    def _score(
        self, issued: _Issued, offering_id: str, step: int, forecast: ForecastStep, quote: Quote
    ) -> None:
        if offering_id not in self.averages:
            self.averages[offering_id] = [_Averages() for _ in range(self.horizon_slots)]
        kept = self.averages[offering_id][step - 1]
        actual = quote.spot_price_micro_usd
        price_ppm = relative_error_ppm(forecast.spot_price_micro_usd, actual)
        persisted_ppm = relative_error_ppm(issued.price_micro_usd[offering_id], actual)
        kept.price_ppm = _KEPT * kept.price_ppm + price_ppm
        kept.persistence_price_ppm = _KEPT * kept.persistence_price_ppm + persisted_ppm
        kept.price_weight = _KEPT * kept.price_weight + 1.0
        last = issued.count.get(offering_id)
        if last is None or not quote.spot_available.known:
            return
        count = quote.spot_available.instances
        kept.crps_milli = _KEPT * kept.crps_milli + crps_milli(forecast.counts, count)
        kept.persistence_crps_milli = (
            _KEPT * kept.persistence_crps_milli + abs(count - last) * 1_000
        )
        kept.count_weight = _KEPT * kept.count_weight + 1.0

    def issue(
        self, slot: int, quotes: Mapping[str, Quote], forecasts: tuple[OfferingForecast, ...]
    ) -> None:
        """Remember what was forecast in `slot`, whose quotes are `quotes`."""
        known = {i: q.spot_available.instances for i, q in quotes.items() if q.spot_available.known}
        self.issued.append(
            _Issued(
                slot=slot,
                steps={f.offering_id: f.steps for f in forecasts},
                price_micro_usd={i: q.spot_price_micro_usd for i, q in quotes.items()},
                count=known,
            )
        )

    def scores(self) -> tuple[ForecastScore, ...]:
        """All matured scores, ordered by offering id and step."""
        return tuple(
            _as_score(offering_id, step, kept)
            for offering_id in sorted(self.averages)
            for step, kept in enumerate(self.averages[offering_id], start=1)
            if kept.price_weight > 0.0
        )


def _as_score(offering_id: str, step: int, kept: _Averages) -> ForecastScore:
    count_weight = kept.count_weight or 1.0
    return ForecastScore(
        offering_id=offering_id,
        step=step,
        count_crps_milli=round(kept.crps_milli / count_weight),
        persistence_crps_milli=round(kept.persistence_crps_milli / count_weight),
        price_error_ppm=round(kept.price_ppm / kept.price_weight),
        persistence_price_error_ppm=round(kept.persistence_price_ppm / kept.price_weight),
    )


def quotes_by_offering(slot_opened: SlotOpened) -> dict[str, Quote]:
    """The quotes of a slot by offering id, in order of id."""
    quotes = {q.quote.offering_id: q.quote for q in slot_opened.quotes}
    return {offering_id: quotes[offering_id] for offering_id in sorted(quotes)}
