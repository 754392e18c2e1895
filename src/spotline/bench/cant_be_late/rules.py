"""Prices, grids and score of the benchmark."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.ticks import FINISH_TICK, ON_DEMAND_TICKS, SPOT_TICKS
from spotline.bench.cant_be_late.traces import TICK_S
from spotline.domain.units import MICRO_USD_PER_USD

HOUR_S: Final = 3600
WORK_S: Final = 48 * HOUR_S
ON_DEMAND_MICRO_USD_PER_HOUR: Final = 3_060_000
SPOT_MICRO_USD_PER_HOUR: Final = 973_100

_WORK_HOURS: Final = WORK_S / HOUR_S
ALL_ON_DEMAND_USD: Final = _WORK_HOURS * ON_DEMAND_MICRO_USD_PER_HOUR / MICRO_USD_PER_USD
ALL_SPOT_USD: Final = _WORK_HOURS * SPOT_MICRO_USD_PER_HOUR / MICRO_USD_PER_USD

_TICK_H: Final = TICK_S / HOUR_S
SPOT_USD_PER_TICK: Final = SPOT_MICRO_USD_PER_HOUR * _TICK_H / MICRO_USD_PER_USD
ON_DEMAND_USD_PER_TICK: Final = ON_DEMAND_MICRO_USD_PER_HOUR * _TICK_H / MICRO_USD_PER_USD

_DEADLINES_H: Final = (52, 70)
_OVERHEADS_S: Final = {"frontier": (180, 720), "adrs": (72, 180, 360)}
GRIDS: Final = tuple(_OVERHEADS_S)
LONGEST_DEADLINE_TICKS: Final = max(_DEADLINES_H) * HOUR_S // TICK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One cell of a grid."""

    overhead_s: int
    deadline_ticks: int

    @property
    def overhead_h(self) -> float:
        """Restart overhead, hours."""
        return self.overhead_s / HOUR_S

    @property
    def deadline_h(self) -> int:
        """Deadline, hours after the start."""
        return self.deadline_ticks * TICK_S // HOUR_S


def variants_of(grid: str) -> list[Variant]:
    """Overheads times deadlines of a grid.

    Raises
    ------
    ValueError
        No grid has this name.
    """
    if grid not in _OVERHEADS_S:
        raise ValueError(f"--grid: expected one of {', '.join(GRIDS)}, found {grid!r}")
    return [
        Variant(overhead_s=overhead_s, deadline_ticks=hours * HOUR_S // TICK_S)
        for overhead_s, hours in itertools.product(_OVERHEADS_S[grid], _DEADLINES_H)
    ]


def cost_usd(runs: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Cost of runs, USD, shape (runs,): whole ticks are charged, idle ones cost nothing."""
    cost: npt.NDArray[np.float64] = (
        runs[:, SPOT_TICKS] * SPOT_USD_PER_TICK + runs[:, ON_DEMAND_TICKS] * ON_DEMAND_USD_PER_TICK
    )
    return cost


def missed(runs: npt.NDArray[np.int64], variant: Variant) -> npt.NDArray[np.bool_]:
    """Whether each run finished after the deadline."""
    late: npt.NDArray[np.bool_] = runs[:, FINISH_TICK] > variant.deadline_ticks
    return late


def score(mean_cost_usd: float) -> float:
    """0 is 48 h of on-demand, 100 is 48 h of spot."""
    return 100.0 * (ALL_ON_DEMAND_USD - mean_cost_usd) / (ALL_ON_DEMAND_USD - ALL_SPOT_USD)
