"""How long one scheduling pass takes, by jobs in the queue and regions."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from spotline.bench.placement.jobs import A6000, drawn_jobs
from spotline.bench.placement.settings_paper import (
    GPU_COUNTS,
    LEAST_GBIT_PER_S,
    LEAST_USD_PER_KWH,
    MOST_GBIT_PER_S,
    MOST_USD_PER_KWH,
)
from spotline.domain.placement.cost import usd_per_gpu_hour
from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.interface import (
    CostBasis,
    PlacementMethod,
    PlacementMoment,
    Release,
    Residual,
)
from spotline.domain.placement.pipeline import Placement

FULL_JOBS, FULL_REGIONS = 1000, 70
JOB_COUNTS = (125, 250, 500, 1000, 2000)
REGION_COUNTS = (9, 18, 35, 70, 140)

_SEED = 20_260_507
_REPEATS = 2
_BYTES_PER_GBIT = 1e9 / 8
# No model fits into one region then, nor over links that no stage could wait for.
_STARVED_GPUS = 6
_STARVED_BYTES_PER_S = 1e5
_MOST_SLACK = 3.0


def pass_time(
    methods: dict[str, PlacementMethod], *, jobs: Sequence[int], regions: Sequence[int]
) -> dict[str, Any]:
    """Seconds of a pass in three states of the graph; see `timed`.

    Growth is the exponent of a power law through all counts: 1 is linear.
    """
    table: dict[str, Any] = {}
    for name, method in methods.items():
        whole = timed(method, FULL_JOBS, FULL_REGIONS)
        by_jobs = {
            count: whole if count == FULL_JOBS else timed(method, count, FULL_REGIONS)
            for count in jobs
        }
        by_regions = {
            count: whole if count == FULL_REGIONS else timed(method, FULL_JOBS, count)
            for count in regions
        }
        table[name] = {
            "seconds": max(whole.values()),
            "empty_s": whole["empty_s"],
            "busy_s": whole["busy_s"],
            "starved_s": whole["starved_s"],
            "due_s": whole["due_s"],
            "by_jobs": {str(count): row for count, row in by_jobs.items()},
            "by_regions": {str(count): row for count, row in by_regions.items()},
            "growth_with_jobs": _growth(by_jobs),
            "growth_with_regions": _growth(by_regions),
        }
    return table


def timed(method: PlacementMethod, jobs: int, regions: int) -> dict[str, float]:
    """The shorter of two passes in each of four states.

    `empty`: nothing runs. `busy`: half of what fits runs, with its ends known. `starved`: a few
    GPUs are left in each region, together enough, behind links that are too narrow, so that every
    job of the queue is searched a path for, and none is found. `due`: as busy, and every job is due
    at once to three times its shortest time from now, so that most must be refused.
    """
    rng = np.random.default_rng([_SEED, regions])
    graph = drawn_graph(rng, regions)
    # One queue for all counts, so that a longer one only has more of the same.
    queue = drawn_jobs(np.random.default_rng(_SEED), 2 * max(JOB_COUNTS), interarrival_s=60.0)
    waiting, running = queue[:jobs], queue[max(JOB_COUNTS) :]
    price = usd_per_gpu_hour(graph, CostBasis.ENERGY)
    now_s = queue[-1].arrival_s

    def moment(residual: Residual, releases: tuple[Release, ...] = ()) -> PlacementMoment:
        return PlacementMoment(
            now_s=now_s, usd_per_gpu_hour=price, residual=residual, releases=releases
        )

    empty = moment(Residual.of(graph))
    held = [
        answer for answer in method.place(running[:jobs], empty) if isinstance(answer, Placement)
    ]
    held = held[: max(1, len(held) // 2)]
    releases = tuple(
        Release(at_s=now_s + 60.0 * (place + 1), placement=placement)
        for place, placement in enumerate(held)
    )
    slacks = np.random.default_rng(_SEED + 1).uniform(1.0, _MOST_SLACK, len(waiting))
    due = [
        replace(job, deadline_s=now_s + slack * job.iterations * job.iteration_s(job.best_gpus))
        for job, slack in zip(waiting, slacks.tolist(), strict=True)
    ]
    starved = Residual.of(graph)
    starved.gpus[:] = np.minimum(starved.gpus, _STARVED_GPUS)
    starved.bytes_per_s[:] = np.minimum(starved.bytes_per_s, _STARVED_BYTES_PER_S)
    busy = moment(Residual.of(graph, held), releases)
    return {
        "empty_s": _shortest(method, waiting, empty),
        "busy_s": _shortest(method, waiting, busy),
        "due_s": _shortest(method, due, busy),
        "starved_s": _shortest(method, waiting, moment(starved)),
    }


def drawn_graph(rng: np.random.Generator, regions: int) -> RegionGraph:
    """Regions and links drawn from the ranges of the paper."""
    made = [
        Region(
            region_id=f"region-{place:03d}",
            gpus=int(rng.choice(GPU_COUNTS)),
            energy_usd_per_kwh=float(rng.uniform(LEAST_USD_PER_KWH, MOST_USD_PER_KWH)),
            gpu_kw=A6000.kw,
        )
        for place in range(regions)
    ]
    gbit = {
        region.region_id: float(rng.uniform(LEAST_GBIT_PER_S, MOST_GBIT_PER_S)) for region in made
    }
    ids = [region.region_id for region in made]
    return RegionGraph(
        made,
        [
            Link(
                source=here,
                destination=there,
                bytes_per_s=(gbit[here] + gbit[there]) / 2 * _BYTES_PER_GBIT,
            )
            for here, there in permutations(ids, 2)
        ],
    )


def _shortest(method: PlacementMethod, queue: Sequence[Any], moment: PlacementMoment) -> float:
    seconds = []
    for _ in range(_REPEATS):
        start_s = time.perf_counter()
        method.place(queue, moment)
        seconds.append(time.perf_counter() - start_s)
    return min(seconds)


def _growth(rows: dict[int, dict[str, float]]) -> float | None:
    if len(rows) < 2:
        return None
    counts = np.log([float(count) for count in rows])
    seconds = np.log([max(row.values()) for row in rows.values()])
    slope = float(np.polyfit(counts, seconds, 1)[0])
    return slope if math.isfinite(slope) else None
