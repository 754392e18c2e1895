"""What is forecast of a market, and how it fared: prices, distributions over counts, scores.

Probabilities are parts per million, money micro-USD per instance-hour.
"""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.units import PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class CountProbability:
    """Probability that exactly this many spot instances are available."""

    instances: int
    probability_ppm: int

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ValueError(f"instances must be >= 0, was {self.instances}")
        if not 0 <= self.probability_ppm <= PPM:
            raise ValueError(f"probability_ppm must lie in 0..{PPM}, was {self.probability_ppm}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStep:
    """One step ahead: expected price and the distribution of available spot instances."""

    spot_price_micro_usd: int
    counts: tuple[CountProbability, ...]

    def __post_init__(self) -> None:
        if self.spot_price_micro_usd <= 0:
            raise ValueError(f"spot_price_micro_usd must be > 0, was {self.spot_price_micro_usd}")
        total = sum(count.probability_ppm for count in self.counts)
        if total != PPM:
            raise ValueError(f"the probabilities of a forecast step must sum to {PPM}, was {total}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingForecast:
    """Steps 1, 2, ... after the slot the forecast was issued in."""

    offering_id: str
    steps: tuple[ForecastStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastScore:
    """How one step ahead has fared so far: exponentially weighted error per offering.

    `count_crps_milli` is the ranked probability score of the count in thousandths of an instance,
    `persistence_crps_milli` that of assuming the last count; `price_error_ppm` is relative.
    `scored_milli` is the weight of the counts scored, in thousandths of a slot. Calibrated
    distributions have `coverage_50_ppm` and `pit_mean_ppm` at a half, `coverage_90_ppm` at nine
    tenths; `reliability_error_ppm` is how far the probabilities of some and of all instances lie
    from what came true. `drift_slot` is where `drift_detector` last saw the score get worse, 0 and
    empty if nowhere.
    """

    offering_id: str
    step: int
    count_crps_milli: int
    persistence_crps_milli: int
    price_error_ppm: int
    persistence_price_error_ppm: int
    scored_milli: int = 0
    coverage_50_ppm: int = 0
    coverage_90_ppm: int = 0
    pit_mean_ppm: int = 0
    reliability_error_ppm: int = 0
    drift_detector: str = ""
    drift_slot: int = 0
