"""What a job believes of zones that it sees only by launching, by being interrupted, by probing.

Each zone follows one of several laws of runs (`RunLaw`), nobody knows which: the belief is over
law, state and age. It moves by a slot with the laws, and by Bayes' rule with what is seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spotline.domain.market.run_law import RunLaw

FloatArray = npt.NDArray[np.float64]

# Laws are never certain, so what is seen has some chance under each.
_LEAST_CHANCE = 1e-300


@dataclass(frozen=True, kw_only=True)
class ZoneLaws:
    """Laws that zones may follow, and how likely each zone follows each before it is seen.

    Attributes
    ----------
    laws
        At least one; all share their age buckets.
    weights
        Shape (zones, laws), >= 0; rows sum to 1.

    Raises
    ------
    ValueError
        Shapes differ, a row is no distribution, or the laws have different buckets.
    """

    laws: tuple[RunLaw, ...]
    weights: FloatArray

    def __post_init__(self) -> None:
        if not self.laws or self.weights.ndim != 2 or self.weights.shape[1] != len(self.laws):
            raise ValueError(
                f"weights must have shape (zones, {len(self.laws)}), was {self.weights.shape}"
            )
        if len({law.age_starts for law in self.laws}) != 1:
            raise ValueError("laws must share their age buckets")
        if (self.weights < 0.0).any() or not np.allclose(self.weights.sum(axis=1), 1.0):
            raise ValueError("each row of weights must be >= 0 and sum to 1")

    @property
    def zones(self) -> int:
        """Number of zones."""
        return len(self.weights)

    @property
    def buckets(self) -> int:
        """Number of age buckets of a run."""
        return len(self.laws[0].age_starts)

    @cached_property
    def transitions(self) -> FloatArray:
        """Transition matrix of each law, shape (laws, states, states)."""
        return np.stack([law.transition() for law in self.laws])

    @cached_property
    def prior(self) -> FloatArray:
        """Belief before anything is seen, shape (zones, laws, states)."""
        stationary = np.stack([law.stationary() for law in self.laws])
        prior: FloatArray = self.weights[:, :, np.newaxis] * stationary[np.newaxis]
        return prior


@dataclass(slots=True, kw_only=True)
class ZoneBeliefs:
    """A belief for each zone: `mass`, shape (zones, laws, states), each zone's sums to 1.

    A state is down, then up, by age bucket, as in `RunLaw`.
    """

    laws: ZoneLaws
    mass: FloatArray

    @classmethod
    def before(cls, laws: ZoneLaws) -> ZoneBeliefs:
        """The belief before anything is seen."""
        return cls(laws=laws, mass=laws.prior.copy())

    def copy(self) -> ZoneBeliefs:
        """A belief of its own with the same content."""
        return ZoneBeliefs(laws=self.laws, mass=self.mass.copy())

    def advance(self) -> None:
        """Let a slot pass."""
        self.mass = np.einsum("zms,mst->zmt", self.mass, self.laws.transitions)

    def observe(self, zone: int, *, up: bool) -> None:
        """Take in that a zone has spot in this slot, or has none."""
        buckets = self.laws.buckets
        hidden = self.mass[zone]
        if up:
            hidden[:, :buckets] = 0.0
        else:
            hidden[:, buckets:] = 0.0
        hidden /= max(float(hidden.sum()), _LEAST_CHANCE)

    def up_chances(self) -> FloatArray:
        """Chance that each zone has spot in this slot, shape (zones,)."""
        chances: FloatArray = self.mass[:, :, self.laws.buckets :].sum(axis=(1, 2))
        return chances

    def when_up(self) -> FloatArray:
        """Law and age of each zone if it is up, shape (zones, laws * buckets), rows sum to 1."""
        hidden = self.mass[:, :, self.laws.buckets :].reshape(len(self.mass), -1)
        shares: FloatArray = hidden / np.maximum(hidden.sum(axis=1, keepdims=True), _LEAST_CHANCE)
        return shares
