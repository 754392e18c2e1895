"""The paper's setting with our fill-ins, and tables drawn from the ranges it publishes.

Published (arXiv:2605.25375): six regions; 16, 32, 64 or 128 A6000 in each; 25-100 Gbit/s per
region, a link having the mean of its two ends; electricity at 0.156-0.295 USD per kWh; eight jobs
of named models. Values per region are not. `PAPER_TABLE` is our own: electricity ranks as business
tariffs did in 2023-24 (New York cheapest, Germany and Ireland dearest), stretched to the published
range; bandwidth falls with the distance to the large exchanges; GPUs are given so that the largest
site is not the cheapest. It was written down before anything had been run and stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from spotline.bench.placement.jobs import A6000, drawn_jobs, paper_jobs
from spotline.bench.placement.setting import PriceCurve, Setting
from spotline.domain.placement.cost import usd_per_gpu_hour
from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.pipeline import PipelineJob

GPU_COUNTS = (16, 32, 64, 128)
LEAST_GBIT_PER_S, MOST_GBIT_PER_S = 25.0, 100.0
LEAST_USD_PER_KWH, MOST_USD_PER_KWH = 0.156, 0.295

_BYTES_PER_GBIT = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A row of the table."""

    region_id: str
    gpus: int
    gbit_per_s: float
    usd_per_kwh: float


PAPER_TABLE = (
    Site(region_id="frankfurt", gpus=64, gbit_per_s=80.0, usd_per_kwh=0.268),
    Site(region_id="ireland", gpus=128, gbit_per_s=100.0, usd_per_kwh=0.295),
    Site(region_id="new-york", gpus=64, gbit_per_s=100.0, usd_per_kwh=0.156),
    Site(region_id="singapore", gpus=32, gbit_per_s=40.0, usd_per_kwh=0.228),
    Site(region_id="sydney", gpus=16, gbit_per_s=25.0, usd_per_kwh=0.243),
    Site(region_id="tokyo", gpus=32, gbit_per_s=50.0, usd_per_kwh=0.196),
)

# Longitude and latitude in degrees, for the picture.
PLACES = {
    "frankfurt": (8.7, 50.1),
    "ireland": (-6.3, 53.3),
    "new-york": (-74.0, 40.7),
    "singapore": (103.8, 1.35),
    "sydney": (151.2, -33.9),
    "tokyo": (139.7, 35.7),
}


def paper_setting(jobs: int = 8) -> Setting:
    """Our table with our jobs."""
    return setting_of(PAPER_TABLE, "paper", paper_jobs(jobs))


def drawn_setting(seed: int, jobs: int = 8, *, least_largest_gpus: int = 64) -> Setting:
    """A drawn table with drawn jobs.

    GPUs, bandwidth and prices are uniform over what is published. Tables in which no region has
    `least_largest_gpus` are drawn again: the largest model (43 GPUs at least) would never run in
    one region, and half of the baselines would never end.
    """
    rng = np.random.default_rng([20_260_505, seed])
    while True:
        gpus = rng.choice(GPU_COUNTS, len(PAPER_TABLE))
        if gpus.max() >= least_largest_gpus:
            break
    gbit = rng.uniform(LEAST_GBIT_PER_S, MOST_GBIT_PER_S, len(PAPER_TABLE))
    usd = rng.uniform(LEAST_USD_PER_KWH, MOST_USD_PER_KWH, len(PAPER_TABLE))
    table = tuple(
        replace(site, gpus=int(gpus[i]), gbit_per_s=float(gbit[i]), usd_per_kwh=float(usd[i]))
        for i, site in enumerate(PAPER_TABLE)
    )
    return setting_of(table, f"drawn-{seed}", drawn_jobs(rng, jobs))


def setting_of(table: Sequence[Site], name: str, jobs: Sequence[PipelineJob]) -> Setting:
    """A setting of owned GPUs that cost what their power costs."""
    regions = [
        Region(
            region_id=site.region_id,
            gpus=site.gpus,
            energy_usd_per_kwh=site.usd_per_kwh,
            gpu_kw=A6000.kw,
            gpu_model=A6000.name,
        )
        for site in table
    ]
    links = [
        Link(
            source=here.region_id,
            destination=there.region_id,
            bytes_per_s=(here.gbit_per_s + there.gbit_per_s) / 2 * _BYTES_PER_GBIT,
        )
        for here, there in permutations(table, 2)
    ]
    graph = RegionGraph(regions, links)
    return Setting(
        name=name,
        graph=graph,
        jobs=tuple(jobs),
        basis=CostBasis.ENERGY,
        prices=PriceCurve.constant(usd_per_gpu_hour(graph, CostBasis.ENERGY)),
    )
