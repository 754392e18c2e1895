"""When spot may have been there: no bill says it, so it is drawn from the prior laws in the wheel.

A gang is there whole or not at all here. A prior law counts in shares of the most that an offering
ever shows; that most is taken to be the gang itself, which is the least that a cloud that sold it
can have had. What is left of a law then is a chain of six states: gone or there, each for how long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spotline.domain.assessment.facts import HiredMachine
from spotline.domain.drawn import generator
from spotline.domain.market.law import AGE_STARTS, PPB, MarketLaw, StateSpace, mixed_law
from spotline.domain.market.prior_laws import SLOT_S, PriorLaw, lent_by, shipped_priors
from spotline.domain.units import PPM

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

AGES = len(AGE_STARTS)
_CLOUDS = ("aws", "azure", "gcp")
# What is as scarce as the H100s whose counts were published.
_SCARCE_GPUS = ("h100", "h200", "b200", "b300")
_SCARCE_FAMILIES = ("p5", "p6", "a3-", "a4-")
# From this size on a prior law says no more: all of its whole is needed.
_MOST_GANG = 8
_ONE_SPACE = StateSpace(level_starts=(0, 1), age_starts=AGE_STARTS, price_centres_ppm=(PPM // 3,))
_MOST_CHANCE = 0.999
_SETTLED = 12  # squarings after which a chain has forgotten where it began
_BISECTIONS = 40


@dataclass(frozen=True, slots=True, order=True)
class AssumedSpot:
    """Which prior laws rule the spot of a job: their kind, and the gang they are read for."""

    kind: str
    gang: int


def assumed_spot(machine: HiredMachine, instances: int) -> AssumedSpot:
    """Which prior laws are taken for a machine of which so many are needed at once."""
    gang = min(instances, _MOST_GANG)
    if machine.provider.lower() not in _CLOUDS:
        return AssumedSpot("neocloud", gang)
    name = machine.instance_type.lower()
    if name.startswith(_SCARCE_FAMILIES) or any(gpu in name for gpu in _SCARCE_GPUS):
        return AssumedSpot("H100 counts", gang)
    return AssumedSpot("cloud single" if gang == 1 else "cloud gang", gang)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpotChains:
    """The laws of one `AssumedSpot` as chains, the scarcest first.

    `matrices` has the shape (laws, 6, 6), a state being `there * 3 + age`; `share_ppm` is the share
    of time, in millionths, for which each has spot there in the long run.
    """

    names: tuple[str, ...]
    matrices: FloatArray
    share_ppm: tuple[int, ...]

    def in_future(self, futures: int) -> IntArray:
        """Which law rules each future: all count alike, and the futures go from scarce to plenty.

        The order is the same everywhere: a bad month is bad in all places at once.
        """
        found: IntArray = (2 * np.arange(futures, dtype=np.int64) + 1) * len(self.names)
        return found // (2 * futures)

    def scaled(self, share: float) -> FloatArray:
        """The chains with spot there for this share of the time, 0 < share < 1; shape as before.

        Spot comes so many times as often, and goes so many times as rarely.
        """
        return np.stack([_scaled(matrix, share) for matrix in self.matrices])


@lru_cache(maxsize=64)
def chains_of(assumed: AssumedSpot) -> SpotChains:
    """The chains of a kind of prior laws."""
    laws = _laws(assumed)
    matrices = [_one_gang(prior.law, assumed.gang, SLOT_S).run_matrix() for prior in laws]
    shares = [round(PPM * _share(matrix)) for matrix in matrices]
    order = sorted(range(len(laws)), key=lambda index: (shares[index], laws[index].name))
    return SpotChains(
        names=tuple(laws[index].name for index in order),
        matrices=np.stack([matrices[index] for index in order]),
        share_ppm=tuple(shares[index] for index in order),
    )


@lru_cache(maxsize=4096)
def planning_law(assumed: AssumedSpot, slot_s: int, price_ppm: int) -> MarketLaw:
    """What a job plans by that has seen nothing: all laws of the kind, mixed; prices stay."""
    laws = [_one_gang(prior.law, assumed.gang, slot_s) for prior in _laws(assumed)]
    mixed = mixed_law(laws, [1.0] * len(laws))
    return MarketLaw(
        space=StateSpace(
            level_starts=(0, 1), age_starts=AGE_STARTS, price_centres_ppm=(price_ppm,)
        ),
        level_counts=(0, 1),
        run_ppb=mixed.run_ppb,
        price_ppb=(PPB,),
    )


def spot_paths(matrices: FloatArray, cells: int, seed: str, groups: int = 1) -> BoolArray:
    """Whether spot is there, cell by cell, each path by a chain of its own; shape (paths, cells).

    Equal arguments give equal paths; a longer calendar begins with the shorter one. The paths are of
    so many `groups` of equal size, one after the other; all groups meet the same numbers.
    """
    rng = generator(seed)
    paths = matrices.shape[0]
    reached = matrices.cumsum(axis=2)
    begin = np.stack([_long_run(matrix) for matrix in matrices]).cumsum(axis=1)
    last, at = matrices.shape[1] - 1, np.arange(paths)
    drawn = np.tile(rng.random(paths // groups), groups)
    state = np.minimum(np.sum(drawn[:, None] >= begin, axis=1), last)
    there = np.empty((cells, paths), dtype=np.bool_)
    for cell in range(cells):
        there[cell] = state >= AGES
        drawn = np.tile(rng.random(paths // groups), groups)
        state = np.minimum(np.sum(drawn[:, None] >= reached[at, state], axis=1), last)
    return np.ascontiguousarray(there.T)


def run_state_of(there: BoolArray, slot_s: int) -> IntArray:
    """Where paths stand in a law by slot, shape of `there` (paths, slots), as a job sees it.

    It sees nothing before its first slot. Ages are those of prior laws, in half hours.
    """
    slots = there.shape[1]
    at = np.arange(slots)
    begins = np.ones(there.shape, dtype=np.bool_)
    begins[:, 1:] = there[:, 1:] != there[:, :-1]
    since = at - np.maximum.accumulate(np.where(begins, at, 0), axis=1)
    age = np.searchsorted(AGE_STARTS, since * slot_s // SLOT_S + 1, side="right") - 1
    found: IntArray = (there * AGES + age).astype(np.int64)
    return found


def shares_by_kind(assumed: AssumedSpot) -> Mapping[str, int]:
    """The long-run share of time with spot, in millionths, by name of the law."""
    chains = chains_of(assumed)
    return dict(zip(chains.names, chains.share_ppm, strict=True))


def _laws(assumed: AssumedSpot) -> tuple[PriorLaw, ...]:
    return tuple(prior for prior in shipped_priors().laws if prior.kind == assumed.kind)


def _one_gang(law: MarketLaw, gang: int, slot_s: int) -> MarketLaw:
    space = StateSpace(
        level_starts=(0, gang),
        age_starts=_ONE_SPACE.age_starts,
        price_centres_ppm=_ONE_SPACE.price_centres_ppm,
    )
    return lent_by(law, space, gang, slot_s)


def _long_run(matrix: FloatArray) -> FloatArray:
    power = matrix
    for _ in range(_SETTLED):
        power = power @ power
    met: FloatArray = power.mean(axis=0)
    met /= met.sum()
    return met


def _share(matrix: FloatArray) -> float:
    return float(_long_run(matrix)[AGES:].sum())


def _scaled(matrix: FloatArray, share: float) -> FloatArray:
    low, high = -12.0, 12.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        if _share(_moved(matrix, middle)) < share:
            low = middle
        else:
            high = middle
    return _moved(matrix, (low + high) / 2.0)


def _moved(matrix: FloatArray, log_factor: float) -> FloatArray:
    moved = matrix.copy()
    for state in range(2 * AGES):
        other = slice(AGES, 2 * AGES) if state < AGES else slice(0, AGES)
        factor = np.exp(log_factor if state < AGES else -log_factor)
        leaves = float(matrix[state, other].sum())
        scaled = min(_MOST_CHANCE, leaves * factor)
        if leaves <= 0.0 or leaves >= 1.0:
            continue
        moved[state] *= (1.0 - scaled) / (1.0 - leaves)
        moved[state, other] = matrix[state, other] * (scaled / leaves)
    return moved
