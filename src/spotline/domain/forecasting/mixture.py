"""The default forecaster: the others pooled, with weights learnt online from their scores.

Persistence, river, law, climatology and seasonal naive each give a distribution; the forecast is
their linear pool. The ranked probability score of a pool is a quadratic form of its weights, so
the matrix of the experts' joint errors is all that has to be remembered: the weights of an
offering and step minimise the remembered score over the simplex, drawn towards a start in which
persistence weighs most. The matrices are kept for the offering as a whole and apart by how long
the present count has lasted (quiet and restless times want different weights); those of the other
offerings count too, for less. The price is river's, which leaves persistence only where it wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt
from river.__version__ import __version__ as river_version

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.climatology import ClimatologyModel
from spotline.domain.forecasting.distribution import quantised
from spotline.domain.forecasting.law_forecaster import LawModel
from spotline.domain.forecasting.persistence import PersistenceModel
from spotline.domain.forecasting.prepared import MarketModel, PreparedForecaster, offering_forecast
from spotline.domain.forecasting.river_forecaster import RiverModel
from spotline.domain.forecasting.seasonal_naive import SeasonalNaiveModel
from spotline.domain.forecasting.state_values import AsPlain
from spotline.domain.market.forecast import CountProbability, OfferingForecast
from spotline.domain.market.offering import Quote

_VERSIONS = {"format": "1", "river": river_version}

# Tuned on the first halves of the recorded traces, at slots of 10, 15 and 30 minutes.
_EXPERTS = ("persistence", "river", "law", "climatology", "seasonal_naive")
_START = (0.4, 0.15, 0.15, 0.15, 0.15)
_START_WEIGHT = 5.0  # of the start weights, in scores of the greatest count
_MEMORY = 0.985
_AGED_MEMORY = 0.9955
_AGES = (8, 32)  # slots that part restless, settled and quiet runs
_OVERALL_SHARE, _AGED_SHARE = 0.2, 2.4
_OTHERS_SHARE = 0.5
_FORGOTTEN = 0.25  # share of the errors that is remembered after drift
_PASSES = 6
_RATE = 4.0
_WEIGHT_FLOOR = 1e-6
_NEGLIGIBLE = 5e-4  # masses below it are not worth publishing

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Issued:
    """What the experts said: `below[h, expert, point]` = P(count <= grid[point])."""

    slot: int
    age: int
    grid: FloatArray
    below: FloatArray


@dataclass(slots=True)
class _Pool:
    """Joint errors of the experts on one offering.

    `overall` has shape (horizon, experts, experts), `aged` one such matrix per age of the run;
    `weights` has shape (horizon, experts).
    """

    horizon_slots: int
    overall: FloatArray
    aged: FloatArray
    weights: FloatArray
    issued: list[_Issued] = field(default_factory=list)
    greatest: int = 1
    last: int | None = None
    run_slots: int = 0

    @classmethod
    def fresh(cls, horizon_slots: int) -> _Pool:
        experts = len(_EXPERTS)
        shape = (horizon_slots, experts, experts)
        return cls(
            horizon_slots,
            np.zeros(shape),
            np.zeros((len(_AGES) + 1, *shape)),
            np.tile(np.array(_START), (horizon_slots, 1)),
        )

    @property
    def age(self) -> int:
        """Which of the ages the present run has reached."""
        return sum(1 for start in _AGES if self.run_slots >= start)

    def learn(self, slot: int, count: int) -> None:
        """Score the experts against a known count."""
        self.run_slots = self.run_slots + 1 if count == self.last else 1
        self.last = count
        self.greatest = max(self.greatest, count)
        self.issued = [i for i in self.issued if slot - i.slot <= self.horizon_slots]
        self.overall *= _MEMORY
        self.aged *= _AGED_MEMORY
        for issued in self.issued:
            h = slot - issued.slot - 1
            errors = _joint_errors(issued.grid, issued.below[h], count) / self.greatest
            self.overall[h] += errors
            self.aged[issued.age, h] += errors

    def evidence(self, age: int) -> FloatArray:
        """Joint errors that count for runs of this age, shape (horizon, experts, experts)."""
        evidence: FloatArray = _OVERALL_SHARE * self.overall + _AGED_SHARE * self.aged[age]
        return evidence

    def improve(self, errors: FloatArray) -> None:
        """Move the weights towards the pool of least error, by exponentiated gradient.

        The problem changes little from slot to slot, so a few passes from the last weights do.
        """
        start = np.array(_START)
        scale = np.einsum("hkk->hk", errors).max(axis=1, keepdims=True) + _START_WEIGHT
        for _ in range(_PASSES):
            slope = np.einsum("hkl,hl->hk", errors, self.weights)
            slope += _START_WEIGHT * (self.weights - start)
            slope -= slope.min(axis=1, keepdims=True)
            weights = np.maximum(self.weights * np.exp(-_RATE * slope / scale), _WEIGHT_FLOOR)
            self.weights = weights / weights.sum(axis=1, keepdims=True)

    def issue(
        self, slot: int, said: list[tuple[tuple[CountProbability, ...], ...]]
    ) -> list[tuple[CountProbability, ...]]:
        """Pool what the experts said, `said[expert][h]`."""
        grid, masses = _masses(said, self.horizon_slots)
        self.issued.append(_Issued(slot, self.age, grid, masses.cumsum(axis=2)))
        pooled = np.einsum("hk,hkg->hg", self.weights, masses)
        counts = [int(point) for point in grid]
        return [
            quantised(
                (count, mass)
                for count, mass in zip(counts, row, strict=True)
                if mass >= _NEGLIGIBLE
            )
            for row in pooled.tolist()
        ]

    def forget(self) -> None:
        self.overall *= _FORGOTTEN
        self.aged *= _FORGOTTEN


def _masses(
    said: list[tuple[tuple[CountProbability, ...], ...]], horizon_slots: int
) -> tuple[FloatArray, FloatArray]:
    """All counts that anybody named, and their probabilities: shape (horizon, expert, point)."""
    named = sorted({c.instances for steps in said for step in steps for c in step})
    place = {count: index for index, count in enumerate(named)}
    masses = np.zeros((horizon_slots, len(said), len(named)))
    for expert, steps in enumerate(said):
        if all(step is steps[0] for step in steps):
            for each in steps[0]:
                masses[:, expert, place[each.instances]] = each.probability_ppm / 1e6
            continue
        for h, step in enumerate(steps):
            for each in step:
                masses[h, expert, place[each.instances]] = each.probability_ppm / 1e6
    return np.array(named, dtype=np.float64), masses


def _joint_errors(grid: FloatArray, below: FloatArray, count: int) -> FloatArray:
    """Integral of the product of every two experts' errors of P(count <= x), in instances."""
    at = int(np.searchsorted(grid, count))
    if at == grid.size or grid[at] != count:
        before = below[:, at - 1 : at] if at > 0 else np.zeros((below.shape[0], 1))
        grid = np.concatenate((grid[:at], [float(count)], grid[at:]))
        below = np.concatenate((below[:, :at], before, below[:, at:]), axis=1)
    widths = grid[1:] - grid[:-1]
    errors = below[:, :-1] - (grid[:-1] >= count)
    joint: FloatArray = np.einsum("kp,lp->kl", errors * widths, errors)
    return joint


_EXPERTS_AS_PLAIN = AsPlain(
    tuple[PersistenceModel, RiverModel, LawModel, ClimatologyModel, SeasonalNaiveModel],
    lambda experts: tuple(experts[name] for name in _EXPERTS),
    lambda models: dict(zip(_EXPERTS, models, strict=True)),
)


@dataclass(slots=True, kw_only=True)
class MixtureModel:
    """The experts, and how to pool them for every offering."""

    horizon_slots: int
    experts: Annotated[dict[str, MarketModel], _EXPERTS_AS_PLAIN]
    pools: dict[str, _Pool] = field(default_factory=dict)

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Let every expert learn the slot, and score what they said of it."""
        for expert in self.experts.values():
            expert.learn(opened, quotes)
        for offering_id, quote in quotes.items():
            if offering_id not in self.pools:
                self.pools[offering_id] = _Pool.fresh(self.horizon_slots)
            if quote.spot_available.known:
                self.pools[offering_id].learn(opened.slot, quote.spot_available.instances)

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Pool the experts' distributions; the price is river's."""
        said = {name: expert.issue(opened, quotes) for name, expert in self.experts.items()}
        shared = self._shared()
        forecasts = []
        for index, (offering_id, quote) in enumerate(quotes.items()):
            pool = self.pools[offering_id]
            counts: list[tuple[CountProbability, ...]] = []
            if quote.spot_available.known:
                errors = pool.evidence(pool.age)
                if shared:
                    errors = errors + shared[pool.age]
                pool.improve(errors)
                by_expert = [
                    tuple(step.counts for step in said[name][index].steps) for name in _EXPERTS
                ]
                counts = pool.issue(opened.slot, by_expert)
            prices = [step.spot_price_micro_usd for step in said["river"][index].steps]
            forecasts.append(offering_forecast(offering_id, quote, pool.last, prices, counts))
        return tuple(forecasts)

    def _shared(self) -> list[FloatArray]:
        """What all offerings lend each other, by age of the run; nothing where there is but one."""
        if len(self.pools) < 2:
            return []
        pools = [self.pools[offering_id] for offering_id in sorted(self.pools)]
        shared = []
        for age in range(len(_AGES) + 1):
            total = pools[0].evidence(age)
            for pool in pools[1:]:
                total = total + pool.evidence(age)
            shared.append(_OTHERS_SHARE * total)
        return shared

    def forget(self, offering_id: str) -> None:
        """Let every expert, and the weights, follow the latest slots."""
        for expert in self.experts.values():
            expert.forget(offering_id)
        if offering_id in self.pools:
            self.pools[offering_id].forget()


def _fresh_mixture(horizon_slots: int) -> MixtureModel:
    models: tuple[MarketModel, ...] = (
        PersistenceModel(horizon_slots=horizon_slots),
        RiverModel(horizon_slots=horizon_slots),
        LawModel(horizon_slots=horizon_slots),
        ClimatologyModel(horizon_slots=horizon_slots),
        SeasonalNaiveModel(horizon_slots=horizon_slots),
    )
    return MixtureModel(
        horizon_slots=horizon_slots, experts=dict(zip(_EXPERTS, models, strict=True))
    )


class MixtureForecaster(
    PreparedForecaster,
    name="mixture",
    model=MixtureModel,
    fresh=_fresh_mixture,
    versions=_VERSIONS,
):
    """A linear pool of all forecasters, with weights learnt online."""

    model_id = f"mixture-1/{river_version}"
