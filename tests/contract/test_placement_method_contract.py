"""What every registered placement method promises, whatever it is asked to place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.placement.sweeps import ABLATIONS
from spotline.domain.placement.graph import Link, RegionGraph
from spotline.domain.placement.interface import PlacementMoment, Release, Residual
from spotline.domain.placement.methods.exact import Exact
from spotline.domain.placement.methods.registry import (
    DEFAULT_METHOD_ID,
    METHODS,
    method_named,
)
from spotline.domain.placement.pipeline import NoPlacement, Placement
from spotline.domain.placement.replacing import affected
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, graphs, job_of, moment_of, queues

GREEDY = [method for name, method in METHODS.items() if name != "exact"]
GREEDY += list(ABLATIONS.values())
# A bound this low costs little and may end in "not proven": the promises hold all the same.
EXACT = Exact(max_deterministic_time=0.05)


def placements_of(answers):
    return [answer for answer in answers if isinstance(answer, Placement)]


def check_placement(job, placement, graph):
    path = [share.region_id for share in placement.path]
    assert len(set(path)) == len(path)
    assert all(share.gpus >= 1 for share in placement.path)
    assert job.min_gpus <= placement.gpus <= job.best_gpus
    assert placement.reserved_bytes_per_s == np.floor(placement.reserved_bytes_per_s)
    if len(path) == 1:
        assert placement.reserved_bytes_per_s == 0
        assert placement.iteration_s == job.iteration_s(placement.gpus)
    else:
        assert placement.reserved_bytes_per_s >= 1
        expected_s = job.iteration_s(placement.gpus, placement.reserved_bytes_per_s)
        assert placement.iteration_s == pytest.approx(expected_s)
    assert np.isfinite(placement.usd_per_iteration)


def check_answers(queue, answers, moment):
    """One valid answer per job, and all of them together fit into what was free."""
    assert sorted(answer.job_id for answer in answers) == sorted(job.job_id for job in queue)
    jobs = {job.job_id: job for job in queue}
    left = moment.residual.copy()
    for placement in placements_of(answers):
        check_placement(jobs[placement.job_id], placement, moment.residual.graph)
        left.take(placement)  # raises where a link or region would carry more than it has
    assert (left.gpus >= np.minimum(moment.residual.gpus, 0)).all()
    assert (left.bytes_per_s >= np.minimum(moment.residual.bytes_per_s, 0)).all()
    assert all(answer.reason for answer in answers if isinstance(answer, NoPlacement))


def check_method(method, queue, graph):
    moment = moment_of(graph)
    before = moment.residual.copy()

    answers = method.place(queue, moment)

    check_answers(queue, answers, moment)
    assert (moment.residual.gpus == before.gpus).all()
    assert (moment.residual.bytes_per_s == before.bytes_per_s).all()
    return answers


@pytest.mark.parametrize("method", GREEDY, ids=lambda method: method.method_id)
@settings(max_examples=examples(60), deadline=None)
@given(graph=graphs(), queue=queues(deadlines=True), data=st.data())
def test_answers_fit_and_do_not_depend_on_the_order_of_the_queue(method, graph, queue, data):
    answers = check_method(method, queue, graph)
    shuffled = data.draw(st.permutations(queue))

    assert method.place(shuffled, moment_of(graph)) == answers


@settings(max_examples=examples(18), deadline=None)
@given(graph=graphs(most_regions=4), queue=queues(most_jobs=3), data=st.data())
def test_exact_answers_fit_and_do_not_depend_on_the_order_of_the_queue(graph, queue, data):
    answers = check_method(EXACT, queue, graph)
    shuffled = data.draw(st.permutations(queue))

    assert EXACT.place(shuffled, moment_of(graph)) == answers


def failed(graph, data):
    """The graph after a region was lost or links became narrower, or both."""
    regions = list(graph.regions)
    if data.draw(st.booleans()):
        lost = data.draw(st.integers(0, len(regions) - 1))
        regions[lost] = dataclasses.replace(regions[lost], gpus=0)
    share = data.draw(st.sampled_from([0.0, 0.3, 1.0]))
    links = []
    for here in graph.region_ids:
        for there in graph.region_ids:
            if here == there:
                continue
            left = graph.bytes_per_s[graph.index[here], graph.index[there]]
            hit = data.draw(st.booleans())
            links.append(
                Link(
                    source=here,
                    destination=there,
                    bytes_per_s=float(left) * (share if hit else 1.0),
                )
            )
    return RegionGraph(regions, links)


@pytest.mark.parametrize("method", GREEDY, ids=lambda method: method.method_id)
@settings(max_examples=examples(30), deadline=None)
@given(graph=graphs(most_regions=5), queue=queues(deadlines=True), data=st.data())
def test_nothing_is_overloaded_after_failures_and_returns(method, graph, queue, data):
    """Place, fail, let the victims go, place them anew, end all: what is free comes back."""
    running = placements_of(method.place(queue, moment_of(graph)))
    after = failed(graph, data)

    victims = set(affected(running, after).job_ids)
    kept = [placement for placement in running if placement.job_id not in victims]
    residual = Residual.of(after, kept)
    assert (residual.gpus >= 0).all()
    assert (residual.bytes_per_s >= 0).all()
    again = [job for job in queue if job.job_id not in {p.job_id for p in kept}]
    moment = PlacementMoment(
        now_s=5.0,
        usd_per_gpu_hour=np.ones(len(after.region_ids)),
        residual=residual,
        releases=tuple(Release(at_s=9.0 + i, placement=p) for i, p in enumerate(kept)),
    )
    answers = method.place(again, moment)
    check_answers(again, answers, moment)

    left = residual.copy()
    for placement in placements_of(answers):
        left.take(placement)
    for placement in [*kept, *placements_of(answers)]:
        left.give_back(placement)
    empty = Residual.of(after)
    assert (left.gpus == empty.gpus).all()
    assert (left.bytes_per_s == empty.bytes_per_s).all()


@pytest.mark.parametrize("method", [*GREEDY, EXACT], ids=lambda method: method.method_id)
def test_a_job_alone_on_ample_regions_is_placed(method):
    job = job_of(min_gpus=2, activation_bytes=1e6)

    (answer,) = method.place([job], moment_of(graph_of([64, 64, 64])))

    assert isinstance(answer, Placement)


def test_the_registry_is_what_the_paper_compares_and_ours():
    assert list(METHODS) == ["lcf", "ldf", "cr_lcf", "cr_ldf", "bace_pipe", "spotline", "exact"]
    assert all(method.method_id == name for name, method in METHODS.items())
    assert DEFAULT_METHOD_ID in METHODS


def test_an_unknown_method_is_named_with_what_was_expected():
    with pytest.raises(KeyError, match="expected one of lcf, ldf"):
        method_named("bace")
