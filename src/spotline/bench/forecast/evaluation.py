"""How well a forecaster does on a recorded market, step by step, against persistence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import crps_milli
from spotline.domain.forecasting.interface import Forecaster
from spotline.domain.forecasting.scoring import (
    inside_central,
    pit_ppm,
    quotes_by_offering,
    relative_error_ppm,
)
from spotline.domain.market.forecast import ForecastStep
from spotline.domain.market.offering import Quote
from spotline.domain.units import PPM


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvaluation:
    """Mean errors of one offering and step ahead over the scored slots.

    CRPS in instances, price errors relative to the actual price (1.0 is 100 %), coverage as the
    share of counts inside the central interval (see `scoring`). `slots` were scored by price,
    `counted` of them by count. A mean over nothing is 0.0.
    """

    offering_id: str
    step: int
    slots: int
    crps_instances: float
    persistence_crps_instances: float
    price_error: float
    persistence_price_error: float
    counted: int = 0
    coverage_50: float = 0.0
    coverage_90: float = 0.0


@dataclass(slots=True)
class _Sums:
    prices: int = 0
    counts: int = 0
    crps: int = 0
    persistence_crps: int = 0
    price_ppm: int = 0
    persistence_price_ppm: int = 0
    inside_50: float = 0.0
    inside_90: float = 0.0


def evaluate(
    forecaster: Forecaster, slots: Iterable[SlotOpened], *, first_scored_slot: int = 0
) -> tuple[StepEvaluation, ...]:
    """Run `forecaster` over `slots` and score what it says from `first_scored_slot` on.

    It learns from every slot, always before it forecasts; only forecasts *issued* in or after
    `first_scored_slot` count, so a split by time is a choice of that slot. Pairs whose present or
    future count is unknown do not enter the CRPS.

    Returns
    -------
    tuple of StepEvaluation
        Ordered by offering id and step.
    """
    horizon = forecaster.horizon_slots
    pending: list[tuple[int, dict[str, tuple[ForecastStep, ...]], dict[str, Quote]]] = []
    sums: dict[tuple[str, int], _Sums] = {}
    for opened in slots:
        quotes = quotes_by_offering(opened)
        pending = [p for p in pending if opened.slot - p[0] <= horizon]
        for issued_slot, forecasts, then in pending:
            step = opened.slot - issued_slot
            for offering_id, steps in forecasts.items():
                if offering_id in quotes:
                    kept = sums.setdefault((offering_id, step), _Sums())
                    _add(kept, steps[step - 1], then[offering_id], quotes[offering_id])
        forecaster.learn(opened)
        if opened.slot >= first_scored_slot:
            by_id = {f.offering_id: f.steps for f in forecaster.forecast(horizon)}
            pending.append((opened.slot, by_id, quotes))
    return tuple(_evaluation(*key, sums[key]) for key in sorted(sums))


def _add(kept: _Sums, forecast: ForecastStep, then: Quote, now: Quote) -> None:
    actual = now.spot_price_micro_usd
    kept.prices += 1
    kept.price_ppm += relative_error_ppm(forecast.spot_price_micro_usd, actual)
    kept.persistence_price_ppm += relative_error_ppm(then.spot_price_micro_usd, actual)
    if then.spot_available.known and now.spot_available.known:
        kept.counts += 1
        kept.crps += crps_milli(forecast.counts, now.spot_available.instances)
        moved = abs(now.spot_available.instances - then.spot_available.instances)
        kept.persistence_crps += moved * 1_000
        low, high = pit_ppm(forecast.counts, now.spot_available.instances)
        kept.inside_50 += inside_central(low, high, PPM // 2)
        kept.inside_90 += inside_central(low, high, PPM * 9 // 10)


def _evaluation(offering_id: str, step: int, kept: _Sums) -> StepEvaluation:
    counts, prices = max(1, kept.counts), max(1, kept.prices)
    return StepEvaluation(
        offering_id=offering_id,
        step=step,
        slots=kept.prices,
        crps_instances=kept.crps / counts / 1_000,
        persistence_crps_instances=kept.persistence_crps / counts / 1_000,
        price_error=kept.price_ppm / prices / 1_000_000,
        persistence_price_error=kept.persistence_price_ppm / prices / 1_000_000,
        counted=kept.counts,
        coverage_50=kept.inside_50 / counts,
        coverage_90=kept.inside_90 / counts,
    )
