"""Runs of all policies on the windows of a set, and their figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spotline.bench.skynomad.optimum import optimum_micro_usd
from spotline.bench.skynomad.rule_policies import EagerFailover, Probing
from spotline.bench.skynomad.rules import ZoneOutcome, ZonePolicy, run
from spotline.bench.skynomad.sets import WindowSet
from spotline.bench.skynomad.spotline_policy import TablePolicy, zone_job
from spotline.domain.solvers.zone_table import build_zone_table
from spotline.domain.units import MICRO_USD_PER_USD

SPOTLINE: Final = "spotline"
NO_PROBES: Final = "spotline_no_probes"
EAGER: Final = "uniform_progress_eager_failover"
PROBING: Final = "uniform_progress_probing"
SINGLE: Final = "single_zone_mean"
OPTIMAL: Final = "optimal"
POLICIES: Final = (SPOTLINE, NO_PROBES, EAGER, PROBING, SINGLE, OPTIMAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRun:
    """One window under one policy: cost and what of it was not spot, USD; launches, misses.

    A mean over single zones has the means of its runs and all their misses. Of the optimum its cost
    alone is known.
    """

    cost_usd: float
    probe_usd: float = 0.0
    egress_usd: float = 0.0
    on_demand_usd: float = 0.0
    probes: float = 0.0
    launches: float = 0.0
    idle_ticks: float = 0.0
    misses: int = 0


def run_set(windows: WindowSet) -> dict[str, list[WindowRun]]:
    """Run every policy on every window of a set."""
    runs: dict[str, list[WindowRun]] = {name: [] for name in POLICIES}
    for start in windows.starts:
        for name, one in _run_window(windows, start).items():
            runs[name].append(one)
    return runs


def _run_window(windows: WindowSet, start: int) -> dict[str, WindowRun]:
    market, moves, terms = windows.market, windows.moves, windows.terms

    def outcome(policy: ZonePolicy) -> ZoneOutcome:
        return run(policy, market, moves, terms, start)

    # Prices are public: the table takes those of the first tick to last.
    job = zone_job(market, moves, terms, market.spot_micro_usd[start])
    table = build_zone_table(job, windows.laws)
    single = [
        outcome(EagerFailover(market=market, terms=terms, zones=(zone,)))
        for zone in range(len(market.zones))
    ]
    best = optimum_micro_usd(market, moves, terms, start)
    return {
        SPOTLINE: _run_of([outcome(TablePolicy(table=table, probes=True))]),
        NO_PROBES: _run_of([outcome(TablePolicy(table=table, probes=False))]),
        EAGER: _run_of([outcome(EagerFailover(market=market, terms=terms))]),
        PROBING: _run_of([outcome(Probing(market=market, terms=terms))]),
        SINGLE: _run_of(single),
        OPTIMAL: WindowRun(cost_usd=best / MICRO_USD_PER_USD),
    }


def _run_of(outcomes: Sequence[ZoneOutcome]) -> WindowRun:
    def mean(counts: Iterable[int]) -> float:
        return sum(counts) / len(outcomes)

    return WindowRun(
        cost_usd=mean(each.cost_micro_usd for each in outcomes) / MICRO_USD_PER_USD,
        probe_usd=mean(each.probe_micro_usd for each in outcomes) / MICRO_USD_PER_USD,
        egress_usd=mean(each.egress_micro_usd for each in outcomes) / MICRO_USD_PER_USD,
        on_demand_usd=mean(each.on_demand_micro_usd for each in outcomes) / MICRO_USD_PER_USD,
        probes=mean(each.probes for each in outcomes),
        launches=mean(each.launches for each in outcomes),
        idle_ticks=mean(each.idle_ticks for each in outcomes),
        misses=sum(each.missed for each in outcomes),
    )


def figures_of(
    runs: Mapping[str, Sequence[WindowRun]], independent: int
) -> dict[str, dict[str, Any]]:
    """Figures of each policy on a set.

    `over_optimal_percent` compares mean costs. Its standard error takes each window's difference to
    its optimum, and counts only windows that do not overlap; None where there is but one.
    """
    optimal = np.array([one.cost_usd for one in runs[OPTIMAL]])
    figures: dict[str, dict[str, Any]] = {}
    for name, of_policy in runs.items():
        cost = np.array([one.cost_usd for one in of_policy])
        error = None
        if independent > 1:
            spread = float((cost - optimal).std(ddof=1)) / float(optimal.mean())
            error = 100.0 * spread / independent**0.5
        figures[name] = {
            "mean_cost_usd": float(cost.mean()),
            "over_optimal_percent": 100.0 * (float(cost.mean()) / float(optimal.mean()) - 1.0),
            "standard_error_percent": error,
            "worst_percent": 100.0 * float((cost / optimal - 1.0).max()),
            "misses": sum(one.misses for one in of_policy),
            "windows": len(of_policy),
            "independent_windows": independent,
            "mean_probe_usd": float(np.mean([one.probe_usd for one in of_policy])),
            "mean_probes": float(np.mean([one.probes for one in of_policy])),
            "cost_usd": [float(c) for c in cost],
        }
        # Where the money goes; of the optimum only the cost is computed.
        if name != OPTIMAL:
            figures[name] |= {
                "mean_egress_usd": float(np.mean([one.egress_usd for one in of_policy])),
                "mean_on_demand_usd": float(np.mean([one.on_demand_usd for one in of_policy])),
                "mean_launches": float(np.mean([one.launches for one in of_policy])),
                "mean_idle_ticks": float(np.mean([one.idle_ticks for one in of_policy])),
            }
    return figures
