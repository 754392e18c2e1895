"""What statistics say of a window, as they are issued: integers, so that equal is equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFigures:
    """A price over a window, micro-USD per instance-hour; each slot weighs by its time in it.

    `mean_micro_usd` is rounded half up, `spread_micro_usd` the greatest less the smallest price.
    `changes` counts neighbouring slots with different prices, `change_ppm` is the last price
    against the first one, rounded down.
    """

    mean_micro_usd: int
    low_micro_usd: int
    high_micro_usd: int
    spread_micro_usd: int
    changes: int
    change_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTime:
    """For how long exactly this many spot instances were available."""

    instances: int
    held_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketFigures:
    """An offering over a window.

    `slots` observations cover `covered_s` seconds of it. In `known_s` of them the count was known,
    in `available_s` it was at least 1; `available_ppm` is their ratio, rounded down. `ups` and
    `downs` count the moments at which that changed between two neighbouring slots, the second of
    which opened in the window. Runs are cut at the window's ends; mean lengths are rounded half up
    to a second, 0 without a run.
    """

    slots: int
    covered_s: int
    spot_price: PriceFigures
    on_demand_price: PriceFigures
    known_s: int
    available_s: int
    available_ppm: int
    counts: tuple[CountTime, ...]
    ups: int
    downs: int
    available_runs: int
    unavailable_runs: int
    mean_available_run_s: int
    mean_unavailable_run_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendFigures:
    """What was billed over a window, and what the same hours cost on demand, micro-USD.

    The on-demand equivalent takes each slot's on-demand quote of the offering the hours were held
    on. A bill is spread evenly over its slot.
    """

    spend_micro_usd: int
    on_demand_equivalent_micro_usd: int
    saving_micro_usd: int
    spot_instance_s: int
    on_demand_instance_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineFigures:
    """How the jobs fared whose last slot opened in a window.

    `cancelled` are those that did neither: withdrawn, or failed by their own program.
    """

    hard_hits: int
    hard_misses: int
    soft_hits: int
    soft_misses: int
    cancelled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretFigures:
    """Utility lost against the best fixed policy on the jobs whose feedback came in a window.

    Utilities are those of the full replays that moved the weights. Negative where no one policy
    would have done as well as the ones that were drawn.
    """

    jobs: int
    best_policy_id: str
    best_utility_micro_usd: int
    regret_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyFigures:
    """Nanoseconds between two entries of the log as stored; percentiles by nearest rank, exact."""

    samples: int
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFigures:
    """What the platform did over a window, for a tenant, a policy, or both.

    Latencies are those of first decisions of slots, from the slot's opening and from its forecast.
    """

    spend: SpendFigures
    deadlines: DeadlineFigures
    regret: RegretFigures
    decision_after_slot: LatencyFigures
    decision_after_forecast: LatencyFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The figures of the jobs that had drawn one policy; empty: of those that drew none."""

    policy_id: str
    figures: PlatformFigures


ALL_TENANTS = "*"
"""Stands for every tenant together."""
