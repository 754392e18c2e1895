"""The sets a job may hold of one offering, laid out for the compiled window program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.program import IDLE, Holding, JobProgram

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Configurations:
    """Holdings in ascending (instances, spot); index 0 is idle.

    `covers[cover_start[c] : cover_start[c + 1]]` are the largest configurations properly inside c:
    following them reaches everything that c can shrink to.
    """

    holdings: tuple[Holding, ...]
    spot: IntArray
    on_demand: IntArray
    cover_start: IntArray
    covers: IntArray


def all_configurations(program: JobProgram, *, most_spot: int) -> Configurations:
    """Every split of every allowed count with at most `most_spot` spot instances."""
    return _all_splits(program.allowed_counts, min(most_spot, program.max_instances))


@lru_cache(maxsize=64)
def _all_splits(allowed_counts: tuple[int, ...], most_spot: int) -> Configurations:
    splits = [
        Holding(spot=spot, on_demand=count - spot)
        for count in allowed_counts
        for spot in range(min(count, most_spot) + 1)
    ]
    return configurations(splits)


def configurations(holdings: Iterable[Holding]) -> Configurations:
    """Lay out `holdings` and idle, without repeats."""
    return _laid_out(frozenset(holdings))


@lru_cache(maxsize=1024)
def _laid_out(holdings: frozenset[Holding]) -> Configurations:
    unique = {(h.instances, h.spot): h for h in holdings}
    unique[(0, 0)] = IDLE
    ordered = tuple(unique[key] for key in sorted(unique))
    spot = np.array([h.spot for h in ordered], dtype=np.int64)
    on_demand = np.array([h.on_demand for h in ordered], dtype=np.int64)
    inside = (spot[:, None] >= spot[None, :]) & (on_demand[:, None] >= on_demand[None, :])
    np.fill_diagonal(inside, val=False)
    # a covers b where nothing lies strictly between them.
    between = (inside.astype(np.int64) @ inside.astype(np.int64)) > 0
    cover = inside & ~between
    starts = np.concatenate(([0], np.cumsum(cover.sum(axis=1)))).astype(np.int64)
    return Configurations(
        holdings=ordered,
        spot=spot,
        on_demand=on_demand,
        cover_start=starts,
        covers=np.nonzero(cover)[1].astype(np.int64),
    )
