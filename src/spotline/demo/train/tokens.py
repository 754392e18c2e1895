"""Text that can be learned: sequences of a Markov source, each drawn from its position alone.

The source of a task differs from the base source in half of its states, so that a model that was
pre-trained on the base has something left to learn. Sequence `p` is always the same, whatever program
draws it: one that resumes at position `p` goes on with the very text it had not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Held-out text: positions that no training run reaches.
HELD_OUT_FROM = 1 << 40
BASE_TASK = 0

_SUCCESSORS = 6
_STREAM_OF_BASE, _STREAM_OF_TASK, _STREAM_OF_TEXT = 1, 2, 3


@dataclass(frozen=True)
class TokenSource:
    """A first-order Markov source over `vocabulary` tokens.

    Parameters
    ----------
    task
        `BASE_TASK`, or another number: half of the states then have successors of their own.
    seed
        Of the text drawn, not of the source: equal tasks have equal laws.
    """

    task: int = BASE_TASK
    seed: int = 0
    vocabulary: int = 64
    length: int = 64

    def __post_init__(self) -> None:
        if self.vocabulary < 2 * _SUCCESSORS:
            raise ValueError(f"vocabulary must be >= {2 * _SUCCESSORS}, was {self.vocabulary}")
        if self.length < 2:
            raise ValueError(f"length must be >= 2 tokens, was {self.length}")
        if self.task < 0 or self.seed < 0:
            raise ValueError(f"task and seed must be >= 0, were {self.task} and {self.seed}")

    @cached_property
    def law(self) -> FloatArray:
        """Probability of the next token given the present one, shape (vocabulary, vocabulary)."""
        law = _drawn_law(_rng(_STREAM_OF_BASE), self.vocabulary)
        if self.task != BASE_TASK:
            rng = _rng(_STREAM_OF_TASK, self.task)
            other = _drawn_law(rng, self.vocabulary)
            changed = rng.permutation(self.vocabulary)[: self.vocabulary // 2]
            law[changed] = other[changed]
        return law

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.law, axis=1)

    def sequence(self, position: int) -> IntArray:
        """Draw the sequence at a position, shape (length,).

        Raises
        ------
        ValueError
            `position` is negative.
        """
        if position < 0:
            raise ValueError(f"position must be >= 0, was {position}")
        rng = _rng(_STREAM_OF_TEXT, self.task, self.seed, position)
        chances = rng.random(self.length)
        tokens = np.empty(self.length, dtype=np.int64)
        tokens[0] = int(chances[0] * self.vocabulary)
        for index in range(1, self.length):
            row = self._cumulative[tokens[index - 1]]
            following = int(np.searchsorted(row, chances[index], side="right"))
            tokens[index] = min(following, self.vocabulary - 1)
        return tokens

    def sequences(self, first: int, count: int) -> IntArray:
        """Draw the sequences at `count` consecutive positions, shape (count, length)."""
        return np.stack([self.sequence(first + index) for index in range(count)])

    def held_out(self, count: int) -> IntArray:
        """Draw `count` sequences that are never trained on, shape (count, length)."""
        return self.sequences(HELD_OUT_FROM, count)

    @property
    def least_loss(self) -> float:
        """Nats per token that no model can go below in the mean: the entropy rate of the law."""
        law = self.law
        stationary = np.full(self.vocabulary, 1.0 / self.vocabulary)
        for _ in range(200):
            stationary = stationary @ law
        logs = np.log(law, out=np.zeros_like(law), where=law > 0)
        return float(-(stationary[:, None] * law * logs).sum())


def _rng(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(list(key)))


def _drawn_law(rng: np.random.Generator, vocabulary: int) -> FloatArray:
    law = np.full((vocabulary, vocabulary), 0.1 / vocabulary)
    weights = 1.0 / np.arange(1, _SUCCESSORS + 1)
    weights *= 0.9 / weights.sum()
    for state in range(vocabulary):
        law[state, rng.permutation(vocabulary)[:_SUCCESSORS]] += weights
    return law
