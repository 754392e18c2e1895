"""Every forecaster on every family, learnt online, scored on the second half of the trace."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.bench.forecast.evaluation import StepEvaluation, evaluate
from spotline.bench.forecast.families import ForecastFamily, slots_of
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, make_forecaster
from spotline.domain.units import PPM

HORIZON_SLOTS = 12
FORECASTERS = ("persistence", "seasonal_naive", "snarimax", "river", "law", DEFAULT_FORECASTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One step ahead, all offerings of a family together.

    CRPS in instances, price errors in ppm of the actual price, coverage as a share.
    """

    crps: float
    persistence_crps: float
    price_error_ppm: float
    persistence_price_error_ppm: float
    coverage_50: float
    coverage_90: float

    @property
    def vs_persistence(self) -> float:
        """CRPS over that of persistence; 1.0 where neither ever erred."""
        return _ratio(self.crps, self.persistence_crps)

    @property
    def price_vs_persistence(self) -> float:
        """Price error over that of persistence; 1.0 where neither ever erred."""
        return _ratio(self.price_error_ppm, self.persistence_price_error_ppm)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecasterResult:
    """How one forecaster did on one family: a result per step, and each offering's CRPS ratios."""

    steps: tuple[StepResult, ...]
    offerings: tuple[tuple[str, tuple[float, ...]], ...]
    ms_per_slot: float

    def as_json(self) -> dict[str, Any]:
        """The lists of the report, one entry per step."""
        return {
            "crps": [round(step.crps, 6) for step in self.steps],
            "price_error_ppm": [round(step.price_error_ppm, 1) for step in self.steps],
            "vs_persistence": [_finite(step.vs_persistence) for step in self.steps],
            "price_vs_persistence": [_finite(step.price_vs_persistence) for step in self.steps],
            "coverage_50": [round(step.coverage_50, 4) for step in self.steps],
            "coverage_90": [round(step.coverage_90, 4) for step in self.steps],
            "ms_per_slot": round(self.ms_per_slot, 4),
            "offerings": {
                offering_id: [_finite(ratio) for ratio in ratios]
                for offering_id, ratios in self.offerings
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyResult:
    """One family: what it is, and a result per forecaster."""

    name: str
    description: str
    offerings: int
    scored_slots: int
    forecasters: dict[str, ForecasterResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastBench:
    """All families."""

    families: tuple[FamilyResult, ...]
    default: str = DEFAULT_FORECASTER

    def as_json(self) -> dict[str, Any]:
        """The JSON of `spotline bench forecast`."""
        return {
            "families": {
                family.name: {name: result.as_json() for name, result in family.forecasters.items()}
                for family in self.families
            },
            "default": self.default,
        }


def measure(
    families: Sequence[ForecastFamily],
    *,
    forecasters: Sequence[str] = FORECASTERS,
    tell: Callable[[str], None] = lambda _: None,
) -> ForecastBench:
    """Run every forecaster once over every market; only the second half is scored.

    Parameters
    ----------
    families
        As `load_families` reads them.
    forecasters
        Registered names.
    tell
        Called with a line of progress.
    """
    results = []
    for family in families:
        measured = {}
        for name in forecasters:
            measured[name] = _measured(family, name)
            mean = sum(s.vs_persistence for s in measured[name].steps) / HORIZON_SLOTS
            tell(
                f"{family.name}: {name} {mean:.3f} of persistence, "
                f"{measured[name].ms_per_slot:.2f} ms per slot and offering"
            )
        results.append(
            FamilyResult(
                name=family.name,
                description=family.description,
                offerings=sum(len(market.offerings) for market in family.markets),
                scored_slots=sum(market.slots - market.slots // 2 for market in family.markets),
                forecasters=measured,
            )
        )
    return ForecastBench(families=tuple(results))


def _measured(family: ForecastFamily, name: str) -> ForecasterResult:
    evaluations: list[StepEvaluation] = []
    learnt = 0
    elapsed_s = 0.0
    for market in family.markets:
        forecaster = make_forecaster(name, HORIZON_SLOTS)
        slots = slots_of(market)
        started_s = time.process_time()
        evaluations += evaluate(forecaster, slots, first_scored_slot=market.slots // 2)
        elapsed_s += time.process_time() - started_s
        learnt += market.slots * len(market.offerings)
    return ForecasterResult(
        steps=tuple(
            _step([e for e in evaluations if e.step == step])
            for step in range(1, HORIZON_SLOTS + 1)
        ),
        offerings=tuple(
            (
                offering_id,
                tuple(
                    _ratio(e.crps_instances, e.persistence_crps_instances)
                    for e in evaluations
                    if e.offering_id == offering_id
                ),
            )
            for offering_id in sorted({e.offering_id for e in evaluations})
        ),
        ms_per_slot=1_000.0 * elapsed_s / max(1, learnt),
    )


def _step(evaluations: Sequence[StepEvaluation]) -> StepResult:
    counted = [e.counted for e in evaluations]
    priced = [e.slots for e in evaluations]
    return StepResult(
        crps=_mean((e.crps_instances for e in evaluations), counted),
        persistence_crps=_mean((e.persistence_crps_instances for e in evaluations), counted),
        price_error_ppm=PPM * _mean((e.price_error for e in evaluations), priced),
        persistence_price_error_ppm=PPM
        * _mean((e.persistence_price_error for e in evaluations), priced),
        coverage_50=_mean((e.coverage_50 for e in evaluations), counted),
        coverage_90=_mean((e.coverage_90 for e in evaluations), counted),
    )


def _finite(ratio: float) -> float | None:
    """A ratio to no error at all has no number in JSON."""
    return round(ratio, 4) if math.isfinite(ratio) else None


def _mean(values: Iterable[float], weights: Sequence[int]) -> float:
    return sum(v * w for v, w in zip(values, weights, strict=True)) / max(1, sum(weights))


def _ratio(value: float, reference: float) -> float:
    if reference > 0.0:
        return value / reference
    return 1.0 if value == 0.0 else float("inf")
