"""Policies of the benchmark on one zone at a time, run through the same rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late import (
    clairvoyant,
    instance_table,
    rule_policies,
    table_runs,
    ticks,
)
from spotline.bench.cant_be_late.instance_table import InstanceTable, InstanceTask
from spotline.bench.cant_be_late.rules import (
    ON_DEMAND_MICRO_USD_PER_HOUR,
    ON_DEMAND_USD_PER_TICK,
    SPOT_MICRO_USD_PER_HOUR,
    SPOT_USD_PER_TICK,
    WORK_S,
    Variant,
)
from spotline.bench.cant_be_late.traces import TICK_S
from spotline.bench.run_law import LawMix

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

SPOTLINE: Final = "spotline"
CLAIRVOYANT: Final = "clairvoyant"
UNIFORM_PROGRESS: Final = "uniform_progress"
UNIFORM_PROGRESS_EAGER: Final = "uniform_progress_eager"

RULES: Final = {
    "greedy": rule_policies.GREEDY,
    UNIFORM_PROGRESS: rule_policies.UNIFORM_PROGRESS,
    UNIFORM_PROGRESS_EAGER: rule_policies.UNIFORM_PROGRESS_EAGER,
    "ross": rule_policies.ROSS,
}
POLICIES: Final = (*RULES, SPOTLINE, CLAIRVOYANT)

_PRICE_RATIO: Final = ON_DEMAND_MICRO_USD_PER_HOUR / SPOT_MICRO_USD_PER_HOUR
_DRAWS_SEED: Final = 20260114


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows on aligned zones: `up` uint8, shape (ticks, zones); `starts` ticks."""

    up: UpArray
    starts: IntArray


def task_of(variant: Variant) -> InstanceTask:
    """The benchmark's job under a variant."""
    return InstanceTask(
        work_s=WORK_S,
        deadline_ticks=variant.deadline_ticks,
        overhead_s=variant.overhead_s,
        tick_s=TICK_S,
        spot_usd_per_tick=SPOT_USD_PER_TICK,
        on_demand_usd_per_tick=ON_DEMAND_USD_PER_TICK,
    )


def run_rule(name: str, windows: Windows, variant: Variant) -> IntArray:
    """Run a rule policy; see `single_instance.run_requests` for the columns."""
    draws = np.random.default_rng(_DRAWS_SEED).random(len(windows.starts))
    runs: IntArray = rule_policies.run_rule(
        RULES[name],
        windows.up,
        windows.starts,
        draws,
        _PRICE_RATIO,
        WORK_S,
        variant.deadline_ticks,
        variant.overhead_s,
        TICK_S,
    )
    return runs


def run_clairvoyant(windows: Windows, variant: Variant) -> IntArray:
    """Run the exact optimum of every window."""
    requests = [
        clairvoyant.clairvoyant_requests(
            windows.up[start : start + variant.deadline_ticks],
            WORK_S,
            variant.deadline_ticks,
            variant.overhead_s,
            TICK_S,
            SPOT_MICRO_USD_PER_HOUR,
            ON_DEMAND_MICRO_USD_PER_HOUR,
        )[0]
        for start in windows.starts
    ]
    return run_requests(np.stack(requests), windows, variant)


def run_requests(requests: IntArray, windows: Windows, variant: Variant) -> IntArray:
    """Run given requests, shape (windows, ticks)."""
    runs: IntArray = ticks.run_requests(
        requests,
        windows.up,
        windows.starts,
        WORK_S,
        variant.deadline_ticks,
        variant.overhead_s,
        TICK_S,
    )
    return runs


def solve_mix(mix: LawMix, variant: Variant) -> InstanceTable:
    """Table of the learned policy for a variant."""
    return instance_table.solve(
        task_of(variant),
        up=mix.up,
        lost=np.zeros_like(mix.up),
        row_start=mix.row_start,
        column=mix.column,
        probability=mix.probability,
    )


def beliefs_of(mix: LawMix, up: UpArray, starts: IntArray, ticks: int) -> npt.NDArray[np.float32]:
    """Belief after each tick of each window, (windows, ticks, states); `up` of one zone."""
    beliefs: npt.NDArray[np.float32] = table_runs.filter_beliefs(
        up, starts, ticks, mix.up, mix.first, mix.row_start, mix.column, mix.probability
    )
    return beliefs


def run_spotline(mix: LawMix, table: InstanceTable, windows: Windows, variant: Variant) -> IntArray:
    """Run the learned policy on one zone: laws weighted inside the window, values weighted so."""
    beliefs = beliefs_of(
        mix, np.ascontiguousarray(windows.up[:, 0]), windows.starts, variant.deadline_ticks
    )
    runs: IntArray = table_runs.run_table(
        table.values,
        beliefs,
        windows.up,
        windows.starts,
        table.grid_s,
        WORK_S,
        variant.deadline_ticks,
        variant.overhead_s,
        TICK_S,
        np.float32(SPOT_USD_PER_TICK),
        np.float32(ON_DEMAND_USD_PER_TICK),
    )
    return runs


def known_policy(name: str, known: Sequence[str] = POLICIES) -> str:
    """Return the name; raises ValueError naming what was expected."""
    if name not in known:
        raise ValueError(f"--policy: expected one of {', '.join(known)}, found {name!r}")
    return name


Say = Callable[[str], None]
