"""The law of one spot instance: up and down runs that end with a chance given by their age.

Real runs are heavy-tailed: the longer one has lasted, the longer it goes on, so a memoryless law
misjudges both a fresh instance and a long outage. A `RunLaw` gives the chance that a run ends in
the next slot per bucket of its age. Nobody knows which law an unseen market follows: a `LawMix`
weighs many (each known market's, and their common law with both kinds of run made longer and
shorter); what is seen slot by slot updates the weights. It does not depend on what is held, so
looking costs nothing and the belief needs no place in the plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float32]

# Geometric: what a run will do depends on the order of magnitude of its age.
AGE_STARTS = (1, 2, 3, 5, 9, 16, 32, 72)
# The prior for unseen markets: ends of runs so many times as likely as in the known ones. Chosen by
# leaving out one region at a time, on the first half of the traces.
_SCALES = (0.5, 1.0, 2.0)
_OWN_UP_SCALES = (1.0, 1.6)
_FLAT_UP_SCALES = (0.7, 1.8, 4.0)
_FLATTENED = 0.5
_WEIGHTS = (0.3, 0.4, 0.3)
# Slots of a run of the common law that one market's own counts have to outweigh.
_OWN_WEIGHT_SLOTS = 20.0
_COMMON_ENDS = 1.0
_COMMON_SLOTS = 8.0
_LEAST_HAZARD = 1e-4
_MOST_HAZARD = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """What was seen of runs: slots spent per state and age bucket, and the ends among them.

    Both shape (2, buckets): row 0 of down runs, row 1 of up runs.
    """

    slots: FloatArray
    ends: FloatArray

    def __add__(self, other: RunCounts) -> RunCounts:
        return RunCounts(slots=self.slots + other.slots, ends=self.ends + other.ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLaw:
    """Chance that a run ends in the next slot, by its age.

    A run in its k-th slot is of the last bucket whose entry in `age_starts` (ascending, first 1) is
    <= k. `ends` has shape (2, buckets): row 0 of down runs, row 1 of up runs. As a Markov chain,
    state `up * buckets + bucket`; a bucket is left for the next one after its width on average.

    Raises
    ------
    ValueError
        The ages do not ascend from 1, or a chance is not within (0, 1).
    """

    age_starts: tuple[int, ...]
    ends: FloatArray

    def __post_init__(self) -> None:
        starts = self.age_starts
        if not starts or starts[0] != 1 or any(a >= b for a, b in itertools.pairwise(starts)):
            raise ValueError(f"age_starts must ascend from 1, was {starts}")
        if self.ends.shape != (2, len(starts)):
            raise ValueError(f"ends must have shape (2, {len(starts)}), was {self.ends.shape}")
        if not ((self.ends > 0.0) & (self.ends < 1.0)).all():
            raise ValueError("every chance that a run ends must be within (0, 1)")

    def scaled(self, *, down: float, up: float) -> RunLaw:
        """The same law with ends of down and of up runs so many times as likely."""
        factors = np.array([[down], [up]])
        return RunLaw(age_starts=self.age_starts, ends=_clipped(self.ends * factors))

    def flattened_up(self, power: float) -> RunLaw:
        """The same law with the ends of up runs less dependent on age.

        Each chance is drawn, in logarithms, to `power` of its distance from their mean: 1 keeps
        the law, 0 forgets the age.
        """
        logs = np.log(self.ends[1])
        up = np.exp(logs.mean() + power * (logs - logs.mean()))
        return RunLaw(age_starts=self.age_starts, ends=_clipped(np.stack([self.ends[0], up])))

    def transition(self) -> FloatArray:
        """Transition matrix, shape (2 * buckets, 2 * buckets), rows sum to 1."""
        buckets = len(self.age_starts)
        matrix = np.zeros((2 * buckets, 2 * buckets))
        for up, bucket in itertools.product((0, 1), range(buckets)):
            state = up * buckets + bucket
            end = self.ends[up, bucket]
            matrix[state, (1 - up) * buckets] = end
            older = 0.0
            if bucket + 1 < buckets:
                older = 1.0 / (self.age_starts[bucket + 1] - self.age_starts[bucket])
                matrix[state, state + 1] = (1.0 - end) * older
            matrix[state, state] += (1.0 - end) * (1.0 - older)
        return matrix

    def stationary(self) -> FloatArray:
        """Long-run share of time per state, shape (2 * buckets,)."""
        matrix = self.transition()
        states = len(matrix)
        system = np.vstack([matrix.T - np.eye(states), np.ones(states)])
        target = np.zeros(states + 1)
        target[-1] = 1.0
        solution = np.linalg.lstsq(system, target, rcond=None)[0]
        share: FloatArray = np.maximum(solution, 0.0).astype(np.float64)
        share /= share.sum()
        return share

    def slots_left(self) -> FloatArray:
        """Expected further slots of an up run, by age bucket, shape (buckets,).

        The slot it is in does not count.
        """
        buckets = len(self.age_starts)
        stays = self.transition()[buckets:, buckets:]
        total = np.linalg.solve(np.eye(buckets) - stays, np.ones(buckets))
        left: FloatArray = total.astype(np.float64) - 1.0
        return left


class MarketChain(NamedTuple):
    """Market states of one instance as a Markov chain, its transitions in sparse rows.

    Per state, uint8 of shape (states,): `up` says whether spot can be had, and `lost` that entering
    it interrupts spot held even so, for there is another zone. Row n of the transitions is
    `probability` (float32) at `column` in [row_start[n], row_start[n + 1]).
    """

    up: UpArray
    lost: UpArray
    row_start: IntArray
    column: IntArray
    probability: FloatMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class LawMix:
    """Several laws as one hidden Markov market.

    The states of the laws follow one another; `first`, the belief before the first observation,
    has shape (states,).
    """

    laws: tuple[RunLaw, ...]
    first: FloatArray
    chain: MarketChain

    def slots_left(self) -> FloatArray:
        """Expected further slots of an up run per state, shape (states,); 0 where it is down."""
        parts = [
            np.concatenate([np.zeros(len(law.age_starts)), law.slots_left()]) for law in self.laws
        ]
        return np.concatenate(parts)


def count_runs(
    up: UpArray, age_starts: tuple[int, ...] = AGE_STARTS, *, open_first: bool = False
) -> RunCounts:
    """Count slots and ends of runs by age in a 0/1 series.

    The first run's age is unknown, so it is left out; with `open_first` the slots of it that are of
    the last bucket, whenever it began, do count. The last slot has no successor.
    """
    buckets = len(age_starts)
    slots = np.zeros((2, buckets))
    ends = np.zeros((2, buckets))
    changes = np.flatnonzero(np.diff(up.astype(np.int8))) + 1
    if len(changes):
        known = np.arange(int(changes[0]), len(up) - 1)
        last_change = changes[np.searchsorted(changes, known, side="right") - 1]
        bucket = np.searchsorted(np.array(age_starts), known - last_change + 1, side="right") - 1
        state = up[known].astype(np.int64)
        np.add.at(slots, (state, bucket), 1.0)
        np.add.at(ends, (state, bucket), (up[known + 1] != up[known]).astype(np.float64))
    if open_first and len(up):
        end = int(changes[0]) if len(changes) else len(up) - 1
        slots[up[0], -1] += max(0, end - age_starts[-1] + 1)
        ends[up[0], -1] += float(len(changes) > 0 and end >= age_starts[-1])
    return RunCounts(slots=slots, ends=ends)


def common_law(counts: Sequence[RunCounts], age_starts: tuple[int, ...] = AGE_STARTS) -> RunLaw:
    """Law of several markets taken together.

    Raises
    ------
    ValueError
        There are no counts.
    """
    if not counts:
        raise ValueError("expected the runs of at least one market to learn from")
    total = counts[0]
    for other in counts[1:]:
        total = total + other
    ends = (total.ends + _COMMON_ENDS) / (total.slots + _COMMON_SLOTS)
    return RunLaw(age_starts=age_starts, ends=_clipped(ends))


def own_law(counts: RunCounts, common: RunLaw) -> RunLaw:
    """Law of one market, drawn towards the common one where it saw little."""
    ends = (counts.ends + _OWN_WEIGHT_SLOTS * common.ends) / (counts.slots + _OWN_WEIGHT_SLOTS)
    return RunLaw(age_starts=common.age_starts, ends=_clipped(ends))


def mix_of(laws: Sequence[RunLaw], weights: Sequence[float]) -> LawMix:
    """Put laws of equal age buckets under prior weights (any positive scale).

    Raises
    ------
    ValueError
        No law, as many weights as laws are not given, one is negative, or all are 0.
    """
    prior = np.array(weights, dtype=np.float64)
    if not laws or len(laws) != len(prior) or (prior < 0.0).any() or not prior.sum() > 0.0:
        raise ValueError(f"expected one weight >= 0 for each of {len(laws)} laws, was {weights}")
    if len({law.age_starts for law in laws}) != 1:
        raise ValueError("laws of one mix must share their age buckets")
    prior /= prior.sum()
    buckets = len(laws[0].age_starts)
    per_law = 2 * buckets
    row_start, column, probability = [0], [], []
    for index, law in enumerate(laws):
        for row in law.transition():
            found = np.flatnonzero(row)
            column.append(found + index * per_law)
            probability.append(row[found])
            row_start.append(row_start[-1] + len(found))
    up = np.tile(np.repeat(np.array([0, 1], dtype=np.uint8), buckets), len(laws))
    return LawMix(
        laws=tuple(laws),
        first=np.concatenate(
            [weight * law.stationary() for weight, law in zip(prior, laws, strict=True)]
        ),
        chain=MarketChain(
            up=up,
            lost=np.zeros_like(up),
            row_start=np.array(row_start, dtype=np.int64),
            column=np.concatenate(column).astype(np.int64),
            probability=np.concatenate(probability).astype(np.float32),
        ),
    )


def learn_mix(series: Sequence[UpArray], *, age_starts: tuple[int, ...] = AGE_STARTS) -> LawMix:
    """Learn the prior for an unseen market from the 0/1 series of known ones.

    Three families: the common law of all with down and up runs shorter and longer; each market's
    own law, also with shorter up runs; and the common law with up runs less heavy-tailed, shorter
    and longer, for markets where a long run promises less than in the known ones.

    Raises
    ------
    ValueError
        There is no series.
    """
    counts = [count_runs(up, age_starts) for up in series]
    common = common_law(counts, age_starts)
    own = [own_law(one, common) for one in counts]
    flat = common.flattened_up(_FLATTENED)
    families = (
        [common.scaled(down=down, up=up) for down, up in itertools.product(_SCALES, repeat=2)],
        [law.scaled(down=1.0, up=up) for law in own for up in _OWN_UP_SCALES],
        [flat.scaled(down=down, up=up) for down, up in itertools.product(_SCALES, _FLAT_UP_SCALES)],
    )
    return mix_of(
        [law for family in families for law in family],
        [
            weight / len(family)
            for weight, family in zip(_WEIGHTS, families, strict=True)
            for _ in family
        ],
    )


def _clipped(ends: FloatArray) -> FloatArray:
    return np.clip(ends, _LEAST_HAZARD, _MOST_HAZARD)
