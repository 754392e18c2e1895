"""The laws that a spot count nobody publishes may follow, and their belief from slot to slot.

An offering follows one of several laws (`MarketLaw`), each at one of several capacities; nobody knows
which. What is known of a slot are bounds: so many are held, so many were refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from spotline.domain.beliefs.probes import ProbeOdds
from spotline.domain.market.law import (
    AGE_STARTS,
    MarketLaw,
    StateSpace,
    learn_present_prices,
    quantised_rows,
)
from spotline.domain.market.prior_laws import PriorLaws
from spotline.domain.units import PPM

FloatArray = npt.NDArray[np.float64]

LEVEL_STARTS = (0, 1, 4, 8, 16, 32, 64)
"""What beliefs tell apart: none, and from each power of two on that jobs ask for."""

UNBOUNDED = 1_000
"""A bound that says nothing: more than any job asks for, and still a count."""

CAPACITIES = (8, 32, 128)
"""The most that an offering may ever have; each is believed alike before anything is seen."""

_SPACE = StateSpace(level_starts=LEVEL_STARTS, age_starts=AGE_STARTS, price_centres_ppm=(PPM // 3,))
_AGES = _SPACE.ages
_SETTLED = 512  # steps after which a chain has forgotten where it began
# What bounds leave no law any chance of begins anew from the long run.
_LEAST_MASS = 1e-12


@dataclass(frozen=True, slots=False, kw_only=True, eq=False)
class CountLaws:
    """Laws on `LEVEL_STARTS`, and what each counts for before anything is seen.

    Attributes
    ----------
    transitions
        Chance of each run state in the next slot, shape (laws, states, states).
    chances
        Shape (laws,), > 0, sums to 1.
    """

    transitions: FloatArray
    chances: FloatArray

    @cached_property
    def long_run(self) -> FloatArray:
        """How often each law is in each state, shape (laws, states)."""
        power = self.transitions
        for _ in range(_SETTLED.bit_length()):
            # Not by BLAS, which rounds as the processor likes: a log verifies on another one.
            power = np.einsum("mst,mtu->msu", power, power)
        met: FloatArray = power.mean(axis=1)
        return met

    @cached_property
    def prior(self) -> FloatArray:
        """Belief before anything is seen, shape (laws, states), sums to 1."""
        return normalised(self.chances[:, None] * self.long_run)

    def levels_within(self, at_least: int, at_most: int) -> FloatArray:
        """What bounds of a count tell of its level by themselves, without a past, shape (levels,), sums to 1."""
        levels = self.prior.sum(axis=0).reshape(-1, _AGES).sum(axis=1) + _LEAST_MASS
        levels[: _SPACE.level_of(at_least)] = 0.0
        levels[_SPACE.level_of(at_most) + 1 :] = 0.0
        return normalised(levels)


@lru_cache(maxsize=8)
def count_laws(priors: PriorLaws, slot_s: int) -> CountLaws:
    """The prior laws at each of `CAPACITIES`, for slots of `slot_s` seconds.

    Raises
    ------
    ValueError
        There are no prior laws.
    """
    if not priors:
        raise ValueError("beliefs over counts must begin from prior laws, there are none")
    lends = priors.lends(slot_s)
    found = [lent for capacity in CAPACITIES for lent in lends(_SPACE, capacity)]
    return CountLaws(
        transitions=np.stack([law.run_matrix() for law, _ in found]),
        chances=np.array([chance for _, chance in found]) / len(CAPACITIES),
    )


def normalised(mass: FloatArray) -> FloatArray:
    """The same shares, summing to 1."""
    shares: FloatArray = mass / mass.sum()
    return shares


@dataclass(slots=True, kw_only=True)
class CountBelief:
    """What is believed of one offering's count in one slot: `mass`, shape (laws, states), sums to 1.

    `moves` are the moves between states that it has believed to see, shape (states, states).
    """

    laws: CountLaws
    mass: FloatArray
    moves: FloatArray = field(
        default_factory=lambda: np.zeros((_SPACE.run_states, _SPACE.run_states))
    )

    @classmethod
    def before(cls, laws: CountLaws) -> CountBelief:
        """The belief before anything is seen."""
        return cls(laws=laws, mass=laws.prior.copy())

    def advance(self, slots: int = 1) -> None:
        """Let slots pass."""
        for _ in range(slots):
            self.mass = np.einsum("ms,mst->mt", self.mass, self.laws.transitions)

    def observe(self, at_least: int, at_most: int = UNBOUNDED) -> float:
        """Take in bounds of this slot's count, 0 <= `at_least` <= `at_most`; returns their chance."""
        low, high = _SPACE.level_of(at_least), _SPACE.level_of(at_most)
        inside = np.zeros(_SPACE.run_states)
        inside[low * _AGES : (high + 1) * _AGES] = 1.0
        left = self.mass * inside
        # What excludes nothing was foreseen for certain, however a processor rounds the sum.
        foreseen = 1.0 if inside.all() else float(left.sum())
        if foreseen < _LEAST_MASS:
            left = (self.laws.prior + _LEAST_MASS) * inside
        self.mass = normalised(left)
        return min(1.0, foreseen)

    def weigh(self, weights: FloatArray) -> float:
        """Take in how much likelier each level is than was thought, > 0, shape (levels,).

        Returns the share of the belief that stays where it was: 1 less what moves (total variation).
        """
        before = self.mass
        self.mass = normalised(before * np.repeat(weights, _AGES))
        return float(np.minimum(before, self.mass).sum())

    def levels(self) -> FloatArray:
        """Chance of each level, shape (levels,)."""
        chances: FloatArray = self.mass.sum(axis=0).reshape(-1, _AGES).sum(axis=1)
        return chances

    def chance_of(self, instances: int) -> float:
        """Chance that the level of `instances` or a higher one is there."""
        return float(self.levels()[_SPACE.level_of(instances) :].sum())

    def most_with(self, chance: float) -> int:
        """The largest count whose level, or a higher one, is there with at least this chance."""
        upward = self.levels()[::-1].cumsum()[::-1]
        level = int(np.flatnonzero(upward[1:] >= chance).size)
        return 0 if not level else most_of(level)

    def probe_odds(self, wanted: int) -> ProbeOdds:
        """What asking for n instances now would tell of the next slot."""
        granted = self.chance_of(wanted)
        found = CountBelief(laws=self.laws, mass=self.mass)
        found.observe(wanted)
        found.advance()
        missed = CountBelief(laws=self.laws, mass=self.mass)
        missed.observe(0, wanted - 1)
        missed.advance()
        return ProbeOdds(
            granted_ppm=_ppm(granted),
            risk_if_granted_ppm=_ppm(1.0 - found.chance_of(wanted)),
            risk_if_refused_ppm=_ppm(1.0 - missed.chance_of(wanted)),
            run_state=self.run_state(wanted, UNBOUNDED),
        )

    def run_state(self, least: int, most: int) -> int:
        """The likeliest run state of those with a count from `least` to `most`."""
        low, high = _SPACE.level_of(least), _SPACE.level_of(most)
        states = self.mass.sum(axis=0)[low * _AGES : (high + 1) * _AGES]
        return low * _AGES + int(states.argmax())

    def share_ahead(self, slots: int, taken: int, wanted: int) -> float:
        """The share of `wanted` instances beside `taken` others that spot carries, mean of `slots` to come.

        The present slot is the first of them; levels count with their least.
        """
        left = np.clip(np.array(LEVEL_STARTS) - taken, 0, wanted) / wanted
        ahead = CountBelief(laws=self.laws, mass=self.mass)
        carried = 0.0
        for slot in range(slots):
            if slot:
                ahead.advance()
            carried += float((ahead.levels() * left).sum())
        return carried / slots

    def ahead(self, slots: int) -> list[list[tuple[int, float]]]:
        """Counts and their chances 1, 2, ... `slots` slots on; a level is told by its least."""
        ahead = CountBelief(laws=self.laws, mass=self.mass)
        told = []
        for _ in range(slots):
            ahead.advance()
            told.append(list(zip(LEVEL_STARTS, ahead.levels().tolist(), strict=True)))
        return told

    def law(self, price_ppm: Sequence[int]) -> MarketLaw:
        """The law of the market as it is believed; prices (ppm of on-demand) are those seen so far.

        From each state the laws are weighed by how likely they are, and in that state.
        """
        of_law = self.mass.sum(axis=1)[:, None] * self.laws.long_run + _LEAST_MASS
        shares = of_law / of_law.sum(axis=0, keepdims=True)
        run = np.einsum("ms,mst->st", shares, self.laws.transitions)
        space, price_ppb = learn_present_prices(_SPACE, price_ppm)
        return MarketLaw(
            space=space,
            level_counts=LEVEL_STARTS,
            run_ppb=quantised_rows(run / run.sum(axis=1, keepdims=True)),
            price_ppb=price_ppb,
        )


def _ppm(chance: float) -> int:
    return min(PPM, max(0, round(chance * PPM)))


def most_of(level: int) -> int:
    """The largest count of a level."""
    return UNBOUNDED if level + 1 == len(LEVEL_STARTS) else LEVEL_STARTS[level + 1] - 1
