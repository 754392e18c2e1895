"""How fast decisions are: one at a time, in batches, whole pools, tables. One core, in process."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from time import perf_counter_ns

import numpy as np

from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.generate import generate
from spotline.domain.market.law import choose_space, learn_law, run_states
from spotline.domain.policies.compiled import ForecastSeries, MarketSeries, replay_many, replay_pool
from spotline.domain.policies.decision import after_slot, decide_slot, slot_cost_micro_usd
from spotline.domain.policies.interface import START, Outlook, Policy, PolicyView
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, PAPER_POOL, policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable, build_table
from spotline.domain.units import PPM

SINGLE = (
    "msu",
    "uniform_progress",
    "ahanp(0.5)",
    "ahap(5,1,0.5)",
    "sdp",
    "hybrid(1)",
    "hybrid(2)",
    "hybrid(5)",
)
THRESHOLDS = ("on_demand_only", "msu", "uniform_progress", "ahanp(0.5)")
VALUE_TO_GO = ("sdp", "hybrid(1)", "hybrid(5)")
# Going through a forecast solves a small program in every slot: fewer jobs tell as much.
_JOBS_OF_HYBRIDS = 500

_SLOT_S = 1800
_HORIZON = 6
_NS_PER_MS = 1e6
_NS_PER_US = 1e3
_ON_DEMAND_PRICE = 3_060_000
_NO_BUDGET = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBenchOptions:
    """How much is measured.

    `jobs` are decided one by one and replayed by the whole pool; batches begin a job at each of
    `market_slots`, `repeats` times, of which the median counts.
    """

    jobs: int = 60
    market_slots: int = 20_000
    repeats: int = 5
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latencies of single calls after warm-up, each the median of several rounds.

    `p99_once_us` is of each call timed once, with all that other processes took meanwhile.
    """

    decisions: int
    per_s: float
    p50_us: float
    p99_us: float
    p99_once_us: float


def measure(options: DecisionBenchOptions) -> dict[str, object]:
    """Measure everything; returns the report as JSON writes it.

    Times are wall times of one thread. A policy that the registry does not know is listed under
    `missing`.
    """
    series = _market(options)
    program = paper_program(10)
    began = perf_counter_ns()
    table = build_table(_terms(program, series))
    table_first_ns = perf_counter_ns() - began
    known, missing = _known(SINGLE)
    policies = {p.policy_id: asdict(_latency(p, program, series, options, table)) for p in known}
    return {
        "machine": machine(),
        "options": asdict(options),
        "policies": policies,
        "missing": missing,
        "thresholds": _batches(THRESHOLDS, program, series, options, None),
        "value_to_go": _batches(VALUE_TO_GO, program, series, options, table),
        "pool": _pool(program, series, options, table),
        "clairvoyant": _clairvoyant(series, options),
        "value_table": _table(program, series, options, table, table_first_ns),
    }


def machine() -> dict[str, object]:
    """What was measured on."""
    return {
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("numba", "numpy")},
    }


def paper_program(deadline_slots: int) -> JobProgram:
    """Describe the job that targets are stated for: 80 instance-slots on 1..12 instances.

    mu is .9 for growth and .95 for shrinking in slots of 30 minutes, the value 1.5 times what the
    work costs on demand, worth nothing after 1.5 times the deadline.
    """
    work, most = 80, 12
    end = deadline_slots * 3 // 2
    value = 3 * _ON_DEMAND_PRICE * work * _SLOT_S // 3600 // 2
    late = [
        value * (end - slot) // (end - deadline_slots)
        for slot in range(deadline_slots + 1, end + 1)
    ]
    return JobProgram(
        slot_s=_SLOT_S,
        work_quanta=work * _SLOT_S,
        rate_quanta_per_s=tuple(range(most + 1)),
        allowed_counts=tuple(range(1, most + 1)),
        launch_s=_SLOT_S // 10,
        grow_s=_SLOT_S // 10,
        shrink_s=_SLOT_S // 20,
        interrupted_s=_SLOT_S // 10,
        deadline_slots=deadline_slots,
        end_slots=end,
        hard=False,
        value_micro_usd=(*[value] * (deadline_slots + 1), *late),
    )


# --- what it is measured on -------------------------------------------------------------------


def _market(options: DecisionBenchOptions) -> MarketSeries:
    """A generated zone of all-or-nothing gangs, with forecasts of the persistence type."""
    slots = max(options.market_slots, 64)
    market = generate("cloud-gang", seed=options.seed, slots=slots, slot_s=_SLOT_S, start_ns=0)
    price = np.ascontiguousarray(market.spot_price_micro_usd[:, 0])
    on_demand = np.ascontiguousarray(market.on_demand_price_micro_usd[:, 0])
    available = np.ascontiguousarray(market.spot_available[:, 0])
    # The last price drifts to its mean, the last count stays.
    ahead = 0.9 ** np.arange(1, _HORIZON + 1)
    drifting = price[:, None] * ahead + float(price.mean()) * (1 - ahead)
    forecast = ForecastSeries(
        steps=np.full(slots, _HORIZON, dtype=np.int64),
        spot_price=np.rint(drifting).astype(np.int64),
        spot_available=np.repeat(available[:, None], _HORIZON, axis=1),
    )
    space = choose_space(available, price * PPM // on_demand, most_instances=12)
    return MarketSeries(
        spot_price=price,
        on_demand_price=on_demand,
        spot_available=available,
        on_demand_available=np.full(slots, 10**6, dtype=np.int64),
        forecast=forecast,
        run_state=run_states(space, np.minimum(available, 12)),
    )


def _terms(program: JobProgram, series: MarketSeries) -> TableTerms:
    ppm = series.spot_price * PPM // series.on_demand_price
    space = choose_space(series.spot_available, ppm, most_instances=program.max_instances)
    return TableTerms(
        program=program,
        law=learn_law(np.minimum(series.spot_available, 12), ppm, space),
        on_demand_price=int(series.on_demand_price[0]),
        on_demand_available=10**6,
    )


def _jobs(
    program: JobProgram, series: MarketSeries, options: DecisionBenchOptions
) -> list[tuple[SlotRecord, ...]]:
    """What jobs begun at evenly spread slots are offered."""
    room = len(series) - program.end_slots
    firsts = np.linspace(0, room, options.jobs).astype(np.int64).tolist()
    return [series.records(first, program.end_slots) for first in firsts]


def _known(names: Sequence[str]) -> tuple[list[Policy], list[str]]:
    known: list[Policy] = []
    missing: list[str] = []
    for name in names:
        try:
            known.append(policy_named(name))
        except KeyError:
            missing.append(name)
    return known, missing


# --- one decision at a time -------------------------------------------------------------------


def _latency(
    policy: Policy,
    program: JobProgram,
    series: MarketSeries,
    options: DecisionBenchOptions,
    table: ValueTable,
) -> Latency:
    jobs = _jobs(program, series, options)
    for records in jobs[: max(1, len(jobs) // 10)]:
        _decide_life(policy, program, records, table)
    rounds: list[list[int]] = []
    for again in range(1, options.repeats + 1):
        # Another budget that never binds is another program to every cache of plans.
        fresh = replace(program, budget_micro_usd=_NO_BUDGET + again)
        taken_ns: list[int] = []
        for records in jobs:
            taken_ns += _decide_life(policy, fresh, records, table)
        rounds.append(taken_ns)
    # The same decisions every time: their medians leave out what other processes took.
    taken = np.median(np.array(rounds, dtype=np.float64), axis=0)
    return Latency(
        decisions=taken.size,
        per_s=float(taken.size / taken.sum() * 1e9),
        p50_us=float(np.percentile(taken, 50)) / _NS_PER_US,
        p99_us=float(np.percentile(taken, 99)) / _NS_PER_US,
        p99_once_us=float(np.percentile(rounds[0], 99)) / _NS_PER_US,
    )


def _decide_life(
    policy: Policy, program: JobProgram, records: Sequence[SlotRecord], table: ValueTable
) -> list[int]:
    """Latencies in ns of every decision of a life, as a service makes them."""
    state, memory, spent = JobProgress(), START, 0
    taken_ns = []
    for slot, record in enumerate(records):
        view = PolicyView(
            program=program,
            elapsed_slots=slot,
            state=state,
            interrupted=state.holding.spot > record.spot_available,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=record.spot_available,
            on_demand_available=record.on_demand_available,
            forecast=record.forecast,
            slot_left_s=program.slot_s,
            spent_micro_usd=spent,
            outlook=Outlook(table=table, run_state=record.run_state),
        )
        began = perf_counter_ns()
        decision = decide_slot(policy, view, memory)
        taken_ns.append(perf_counter_ns() - began)
        spent += slot_cost_micro_usd(view, decision.holding)
        state, memory = after_slot(view, decision.holding), decision.memory
        if state.progress_quanta >= program.work_quanta:
            break
    return taken_ns


# --- batches ----------------------------------------------------------------------------------


def _timed_ns(work: Callable[[], object], repeats: int) -> list[int]:
    """Wall times of `repeats` calls after one that warms up."""
    work()
    times = []
    for _ in range(max(1, repeats)):
        began = perf_counter_ns()
        work()
        times.append(perf_counter_ns() - began)
    return times


def _batches(
    names: Sequence[str],
    program: JobProgram,
    series: MarketSeries,
    options: DecisionBenchOptions,
    table: ValueTable | None,
) -> Mapping[str, object]:
    """Policy-slots (decisions) per second: compiled in a batch, and slot by slot in Python."""
    fallback = policy_named(FALLBACK_POLICY_ID)
    every = np.arange(len(series) - program.end_slots, dtype=np.int64)
    jobs = _jobs(program, series, options)
    rates: dict[str, object] = {}
    for policy in _known(names)[0]:
        goes_through = policy.uses_table and policy.forecast_slots > 0
        firsts = every[:_JOBS_OF_HYBRIDS] if goes_through else every
        replay = partial(replay_many, program, series, (policy,), firsts, fallback, table)
        slots = int(replay().decisions.sum())
        batch_ns = _timed_ns(replay, options.repeats)
        began = perf_counter_ns()
        plain = sum(
            len(replay_policy(program, records, policy, fallback, table).holdings)
            for records in jobs
        )
        plain_ns = perf_counter_ns() - began
        rates[policy.policy_id] = {
            "policy_slots": slots,
            "policy_slots_per_s": slots / float(np.median(batch_ns)) * 1e9,
            "python_policy_slots_per_s": plain / plain_ns * 1e9,
        }
    return rates


def _pool(
    program: JobProgram,
    series: MarketSeries,
    options: DecisionBenchOptions,
    table: ValueTable,
) -> Mapping[str, object]:
    """The paper's 112 policies replayed for one job at d = 10."""
    fallback = policy_named(FALLBACK_POLICY_ID)
    jobs = _jobs(program, series, options)
    for records in jobs[:3]:
        replay_pool(program, records, PAPER_POOL, fallback, table)
    times = []
    for records in jobs:
        began = perf_counter_ns()
        replay_pool(program, records, PAPER_POOL, fallback, table)
        times.append(perf_counter_ns() - began)
    return {
        "policies": len(PAPER_POOL),
        "jobs": len(jobs),
        "median_ms": float(np.median(times)) / _NS_PER_MS,
        "p99_ms": float(np.percentile(times, 99)) / _NS_PER_MS,
    }


def _clairvoyant(series: MarketSeries, options: DecisionBenchOptions) -> Mapping[str, object]:
    """The exact optimum of one job, at d = 10 and d = 20."""
    result: dict[str, object] = {}
    for deadline in (10, 20):
        program = paper_program(deadline)
        jobs = _jobs(program, series, options)
        clairvoyant_optimum(program, jobs[0])
        times = []
        for records in jobs:
            began = perf_counter_ns()
            clairvoyant_optimum(program, records)
            times.append(perf_counter_ns() - began)
        result[str(deadline)] = {
            "jobs": len(jobs),
            "median_ms": float(np.median(times)) / _NS_PER_MS,
        }
    return result


def _table(
    program: JobProgram,
    series: MarketSeries,
    options: DecisionBenchOptions,
    table: ValueTable,
    first_ns: int,
) -> Mapping[str, object]:
    """How long a value table takes to build, and how large it is; the first build may compile."""
    terms = _terms(program, series)
    times = _timed_ns(lambda: build_table(terms), min(3, options.repeats))
    return {
        "build_s": float(np.median(times)) / 1e9,
        "first_build_s": first_ns / 1e9,
        "size_mb": table.size_bytes / 1e6,
        "shape": list(table.after.shape),
    }
