"""Policies of the benchmark on one zone at a time, run through the same rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from spotline.bench.cant_be_late import rule_policies, table_runs, ticks
from spotline.bench.cant_be_late.clairvoyant import clairvoyant_requests
from spotline.bench.cant_be_late.instance_table import InstanceTable, InstanceTask, solve
from spotline.bench.cant_be_late.rules import (
    ON_DEMAND_MICRO_USD_PER_HOUR,
    ON_DEMAND_USD_PER_TICK,
    SPOT_MICRO_USD_PER_HOUR,
    SPOT_USD_PER_TICK,
    WORK_S,
    Variant,
)
from spotline.bench.cant_be_late.ticks import IntArray, TickPrices, TickTerms, Windows
from spotline.bench.cant_be_late.traces import TICK_S
from spotline.domain.market.run_law import LawMix

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


def terms_of(variant: Variant) -> TickTerms:
    """Terms of the benchmark's job under a variant."""
    return TickTerms(
        work_s=WORK_S,
        deadline_ticks=variant.deadline_ticks,
        overhead_s=variant.overhead_s,
        tick_s=TICK_S,
    )


def task_of(variant: Variant) -> InstanceTask:
    """The benchmark's job under a variant."""
    return InstanceTask(
        terms=terms_of(variant),
        spot_usd_per_tick=SPOT_USD_PER_TICK,
        on_demand_usd_per_tick=ON_DEMAND_USD_PER_TICK,
    )


def run_rule(name: str, windows: Windows, variant: Variant) -> IntArray:
    """Run a rule policy; see `ticks.run_requests` for the columns."""
    draws = np.random.default_rng(_DRAWS_SEED).random(len(windows.starts))
    runs: IntArray = rule_policies.run_rule(
        RULES[name], terms_of(variant), windows, draws, _PRICE_RATIO
    )
    return runs


def run_clairvoyant(windows: Windows, variant: Variant) -> IntArray:
    """Run the exact optimum of every window."""
    terms = terms_of(variant)
    prices = TickPrices(spot=SPOT_MICRO_USD_PER_HOUR, on_demand=ON_DEMAND_MICRO_USD_PER_HOUR)
    requests = [
        clairvoyant_requests(windows.up[start : start + terms.deadline_ticks], terms, prices)[0]
        for start in windows.starts
    ]
    runs: IntArray = ticks.run_requests(terms, windows, np.stack(requests))
    return runs


def run_spotline(mix: LawMix, table: InstanceTable, windows: Windows) -> IntArray:
    """Run the learned policy on one zone: laws weighted inside the window, values weighted so."""
    task = table.task
    beliefs = table_runs.filter_beliefs(windows, 0, task.terms.deadline_ticks, mix.chain, mix.first)
    runs: IntArray = table_runs.run_table(
        table.values, table.grid_s, task.terms, task.prices, beliefs, windows
    )
    return runs


def solve_mix(mix: LawMix, variant: Variant) -> InstanceTable:
    """Table of the learned policy for a variant."""
    return solve(task_of(variant), mix.chain)


def known_policy(name: str, known: Sequence[str] = POLICIES) -> str:
    """Return the name; raises ValueError naming what was expected."""
    if name not in known:
        raise ValueError(f"--policy: expected one of {', '.join(known)}, found {name!r}")
    return name


Say = Callable[[str], None]
