"""Small graphs and jobs to place, drawn or built by hand."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from spotline.domain.placement.cost import usd_per_gpu_hour
from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis, PlacementMoment, Residual
from spotline.domain.placement.pipeline import PipelineJob


def graph_of(gpus, *, price=None, width=1e9, links=None, egress=0.0, interruptions=None):
    """Regions a, b, c, ... with `gpus`, rented at `price`, joined by all or the given links."""
    names = [chr(ord("a") + i) for i in range(len(gpus))]
    price = price or [1.0] * len(gpus)
    interruptions = interruptions or [0.0] * len(gpus)
    regions = [
        Region(
            region_id=name,
            gpus=count,
            energy_usd_per_kwh=0.2,
            rent_usd_per_gpu_hour=usd,
            interruptions_per_hour=rate,
        )
        for name, count, usd, rate in zip(names, gpus, price, interruptions, strict=True)
    ]
    if links is None:
        links = {(here, there): width for here in names for there in names if here < there}
    both = [(pair, bandwidth) for pair, bandwidth in links.items()]
    both += [
        (pair[::-1], bandwidth) for pair, bandwidth in links.items() if pair[::-1] not in links
    ]
    return RegionGraph(
        regions,
        [
            Link(source=here, destination=there, bytes_per_s=bandwidth, egress_usd_per_gb=egress)
            for (here, there), bandwidth in both
        ],
    )


def job_of(job_id="job", **changes):
    """A job of 10 s per micro-batch; 8 stages send 8e8 bytes/s over each boundary."""
    fields = {
        "arrival_s": 0.0,
        "iterations": 100,
        "microbatches": 8,
        "compute_s": 10.0,
        "activation_bytes": 1e9,
        "stage_overhead_s": 0.1,
        "min_gpus": 1,
        "max_gpus": 64,
    }
    return PipelineJob(job_id=job_id, **{**fields, **changes})


def moment_of(graph, *, now_s=0.0, held=(), releases=(), price=None):
    return PlacementMoment(
        now_s=now_s,
        usd_per_gpu_hour=usd_per_gpu_hour(graph, CostBasis.RENT)
        if price is None
        else np.array(price, dtype=np.float64),
        residual=Residual.of(graph, held),
        releases=tuple(releases),
    )


@st.composite
def graphs(draw, *, most_regions=6, most_gpus=12):
    count = draw(st.integers(1, most_regions))
    gpus = draw(st.lists(st.integers(0, most_gpus), min_size=count, max_size=count))
    price = draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.7, 3.0]), min_size=count, max_size=count)
    )
    names = [chr(ord("a") + i) for i in range(count)]
    links = {
        (here, there): draw(st.sampled_from([0.0, 0.9, 1e8, 4.5e8, 1e9 / 3, 2e9, 1e10]))
        for here in names
        for there in names
        if here != there
    }
    rates = draw(st.lists(st.sampled_from([0.0, 0.0, 0.1]), min_size=count, max_size=count))
    return graph_of(
        gpus,
        price=price,
        links=links,
        egress=draw(st.sampled_from([0.0, 0.02, 0.1])),
        interruptions=rates,
    )


@st.composite
def queues(draw, *, most_jobs=7, deadlines=False):
    jobs = []
    for i in range(draw(st.integers(0, most_jobs))):
        least = draw(st.integers(1, 6))
        jobs.append(
            job_of(
                f"job-{i}",
                arrival_s=float(draw(st.integers(0, 3))),
                iterations=draw(st.integers(1, 500)),
                microbatches=draw(st.integers(1, 16)),
                compute_s=draw(st.sampled_from([0.7, 3.0, 10.0, 40.0])),
                activation_bytes=draw(st.sampled_from([0.0, 1e7, 1e8, 7.77e8, 3e9])),
                stage_overhead_s=draw(st.sampled_from([0.0, 0.05, 0.3])),
                min_gpus=least,
                max_gpus=least + draw(st.integers(0, 20)),
                checkpoint_gb=draw(st.sampled_from([0.0, 10.0])),
                checkpoint_interval_iterations=draw(st.sampled_from([1, 10])),
                restart_s=draw(st.sampled_from([0.0, 60.0])),
                deadline_s=draw(st.sampled_from([math.inf, 50.0, 500.0, 5000.0]))
                if deadlines
                else math.inf,
            )
        )
    return jobs
