"""Online scores of forecasts: errors against persistence, calibration, and drift.

Everything is exponentially weighted, per offering and step ahead. Calibration is judged by the
probability integral transform (PIT) of the count that came, spread evenly over the probability of
that very count (Czado, Gneiting & Held, Biometrics 2009): for a calibrated forecast the share of
it inside the central q interval is q, however coarse the counts are. Drift is River's ADWIN on
the series of count scores; only a score that got worse is drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import crps_milli
from spotline.domain.forecasting.river_state import adwin
from spotline.domain.market.forecast import (
    CountProbability,
    ForecastScore,
    ForecastStep,
    OfferingForecast,
)
from spotline.domain.market.offering import Quote
from spotline.domain.units import PPM

DRIFT_DETECTOR = "adwin"

_KEPT = 0.99  # a score remembers about the last hundred slots
_KEPT_AFTER_DRIFT = 0.2  # of the weight of everything before the drift
_DRIFT_DELTA = 0.0005  # scores of overlapping windows are dependent: stricter than the usual .002
_RELIABILITY_BINS = 5


def relative_error_ppm(expected_micro_usd: int, actual_micro_usd: int) -> int:
    """Absolute price error as parts per million of the actual price, rounded half up."""
    miss = abs(expected_micro_usd - actual_micro_usd) * PPM
    return (miss + actual_micro_usd // 2) // actual_micro_usd


def pit_ppm(counts: tuple[CountProbability, ...], observed: int) -> tuple[int, int]:
    """P(count < observed) and P(count <= observed), parts per million: the ends of the PIT."""
    below = at = 0
    for each in counts:
        if each.instances < observed:
            below += each.probability_ppm
        elif each.instances == observed:
            at += each.probability_ppm
    return below, below + at


def inside_central(low_ppm: int, high_ppm: int, central_ppm: int) -> float:
    """Share of the PIT interval that lies inside the central interval of that probability.

    A count that was thought impossible is one point, inside or outside.
    """
    first = (PPM - central_ppm) // 2
    last = PPM - first
    if high_ppm == low_ppm:
        return 1.0 if first <= low_ppm <= last else 0.0
    overlap = min(high_ppm, last) - max(low_ppm, first)
    return max(0, overlap) / (high_ppm - low_ppm)


def _fresh_detector() -> Any:
    # River takes a second to load, and a reader of scores has no need of it.
    from river.drift import ADWIN

    return ADWIN(delta=_DRIFT_DELTA)  # type: ignore[no-untyped-call]


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
    inside_50: float = 0.0
    inside_90: float = 0.0
    pit: float = 0.0
    # Per bin of forecast probabilities of "some" and of "all": sums of probability and of outcome.
    promised: list[float] = field(default_factory=lambda: [0.0] * _RELIABILITY_BINS)
    kept: list[float] = field(default_factory=lambda: [0.0] * _RELIABILITY_BINS)
    detector: Annotated[Any, adwin(_fresh_detector)] = field(default_factory=_fresh_detector)
    drift_slot: int = 0

    def fade(self, kept: float) -> None:
        """Decay what the counts have shown."""
        self.crps_milli *= kept
        self.persistence_crps_milli *= kept
        self.count_weight *= kept
        self.inside_50 *= kept
        self.inside_90 *= kept
        self.pit *= kept
        self.promised = [kept * value for value in self.promised]
        self.kept = [kept * value for value in self.kept]

    def add_count(self, forecast: ForecastStep, count: int, last: int, greatest: int) -> int:
        """Take in one matured distribution; returns its score in thousandths of an instance."""
        self.fade(_KEPT)
        crps = crps_milli(forecast.counts, count)
        self.crps_milli += crps
        self.persistence_crps_milli += abs(count - last) * 1_000
        self.count_weight += 1.0
        low, high = pit_ppm(forecast.counts, count)
        self.inside_50 += inside_central(low, high, PPM // 2)
        self.inside_90 += inside_central(low, high, PPM * 9 // 10)
        self.pit += (low + high) / (2 * PPM)
        for threshold in (1, greatest):
            chance_ppm = sum(c.probability_ppm for c in forecast.counts if c.instances >= threshold)
            slot_of_chance = min(_RELIABILITY_BINS - 1, chance_ppm * _RELIABILITY_BINS // PPM)
            self.promised[slot_of_chance] += chance_ppm / PPM
            self.kept[slot_of_chance] += 1.0 if count >= threshold else 0.0
        return crps

    def drifted(self, score: float) -> bool:
        """Whether this score, 0..1, shows that scores have become worse."""
        before = self.detector.estimation
        self.detector.update(score)
        return bool(self.detector.drift_detected) and self.detector.estimation > before


@dataclass(slots=True, kw_only=True)
class ForecastScoring:
    """Scores forecasts step by step as the truth arrives.

    Feed every slot to `observe`, then that slot's forecast to `issue`.
    """

    horizon_slots: int
    issued: list[_Issued] = field(default_factory=list)
    averages: dict[str, list[_Averages]] = field(default_factory=dict)
    greatest: dict[str, int] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def observe(self, slot: int, quotes: Mapping[str, Quote]) -> tuple[str, ...]:
        """Score what was forecast for `slot` in the slots before it.

        Returns
        -------
        tuple of str
            Offerings with drift at some step in this slot, in order; each at most once in a
            horizon, since one change of the market makes the scores of many steps drift.
        """
        for offering_id, quote in quotes.items():
            if quote.spot_available.known:
                count = quote.spot_available.instances
                self.greatest[offering_id] = max(1, count, self.greatest.get(offering_id, 1))
        self.issued = [i for i in self.issued if slot - i.slot <= self.horizon_slots]
        drifted = set()
        for issued in self.issued:
            step = slot - issued.slot
            for offering_id, steps in issued.steps.items():
                present = quotes.get(offering_id)
                if present is None or step > len(steps):
                    continue
                if self._score(slot, issued, offering_id, steps[step - 1], present):
                    drifted.add(offering_id)
        quiet_since = slot - self.horizon_slots
        new = [i for i in sorted(drifted) if self.told.get(i, quiet_since) <= quiet_since]
        self.told.update(dict.fromkeys(new, slot))
        return tuple(new)

    def _score(
        self, slot: int, issued: _Issued, offering_id: str, forecast: ForecastStep, quote: Quote
    ) -> bool:
        if offering_id not in self.averages:
            self.averages[offering_id] = [_Averages() for _ in range(self.horizon_slots)]
        kept = self.averages[offering_id][slot - issued.slot - 1]
        actual = quote.spot_price_micro_usd
        price_ppm = relative_error_ppm(forecast.spot_price_micro_usd, actual)
        persisted_ppm = relative_error_ppm(issued.price_micro_usd[offering_id], actual)
        kept.price_ppm = _KEPT * kept.price_ppm + price_ppm
        kept.persistence_price_ppm = _KEPT * kept.persistence_price_ppm + persisted_ppm
        kept.price_weight = _KEPT * kept.price_weight + 1.0
        last = issued.count.get(offering_id)
        if last is None or not quote.spot_available.known:
            return False
        greatest = self.greatest[offering_id]
        crps = kept.add_count(forecast, quote.spot_available.instances, last, greatest)
        if not kept.drifted(min(1.0, crps / 1_000 / greatest)):
            return False
        kept.drift_slot = slot
        kept.fade(_KEPT_AFTER_DRIFT)
        return True

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
    weight = kept.count_weight or 1.0
    off = sum(abs(p - k) for p, k in zip(kept.promised, kept.kept, strict=True))
    return ForecastScore(
        offering_id=offering_id,
        step=step,
        count_crps_milli=round(kept.crps_milli / weight),
        persistence_crps_milli=round(kept.persistence_crps_milli / weight),
        price_error_ppm=round(kept.price_ppm / kept.price_weight),
        persistence_price_error_ppm=round(kept.persistence_price_ppm / kept.price_weight),
        scored_milli=round(kept.count_weight * 1_000),
        coverage_50_ppm=round(kept.inside_50 / weight * PPM),
        coverage_90_ppm=round(kept.inside_90 / weight * PPM),
        pit_mean_ppm=round(kept.pit / weight * PPM),
        reliability_error_ppm=round(off / (2.0 * weight) * PPM),
        drift_detector=DRIFT_DETECTOR if kept.drift_slot else "",
        drift_slot=kept.drift_slot,
    )


def quotes_by_offering(slot_opened: SlotOpened) -> dict[str, Quote]:
    """The quotes of a slot by offering id, in order of id."""
    quotes = {q.quote.offering_id: q.quote for q in slot_opened.quotes}
    return {offering_id: quotes[offering_id] for offering_id in sorted(quotes)}
