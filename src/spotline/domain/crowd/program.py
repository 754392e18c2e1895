"""The program of one slot: bids laid out over what couples them, and its parts that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.crowd.bids import (
    Bid,
    Capacity,
    Resource,
    best_first,
    in_order,
    resources_of,
    takes_of,
)

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPart:
    """Jobs that share scarce things with each other, and with nobody else.

    `resources` are those that can run out, `limits` how much there is of each. `jobs` are indices
    of bids. Row i of `takes` (options, resources) and `values` (options,) is an option: the
    `origins[i]`-th of its bid. Job j's rows are `starts[j]` to `starts[j + 1]`.
    """

    resources: tuple[Resource, ...]
    limits: IntArray
    jobs: tuple[int, ...]
    starts: IntArray
    origins: IntArray
    values: IntArray
    takes: IntArray

    def rows(self, job: int) -> range:
        """The rows of a job's options."""
        return range(int(self.starts[job]), int(self.starts[job + 1]))

    def fits(self, used: IntArray) -> bool:
        """Whether there is so much of everything."""
        return bool((used <= self.limits).all())

    def used(self, chosen: Sequence[int]) -> IntArray:
        """What one row per job takes together."""
        total: IntArray = self.takes[np.asarray(chosen, dtype=np.int64)].sum(axis=0)
        return total

    def worth(self, chosen: Sequence[int]) -> int:
        """What one row per job is worth together."""
        return int(self.values[np.asarray(chosen, dtype=np.int64)].sum())


def served_in_order(bids: Sequence[Bid], capacity: Capacity) -> list[int]:
    """Serve jobs one after the other, each with its best option that is left, a safe one if any is.

    Returns
    -------
    list of int
        Index of each bid's option.
    """
    left = resources_of(capacity)
    position = {bid.job_id: at for at, bid in enumerate(bids)}
    chosen = [0] * len(bids)
    for bid in in_order(bids):
        picked = -1
        for at in best_first(bid):
            option = bid.options[at]
            if any(amount > left[key] for key, amount in takes_of(option, capacity).items()):
                continue
            if option.safe:
                picked = at
                break
            if picked < 0:
                picked = at
        for key, amount in takes_of(bid.options[picked], capacity).items():
            left[key] -= amount
        chosen[position[bid.job_id]] = picked
    return chosen


def allowed_options(bids: Sequence[Bid], served: Sequence[int]) -> list[list[int]]:
    """Options that keep every job safe that serving in order keeps safe."""
    allowed = []
    for bid, at in zip(bids, served, strict=True):
        kept = range(len(bid.options))
        if bid.options[at].safe:
            allowed.append([index for index in kept if bid.options[index].safe])
        else:
            allowed.append(list(kept))
    return allowed


def parts_of(
    bids: Sequence[Bid], capacity: Capacity, allowed: Sequence[Sequence[int]]
) -> tuple[list[SlotPart], list[int]]:
    """Split a slot where nothing couples its jobs.

    Returns
    -------
    parts
        Those jobs that a scarce thing couples, by the first of them.
    alone
        Indices of the bids whose best option never stands in another's way.
    """
    limits = resources_of(capacity)
    takes = [
        [takes_of(bid.options[at], capacity) for at in kept]
        for bid, kept in zip(bids, allowed, strict=True)
    ]
    scarce = _scarce(takes, limits)
    touched = [
        sorted({key for option in of_job for key in option if key in scarce}) for of_job in takes
    ]
    root: dict[Resource, Resource] = {key: key for key in scarce}

    def find(key: Resource) -> Resource:
        while root[key] != key:
            root[key] = root[root[key]]
            key = root[key]
        return key

    for keys in touched:
        for other in keys[1:]:
            low, high = sorted((find(keys[0]), find(other)))
            root[high] = low
    members: dict[Resource, list[int]] = {}
    for job, keys in enumerate(touched):
        if keys:
            members.setdefault(find(keys[0]), []).append(job)
    parts = []
    for first in sorted(members, key=lambda key: members[key][0]):
        shared = tuple(sorted(key for key in scarce if find(key) == first))
        parts.append(_part(bids, allowed, takes, members[first], shared, limits))
    return parts, [job for job, keys in enumerate(touched) if not keys]


def _scarce(
    takes: Sequence[Sequence[dict[Resource, int]]], limits: dict[Resource, int]
) -> set[Resource]:
    """What would run out if every job took the most that it could."""
    most = dict.fromkeys(limits, 0)
    for of_job in takes:
        peak: dict[Resource, int] = {}
        for option in of_job:
            for key, amount in option.items():
                peak[key] = max(peak.get(key, 0), amount)
        for key, amount in peak.items():
            most[key] += amount
    return {key for key, amount in most.items() if amount > limits[key]}


def _part(
    bids: Sequence[Bid],
    allowed: Sequence[Sequence[int]],
    takes: Sequence[Sequence[dict[Resource, int]]],
    jobs: Sequence[int],
    shared: tuple[Resource, ...],
    limits: dict[Resource, int],
) -> SlotPart:
    values: list[int] = []
    origins: list[int] = []
    rows: list[list[int]] = []
    starts = [0]
    for job in jobs:
        best: dict[tuple[int, ...], int] = {}
        for at, taken in zip(allowed[job], takes[job], strict=True):
            # Of options that take as much, the best is enough.
            key = tuple([taken.get(resource, 0) for resource in shared])
            if key not in best or (
                bids[job].options[at].value_micro_usd > bids[job].options[best[key]].value_micro_usd
            ):
                best[key] = at
        for key in sorted(best):
            rows.append(list(key))
            origins.append(best[key])
            values.append(bids[job].options[best[key]].value_micro_usd)
        starts.append(len(rows))
    return SlotPart(
        resources=shared,
        limits=np.array([limits[key] for key in shared], dtype=np.int64),
        jobs=tuple(jobs),
        starts=np.array(starts, dtype=np.int64),
        origins=np.array(origins, dtype=np.int64),
        values=np.array(values, dtype=np.int64),
        takes=np.array(rows, dtype=np.int64).reshape(len(rows), len(shared)),
    )
