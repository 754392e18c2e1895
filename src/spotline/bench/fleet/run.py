"""Runs the cells: crowds in processes of their own, all starts of a crowd beside each other."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from spotline.application.selector.options import SelectorOptions
from spotline.bench.drawing import without_nan
from spotline.bench.fleet.cells import FleetCell
from spotline.bench.fleet.counting import CrowdCount, Lives, count_cell, joined, lives_of
from spotline.bench.fleet.instance import Crowd, LaidCrowd, bound_of, lay_instance
from spotline.bench.fleet.markets import fleet_market
from spotline.bench.fleet.policies import POLICY_NAMES, SHIPPED, UNLEARNED, run_policy
from spotline.bench.fleet.starts import LAWS, start_of
from spotline.domain.solvers.joint_bound import PASSES
from spotline.replay.closed_loop import course_unforecast
from spotline.replay.clouds import Information
from spotline.replay.course import first_slot

# A worker's memory goes with its crowd.
_CROWDS_PER_PROCESS = 1
_USD = 1e6
_MB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """How cells run; `seeds` crowds are drawn per cell and counted together.

    `selector` says how `spotline` decides, `information` what all are told of counts.
    """

    data: Path
    policies: tuple[str, ...] = POLICY_NAMES
    seeds: tuple[int, ...] = (1,)
    processes: int = 2
    selector: SelectorOptions = SHIPPED
    information: Information = Information.FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    crowd: Crowd
    starts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """What a crowd gave: lives by start and policy, and its figures."""

    task: _Task
    lives: Mapping[str, Mapping[str, Lives]]
    start: tuple[int, ...]
    tenant: tuple[str, ...]
    figures: Mapping[str, Any]
    notes: tuple[str, ...]


def run_fleet(
    cells: Sequence[FleetCell],
    options: FleetOptions,
    tell: Callable[[str], None],
    keep: Callable[[dict[str, Any]], None] = lambda figures: None,
) -> dict[str, Any]:
    """Run cells; the figures as JSON writes them.

    Parameters
    ----------
    keep
        Gets the figures of all cells that are complete, whenever one has become so: many take hours.

    Raises
    ------
    ContractError
        The data of a market is absent or broken.
    """
    tasks = _tasks(cells, options)
    # Read here first: what is wrong with the data is said once, before anything runs.
    for market in dict.fromkeys(task.crowd.market for task in tasks):
        fleet_market(market, options.data, options.seeds[0])
    began_s = perf_counter()
    done: list[_Done] = []
    rows: dict[str, Any] = {}
    figures = _figures(rows, done, options, 0.0)
    for one in _performed(tasks, options):
        done.append(one)
        found = one.figures
        tell(
            f"{_label(one.task)}: bound ${found['bound_usd']:,.0f} in {found['bound_s']:.0f} s, "
            + ", ".join(f"{name} {spent:.0f} s" for name, spent in found["wall_s"].items())
        )
        complete = [
            cell for cell in cells if cell.name not in rows and _is_complete(cell, done, options)
        ]
        rows |= {cell.name: _counted(cell, options, done) for cell in complete}
        ordered = {cell.name: rows[cell.name] for cell in cells if cell.name in rows}
        figures = _figures(ordered, done, options, perf_counter() - began_s)
        if complete:
            keep(figures)
    return figures


def _is_complete(cell: FleetCell, done: Sequence[_Done], options: FleetOptions) -> bool:
    had = {one.task.crowd for one in done}
    return all(task.crowd in had for task in _tasks([cell], options))


def _figures(
    rows: dict[str, Any], done: Sequence[_Done], options: FleetOptions, wall_s: float
) -> dict[str, Any]:
    figures = {
        "cells": rows,
        "crowds": {_label(one.task): one.figures for one in _ordered(done)},
        "notes": sorted({note for one in done for note in one.notes}),
        "meta": {
            "seeds": list(options.seeds),
            "policies": list(options.policies),
            "processes": options.processes,
            "clearing": options.selector.clearing,
            "shadow_prices": options.selector.shadow_prices,
            "information": options.information.value,
            "fairness": options.selector.fairness,
            "most_bidders": options.selector.most_bidders,
            "bound_passes": PASSES,
            "laws": LAWS,
            "probes": options.selector.probes,
            "wall_s": wall_s,
            "platform": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        },
    }
    plain: dict[str, Any] = without_nan(figures)
    return plain


def _tasks(cells: Iterable[FleetCell], options: FleetOptions) -> list[_Task]:
    starts: dict[tuple[str, int, float], list[str]] = {}
    for cell in cells:
        starts.setdefault((cell.market, cell.jobs, cell.load), []).append(cell.start)
    tasks = [
        _Task(
            crowd=Crowd(market=market, jobs=jobs, load=load, seed=seed),
            starts=tuple(dict.fromkeys(found)),
        )
        for (market, jobs, load), found in starts.items()
        for seed in options.seeds
    ]
    # The longest first, so that no process waits for the other in the end.
    return sorted(tasks, key=lambda task: -task.crowd.jobs * len(task.starts))


def _performed(tasks: Sequence[_Task], options: FleetOptions) -> Iterable[_Done]:
    if options.processes == 1 or len(tasks) == 1:
        for task in tasks:
            yield perform(task, options)
        return
    with ProcessPoolExecutor(
        max_workers=options.processes,
        mp_context=get_context("spawn"),
        max_tasks_per_child=_CROWDS_PER_PROCESS,
    ) as pool:
        for future in as_completed([pool.submit(perform, task, options) for task in tasks]):
            yield future.result()


def perform(task: _Task, options: FleetOptions) -> _Done:
    """Run one crowd under every policy at every start."""
    source = fleet_market(task.crowd.market, options.data, task.crowd.seed)
    instance = lay_instance(source, task.crowd)
    selector = options.selector
    wall_s: dict[str, float] = {}
    began_s = perf_counter()
    bound = bound_of(instance, selector)
    bound_s = perf_counter() - began_s
    hidden = options.information
    plain = course_unforecast(instance.reported, hidden)
    rules: dict[str, Lives] = {}
    for name in options.policies:
        if name in UNLEARNED:
            began_s = perf_counter()
            run = run_policy(plain, instance.jobs, name, selector, task.crowd.seed, hidden)
            rules[name] = lives_of(instance.jobs, run.lives(instance.jobs))
            wall_s[name] = perf_counter() - began_s
    lives: dict[str, dict[str, Lives]] = {}
    notes = []
    for start in task.starts:
        began_s = perf_counter()
        started = start_of(start, source, instance, selector, hidden)
        wall_s[f"start {start}"] = perf_counter() - began_s
        notes += [started.note] if started.note else []
        lives[start] = dict(rules)
        for name in options.policies:
            if name in UNLEARNED:
                continue
            began_s = perf_counter()
            run = run_policy(
                started.course, instance.jobs, name, started.options, task.crowd.seed, hidden
            )
            lives[start][name] = lives_of(instance.jobs, run.lives(instance.jobs))
            wall_s[f"{name} {start}"] = perf_counter() - began_s
    return _Done(
        task=task,
        lives=lives,
        start=tuple(first_slot(instance.reported, job) for job in instance.jobs),
        tenant=tuple(job.tenant for job in instance.jobs),
        figures={
            **_described(instance, source.recorded),
            "bound_usd": bound.upper_micro_usd / _USD,
            "alone_usd": bound.alone_micro_usd / _USD,
            "attained_usd": bound.attained_micro_usd / _USD,
            "bound_s": bound_s,
            "wall_s": wall_s,
            "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MB,
        },
        notes=tuple(notes),
    )


def _described(instance: LaidCrowd, recorded: str) -> dict[str, Any]:
    market = instance.reported
    return {
        "recorded": recorded,
        "slots": market.slots,
        "offerings": len(market.offerings),
        "count_factor": instance.factor,
        "mean_spot_count": float(market.spot_available.mean()),
        "load": instance.load,
    }


def _counted(cell: FleetCell, options: FleetOptions, done: Sequence[_Done]) -> dict[str, Any]:
    wanted = (cell.market, cell.jobs, cell.load)
    parts = [
        one
        for one in _ordered(done)
        if (one.task.crowd.market, one.task.crowd.jobs, one.task.crowd.load) == wanted
    ]
    lives = {
        name: joined([one.lives[cell.start][name] for one in parts]) for name in options.policies
    }
    # Crowds of several seeds on one recorded market meet the same slots.
    markets = list(dict.fromkeys(one.figures["recorded"] for one in parts))
    counted = CrowdCount(
        start=np.concatenate([np.array(one.start, dtype=np.int64) for one in parts]),
        timeline=np.repeat(
            [markets.index(one.figures["recorded"]) for one in parts],
            [len(one.start) for one in parts],
        ),
        tenant=tuple(tenant for one in parts for tenant in one.tenant),
        bound_usd=sum(one.figures["bound_usd"] for one in parts),
    )
    return count_cell(lives, counted)


def _ordered(done: Sequence[_Done]) -> list[_Done]:
    return sorted(
        done,
        key=lambda one: (
            one.task.crowd.market,
            one.task.crowd.jobs,
            one.task.crowd.load,
            one.task.crowd.seed,
        ),
    )


def _label(task: _Task) -> str:
    crowd = task.crowd
    return f"{crowd.market}/{crowd.jobs}/{crowd.load:g}/seed {crowd.seed}"
