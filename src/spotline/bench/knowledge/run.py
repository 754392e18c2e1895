"""All figures of `spotline bench knowledge`: predictions, the cluster experiment, Sia's rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.eventlog.manifest import environment
from spotline.adapters.knowledge.reader import read_file
from spotline.bench.drawing import without_nan
from spotline.bench.knowledge.cluster import KNOWLEDGE_LEVELS, ClusterRun, Workload
from spotline.bench.knowledge.evaluation import (
    LEARNING_CURVE,
    LEAVE_ONE_MODEL_OUT,
    RANDOM_SPLIT,
    evaluate_sources,
)
from spotline.bench.knowledge.fifo import run_fifo
from spotline.bench.knowledge.generated import generate_runs
from spotline.bench.knowledge.latency import measure_complete
from spotline.bench.knowledge.sia_rounds import measure_round, run_sia
from spotline.bench.knowledge.throughput import interval_coverage, throughput_section
from spotline.bench.knowledge.validity import evaluate_validity
from spotline.bench.knowledge.workloads import (
    FINE_TUNING_LOADS,
    SIA_WORKLOADS,
    fine_tuning_workload,
    sia_workload,
    training_runs,
)
from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.configuration.registry import DEFAULT_SOURCE, make_source

HEADLINE = "fine_tuning"
FEW_SAMPLES = 600
SCHEDULERS: Mapping[str, Callable[[Workload, str], ClusterRun]] = {
    "fifo": run_fifo,
    "sia": run_sia,
}
_MEASUREMENTS = "llm-finetune-perf"
_TRACES = "dl-cluster-traces"
# Of draws that no test of this package and no choice of a constant has seen.
_LEARNING_SEED, _VALIDITY_SEED = 7, 8
_WORKLOAD_SEEDS = (101, 102, 103)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeExtent:
    """How much is run.

    `trace_jobs` limits every trace of Sia to its first jobs, 0: all; `files` says which measured
    runs are read.
    """

    samples: int
    validity_tests: int
    repeats: int
    curve: tuple[int, ...]
    generated_curve: tuple[int, ...]
    sources: tuple[str, ...]
    jobs: int
    seeds: tuple[int, ...]
    workloads: tuple[str, ...]
    traces: tuple[str, ...]
    trace_jobs: int
    rounds: int
    complete_calls: int
    complete_runs: int
    files: str = "*.csv"
    quick: bool = False


FULL = KnowledgeExtent(
    samples=5000,
    validity_tests=2500,
    repeats=2,
    curve=LEARNING_CURVE,
    generated_curve=(100, 600),
    sources=(),
    jobs=160,
    seeds=_WORKLOAD_SEEDS[:2],
    workloads=tuple(FINE_TUNING_LOADS),
    traces=SIA_WORKLOADS,
    trace_jobs=160,
    rounds=60,
    complete_calls=500,
    complete_runs=2000,
)
QUICK = KnowledgeExtent(
    samples=150,
    validity_tests=200,
    repeats=1,
    curve=(),
    generated_curve=(),
    sources=("analytic",),
    jobs=6,
    seeds=_WORKLOAD_SEEDS[:1],
    workloads=(HEADLINE,),
    traces=("philly",),
    trace_jobs=5,
    rounds=2,
    complete_calls=5,
    complete_runs=60,
    files="coastline_run_database.csv",
    quick=True,
)


def run_knowledge(
    data: Path, *, extent: KnowledgeExtent = FULL, command: str = "", tell: Tell = lambda line: None
) -> dict[str, Any]:
    """Measure everything.

    Parameters
    ----------
    data
        Folder with `llm-finetune-perf` and `dl-cluster-traces`.
    tell
        Is told what is being done.

    Returns
    -------
    dict
        Plain numbers, as `--json` writes them; NaN is None.

    Raises
    ------
    ValueError
        A folder of the data is absent.
    """
    began = time.perf_counter()
    for name in (_MEASUREMENTS, _TRACES):
        if not (data / name).is_dir():
            raise ValueError(f"--data must hold the folder {name}, {data} does not")
    figures: dict[str, Any] = {"default_source": DEFAULT_SOURCE}
    # Before anything large is in memory.
    tell("completing drafts over gRPC ...")
    figures["complete_ms"] = measure_complete(
        calls=extent.complete_calls, runs=extent.complete_runs
    )
    tell("Sia's rounds ...")
    figures["sia_round"] = measure_round(rounds=extent.rounds)
    figures |= _predictions(data, extent, tell)
    tell(f"learning from {extent.samples} runs ...")
    many = _learned(training_runs(extent.samples, _LEARNING_SEED))
    few = many
    if extent.samples > FEW_SAMPLES:
        few = _learned(training_runs(FEW_SAMPLES, _LEARNING_SEED))
    figures["cluster"], figures["cluster_notes"] = _cluster(data, extent, many, few, tell)
    figures["targets"] = targets(figures)
    figures["meta"] = {
        "command": command,
        "environment": asdict(environment()),
        "wall_s": time.perf_counter() - began,
        "samples": extent.samples,
        "seeds": list(extent.seeds),
        "quick": extent.quick,
    }
    plain: dict[str, Any] = without_nan(figures)
    return plain


# --- predictions ----------------------------------------------------------------------------------


def real_runs(data: Path, files: str = "*.csv") -> tuple[MeasuredRun, ...]:
    """Measured runs of the data, every file a stack of its own."""
    runs: list[MeasuredRun] = []
    for path in sorted((data / _MEASUREMENTS).glob(files)):
        runs += read_file(path).runs
    return tuple(runs)


def _predictions(data: Path, extent: KnowledgeExtent, tell: Tell) -> dict[str, Any]:
    tell("predicting real runs ...")
    real = evaluate_sources(
        real_runs(data, extent.files),
        sources=_with_default(extent.sources),
        repeats=extent.repeats,
        curves={DEFAULT_SOURCE: extent.curve},
        progress=tell,
    )
    throughput = throughput_section(real)
    coverage: dict[str, float] = interval_coverage(real)
    generated = generate_runs(extent.samples, _LEARNING_SEED)
    if extent.generated_curve:
        tell("predicting generated runs ...")
        made = evaluate_sources(
            generated,
            sources=(DEFAULT_SOURCE,),
            splits=(RANDOM_SPLIT,),
            repeats=1,
            curves={DEFAULT_SOURCE: extent.generated_curve},
            progress=tell,
        )
        throughput["generated"] = throughput_section(made)
        coverage["generated"] = interval_coverage(made)[RANDOM_SPLIT]
    tell("predicting whether runs succeed ...")
    unseen = generate_runs(extent.validity_tests, _VALIDITY_SEED)
    validity = evaluate_validity(generated, unseen).as_json()
    validity["real"] = real.validity.as_json() if real.validity else {}
    return {
        "throughput": throughput,
        "validity": validity,
        "interval_coverage": coverage[RANDOM_SPLIT],
        "interval_coverage_by_split": coverage,
    }


def _with_default(sources: Sequence[str]) -> tuple[str, ...]:
    return (DEFAULT_SOURCE, *sources) if sources else ()


def _learned(runs: Sequence[MeasuredRun]) -> KnowledgeSource:
    source = make_source(DEFAULT_SOURCE)
    source.learn(runs)
    return source


# --- the cluster experiment -----------------------------------------------------------------------


def _cluster(
    data: Path, extent: KnowledgeExtent, many: KnowledgeSource, few: KnowledgeSource, tell: Tell
) -> tuple[dict[str, Any], dict[str, str]]:
    found: dict[str, Any] = {}
    notes: dict[str, str] = {}
    for name in extent.workloads:
        drawn = [
            fine_tuning_workload(
                name, load=FINE_TUNING_LOADS[name], jobs=extent.jobs, seed=seed, source=many
            )
            for seed in extent.seeds
        ]
        notes[name] = f"{drawn[0].notes}; mean of {len(drawn)} draws"
        found[name] = _schedulers(name, drawn, KNOWLEDGE_LEVELS, tell)
    scarce = [
        fine_tuning_workload(
            HEADLINE, load=FINE_TUNING_LOADS[HEADLINE], jobs=extent.jobs, seed=seed, source=few
        )
        for seed in extent.seeds
    ]
    for scheduler, levels in _schedulers(HEADLINE, scarce, ("predicted",), tell).items():
        found[HEADLINE][scheduler][f"predicted_{FEW_SAMPLES}"] = levels["predicted"]
    for name in extent.traces:
        trace = sia_workload(data, name, max_jobs=extent.trace_jobs)
        notes[name] = trace.notes
        found[name] = _schedulers(name, [trace], KNOWLEDGE_LEVELS, tell)
    return found, notes


def _schedulers(
    name: str, drawn: Sequence[Workload], levels: Sequence[str], tell: Tell
) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for scheduler, run in SCHEDULERS.items():
        found[scheduler] = {}
        for level in levels:
            figures = [run(one, level).figures(one) for one in drawn]
            mean = {key: float(np.mean([one[key] for one in figures])) for key in figures[0]}
            found[scheduler][level] = mean
            tell(f"{name} {scheduler} {level}: mean completion {mean['mean_jct_s']:,.0f} s")
    return found


# --- targets --------------------------------------------------------------------------------------


def targets(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was asked for, what was measured, and whether it is met."""
    default = figures["default_source"]
    throughput = figures["throughput"]
    rows = [
        _at_most(
            f"median error of `{default}`, random split, real runs, %",
            9.4,
            throughput["random_split"][default]["mdape_percent"],
        ),
        _at_most(
            f"median error of `{default}`, {LEAVE_ONE_MODEL_OUT.replace('_', ' ')}, real runs, %",
            15.0,
            throughput["leave_one_model_out"][default]["mdape_percent"],
        ),
        _at_most(
            "wrong on whether a run succeeds, generated, %",
            4.2,
            figures["validity"]["error_percent"],
        ),
    ]
    for scheduler, levels in figures["cluster"][HEADLINE].items():
        none, predicted, true = (levels[level]["mean_jct_s"] for level in KNOWLEDGE_LEVELS)
        rows.append(
            _at_least(
                f"{scheduler}: completion time lower with predicted than without knowledge, %",
                70.0,
                100 * (1 - predicted / none),
            )
        )
        rows.append(
            _at_most(
                f"{scheduler}: completion time above true knowledge, %",
                10.0,
                100 * (predicted / true - 1),
            )
        )
    rows.append(
        _at_most("completing a draft over gRPC, p99, ms", 20.0, figures["complete_ms"]["p99"])
    )
    rounds = figures["sia_round"]
    rows.append(_at_most("a round of 500 jobs on 512 GPUs, longest, ms", 1000.0, rounds["max_ms"]))
    return rows


def _at_most(what: str, limit: float, measured: float) -> dict[str, Any]:
    return {"what": what, "target": f"<= {limit:g}", "measured": measured, "met": measured <= limit}


def _at_least(what: str, limit: float, measured: float) -> dict[str, Any]:
    return {"what": what, "target": f">= {limit:g}", "measured": measured, "met": measured >= limit}
