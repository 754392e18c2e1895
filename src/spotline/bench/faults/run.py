"""Runs families of faults over seeds, in as many processes as there are processors."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

from spotline.bench.faults.accounts import Accounts, accounts_of
from spotline.bench.faults.families.interface import FaultFamily
from spotline.bench.faults.families.registry import FAMILIES
from spotline.bench.faults.limit_oracles import deadlines_are_kept
from spotline.bench.faults.oracles import Violation, judge, same_ledger, spend_stays_within
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.plants.interface import Plant
from spotline.bench.faults.plants.registry import PLANTS
from spotline.bench.faults.points import all_points
from spotline.bench.faults.scenario import scenario_of
from spotline.bench.faults.verified import replays_the_same
from spotline.bench.faults.world import run_world

# In these a planted bug has to show itself.
PLANT_SEEDS = 12
_LAST_EVENTS = 12
# Objects made before the collector looks again; a run makes some millions and leaves few in circles.
_COLLECT_EVERY = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """A run of a family, judged; `last_events` are there where something was violated."""

    family: str
    seed: int
    faults: int
    violations: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    last_events: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"spotline bench faults --family {self.family} --seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantRun:
    """A planted bug, and the first seed whose run caught it; -1 where none did."""

    family: str
    plant: str
    caught_at: int = -1
    oracle: str = ""


@dataclass(slots=True, kw_only=True)
class FaultsReport:
    """All that was run."""

    seeds: int
    elapsed_s: float = 0.0
    runs: list[FaultRun] = field(default_factory=list)
    plants: list[PlantRun] = field(default_factory=list)

    @property
    def violated(self) -> list[FaultRun]:
        """The runs in which something did not hold."""
        return [run for run in self.runs if run.violations]

    @property
    def missed(self) -> list[PlantRun]:
        """The planted bugs that no oracle caught."""
        return [plant for plant in self.plants if plant.caught_at < 0]

    @property
    def runs_per_minute(self) -> float:
        """How fast it went, planted bugs aside."""
        return 60 * len(self.runs) / self.elapsed_s if self.elapsed_s else 0.0

    def as_json(self) -> dict[str, object]:
        """The report as `spotline bench faults --json` writes it."""
        killed = {point for run in self.runs for point in run.killed}
        points = all_points()
        families: dict[str, object] = {}
        for name in dict.fromkeys(run.family for run in self.runs):
            runs = [run for run in self.runs if run.family == name]
            plants = [plant for plant in self.plants if plant.family == name]
            families[name] = {
                "runs": len(runs),
                "faults": sum(run.faults for run in runs),
                "violations": sum(len(run.violations) for run in runs),
                "planted_caught": bool(plants) and all(plant.caught_at >= 0 for plant in plants),
            }
        return {
            "families": families,
            "seeds": self.seeds,
            "fail_points_covered_percent": round(100 * len(killed & set(points)) / len(points), 1),
        }


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


def spread(seeds: int, families: Sequence[str]) -> list[tuple[int, tuple[str, ...]]]:
    """`seeds` runs over the families: which of them each scenario is run with, the first first."""
    rounds = []
    for seed in range(-(-seeds // len(families))):
        left = seeds - seed * len(families)
        rounds.append((seed, tuple(families[:left])))
    return rounds


def _round(seed: int, families: Sequence[str]) -> list[FaultRun]:
    # One scenario after the other in one process: what they share is made once.
    return [run_fault(name, seed) for name in families]


def _planted(name: str, number: int) -> PlantRun:
    return run_plant(name, PLANTS[name][number])


def run_faults(
    seeds: int,
    families: Sequence[str],
    *,
    plants: bool,
    workers: int,
    tell: Callable[[str], None],
    told: Callable[[FaultRun], None],
) -> FaultsReport:
    """Run families over seeds, and every planted bug of theirs.

    `told` is shown each run in which something did not hold.
    """
    report = FaultsReport(seeds=seeds)
    began_s = perf_counter()
    with ProcessPoolExecutor(
        max_workers=workers, mp_context=get_context("spawn"), initializer=begin_worker
    ) as pool:
        rounds = [pool.submit(_round, seed, names) for seed, names in spread(seeds, families)]
        for number, done in enumerate(as_completed(rounds), start=1):
            for run in done.result():
                report.runs.append(run)
                if run.violations:
                    told(run)
            if number % 5 == 0:
                tell(f"{len(report.runs)} runs, {len(report.violated)} with violations")
        report.elapsed_s = perf_counter() - began_s
        if plants:
            planted = [
                pool.submit(_planted, name, number)
                for name in families
                for number in range(len(PLANTS.get(name, ())))
            ]
            report.plants = [done.result() for done in planted]
    order: Mapping[str, int] = {name: place for place, name in enumerate(families)}
    report.runs.sort(key=lambda run: (order[run.family], run.seed))
    return report


def begin_worker() -> None:
    """Make a process ready for many runs: quiet, and the collector leaves alone what stays."""
    from spotline.runtime.log import configure_logging

    configure_logging("critical")
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 20, 20)
