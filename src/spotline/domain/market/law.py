"""The law of a market: how availability and price of an offering go from slot to slot.

A law is a Markov chain on what can be seen: the level of the spot count, for how long it has been
there (real runs are heavy-tailed: the longer one has lasted, the longer it goes on), and the level
of the price. Count and price are taken to move independently. Probabilities are whole parts per
billion, so a law can be sent, stored and named by its content without rounding.
"""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spotline.domain.canonical import canonical_as, canonical_v1
from spotline.domain.market.law_ages import aged, assumed_older, ended_by_age, slots_lasted
from spotline.domain.market.law_prices import RECENT_SLOTS, present_centres, price_centres
from spotline.domain.market.learning_rules import FIRST_RULES, LearningRules
from spotline.domain.market.long_run import long_run
from spotline.domain.units import PPM

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

PPB = 1_000_000_000

MOST_LEVELS = 6
AGE_STARTS = (1, 3, 9)
# Weight, in observed transitions, of what is assumed before any: about half a day of slots.
_LEVEL_WEIGHT = 4.0
_AGE_WEIGHT = 12.0
_PRIOR_WEIGHT = 24.0
_PRICE_WEIGHT = 2.0
_ASSUMED_STAY = 0.8


@canonical_as("StateSpace", "level_starts age_starts price_centres_ppm")
@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpace:
    """What a law tells apart.

    A count c is of the last level whose entry in `level_starts` (ascending, first 0) is <= c; a
    run of k slots at one level is of the last bucket whose entry in `age_starts` (first 1) is <= k;
    a price, in parts per million of on-demand, is of the nearest of `price_centres_ppm`.

    Raises
    ------
    ValueError
        A list is empty, not ascending, or begins elsewhere.
    """

    level_starts: tuple[int, ...]
    age_starts: tuple[int, ...]
    price_centres_ppm: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, first in (("level_starts", 0), ("age_starts", 1), ("price_centres_ppm", None)):
            values = getattr(self, name)
            ascending = all(a < b for a, b in itertools.pairwise(values))
            if not values or not ascending or (first is not None and values[0] != first):
                begins = "" if first is None else f" and begin with {first}"
                raise ValueError(f"{name} must ascend{begins}, was {values}")

    @property
    def ages(self) -> int:
        """Number of age buckets."""
        return len(self.age_starts)

    @property
    def run_states(self) -> int:
        """Number of (level, age) states; state = level * ages + age bucket."""
        return len(self.level_starts) * self.ages

    @property
    def price_states(self) -> int:
        """Number of price levels."""
        return len(self.price_centres_ppm)

    def level_of(self, count: int) -> int:
        """Level of a spot count."""
        return int(np.searchsorted(self.level_starts, count, side="right")) - 1

    def age_of(self, slots: int) -> int:
        """Bucket of a run that has lasted `slots` slots, this one included."""
        return int(np.searchsorted(self.age_starts, slots, side="right")) - 1

    def price_of(self, price_ppm: int) -> int:
        """Index of the nearest centre, the lower of two."""
        return int(np.abs(np.array(self.price_centres_ppm) - price_ppm).argmin())


@dataclass(slots=True, kw_only=True)
class RunTracker:
    """Follows one offering: at which level, for how many slots."""

    space: StateSpace
    level: int = -1
    slots: int = 0

    def observe(self, count: int) -> int:
        """Take in the count of the next slot; returns the run state."""
        level = self.space.level_of(count)
        self.slots = self.slots + 1 if level == self.level else 1
        self.level = level
        return level * self.space.ages + self.space.age_of(self.slots)


def run_states(space: StateSpace, counts: Sequence[int] | IntArray) -> IntArray:
    """Run state of every slot of a series, shape of `counts`; the first slot begins a run."""
    seen = np.asarray(counts, dtype=np.int64)
    level = np.searchsorted(space.level_starts, seen, side="right") - 1
    age = np.searchsorted(space.age_starts, slots_lasted(level), side="right") - 1
    return (level * space.ages + age).astype(np.int64)


def last_run_state(space: StateSpace, counts: Sequence[int]) -> int:
    """Run state of the last slot of a series of at least one: the last of `run_states`."""
    level = bisect_right(space.level_starts, counts[-1]) - 1
    lasted = 0
    for count in reversed(counts):
        if bisect_right(space.level_starts, count) - 1 != level:
            break
        lasted += 1
    return level * space.ages + bisect_right(space.age_starts, lasted) - 1


@canonical_as("MarketLaw", "space level_counts run_ppb price_ppb")
@dataclass(frozen=True, slots=True, kw_only=True)
class MarketLaw:
    """Transition probabilities in parts per billion; every row sums to one billion.

    `run_ppb` holds `space.run_states` rows of as many entries, row after row; `price_ppb` likewise
    `space.price_states`. `level_counts` is the spot count that stands for each level.

    Raises
    ------
    ValueError
        Shapes do not fit the space, or a row is no distribution.
    """

    space: StateSpace
    level_counts: tuple[int, ...]
    run_ppb: tuple[int, ...]
    price_ppb: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.level_counts) != len(self.space.level_starts):
            raise ValueError(
                f"level_counts must have {len(self.space.level_starts)} entries, "
                f"had {len(self.level_counts)}"
            )
        _check_rows("run_ppb", self.run_ppb, self.space.run_states)
        _check_rows("price_ppb", self.price_ppb, self.space.price_states)

    def run_matrix(self) -> FloatArray:
        """Probability of each run state in the next slot, shape (run states, run states)."""
        size = self.space.run_states
        return np.array(self.run_ppb, dtype=np.float64).reshape(size, size) / PPB

    def price_matrix(self) -> FloatArray:
        """Probability of each price level in the next slot, shape (price, price)."""
        size = self.space.price_states
        return np.array(self.price_ppb, dtype=np.float64).reshape(size, size) / PPB

    def run_chances(self) -> FloatArray:
        """How often the market is in each run state in the long run, shape (run states,)."""
        return long_run(self.run_matrix())

    def run_counts(self) -> IntArray:
        """Spot count of each run state, shape (run states,)."""
        return np.repeat(np.array(self.level_counts, dtype=np.int64), self.space.ages)


def law_id_of(law: MarketLaw) -> str:
    """Name a law by its content: SHA-256, hexadecimal."""
    return hashlib.sha256(canonical_v1(law).encode()).hexdigest()


def _check_rows(name: str, entries: tuple[int, ...], size: int) -> None:
    if len(entries) != size * size:
        raise ValueError(f"{name} must hold {size} x {size} entries, held {len(entries)}")
    for row in range(size):
        part = entries[row * size : (row + 1) * size]
        if min(part) < 0 or sum(part) != PPB:
            raise ValueError(
                f"{name} row {row} must be >= 0 and sum to {PPB}, was {min(part)}.. and {sum(part)}"
            )


# --- learning ---------------------------------------------------------------------------------


def choose_space(
    counts: Sequence[int] | IntArray,
    price_ppm: Sequence[int] | IntArray,
    *,
    most_instances: int,
    age_starts: tuple[int, ...] = AGE_STARTS,
    whole_gangs: bool = False,
) -> StateSpace:
    """Choose levels from what has been seen.

    Counts above `most_instances` (the most that a job can use) are alike. Few distinct counts are
    all kept; many are cut where equal shares of the slots with any spot fall. With `whole_gangs`
    the last level is the greatest of many counts alone: a gang that has lost a few is not whole.
    """
    seen = np.minimum(np.asarray(counts, dtype=np.int64), most_instances)
    positive = np.sort(seen[seen > 0])
    distinct = np.unique(positive)
    if distinct.size == 0:
        starts: list[int] = [1]
    elif distinct.size < MOST_LEVELS:
        starts = distinct.tolist()
    else:
        cuts = [positive[positive.size * k // (MOST_LEVELS - 1)] for k in range(MOST_LEVELS - 1)]
        # Nothing missing is a level of its own: it is what a job asks for.
        starts = [1, *cuts[1:], int(distinct[-1])]
    # Half-way between neighbours, so that a count a little below a common one belongs to it.
    ordered = sorted({int(s) for s in starts})
    starts = [max(1, -(-ordered[0] // 2))]
    starts += [(a + b + 1) // 2 for a, b in itertools.pairwise(ordered)]
    if whole_gangs and distinct.size >= MOST_LEVELS:
        starts[-1] = ordered[-1]
    return StateSpace(
        level_starts=(0, *sorted(set(starts))),
        age_starts=age_starts,
        price_centres_ppm=price_centres(price_ppm),
    )


def learn_law(
    counts: Sequence[int] | IntArray,
    price_ppm: Sequence[int] | IntArray,
    space: StateSpace,
    *,
    prior: MarketLaw | None = None,
    falling_ends: bool = False,
) -> MarketLaw:
    """Learn a law on `space` from one offering's series of spot counts and prices.

    Probabilities are posterior means under Dirichlet priors: a level's moves are drawn towards
    staying, a run's of a certain age towards those of its level at any age; with `falling_ends`
    towards a chance that falls as a power of the age, see `law_ages.ends_by_age`. With a `prior` (a law
    of other offerings, on the same space) they are drawn towards that one instead.

    Raises
    ------
    ValueError
        The series differ in length, or `prior` is on another space.
    """
    _check_lengths(counts, price_ppm)
    if prior is not None and prior.space != space:
        raise ValueError("prior must be on the space that is learned")
    seen = np.asarray(counts, dtype=np.int64)
    return MarketLaw(
        space=space,
        level_counts=_level_counts(seen, space, prior),
        run_ppb=_run_law(run_states(space, seen), space, prior, falling_ends=falling_ends),
        price_ppb=_price_law(np.asarray(price_ppm, dtype=np.int64), space, prior),
    )


def _check_lengths(counts: Sequence[int] | IntArray, price_ppm: Sequence[int] | IntArray) -> None:
    if len(counts) != len(price_ppm):
        raise ValueError(
            f"counts and price_ppm must have one length, had {len(counts)} and {len(price_ppm)}"
        )


def _level_counts(seen: IntArray, space: StateSpace, prior: MarketLaw | None) -> tuple[int, ...]:
    level = np.searchsorted(space.level_starts, seen, side="right") - 1
    counts = []
    for index, start in enumerate(space.level_starts):
        within = np.sort(seen[level == index])
        assumed = start if prior is None else prior.level_counts[index]
        counts.append(int(within[(within.size - 1) // 2]) if within.size else assumed)
    counts[0] = 0
    return tuple(counts)


def _run_law(
    states: IntArray, space: StateSpace, prior: MarketLaw | None, *, falling_ends: bool
) -> tuple[int, ...]:
    levels, ages = len(space.level_starts), space.ages
    moves = np.zeros((levels, ages, levels))
    older = np.zeros((levels, ages))
    before, after = states[:-1], states[1:]
    np.add.at(moves, (before // ages, before % ages, after // ages), 1.0)
    grown = (after // ages == before // ages) & (after % ages > before % ages)
    np.add.at(older, (before[grown] // ages, before[grown] % ages), 1.0)
    older_assumed = assumed_older(space.age_starts)
    if prior is None:
        share = moves.sum(axis=(0, 1)) + 1.0
        share /= share.sum()
        stay = np.eye(levels) * _ASSUMED_STAY + (1.0 - _ASSUMED_STAY) * share[None, :]
        pooled = moves.sum(axis=1) + _LEVEL_WEIGHT * stay
        pooled /= pooled.sum(axis=1, keepdims=True)
        drawn_to = np.repeat(pooled[:, None, :], ages, axis=1)
        if falling_ends:
            drawn_to = ended_by_age(pooled, states // ages, space.age_starts)
        weight = _AGE_WEIGHT
    else:
        matrix = prior.run_matrix()
        drawn_to = matrix.reshape(levels, ages, levels, ages).sum(axis=3)
        weight = _PRIOR_WEIGHT
    chance = moves + weight * drawn_to
    chance /= chance.sum(axis=2, keepdims=True)
    stayed = moves[np.arange(levels), :, np.arange(levels)]
    grow = (older + 2.0 * older_assumed) / (stayed + 2.0)
    return quantised_rows(aged(chance, grow))


def _price_law(price_ppm: IntArray, space: StateSpace, prior: MarketLaw | None) -> tuple[int, ...]:
    size = space.price_states
    centres = np.array(space.price_centres_ppm, dtype=np.int64)
    level = np.abs(price_ppm[:, None] - centres[None, :]).argmin(axis=1)
    moves = np.zeros((size, size))
    np.add.at(moves, (level[:-1], level[1:]), 1.0)
    if prior is None:
        share = (moves.sum(axis=0) + 1.0) / (moves.sum() + size)
        drawn_to = np.eye(size) * _ASSUMED_STAY + (1.0 - _ASSUMED_STAY) * share[None, :]
        weight = _PRICE_WEIGHT
    else:
        drawn_to, weight = prior.price_matrix(), _PRIOR_WEIGHT
    chance = moves + weight * drawn_to
    return quantised_rows(chance / chance.sum(axis=1, keepdims=True))


def quantised_rows(matrix: FloatArray) -> tuple[int, ...]:
    """Round every row to parts per billion that sum to one billion; row after row."""
    entries: list[int] = []
    for row in matrix:
        parts = np.floor(row * PPB).astype(np.int64)
        # The largest entry takes the remainder: its relative error is the least.
        parts[int(row.argmax())] += PPB - int(parts.sum())
        entries.extend(int(p) for p in parts)
    return tuple(entries)


# --- several laws -----------------------------------------------------------------------------


def transitions(space: StateSpace, counts: Sequence[int] | IntArray) -> IntArray:
    """How often a series moved from each run state to each, shape (run states, run states)."""
    states = run_states(space, counts)
    moves = np.zeros((space.run_states, space.run_states), dtype=np.int64)
    np.add.at(moves, (states[:-1], states[1:]), 1)
    return moves


def law_weights(
    moves: IntArray, laws: Sequence[MarketLaw], before: FloatArray | None = None
) -> tuple[float, ...]:
    """Bayesian weights of laws on one space; they sum to 1.

    `before` are their weights, all > 0, before `moves` were seen; equal unless given.
    """
    log_likely = np.array(
        [float((moves * np.log(np.maximum(law.run_matrix(), 1.0 / PPB))).sum()) for law in laws]
    )
    if before is not None:
        log_likely = log_likely + np.log(before)
    likely = np.exp(log_likely - log_likely.max())
    return tuple(float(share) for share in likely / likely.sum())


def mixed_law(laws: Sequence[MarketLaw], weights: Sequence[float]) -> MarketLaw:
    """The law that draws each transition from one of `laws`, all on one space."""
    share = np.asarray(weights, dtype=np.float64)
    share = share / share.sum()
    run = sum(w * law.run_matrix() for w, law in zip(share, laws, strict=True))
    price = sum(w * law.price_matrix() for w, law in zip(share, laws, strict=True))
    heaviest = laws[int(share.argmax())]
    return MarketLaw(
        space=heaviest.space,
        level_counts=heaviest.level_counts,
        run_ppb=quantised_rows(np.asarray(run)),
        price_ppb=quantised_rows(np.asarray(price)),
    )


Lends = Callable[[StateSpace, int], Sequence[tuple[MarketLaw, float]]]
"""Laws from elsewhere on a space, for an offering of so many instances, with what each counts for
before anything is seen; these sum to 1."""


def learn_laws(
    series: Mapping[str, tuple[Sequence[int] | IntArray, Sequence[int] | IntArray]],
    *,
    most_instances: int,
    elsewhere: Lends | None = None,
    learning: LearningRules = FIRST_RULES,
) -> dict[str, MarketLaw]:
    """Learn the law of every offering, each drawn towards those of others that fit it.

    Every other offering's own law is weighted by how likely it makes what this one has shown;
    that mixture is the prior, which counts for little once an offering has a past of its own.
    Called again as the series grow, this is what adapts laws and weights online.

    Parameters
    ----------
    series
        Per offering id (spot counts, prices in ppm of on-demand), slot by slot.
    most_instances
        The most a job can use.
    elsewhere
        What other markets lend, beside the offerings of this one; see `Lends`.
    learning
        What is done with the past; all series are taken to be of one law.

    Raises
    ------
    ValueError
        The two parts of a series differ in length.
    """
    names = sorted(series)
    if not names:
        return {}
    counts = np.concatenate([np.asarray(series[name][0], dtype=np.int64) for name in names])
    # Levels of the count are common to all, so that laws can be lent; prices are each one's own.
    common = choose_space(
        counts, [], most_instances=most_instances, whole_gangs=learning.whole_gangs
    )
    unpriced = {name: np.full(len(series[name][0]), PPM // 3, dtype=np.int64) for name in names}
    alone = {
        name: learn_law(series[name][0], unpriced[name], common, falling_ends=learning.falling_ends)
        for name in names
    }
    laws: dict[str, MarketLaw] = {}
    for name in names:
        own_counts, own_prices = series[name]
        _check_lengths(own_counts, own_prices)
        others = [alone[other] for other in names if other != name]
        before = None
        if elsewhere is not None:
            lending = elsewhere(common, _capacity(name, series))
            # A market's own offerings together count for as much as all that is lent to it.
            own = np.full(len(others), 1.0 / max(1, len(others)))
            before = np.append(own, [chance for _, chance in lending])
            others += [law for law, _ in lending]
        lent = None
        if others:
            seen = transitions(common, own_counts)
            lent = mixed_law(others, law_weights(seen, others, before))
        run = alone[name]
        if lent is not None:
            run = learn_law(own_counts, unpriced[name], common, prior=lent)
        prices = np.asarray(own_prices, dtype=np.int64)
        space, price_ppb = (
            learn_present_prices(common, prices)
            if learning.present_prices
            else _learn_prices(common, prices, price_centres(prices))
        )
        laws[name] = MarketLaw(
            space=space,
            level_counts=_level_counts(np.asarray(own_counts, dtype=np.int64), space, None),
            run_ppb=run.run_ppb,
            price_ppb=price_ppb,
        )
    return laws


def learn_present_prices(
    space: StateSpace, price_ppm: Sequence[int] | IntArray
) -> tuple[StateSpace, tuple[int, ...]]:
    """`space` with price levels of recent slots, the latest price among them, and how they follow.

    What follows is `MarketLaw.price_ppb`. Prices are in ppm of on-demand, slot by slot.
    """
    recent = np.asarray(price_ppm, dtype=np.int64)[-RECENT_SLOTS:]
    return _learn_prices(space, recent, present_centres(recent))


def _learn_prices(
    space: StateSpace, price_ppm: IntArray, centres: tuple[int, ...]
) -> tuple[StateSpace, tuple[int, ...]]:
    priced = replace(space, price_centres_ppm=centres)
    return priced, _price_law(price_ppm, priced, None)


def _capacity(name: str, series: Mapping[str, tuple[Sequence[int] | IntArray, Any]]) -> int:
    """The most that an offering has shown; where that is nothing, the middle one of all others."""
    most = {other: int(np.max(counts, initial=0)) for other, (counts, _) in series.items()}
    if most[name] > 0:
        return most[name]
    shown = sorted(count for count in most.values() if count > 0)
    return shown[(len(shown) - 1) // 2] if shown else 1
