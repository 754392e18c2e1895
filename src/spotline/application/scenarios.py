"""Possible futures of one offering: the forecast's distribution, then regimes that persist.

Within the forecast's horizon a path follows its marginals: one uniform number per path picks the
quantile of every step and is kept from step to step with the probability that the count has
stayed the same lately, so a path is as sticky as the market has been. Beyond the horizon counts
follow a Markov chain fitted on the recent slots. Prices take the forecast's expectation, times
the relative changes of the recent slots drawn again, pulled back to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spotline.domain.drawn import generator
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.forecast import ForecastStep, OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.policies.interface import WindowForecast
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.units import PPM

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# What is assumed of a market that was not watched yet.
_DEFAULT_STAY = 0.9
# How many slots of assumed behaviour the fitted chain is mixed with, per state.
_PRIOR_SLOTS = 4.0
# A price shock keeps this share per slot; it never carries the price further than this factor.
_SHOCK_KEPT = 0.97
_MOST_SHOCK = float(np.log(3.0))
# Steps that forecast-driven policies may look ahead (the largest omega of the pool).
_WINDOW = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioSpec:
    """What to sample: `paths` futures of `slots` slots, the first being step 1 of the forecast.

    `most_spot` is the largest count that matters (the job's largest).
    """

    quote: Quote
    forecast: OfferingForecast | None
    history: tuple[SlotOpened, ...]
    most_spot: int
    slots: int
    paths: int
    seed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegimeChain:
    """Transition probabilities between counts 0..N, shape (N + 1, N + 1); rows sum to one."""

    transition: FloatArray
    stay: float


def sample_paths(spec: ScenarioSpec) -> tuple[IntArray, IntArray]:
    """Sample futures as spot counts and prices (micro-USD), both shape (paths, slots)."""
    counts, prices, _ = _sample(spec)
    return counts, prices


def on_demand_in(spec: ScenarioSpec) -> int:
    """On-demand instances in every slot of every future; plenty where it is unknown."""
    on_demand = spec.quote.on_demand_available
    return on_demand.instances if on_demand.known else UNCOUNTED


def sample_records(spec: ScenarioSpec) -> tuple[tuple[SlotRecord, ...], ...]:
    """Sample futures as what a job would be offered, slot by slot. Equal specs, equal futures."""
    counts, prices, chain = _sample(spec)
    forecasts = _conditional_forecasts(spec, chain)
    on_demand_left = on_demand_in(spec)
    return tuple(
        tuple(
            SlotRecord(
                spot_price=int(prices[path, slot]),
                on_demand_price=spec.quote.on_demand_price_micro_usd,
                spot_available=int(counts[path, slot]),
                on_demand_available=on_demand_left,
                forecast=_forecast_from(
                    spec, forecasts, int(counts[path, slot]), int(prices[path, slot])
                ),
            )
            for slot in range(spec.slots)
        )
        for path in range(spec.paths)
    )


def _sample(spec: ScenarioSpec) -> tuple[IntArray, IntArray, RegimeChain]:
    rng = generator(spec.seed)
    chain = fit_chain(_past_counts(spec), spec.most_spot, _distribution_at_end(spec))
    counts = _sample_counts(spec, chain, rng)
    return counts, _sample_prices(spec, rng), chain


def fit_chain(past: Sequence[int], most: int, long_run: FloatArray | None) -> RegimeChain:
    """Fit a chain on past counts (each 0..most), mixed with persistence.

    `long_run` is where a changing count goes, shape (most + 1,); None: where it has been.
    """
    states = most + 1
    changes = sum(a != b for a, b in pairwise(past))
    pairs = max(0, len(past) - 1)
    stay = (pairs - changes + _DEFAULT_STAY * _PRIOR_SLOTS) / (pairs + _PRIOR_SLOTS)
    if long_run is None:
        visits = np.bincount(np.array(past, dtype=np.int64), minlength=states).astype(np.float64)
        long_run = visits / visits.sum() if visits.sum() else np.full(states, 1.0 / states)
    prior = stay * np.eye(states) + (1.0 - stay) * long_run[None, :]
    seen = np.zeros((states, states))
    for before, after in pairwise(past):
        seen[before, after] += 1.0
    weighed = seen + _PRIOR_SLOTS * prior
    return RegimeChain(transition=weighed / weighed.sum(axis=1, keepdims=True), stay=stay)


def _past_counts(spec: ScenarioSpec) -> list[int]:
    counts = []
    for opened in spec.history:
        for slot_quote in opened.quotes:
            quote = slot_quote.quote
            if quote.offering_id == spec.quote.offering_id and quote.spot_available.known:
                counts.append(min(quote.spot_available.instances, spec.most_spot))
    return counts


def _distribution(step: ForecastStep, most: int) -> FloatArray:
    probability = np.zeros(most + 1)
    for count in step.counts:
        probability[min(count.instances, most)] += count.probability_ppm / PPM
    return probability


def _distribution_at_end(spec: ScenarioSpec) -> FloatArray | None:
    if spec.forecast is None or not spec.forecast.steps:
        return None
    return _distribution(spec.forecast.steps[-1], spec.most_spot)


def _current(spec: ScenarioSpec) -> int:
    available = spec.quote.spot_available
    return min(available.instances, spec.most_spot) if available.known else spec.most_spot


def _sample_counts(spec: ScenarioSpec, chain: RegimeChain, rng: np.random.Generator) -> IntArray:
    counts = np.empty((spec.paths, spec.slots), dtype=np.int64)
    # Stratified: the paths cover the distribution evenly even when they are few.
    level = (rng.permutation(spec.paths) + rng.random(spec.paths)) / spec.paths
    steps = () if spec.forecast is None else spec.forecast.steps
    cumulative = np.cumsum(chain.transition, axis=1)
    current = np.full(spec.paths, _current(spec), dtype=np.int64)
    for slot in range(spec.slots):
        if slot < len(steps):
            edges = np.cumsum(_distribution(steps[slot], spec.most_spot))
            current = np.searchsorted(edges, level, side="right")
            fresh = rng.random(spec.paths)
            level = np.where(rng.random(spec.paths) < chain.stay, level, fresh)
        else:
            draw = rng.random(spec.paths)
            current = (draw[:, None] >= cumulative[current]).sum(axis=1)
        current = np.minimum(current, spec.most_spot)
        counts[:, slot] = current
    return counts


def _sample_prices(spec: ScenarioSpec, rng: np.random.Generator) -> IntArray:
    steps = () if spec.forecast is None else spec.forecast.steps
    expected = np.array(
        [spec.quote.spot_price_micro_usd, *(step.spot_price_micro_usd for step in steps)],
        dtype=np.float64,
    )
    moves = _past_moves(spec)
    prices = np.empty((spec.paths, spec.slots), dtype=np.int64)
    shock = np.zeros(spec.paths)
    for slot in range(spec.slots):
        if moves.size:
            shock = _SHOCK_KEPT * shock + rng.choice(moves, size=spec.paths)
            shock = np.clip(shock, -_MOST_SHOCK, _MOST_SHOCK)
        price = expected[min(slot + 1, len(expected) - 1)] * np.exp(shock)
        prices[:, slot] = np.maximum(1, np.rint(price)).astype(np.int64)
    return prices


def _past_moves(spec: ScenarioSpec) -> FloatArray:
    """Centred relative price changes of the recent slots (log), shape (changes,)."""
    past = [
        slot_quote.quote.spot_price_micro_usd
        for opened in spec.history
        for slot_quote in opened.quotes
        if slot_quote.quote.offering_id == spec.quote.offering_id
    ]
    moves: FloatArray = np.diff(np.log(np.array(past, dtype=np.float64)))
    return moves - moves.mean() if moves.size else moves


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What a forecaster would say when the count is this: medians and their probability."""

    counts: tuple[int, ...]
    certain: tuple[float, ...]


def _conditional_forecasts(spec: ScenarioSpec, chain: RegimeChain) -> dict[int, _Outlook]:
    """The chain's own forecast from every count: what planners will be told along a path."""
    if spec.forecast is None or not spec.forecast.steps:
        return {}
    window = min(_WINDOW, len(spec.forecast.steps))
    outlooks = {}
    powers = [chain.transition]
    while len(powers) < window:
        powers.append(powers[-1] @ chain.transition)
    for count in range(spec.most_spot + 1):
        medians = [_median(power[count]) for power in powers]
        outlooks[count] = _Outlook(
            tuple(median for median, _ in medians), tuple(certain for _, certain in medians)
        )
    return outlooks


def _median(probability: FloatArray) -> tuple[int, float]:
    """As `prediction.median_count`: the largest m with P(count >= m) >= 1/2, and that probability."""
    tail = np.cumsum(probability[::-1])[::-1]
    median = int(np.nonzero(tail >= 0.5)[0].max(initial=0))
    return median, min(1.0, float(tail[median]))


def _forecast_from(
    spec: ScenarioSpec, outlooks: dict[int, _Outlook], count: int, price: int
) -> WindowForecast | None:
    outlook = outlooks.get(count)
    if outlook is None:
        return None
    on_demand = spec.quote.on_demand_price_micro_usd
    # Spot that fails is bought on demand, as in `prediction.window_forecast`.
    expected = tuple(
        max(1, int(price * certain + on_demand * (1.0 - certain))) for certain in outlook.certain
    )
    return WindowForecast(spot_price=expected, spot_available=outlook.counts)
