"""Every method on every setting: what the benchmark measures, without saying it is good or bad."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from spotline.bench.placement.bounds import most_lead_percent
from spotline.bench.placement.course import MethodRun
from spotline.bench.placement.jobs import with_traffic
from spotline.bench.placement.moves import PayingMoves
from spotline.bench.placement.setting import Disruption, Setting, scaled
from spotline.bench.placement.settings_paper import drawn_setting, paper_setting
from spotline.bench.placement.simulate import Replacing, simulate
from spotline.domain.placement.interface import PlacementMethod
from spotline.domain.placement.methods.bace_pipe import BacePipe
from spotline.domain.placement.methods.registry import METHODS

# BACE-Pipe with one stage switched off, by what is missing.
ABLATIONS: Mapping[str, PlacementMethod] = MappingProxyType(
    {
        "no_priority": BacePipe("bace_pipe_no_priority", prioritise=False),
        "no_pathfinder": BacePipe("bace_pipe_no_pathfinder", find_paths=False),
        "no_cost_min": BacePipe("bace_pipe_no_cost_min", minimise_cost=False),
    }
)

BASELINES = ("lcf", "ldf", "cr_lcf", "cr_ldf")
# Each spanning baseline with the one it extends; the paper finds the former slower.
SPANNING_PAIRS = (("cr_lcf", "lcf"), ("cr_ldf", "ldf"))
PAPER, OURS = "bace_pipe", "spotline"
# Ours without moving what runs.
FIXED = "spotline_fixed"
METHOD_IDS = (*BASELINES, PAPER, OURS, FIXED)
COMPARED = (*BASELINES, PAPER, OURS)

BANDWIDTHS = (0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
GPUS = (0.5, 0.75, 1.0, 1.25)
LOADS = (8, 12, 16, 20, 24)
HEAVY_TRAFFIC = 64.0
TRAFFICS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0)

# Readings of what the paper leaves open, all of them defensible; see `fill_ins`.
MICROBATCHES = (64, 256)
GRID_TRAFFICS = (1.0, 8.0, HEAVY_TRAFFIC)
GAPS_S = (900.0, 0.0, 3600.0)
DEPTHS = ("memory", "full")
ORDERS = ("mixed", "largest_first")
LENGTHS = ("stated", "decade")

Figures = dict[str, Any]
Measured = dict[str, dict[str, float | int]]


@dataclass(frozen=True, slots=True)
class Contender:
    """A method, and what moves its running jobs, if anything does."""

    method: PlacementMethod
    replacing: Replacing | None = None


@dataclass(slots=True)
class RunTally:
    """What was checked on the way: runs, and events after which holdings were added up."""

    runs: int = 0
    events: int = 0
    passes: int = 0

    def run(self, setting: Setting, contender: Contender) -> MethodRun:
        """Simulate and count; a placement that does not fit raises."""
        course = simulate(setting, contender.method, replacing=contender.replacing)
        self.runs += 1
        self.events += course.events
        self.passes += course.passes
        return course

    def measure(self, setting: Setting, contenders: Mapping[str, Contender]) -> Measured:
        """Figures of several methods on one setting."""
        return {
            name: self.run(setting, contender).figures(setting.basis)
            for name, contender in contenders.items()
        }


def chosen(names: Sequence[str] = COMPARED) -> dict[str, Contender]:
    """Methods by name, in that order."""
    found = {}
    for name in names:
        method = METHODS[OURS if name == FIXED else name]
        found[name] = Contender(method, PayingMoves(method) if name == OURS else None)
    return found


def ablated() -> dict[str, Contender]:
    """The paper's method with one stage switched off, by what is missing."""
    return {name: Contender(method) for name, method in ABLATIONS.items()}


def change_percent(measured: float, against: float) -> float:
    """How much higher (lower: negative) a figure is than another, in percent of its amount."""
    return 100.0 * (measured - against) / abs(against) if against else 0.0


def changes(measured: Measured, name: str, against: str) -> dict[str, float]:
    """JCT and cost of one method against another."""
    return {
        "jct_change_percent": change_percent(
            measured[name]["mean_jct_s"], measured[against]["mean_jct_s"]
        ),
        "cost_change_percent": change_percent(
            measured[name]["total_cost_usd"], measured[against]["total_cost_usd"]
        ),
    }


def mean_of(runs: Sequence[Measured]) -> Measured:
    """Mean of every figure over several runs, per method."""
    return {
        name: {key: statistics.fmean(run[name][key] for run in runs) for key in runs[0][name]}
        for name in runs[0]
    }


def spread(runs: Sequence[Measured], names: Iterable[str], against: Sequence[str]) -> Figures:
    """Median and worst (highest) change of `names` against each of `against`, over many runs."""
    table: Figures = {}
    for name in names:
        table[name] = {}
        for other in against:
            pairs = [changes(run, name, other) for run in runs]
            row: dict[str, Any] = {}
            for key in ("jct_change_percent", "cost_change_percent"):
                values = [pair[key] for pair in pairs]
                row[f"median_{key}"] = statistics.median(values)
                row[f"worst_{key}"] = max(values)
                row[f"best_{key}"] = min(values)
                row[f"lower_in_{key.split('_')[0]}_percent_of_tables"] = (
                    100.0 * sum(value < 0 for value in values) / len(values)
                )
                row[key.replace("percent", "percents")] = [round(value, 3) for value in values]
            table[name][other] = row
    return table


def drawn_tables(
    tally: RunTally, count: int
) -> tuple[list[Measured], list[Measured], list[dict[str, float]]]:
    """All methods, all ablations, and the most lead there could be, on `count` drawn tables."""
    methods, ablations, leads = [], [], []
    for seed in range(count):
        setting = drawn_setting(seed)
        measured = tally.measure(setting, chosen(METHOD_IDS))
        methods.append(measured)
        without = tally.measure(setting, ablated())
        ablations.append({PAPER: measured[PAPER], **without})
        leads.append(most_lead_percent(setting, measured, BASELINES))
    return methods, ablations, leads


def ablations(tally: RunTally, setting: Setting) -> Figures:
    """What each stage's absence changes against the whole."""
    measured = tally.measure(setting, {**chosen((PAPER,)), **ablated()})
    return {
        name: {**changes(measured, name, PAPER), **_short(measured[name])} for name in ABLATIONS
    }


def sweep(
    tally: RunTally, values: Sequence[float], made: Callable[[Setting, float], Setting], tables: int
) -> Figures:
    """JCT and cost per method at each value: on our table, and the median over drawn ones."""
    found: Figures = {}
    drawn = [drawn_setting(seed, 24, least_largest_gpus=128) for seed in range(tables)]
    for value in values:
        ours = tally.measure(made(paper_setting(24), value), chosen())
        others = [tally.measure(made(setting, value), chosen()) for setting in drawn]
        found[f"{value:g}"] = {
            name: {
                **_short(ours[name]),
                "median_mean_jct_s": _median(one[name]["mean_jct_s"] for one in others),
                "median_total_cost_usd": _median(one[name]["total_cost_usd"] for one in others),
            }
            for name in ours
        }
    return found


def first_jobs(setting: Setting, count: int) -> Setting:
    """The setting with its first jobs only."""
    return replace(setting, jobs=setting.jobs[:count])


def with_heavy_traffic(setting: Setting, factor: float) -> Setting:
    """The setting with `factor` times the activations to send."""
    return replace(setting, jobs=with_traffic(setting.jobs, factor))


def sweeps(tally: RunTally, tables: int, *, thin: bool = False) -> Figures:
    """Bandwidth (also with heavy traffic), GPUs, load, traffic; eight jobs but for the load."""
    step = 3 if thin else 1
    return {
        "bandwidth": sweep(
            tally,
            BANDWIDTHS[::step],
            lambda setting, x: scaled(first_jobs(setting, 8), bandwidth=x),
            tables,
        ),
        # At the traffic of first principles the network hardly matters: here it does.
        "bandwidth_heavy": sweep(
            tally,
            BANDWIDTHS[::step],
            lambda setting, x: scaled(
                with_heavy_traffic(first_jobs(setting, 8), HEAVY_TRAFFIC), bandwidth=x
            ),
            tables,
        ),
        "gpus": sweep(
            tally, GPUS[::step], lambda setting, x: scaled(first_jobs(setting, 8), gpus=x), tables
        ),
        "jobs": sweep(tally, LOADS[::step], lambda setting, x: first_jobs(setting, int(x)), tables),
        "traffic": sweep(
            tally,
            TRAFFICS[::step],
            lambda setting, x: with_heavy_traffic(first_jobs(setting, 8), x),
            tables,
        ),
    }


# --- what the paper leaves open -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of what the paper leaves open.

    Attributes
    ----------
    microbatches
        Per iteration; iterations shrink as much, so that the work stays the same. What launching
        costs grows along.
    traffic
        Times the activations: what is sent against what is computed.
    gap_s
        Between arrivals.
    depth
        `memory`: a pipeline may be as short as memory allows. `full`: it has K* stages, or as many
        as the largest region has GPUs if that is less, and waits for them.
    order
        `mixed`, or `largest_first` by computing in total.
    lengths
        Iterations as stated, or times 0.3 to 3, a decade, in an order that mixes them.
    """

    microbatches: int
    traffic: float
    gap_s: float
    depth: str
    order: str
    lengths: str


# What `paper_setting` takes.
OUR_READING = Reading(
    microbatches=64, traffic=1.0, gap_s=900.0, depth="memory", order="mixed", lengths="stated"
)


def readings(*, thin: bool = False) -> list[Reading]:
    """The whole grid; of it the extremes only if thin."""
    step = 2 if thin else 1
    return [
        Reading(
            microbatches=microbatches,
            traffic=traffic,
            gap_s=gap_s,
            depth=depth,
            order=order,
            lengths=lengths,
        )
        for depth, order, lengths, microbatches, traffic, gap_s in product(
            DEPTHS,
            ORDERS[:: 2 if thin else 1],
            LENGTHS,
            MICROBATCHES[::step],
            GRID_TRAFFICS[::step],
            GAPS_S[::step],
        )
    ]


def read_anew(setting: Setting, reading: Reading) -> Setting:
    """A setting under another reading of its jobs."""
    largest = int(setting.graph.gpus.max())
    jobs = list(with_traffic(setting.jobs, reading.traffic))
    if reading.lengths == "decade":
        jobs = [
            replace(job, iterations=max(1, round(job.iterations * _decade(place, len(jobs)))))
            for place, job in enumerate(jobs)
        ]
    if reading.order == "largest_first":
        jobs.sort(key=lambda job: (-job.compute_s * job.iterations, job.job_id))
    changed = []
    for place, job in enumerate(jobs):
        factor = reading.microbatches / job.microbatches
        read = replace(
            job,
            arrival_s=place * reading.gap_s,
            microbatches=reading.microbatches,
            stage_overhead_s=job.stage_overhead_s * factor,
            iterations=max(1, round(job.iterations / factor)),
        )
        if reading.depth == "full":
            read = replace(read, min_gpus=max(job.min_gpus, min(read.best_gpus, largest)))
        changed.append(read)
    return replace(setting, jobs=tuple(changed))


def _decade(place: int, count: int) -> float:
    """A factor in 0.3..3, spread evenly on a logarithmic scale; neighbours are far apart."""
    return float(10.0 ** ((place * 5 % count + 0.5) / count - 0.5))


def fill_ins(tally: RunTally, tables: int, *, thin: bool = False) -> list[Figures]:
    """The comparisons under every reading: median change over our table and drawn ones."""
    settings = [paper_setting(), *(drawn_setting(seed) for seed in range(tables))]
    return [
        {
            "reading": asdict(reading),
            **_compared(tally, [read_anew(setting, reading) for setting in settings]),
        }
        for reading in readings(thin=thin)
    ]


def _compared(tally: RunTally, settings: Sequence[Setting]) -> Figures:
    methods = [tally.measure(setting, chosen()) for setting in settings]
    without = [tally.measure(setting, ablated()) for setting in settings]
    table: Figures = {}
    for name in (PAPER, OURS):
        for other in BASELINES:
            pairs = [changes(run, name, other) for run in methods]
            table[f"{name}/{other}"] = _medians(pairs)
    for name, other in SPANNING_PAIRS:
        table[f"{name}/{other}"] = _medians([changes(run, name, other) for run in methods])
    for name in ABLATIONS:
        pairs = [
            changes({**whole, **part}, name, PAPER)
            for whole, part in zip(methods, without, strict=True)
        ]
        table[name] = _medians(pairs)
    leads = [
        most_lead_percent(setting, run, BASELINES)
        for setting, run in zip(settings, methods, strict=True)
    ]
    table["most_lead_percent"] = {
        other: _median(lead[other] for lead in leads) for other in BASELINES
    }
    return table


def _medians(pairs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {key: _median(pair[key] for pair in pairs) for key in pairs[0]}


# --- small queues against the exact placement -----------------------------------------------------


def exact_gap(tally: RunTally, queues: int) -> Figures:
    """Queues of two to five jobs that arrive together, on drawn tables, run to their end.

    The exact method decides each moment's queue as a whole for the objective of `spotline`, so a
    gap in one of JCT and cost may be negative where the other is not. Nobody moves running jobs
    here: the gap is that of placing.
    """
    rows: dict[str, list[dict[str, float]]] = {PAPER: [], FIXED: []}
    placements = proven = 0
    for seed in range(queues):
        setting = drawn_setting(1000 + seed, 2 + seed % 4)
        setting = replace(setting, jobs=tuple(replace(job, arrival_s=0.0) for job in setting.jobs))
        exact = tally.run(setting, chosen(("exact",))["exact"])
        stays = [stay.placement.reason for one in exact.jobs.values() for stay in one.placements]
        placements += len(stays)
        proven += sum(reason.endswith("; proven") or reason == "proven" for reason in stays)
        measured = {
            "exact": exact.figures(setting.basis),
            **tally.measure(setting, chosen((PAPER, FIXED))),
        }
        for name, kept in rows.items():
            kept.append({"jobs": len(setting.jobs), **changes(measured, name, "exact")})
    table: Figures = {
        "queues": queues,
        "proven_percent": 100.0 * proven / placements if placements else 0.0,
        "methods": {},
    }
    for name, kept in rows.items():
        jcts = [row["jct_change_percent"] for row in kept]
        costs = [row["cost_change_percent"] for row in kept]
        table["methods"][name] = {
            "jct": statistics.fmean(jcts),
            "cost": statistics.fmean(costs),
            "worst_jct": max(jcts),
            "worst_cost": max(costs),
        }
    ours = table["methods"][FIXED]
    return {"jct": ours["jct"], "cost": ours["cost"], **table}


# --- what goes wrong ------------------------------------------------------------------------------

FAILURE_AT_S, FAILURE_S = 7_200.0, 21_600.0
DEGRADED_TO = 0.02


def failures(tally: RunTally, setting: Setting, names: Sequence[str], *, most: int) -> Figures:
    """Regions lost in turn, and links degraded in turn, two hours in, for six hours.

    Of many regions or links, `most` are taken, evenly spread over their names.
    """
    ids = setting.graph.region_ids
    pairs = [(here, there) for here in ids for there in ids if here < there]
    cases = {
        "region_loss": [
            Disruption(at_s=FAILURE_AT_S, until_s=FAILURE_AT_S + FAILURE_S, region_id=region_id)
            for region_id in ids
        ],
        "link_degraded": [
            Disruption(
                at_s=FAILURE_AT_S,
                until_s=FAILURE_AT_S + FAILURE_S,
                link=pair,
                factor=DEGRADED_TO,
            )
            for pair in pairs
        ],
    }
    table: Figures = {}
    for kind, disruptions in cases.items():
        table[kind] = {}
        for name in names:
            contender = chosen((name,))[name]
            setting = replace(setting, disruptions=())
            calm = tally.run(setting, contender).figures(setting.basis)
            courses = [
                tally.run(replace(setting, disruptions=(one,)), contender)
                for one in disruptions[:: math.ceil(len(disruptions) / most)]
            ]
            table[kind][name] = _after_failures(setting, calm, courses)
    return table


def _after_failures(
    setting: Setting, calm: Mapping[str, float | int], courses: Sequence[MethodRun]
) -> Figures:
    rows = [course.figures(setting.basis) for course in courses]
    struck = [len(course.struck[0]) for course in courses if course.struck]
    untouched = [len(course.untouched[0]) for course in courses if course.untouched]
    return {
        "runs": len(courses),
        "struck": sum(struck),
        "untouched": sum(untouched),
        "finished_jobs": sum(
            math.isfinite(one.finish_s) for course in courses for one in course.jobs.values()
        ),
        "jobs": sum(len(course.jobs) for course in courses),
        "lost_iterations": sum(int(row["lost_iterations"]) for row in rows),
        "jct_change_percent": statistics.fmean(
            change_percent(row["mean_jct_s"], calm["mean_jct_s"]) for row in rows
        ),
        "worst_jct_change_percent": max(
            change_percent(row["mean_jct_s"], calm["mean_jct_s"]) for row in rows
        ),
        "cost_change_percent": statistics.fmean(
            change_percent(row["total_cost_usd"], calm["total_cost_usd"]) for row in rows
        ),
    }


def _short(figures: Mapping[str, float | int]) -> dict[str, float | int]:
    return {key: figures[key] for key in ("mean_jct_s", "total_cost_usd")}


def _median(values: Iterable[float | int]) -> float:
    return float(statistics.median(values))
