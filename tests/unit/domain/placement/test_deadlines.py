from __future__ import annotations

import math

import pytest

from spotline.domain.placement.deadlines import earliest_finish, earliest_on_empty
from spotline.domain.placement.interface import Release
from spotline.domain.placement.pipeline import Placement, RegionShare
from tests.unit.domain.placement.worlds import graph_of, job_of, moment_of


def held(region_id, gpus):
    return Placement(
        job_id=f"held-{region_id}",
        path=(RegionShare(region_id=region_id, gpus=gpus),),
        reserved_bytes_per_s=0.0,
        iteration_s=1.0,
        usd_per_iteration=0.0,
    )


def test_an_empty_graph_lets_a_job_run_at_k_star():
    job = job_of()

    found = earliest_on_empty(job, graph_of([20, 20], width=1e10), 7.0)

    assert found.gpus == job.best_gpus
    assert found.finish_s == pytest.approx(7.0 + 100 * job.iteration_s(job.best_gpus))


def test_a_job_does_not_start_before_it_arrives():
    assert earliest_on_empty(job_of(arrival_s=50.0), graph_of([20]), 7.0).start_s == 50.0


def test_narrow_links_bound_the_stages():
    # 1e9 bytes/s feed ten stages of ten seconds that send 1e9 bytes each.
    assert earliest_on_empty(job_of(), graph_of([8, 8], width=1e9), 0.0).gpus == 10


def test_a_job_that_only_fits_with_stalls_finishes_as_late_as_they_make_it():
    job = job_of(min_gpus=12)

    found = earliest_on_empty(job, graph_of([6, 6], width=6e8), 0.0)

    assert found.iteration_s == pytest.approx(job.iteration_s(12, 6e8))


def test_a_job_that_fits_nowhere_never_finishes():
    found = earliest_on_empty(job_of(min_gpus=12), graph_of([6]), 0.0)

    assert math.isinf(found.finish_s)
    assert found.gpus == 0


def test_the_earliest_finish_may_start_after_a_release():
    job = job_of()
    first, second = held("a", 20), held("b", 20)
    releases = [Release(at_s=30.0, placement=first), Release(at_s=1e9, placement=second)]
    moment = moment_of(graph_of([26, 20], links={}), held=[first, second], releases=releases)

    found = earliest_finish(job, moment)

    assert found.start_s == 30.0
    assert found.gpus == 26
    assert found.finish_s == pytest.approx(30.0 + 100 * job.iteration_s(26))
