"""Profiles from first principles, our table and drawn ones, and the real settings."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spotline.bench.placement.jobs import (
    A6000,
    MODELS,
    drawn_jobs,
    paper_jobs,
    profile,
    with_traffic,
)
from spotline.bench.placement.setting import scaled
from spotline.bench.placement.settings_paper import (
    GPU_COUNTS,
    PAPER_TABLE,
    PLACES,
    drawn_setting,
    paper_setting,
)
from spotline.bench.placement.settings_real import (
    A100_REGIONS,
    EUROPE,
    ends_per_hour,
    machines_between,
    read_tables,
    real_setting,
    starts_ns,
)
from spotline.bench.placement.sweeps import OUR_READING, Reading, read_anew, readings
from spotline.domain.market.run_law import RunLaw
from spotline.domain.placement.graph import Region
from spotline.domain.placement.interface import CostBasis

DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))
HAS_DATA = (DATA / "network-skyplane").is_dir()


def test_profile_follows_from_the_model_and_the_gpu():
    model = MODELS["Llama-3.1-70B"]

    job = profile(model, A6000, job_id="one", arrival_s=0.0, iterations=5)

    assert job.compute_s == pytest.approx(6 * 70.6e9 * 4096 / (0.4 * 154.8e12))
    assert job.activation_bytes == 4096 * 8192 * 2
    assert job.min_gpus == 30
    assert job.max_gpus == 80
    # What a stage asks of a link does not depend on the micro-batch.
    expected = 8192 * 80 * 0.4 * 154.8e12 / (3 * 70.6e9)
    assert job.demand_bytes_per_s(80) == pytest.approx(expected)


def test_eight_jobs_name_every_model_and_more_repeat_them():
    assert {job.model_name for job in paper_jobs()} == set(MODELS)
    more = paper_jobs(24)
    assert [job.model_name for job in more[:8]] == [job.model_name for job in more[8:16]]
    assert len({job.job_id for job in more}) == 24


def test_drawn_jobs_name_every_model_once_in_six():
    jobs = drawn_jobs(np.random.default_rng(1), 12)

    assert sorted(job.model_name for job in jobs[:6]) == sorted(MODELS)
    assert all(300 <= job.iterations <= 800 for job in jobs)
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)


def test_traffic_changes_what_is_sent_only():
    (job,) = with_traffic(paper_jobs(1), 3.0)

    assert job == replace(paper_jobs(1)[0], activation_bytes=job.activation_bytes)
    assert job.activation_bytes == 3 * paper_jobs(1)[0].activation_bytes


def test_our_table_lies_within_what_is_published():
    assert {site.region_id for site in PAPER_TABLE} == set(PLACES)
    for site in PAPER_TABLE:
        assert site.gpus in GPU_COUNTS
        assert 25 <= site.gbit_per_s <= 100
        assert 0.156 <= site.usd_per_kwh <= 0.295


def test_link_has_the_mean_of_its_ends():
    graph = paper_setting().graph
    here, there = graph.index["tokyo"], graph.index["sydney"]

    assert graph.bytes_per_s[here, there] == (50 + 25) / 2 * 1e9 / 8
    assert graph.bytes_per_s[here, there] == graph.bytes_per_s[there, here]


def test_gpu_hour_costs_its_power():
    setting = paper_setting()

    price = setting.prices.at(0.0)[setting.graph.index["new-york"]]

    assert price == pytest.approx(0.3 * 0.156)


def test_drawn_tables_differ_repeat_and_hold_every_model():
    first, second = drawn_setting(1), drawn_setting(2)

    assert first.graph.gpus.max() >= 64
    assert first.jobs == drawn_setting(1).jobs
    assert first.jobs != second.jobs
    assert drawn_setting(3, least_largest_gpus=128).graph.gpus.max() == 128


def test_scaling_leaves_jobs_and_prices_alone():
    setting = paper_setting()

    smaller = scaled(setting, bandwidth=0.5, gpus=0.5)

    assert smaller.graph.gpus.tolist() == [gpus // 2 for gpus in setting.graph.gpus.tolist()]
    assert (smaller.graph.bytes_per_s == setting.graph.bytes_per_s / 2).all()
    assert smaller.jobs == setting.jobs


def test_our_reading_is_one_of_the_grid_and_changes_nothing():
    setting = paper_setting()

    assert OUR_READING in readings()
    assert read_anew(setting, OUR_READING).jobs == setting.jobs


def test_other_reading_keeps_the_work():
    reading = Reading(
        microbatches=256,
        traffic=8.0,
        gap_s=0.0,
        depth="full",
        order="largest_first",
        lengths="stated",
    )

    anew = read_anew(paper_setting(), reading)

    assert anew.jobs[0].model_name == "FLM-101B"
    before = {job.job_id: job for job in paper_setting().jobs}
    for job in anew.jobs:
        work = before[job.job_id].microbatches * before[job.job_id].iterations
        assert job.microbatches * job.iterations == pytest.approx(work, rel=0.02)
        assert job.min_gpus == min(job.best_gpus, 128)


@pytest.mark.parametrize(("here", "there", "machines"), [(16, 64, 2), (64, 64, 8), (128, 512, 8)])
def test_machines_of_the_smaller_end_forward(here, there, machines):
    ends = [
        Region(region_id=name, gpus=gpus, energy_usd_per_kwh=0.1)
        for name, gpus in (("a", here), ("b", there))
    ]

    assert machines_between(*ends) == machines


@pytest.mark.skipif(not HAS_DATA, reason="no recorded data here")
def test_rent_setting_has_measured_links_and_interruptions():
    tables = read_tables(DATA, CostBasis.RENT)
    start = starts_ns(tables, 3)[1]

    calm = real_setting(tables, start)
    setting = real_setting(tables, start, draw=1)

    assert setting.graph.region_ids == tuple(sorted(A100_REGIONS))
    assert (setting.graph.bytes_per_s[~np.eye(8, dtype=bool)] > 0).all()
    assert 0.5 < setting.prices.at(0.0).min() <= setting.prices.at(0.0).max() < 5
    assert (calm.jobs, calm.disruptions) == (setting.jobs, ())
    assert all(region.interruptions_per_hour == 0 for region in calm.graph.regions)
    assert all(region.interruptions_per_hour > 0 for region in setting.graph.regions)
    assert setting.disruptions == real_setting(tables, start, draw=1).disruptions
    assert setting.disruptions != real_setting(tables, start, draw=2).disruptions
    moved_on = real_setting(tables, start, draw=1, shift=1)
    rates = [region.interruptions_per_hour for region in setting.graph.regions]
    assert rates[1:] == [r.interruptions_per_hour for r in moved_on.graph.regions][:-1]


def test_rates_are_those_of_the_laws_runs():
    # Up runs end with one in three slots of 600 s, down runs with one in six.
    law = RunLaw(age_starts=(1, 4), ends=np.array([[1 / 6, 1 / 6], [1 / 3, 1 / 3]]))

    assert ends_per_hour(law, up=True) == pytest.approx(2.0)
    assert ends_per_hour(law, up=False) == pytest.approx(1.0)


@pytest.mark.skipif(not HAS_DATA, reason="no recorded data here")
def test_energy_setting_changes_prices_by_the_hour():
    tables = read_tables(DATA, CostBasis.ENERGY)

    setting = real_setting(tables, starts_ns(tables, 2)[0])

    assert setting.graph.region_ids == tuple(sorted(EUROPE))
    assert len(setting.prices.times_s) > 100
    zones = {}
    for name, price in zip(setting.graph.region_ids, setting.prices.at(7200.0), strict=True):
        zones.setdefault(EUROPE[name].zone, set()).add(float(price))
    assert all(len(prices) == 1 for prices in zones.values())
    assert setting.disruptions == ()
