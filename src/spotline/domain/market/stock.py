"""How long on-demand stays out of stock, judged by an offering's own past."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

# Of past outages, this share was no longer than the reserve.
QUANTILE_PERCENT = 95


def reserve_slots(stock: Sequence[int], needed: int) -> int:
    """For how many slots a launch of `needed` instances may have to wait.

    Parameters
    ----------
    stock
        On-demand instances that could be held in each past slot, the latest last; an unknown
        count is given as plenty.
    needed
        Instances that must be launched at once.

    Returns
    -------
    int
        Slots; 0 where `needed` was in stock all the time. Otherwise the 95 % quantile (nearest
        rank) of the outages that are over, and at least the length of one that still lasts.

    Notes
    -----
    An outage is a run of slots with less than `needed` in stock. One that was on when the past
    begins is taken as it was seen, so early estimates are too short rather than too long.
    """
    runs = [(out, sum(1 for _ in run)) for out, run in groupby(stock, lambda one: one < needed)]
    lasting = runs.pop()[1] if runs and runs[-1][0] else 0
    over = sorted(length for out, length in runs if out)
    rank = -(-len(over) * QUANTILE_PERCENT // 100)
    return max(lasting, over[rank - 1] if over else 0)


def launchable_count(stock: Sequence[int], allowed_counts: Sequence[int]) -> int:
    """The largest of `allowed_counts` that was ever in stock, 0 where none was.

    `stock` is as in `reserve_slots`; without a past, the largest count.
    """
    most = max(stock, default=max(allowed_counts))
    return max((count for count in allowed_counts if count <= most), default=0)


def stock_terms(stock: Sequence[int], allowed_counts: Sequence[int]) -> tuple[int, int]:
    """A job's `reserve_slots` and `rescue_instances` by the stock that there was.

    `stock` is as in `reserve_slots`, `allowed_counts` ascend; the second is 0 where the largest
    count can be had.
    """
    return _terms(tuple(stock), tuple(allowed_counts))


# In a slot all jobs of some counts on an offering ask the same.
@lru_cache(maxsize=1024)
def _terms(stock: tuple[int, ...], allowed_counts: tuple[int, ...]) -> tuple[int, int]:
    rescue = launchable_count(stock, allowed_counts)
    reserve = reserve_slots(stock, rescue or allowed_counts[-1])
    return reserve, rescue if rescue < allowed_counts[-1] else 0
