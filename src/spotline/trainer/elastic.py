"""A job that changes its size keeps its global batch and its place in the data.

A step consumes `global_batch` rows whatever the world size: per_rank x ranks x accumulation. Which
rows a step consumes follows from its number alone, so a checkpoint needs to hold nothing but that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

_MASK = (1 << 64) - 1
_ROUNDS = 4


def accumulation_steps(*, global_batch: int, per_rank: int, ranks: int) -> int:
    """Return how often each rank runs its batch before the optimiser steps.

    Raises
    ------
    ValueError
        `global_batch` is no multiple of `per_rank` x `ranks`, or one of them is not positive.
    """
    for name, value in (("global_batch", global_batch), ("per_rank", per_rank), ("ranks", ranks)):
        if value <= 0:
            raise ValueError(f"{name} must be > 0, was {value}")
    if global_batch % (per_rank * ranks):
        fit = [
            n for n in range(1, global_batch // per_rank + 1) if global_batch % (per_rank * n) == 0
        ]
        raise ValueError(
            f"global_batch must be a multiple of per_rank x ranks ({per_rank} x {ranks} = "
            f"{per_rank * ranks}), was {global_batch}: with per_rank {per_rank} these ranks keep it: "
            f"{', '.join(map(str, fit)) or 'none'}; state their instances as the job's allowed counts"
        )
    return global_batch // (per_rank * ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """The order in which rows are trained: each epoch a permutation of its own of all rows.

    Parameters
    ----------
    rows
        Of the data set, > 0.
    global_batch
        Rows that a step consumes over all ranks, > 0.
    seed
        Of the permutations; None: as they stand.
    """

    rows: int
    global_batch: int
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "global_batch"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")

    def row(self, position: int) -> int:
        """Return the row at a position, which counts from 0 through all epochs."""
        epoch, place = divmod(position, self.rows)
        if self.seed is None:
            return place
        return permuted(place, self.rows, key=mixed(mixed(self.seed & _MASK) ^ epoch))

    def of_step(self, step: int) -> list[int]:
        """Return the rows that a step consumes over all ranks; `step` counts from 0."""
        if step < 0:
            raise ValueError(f"step must be >= 0, was {step}")
        first = step * self.global_batch
        return [self.row(position) for position in range(first, first + self.global_batch)]

    def of_rank(self, step: int, *, rank: int, ranks: int) -> list[int]:
        """Return the rows that one rank consumes in a step; together the ranks consume all of it.

        Raises
        ------
        ValueError
            `global_batch` is no multiple of `ranks`, or `rank` is none of them.
        """
        if not 0 <= rank < ranks:
            raise ValueError(f"rank must be >= 0 and < ranks ({ranks}), was {rank}")
        accumulation_steps(global_batch=self.global_batch, per_rank=1, ranks=ranks)
        if step < 0:
            raise ValueError(f"step must be >= 0, was {step}")
        first = step * self.global_batch
        return [
            self.row(position) for position in range(first + rank, first + self.global_batch, ranks)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatches:
    """Batches of row numbers for one rank, `accumulation` of them a step: a torch batch sampler.

    Parameters
    ----------
    order
        Of the rows.
    per_rank
        Rows in a batch.
    rank, ranks
        This rank, and how many there are.
    first_step, last_step
        Begins with `first_step`, ends before `last_step`; None: does not end, and has no length.
    """

    order: DataOrder
    per_rank: int
    rank: int
    ranks: int
    first_step: int
    last_step: int | None = None

    def __post_init__(self) -> None:
        self._accumulation()

    def _accumulation(self) -> int:
        return accumulation_steps(
            global_batch=self.order.global_batch, per_rank=self.per_rank, ranks=self.ranks
        )

    def __len__(self) -> int:
        if self.last_step is None:
            raise TypeError("these batches have no end: give last_step")
        return max(0, self.last_step - self.first_step) * self._accumulation()

    def __iter__(self) -> Iterator[list[int]]:
        endless = itertools.count(self.first_step)
        steps = endless if self.last_step is None else range(self.first_step, self.last_step)
        for step in steps:
            rows = self.order.of_rank(step, rank=self.rank, ranks=self.ranks)
            for first in range(0, len(rows), self.per_rank):
                yield rows[first : first + self.per_rank]


def mixed(value: int) -> int:
    """Mix 64 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def permuted(place: int, size: int, *, key: int) -> int:
    """Permute the numbers below `size`: a Feistel network, walked until it is back among them.

    It needs no memory, so that any step of any epoch is found at once, however many rows there are.
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    while True:
        left, right = place >> half, place & low
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mixed(key ^ (right << 3) ^ turn) & low)
        place = (left << half) | right
        if place < size:
            return place
