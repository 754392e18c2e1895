"""Stage three: how many GPUs in which region of a path, for the least money.

Every region of the path keeps one GPU, or the path would break; the rest go where a GPU is cheapest
until that region is full (arXiv:2605.25375). For a given path and number of GPUs this is optimal:
the cost is linear in the counts, so moving one GPU from a dearer to a cheaper region with room
never costs more. Egress does not depend on the split, only on the path.

Assumption: stages are alike, so a region's share of them says all that its cost depends on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spotline.domain.placement.graph import FloatArray, IntArray


def cheapest_split(
    path: Sequence[int], gpus: int, free_gpus: IntArray, usd_per_gpu_hour: FloatArray
) -> list[int]:
    """GPUs per region, in path order, of the cheapest split; ties go to the lower index.

    Raises
    ------
    ValueError
        There are fewer GPUs than regions, a region has none, or all have fewer than asked for.
    """
    rooms = [int(free_gpus[region]) for region in path]
    if gpus < len(path) or min(rooms) < 1 or sum(rooms) < gpus:
        raise ValueError(
            f"gpus must be >= one per region ({len(path)}) and <= those free ({sum(rooms)}), "
            f"with some in each, was {gpus} over {rooms}"
        )
    shares = [1] * len(path)
    left = gpus - len(path)
    ranks = sorted(
        range(len(path)), key=lambda place: (float(usd_per_gpu_hour[path[place]]), path[place])
    )
    for place in ranks:
        more = min(left, rooms[place] - 1)
        shares[place] += more
        left -= more
    return shares


def cheapest_splits(
    members: np.typing.NDArray[np.bool_],
    gpus: IntArray,
    free_gpus: IntArray,
    usd_per_gpu_hour: FloatArray,
) -> IntArray:
    """The cheapest split of many paths at once.

    Parameters
    ----------
    members
        Whether a region is on a path, shape (paths, R).
    gpus
        Stages of each path, shape (paths,): at least its regions, at most what they have free.
    free_gpus, usd_per_gpu_hour
        Per region, shape (R,).

    Returns
    -------
    IntArray
        GPUs per path and region, shape (paths, R), 0 off the path.
    """
    order = np.argsort(usd_per_gpu_hour, kind="stable")
    ordered = members[:, order]
    room = np.where(ordered, free_gpus[order] - 1, 0)
    left = gpus - members.sum(axis=1)
    before = np.cumsum(room, axis=1) - room
    more = np.minimum(np.maximum(left[:, None] - before, 0), room)
    shares: IntArray = np.zeros(members.shape, dtype=np.int64)
    shares[:, order] = more + ordered
    return shares


def split_in_order(path: Sequence[int], gpus: int, free_gpus: IntArray) -> list[int]:
    """The split without this stage: each region is filled before the next, one GPU kept for each.

    `path` is in the order in which regions are filled.
    """
    shares = [1] * len(path)
    left = gpus - len(path)
    for place, region in enumerate(path):
        more = min(left, int(free_gpus[region]) - 1)
        shares[place] += more
        left -= more
    return shares
