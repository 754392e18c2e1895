"""Our own law of the market (`domain.market.law`), run forward step by step.

The law is a Markov chain over the level of the count, the age of the run at that level, and the
level of the price. It is learnt again now and then from the recent past of the offering. Its
matrix powers give the distribution over levels k steps ahead; the counts seen lately within a
level say which counts that means. The price is the median of the chain of price levels: the
present one for as long as it probably stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import numpy.typing as npt

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.prepared import PreparedForecaster, offering_forecast
from spotline.domain.market.forecast import CountProbability, OfferingForecast
from spotline.domain.market.law import RunTracker, StateSpace, choose_space, learn_law
from spotline.domain.market.offering import Quote
from spotline.domain.units import PPM

_PAST_SLOTS = 1_344  # four weeks of half-hours
_FORGOTTEN_SLOTS = 192
_LEARN_AFTER_SLOTS = 8  # at least; later on, after a sixteenth of the past
_LEARN_AFTER_SHARE = 16
_AGE_STARTS = (1, 2, 4, 8, 16, 32, 64)
_MOST_LEVELS = 10
_RECENT_COUNTS = 96  # they say what a level means

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class _Learnt:
    """One offering's law, run forward.

    `levels[h][state]` holds the probability of every level h + 1 slots on, `prices[h][price]` that
    of every price level. `places[level]` are the counts it stands for, with weights.
    """

    space: StateSpace
    levels: list[list[list[float]]]
    prices: list[list[list[float]]]
    places: list[list[tuple[int, float]]]
    said: dict[tuple[int, int], list[tuple[CountProbability, ...]]] = field(default_factory=dict)

    def distributions(self, state: int, count: int) -> list[tuple[CountProbability, ...]]:
        if (state, count) not in self.said:
            present = self.space.level_of(count)
            self.said[state, count] = [
                self._distribution(levels[state], present, count) for levels in self.levels
            ]
        return self.said[state, count]

    def _distribution(
        self, probabilities: Sequence[float], present: int, count: int
    ) -> tuple[CountProbability, ...]:
        masses = []
        for level, probability in enumerate(probabilities):
            if level == present:
                masses.append((count, probability))
            else:
                masses += [(c, probability * w) for c, w in self.places[level]]
        return quantised(masses)


@dataclass(slots=True, kw_only=True)
class _Offering:
    """Counts of the known slots with the prices (ppm of on-demand) then, and the law of them."""

    counts: deque[int] = field(default_factory=lambda: deque(maxlen=_PAST_SLOTS))
    prices_ppm: deque[int] = field(default_factory=lambda: deque(maxlen=_PAST_SLOTS))
    tracker: RunTracker | None = None
    state: int = 0
    learnt: _Learnt | None = None

    def learn(self, count: int, price_ppm: int) -> None:
        self.counts.append(count)
        self.prices_ppm.append(price_ppm)
        if self.tracker is not None:
            self.state = self.tracker.observe(count)

    def adopt(self, learnt: _Learnt) -> None:
        """Use a new law: find the present state on its space."""
        self.learnt = learnt
        self.tracker = RunTracker(space=learnt.space)
        level = learnt.space.level_of(self.counts[-1])
        present = takewhile(
            lambda count: learnt.space.level_of(count) == level, reversed(self.counts)
        )
        for count in present:
            self.state = self.tracker.observe(count)

    def distributions(self, horizon_slots: int) -> list[tuple[CountProbability, ...]]:
        """Distributions 1, 2, ... slots after the last known count."""
        if self.learnt is None:
            return [certain(self.counts[-1])] * horizon_slots
        return self.learnt.distributions(self.state, self.counts[-1])

    def price_micro_usd(self, h: int, quote: Quote) -> int:
        if self.learnt is None:
            return quote.spot_price_micro_usd
        centres = self.learnt.space.price_centres_ppm
        if len(centres) == 1:
            return quote.spot_price_micro_usd
        present = self.learnt.space.price_of(_price_ppm(quote))
        median = _median(self.learnt.prices[h][present])
        if median == present:
            return quote.spot_price_micro_usd
        return max(1, centres[median] * quote.on_demand_price_micro_usd // PPM)


def _median(probabilities: Sequence[float]) -> int:
    reached = 0.0
    for index, probability in enumerate(probabilities):
        reached += probability
        if reached >= 0.5:
            return index
    return len(probabilities) - 1


def _price_ppm(quote: Quote) -> int:
    return quote.spot_price_micro_usd * PPM // max(1, quote.on_demand_price_micro_usd)


@dataclass(slots=True, kw_only=True)
class LawModel:
    """The law of every offering, on levels of its own."""

    horizon_slots: int
    offerings: dict[str, _Offering] = field(default_factory=dict)
    slots: int = 0
    next_learning: int = 4

    def learn(self, opened: SlotOpened, quotes: Mapping[str, Quote]) -> None:
        """Remember the counts; learn the laws again when enough is new."""
        for offering_id, quote in quotes.items():
            known = self.offerings.setdefault(offering_id, _Offering())
            if quote.spot_available.known:
                known.learn(quote.spot_available.instances, _price_ppm(quote))
        self.slots += 1
        if self.slots >= self.next_learning:
            self._learn_laws()
            self.next_learning = self.slots + max(
                _LEARN_AFTER_SLOTS, min(self.slots, _PAST_SLOTS) // _LEARN_AFTER_SHARE
            )

    def _learn_laws(self) -> None:
        for known in self.offerings.values():
            if not known.counts:
                continue
            starts = _level_starts(known.counts)
            run_space = StateSpace(
                level_starts=starts, age_starts=_AGE_STARTS, price_centres_ppm=(0,)
            )
            counts = np.array(known.counts, dtype=np.int64)
            prices = np.array(known.prices_ppm, dtype=np.int64)
            centres = choose_space(counts, prices, most_instances=1).price_centres_ppm
            run = learn_law(counts, np.zeros_like(counts), run_space)
            price_space = StateSpace(level_starts=(0,), age_starts=(1,), price_centres_ppm=centres)
            price = learn_law(counts, prices, price_space)
            known.adopt(
                _Learnt(
                    space=StateSpace(
                        level_starts=starts, age_starts=_AGE_STARTS, price_centres_ppm=centres
                    ),
                    levels=self._levels(run.run_matrix(), len(starts)),
                    prices=self._powers(price.price_matrix()),
                    places=_places(list(known.counts)[-_RECENT_COUNTS:], starts),
                )
            )

    def _levels(self, matrix: FloatArray, levels: int) -> list[list[list[float]]]:
        states = matrix.shape[0]
        totals = []
        power = np.eye(states)
        for _ in range(self.horizon_slots):
            power = power @ matrix
            totals.append(power.reshape(states, levels, -1).sum(axis=2).tolist())
        return totals

    def _powers(self, matrix: FloatArray) -> list[list[list[float]]]:
        powers = []
        power = np.eye(matrix.shape[0])
        for _ in range(self.horizon_slots):
            power = power @ matrix
            powers.append(power.tolist())
        return powers

    def issue(
        self, opened: SlotOpened, quotes: Mapping[str, Quote]
    ) -> tuple[OfferingForecast, ...]:
        """Run the laws forward from the present states."""
        horizon = range(self.horizon_slots)
        forecasts = []
        for offering_id, quote in quotes.items():
            known = self.offerings[offering_id]
            counts: list[tuple[CountProbability, ...]] = []
            if quote.spot_available.known:
                counts = known.distributions(self.horizon_slots)
            prices = [known.price_micro_usd(h, quote) for h in horizon]
            last = known.counts[-1] if known.counts else None
            forecasts.append(offering_forecast(offering_id, quote, last, prices, counts))
        return tuple(forecasts)

    def forget(self, offering_id: str) -> None:
        """Learn the next law from the latest slots only."""
        known = self.offerings.get(offering_id)
        if known is not None:
            while len(known.counts) > _FORGOTTEN_SLOTS:
                known.counts.popleft()
                known.prices_ppm.popleft()


def _level_starts(counts: Iterable[int]) -> tuple[int, ...]:
    """Every count seen starts a level; too many are cut where equal shares of the slots fall."""
    positive = sorted(count for count in counts if count > 0)
    distinct = sorted(set(positive))
    if len(distinct) >= _MOST_LEVELS:
        cuts = _MOST_LEVELS - 1
        quantiles = [positive[len(positive) * k // cuts] for k in range(cuts)]
        distinct = sorted({1, *quantiles[1:], distinct[-1]})
    return (0, *distinct)


def _places(recent: Sequence[int], starts: Sequence[int]) -> list[list[tuple[int, float]]]:
    """Counts within each level and their shares of its recent slots; unseen levels: their start."""
    within: list[dict[int, float]] = [{} for _ in starts]
    for count in recent:
        level = sum(1 for start in starts if start <= count) - 1
        within[level][count] = within[level].get(count, 0.0) + 1.0
    places = []
    for start, seen in zip(starts, within, strict=True):
        total = sum(seen.values())
        places.append([(c, w / total) for c, w in sorted(seen.items())] or [(start, 1.0)])
    return places


class LawForecaster(PreparedForecaster, name="law", model=LawModel, versions={"format": "1"}):
    """The learned law of the market, run forward."""

    model_id = "law-1"
