"""Runs families of faults over seeds, in as many processes as there are processors."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time

from spotline.bench.faults.accounts import Accounts, accounts_of
from spotline.bench.faults.families.interface import FaultFamily
from spotline.bench.faults.families.registry import FAMILIES
from spotline.bench.faults.kept import KeptRuns
from spotline.bench.faults.limit_oracles import deadlines_are_kept
from spotline.bench.faults.oracles import Violation, judge, same_ledger, spend_stays_within
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.plants.interface import Plant
from spotline.bench.faults.plants.registry import PLANTS
from spotline.bench.faults.replays import replays_made_once
from spotline.bench.faults.report import FaultRun as FaultRun
from spotline.bench.faults.report import FaultsReport as FaultsReport
from spotline.bench.faults.report import PlantRun as PlantRun
from spotline.bench.faults.scenario import scenario_of
from spotline.bench.faults.verified import replays_the_same
from spotline.bench.faults.world import run_world

# In these a planted bug has to show itself.
PLANT_SEEDS = 12
_LAST_EVENTS = 12
# Objects made before the collector looks again; a run makes some millions and leaves few in circles.
_COLLECT_EVERY = 200_000


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder in memory where there is one: what is tried here is no disk."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    base = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="spotline-faults-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=4)
def calm_run(seed: int) -> tuple[Accounts, Counter[str]]:
    """The undisturbed run of a scenario; it must be right, or nothing can be told by it.

    Raises
    ------
    RuntimeError
        It is not.
    """
    scenario = scenario_of(seed)
    with _folder() as folder:
        outcome = run_world(scenario, FaultFamily(scenario, random.Random(seed)), folder)  # noqa: S311
        accounts = accounts_of(outcome)
    violations = [*judge(accounts), *replays_the_same(outcome)]
    if violations:
        raise RuntimeError(f"seed {seed}: the undisturbed run is wrong: {violations[0]}")
    return accounts, outcome.points


def run_fault(name: str, seed: int, plant: Plant | None = None) -> FaultRun:
    """Run a family once, with a bug planted or without, and judge what came of it."""
    began_s = process_time()
    with replays_made_once():
        return _run_fault(name, seed, plant, began_s)


def _run_fault(name: str, seed: int, plant: Plant | None, began_s: float) -> FaultRun:
    calm, points = calm_run(seed)
    scenario = scenario_of(seed)
    family = FAMILIES[name](scenario, random.Random(f"{name} {seed}"), points)  # noqa: S311
    with _folder() as folder:
        with family.in_force(), plant.planted() if plant is not None else nullcontext():
            outcome = run_world(family.scenario, family, folder)
        # Outside: no oracle is to be led by the bug.
        accounts = accounts_of(outcome)
    violations = judged(family, accounts, calm)
    return FaultRun(
        family=name,
        seed=seed,
        faults=outcome.faults,
        violations=tuple(str(violation) for violation in violations),
        killed=tuple(sorted(outcome.killed)),
        last_events=tuple(_last_events(outcome, accounts)) if violations else (),
        cpu_s=round(process_time() - began_s, 3),
    )


def judged(family: FaultFamily, accounts: Accounts, calm: Accounts) -> list[Violation]:
    """Everything that did not hold in a run."""
    violations = [*judge(accounts, family.always), *judge(accounts, family.oracles)]
    if family.same_ledger:
        violations += same_ledger(accounts, calm)
    if family.most_spend_percent:
        violations += spend_stays_within(accounts, calm, family.most_spend_percent)
    if family.keeps_deadlines:
        violations += deadlines_are_kept(accounts, calm)
    if not violations:
        with family.in_force():
            violations += replays_the_same(accounts.outcome)
    return violations


def run_plant(name: str, plant: Plant) -> PlantRun:
    """Run a family with a bug planted until an oracle says so."""
    for seed in range(plant.seed, plant.seed + PLANT_SEEDS):
        run = run_fault(name, seed, plant)
        if run.violations:
            oracle = run.violations[0].partition(":")[0]
            return PlantRun(family=name, plant=plant.name, caught_at=seed, oracle=oracle)
    return PlantRun(family=name, plant=plant.name)


def _last_events(outcome: FaultOutcome, accounts: Accounts) -> Iterator[str]:
    for logged in accounts.logged[-_LAST_EVENTS:]:
        yield f"{logged.seq:5d} {logged.source:14} {logged.event!r}"[:220]


# --- many of them -----------------------------------------------------------------------------


def spread(
    seeds: int, families: Sequence[str], first_seed: int = 0
) -> list[tuple[int, tuple[str, ...]]]:
    """`seeds` runs over the families: which of them each scenario is run with, the first first."""
    rounds = []
    for number in range(-(-seeds // len(families))):
        left = seeds - number * len(families)
        rounds.append((first_seed + number, tuple(families[:left])))
    return rounds


def _round(seed: int, families: Sequence[str]) -> list[FaultRun]:
    # One scenario after the other in one process: what they share is made once.
    return [run_fault(name, seed) for name in families]


def _planted(name: str, number: int) -> PlantRun:
    return run_plant(name, PLANTS[name][number])


def run_faults(
    rounds: Sequence[tuple[int, Sequence[str]]],
    plants: Sequence[tuple[str, Plant]],
    *,
    workers: int,
    kept: KeptRuns | None = None,
    tell: Callable[[str], None],
    told: Callable[[FaultRun], None],
) -> FaultsReport:
    """Run families over seeds, then planted bugs.

    Parameters
    ----------
    rounds
        A scenario's seed, and the families that it is run with.
    kept
        What is in it is not run again; what is run is added to it.
    told
        Is shown each run in which something did not hold.
    """
    seeds = sum(len(names) for _, names in rounds)
    report = FaultsReport(seeds=seeds) if kept is None else kept.report()
    report.seeds = max(seeds, len(report.runs))
    done_before = {(run.family, run.seed) for run in report.runs}
    caught_before = {(plant.family, plant.plant) for plant in report.plants}
    began_s = perf_counter()
    with ProcessPoolExecutor(
        max_workers=workers, mp_context=get_context("spawn"), initializer=begin_worker
    ) as pool:
        left = [
            (seed, [n for n in names if (n, seed) not in done_before]) for seed, names in rounds
        ]
        asked = [pool.submit(_round, seed, names) for seed, names in left if names]
        for number, answer in enumerate(as_completed(asked), start=1):
            runs = answer.result()
            report.runs += runs
            report.fresh += len(runs)
            if kept is not None:
                kept.keep(*runs)
            for run in runs:
                if run.violations:
                    told(run)
            if number % 5 == 0:
                tell(f"{len(report.runs)} runs, {len(report.violated)} with violations")
        report.elapsed_s = perf_counter() - began_s
        planted = [
            pool.submit(_planted, name, PLANTS[name].index(plant))
            for name, plant in plants
            if (name, plant.name) not in caught_before
        ]
        for done in planted:
            report.plants.append(done.result())
            if kept is not None:
                kept.keep(report.plants[-1])
    report.sort()
    return report


def plants_of(families: Sequence[str]) -> list[tuple[str, Plant]]:
    """The planted bugs of families."""
    return [(name, plant) for name in families for plant in PLANTS.get(name, ())]


def begin_worker() -> None:
    """Make a process ready for many runs: quiet, and the collector leaves alone what stays."""
    from spotline.runtime.log import configure_logging

    configure_logging("critical")
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 20, 20)
