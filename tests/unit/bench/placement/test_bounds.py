"""Bounds that no method beats."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.placement.bounds import least_mean_jct_s, most_lead_percent, over_tables
from spotline.bench.placement.moves import PayingMoves
from spotline.bench.placement.setting import scaled
from spotline.bench.placement.settings_paper import drawn_setting, paper_setting
from spotline.bench.placement.simulate import simulate
from spotline.domain.placement.methods.registry import METHODS
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, job_of


def test_a_job_alone_cannot_be_done_sooner_than_at_its_best():
    job = job_of()
    setting = replace(paper_setting(), graph=graph_of([64]), jobs=(job,))

    assert least_mean_jct_s(setting) == pytest.approx(100 * job.iteration_s(job.best_gpus))


def test_jobs_that_share_one_gpu_are_done_one_after_the_other_shortest_first():
    # 80 s of GPU time each per iteration and 0.1 s of overhead: 8010 s and 801 s alone.
    long = job_of("long", max_gpus=1, iterations=100)
    short = job_of("short", max_gpus=1, iterations=10, arrival_s=10.0)
    setting = replace(paper_setting(), graph=graph_of([1]), jobs=(long, short))

    # The short one goes first as soon as it is there, and the long one waits for it.
    assert least_mean_jct_s(setting) == pytest.approx((801.0 + 8010.0 + 801.0) / 2)


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 500), count=st.integers(1, 12), gpus=st.sampled_from([0.5, 1.0]))
@pytest.mark.parametrize("name", [name for name in METHODS if name != "exact"])
def test_no_method_is_below_the_bound(name, seed, count, gpus):
    setting = scaled(drawn_setting(seed, count, least_largest_gpus=128), gpus=gpus)
    method = METHODS[name]

    course = simulate(
        setting, method, replacing=PayingMoves(method) if name == "spotline" else None
    )

    least_s = least_mean_jct_s(setting)
    assert course.figures(setting.basis)["mean_jct_s"] >= least_s * (1 - 1e-9)


def test_the_most_lead_is_what_the_bound_leaves():
    setting = paper_setting()
    least_s = least_mean_jct_s(setting)
    measured = {"near": {"mean_jct_s": least_s}, "far": {"mean_jct_s": 2 * least_s}}

    leads = most_lead_percent(setting, measured, ("near", "far"))
    table = over_tables([leads, leads], ("near", "far"), 27.9)

    assert leads == pytest.approx({"near": 0.0, "far": 50.0})
    assert table["against"]["far"]["possible_in"] == 2
    assert table["possible_against_all_in"] == 0
