"""A job that may change its offering, laid out with the market for `moving_life`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.accounting import BROKEN, GROW, LAUNCH, SHRINK
from spotline.domain.jobs.program import JobProgram
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.moving_life import (
    FLEE,
    IDLE,
    KINDS,
    MOVE,
    LifePlaces,
    Quotes,
    best_moving_life,
)

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingJob:
    """A job as the bound sees it.

    `programs` are by offering of the market, None where it cannot run; they share work and slots.
    `first_slot` is the market's slot that is the first of its life. `migrate_s` is the overhead of
    a move, `fee_micro_usd` the least that one costs.
    """

    job_id: str
    programs: tuple[JobProgram | None, ...]
    first_slot: int
    migrate_s: int
    fee_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedCapacity:
    """Prices (micro-USD per instance-hour) and counts, shape (slots, offerings), int64."""

    spot_price: IntArray
    on_demand_price: IntArray
    spot: IntArray
    on_demand: IntArray

    def __post_init__(self) -> None:
        shape = self.spot_price.shape
        for name in ("spot_price", "on_demand_price", "spot", "on_demand"):
            array = getattr(self, name)
            if array.shape != shape or array.dtype != np.int64 or array.ndim != 2:
                raise ValueError(
                    f"{name} must be int64 of shape (slots, offerings) {shape}, "
                    f"was {array.dtype} of {array.shape}"
                )
            if array.size and int(array.min()) < 0:
                raise ValueError(f"{name} must be >= 0 everywhere, was {int(array.min())}")


@dataclass(slots=True, eq=False)
class PerBundle:
    """One number per slot, offering and size, of spot and of on-demand: surcharges, or what is used.

    Of n instances that a job holds ``n // size`` are whole bundles of a size.
    """

    sizes: IntArray
    spot: IntArray
    on_demand: IntArray

    @classmethod
    def none(cls, market: SharedCapacity, sizes: IntArray) -> PerBundle:
        """Nothing anywhere."""
        shape = (*market.spot.shape, sizes.size)
        return cls(sizes, np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64))


def laid_lives(
    jobs: Sequence[MovingJob], market: SharedCapacity, cell_limit: int
) -> list[LaidLife]:
    """Lay all jobs out; see `LaidLife`.

    Raises
    ------
    ValueError
        A job has no program, or its life does not lie within the market.
    """
    return [LaidLife(job, market, cell_limit) for job in jobs]


class LaidLife:
    """One job laid out for the kernel, and the slots of the market that it lives in."""

    def __init__(self, job: MovingJob, market: SharedCapacity, cell_limit: int) -> None:
        programs = job.programs
        if len(programs) != market.spot.shape[1]:
            raise ValueError(
                f"programs of {job.job_id} must hold {market.spot.shape[1]}, held {len(programs)}"
            )
        known = [program for program in programs if program is not None]
        if not known:
            raise ValueError(f"job {job.job_id} must be able to run on some offering")
        self.slot_s = known[0].slot_s
        self._first = job.first_slot
        self._end = job.first_slot + known[0].end_slots
        if not 0 <= self._first <= self._end <= market.spot.shape[0]:
            raise ValueError(
                f"the life of {job.job_id} must lie within the market's {market.spot.shape[0]} "
                f"slots, was {self._first}..{self._end}"
            )
        self._market = market
        self._cell_limit = cell_limit
        self.lossless = not any(program.lost_s for program in known)
        self._places = _places_of(job, known[0])
        self._most = known[0].max_instances

    @property
    def burden(self) -> tuple[int, int]:
        """How hard it is to fit in: what a change costs it, and its least count."""
        places = self._places
        return int(places.kind_s[:, GROW].max()), int((places.spot + places.on_demand).min())

    def best(
        self, prices: PerBundle, left: SharedCapacity | None = None
    ) -> tuple[int, bool, IntArray, IntArray]:
        """What the job earns at most at these prices, and where and what it then holds by slot.

        `left` is what others leave it, all there is without.
        """
        if self._first == self._end:
            none = np.zeros(0, dtype=np.int64)
            return 0, True, none, none
        span = slice(self._first, self._end)
        market = left or self._market
        quotes = Quotes(
            market.spot_price[span],
            market.on_demand_price[span],
            _by_count(prices.spot[span], prices.sizes, self._most),
            _by_count(prices.on_demand[span], prices.sizes, self._most),
            market.spot[span],
            market.on_demand[span],
        )
        return best_moving_life(self._places, quotes, self._cell_limit)

    def count(self, offering: IntArray, held: IntArray, used: PerBundle) -> None:
        """Add what a schedule holds to `used`."""
        slots = np.flatnonzero(offering != IDLE)
        at = (self._first + slots, offering[slots])
        used.spot[at] += self._places.spot[held[slots], None] // used.sizes
        used.on_demand[at] += self._places.on_demand[held[slots], None] // used.sizes


def _by_count(prices: IntArray, sizes: IntArray, most: int) -> IntArray:
    """What 0 to `most` instances cost of bundles, shape (slots, offerings, most + 1)."""
    return prices @ (np.arange(most + 1) // sizes[:, None])


def _places_of(job: MovingJob, program: JobProgram) -> LifePlaces:
    sets = all_configurations(program, most_spot=program.max_instances)
    # Without the idle set, to which every set can shrink.
    spot, on_demand = sets.spot[1:].copy(), sets.on_demand[1:].copy()
    starts, covers = [0], []
    for c in range(1, len(sets.holdings)):
        inside = sets.covers[sets.cover_start[c] : sets.cover_start[c + 1]]
        covers += [int(k) - 1 for k in inside if k > 0]
        starts.append(len(covers))
    rate = np.zeros((len(job.programs), spot.size), dtype=np.int64)
    kind_s = np.zeros((len(job.programs), KINDS), dtype=np.int64)
    for o, there in enumerate(job.programs):
        # An offering on which the job cannot run is never left: any of its overheads will do.
        left = there or program
        kind_s[o, [SHRINK, GROW, LAUNCH, BROKEN]] = (
            left.shrink_s,
            left.grow_s,
            left.launch_s,
            left.interrupted_s,
        )
        kind_s[o, MOVE] = max(job.migrate_s, left.launch_s)
        kind_s[o, FLEE] = max(kind_s[o, MOVE], left.interrupted_s)
        if there is not None:
            if (there.work_quanta, there.launch_s) != (program.work_quanta, program.launch_s):
                raise ValueError(f"programs of {job.job_id} must share work_quanta and launch_s")
            rate[o] = np.array(there.rate_quanta_per_s, dtype=np.int64)[spot + on_demand]
    return LifePlaces(
        slot_s=program.slot_s,
        work_quanta=program.work_quanta,
        fee=job.fee_micro_usd,
        rate=rate,
        kind_s=kind_s,
        spot=spot,
        on_demand=on_demand,
        cover_start=np.array(starts, dtype=np.int64),
        covers=np.array(covers, dtype=np.int64),
        finish=np.array(program.value_micro_usd[1:], dtype=np.int64),
    )
