"""The exact placement against all there is, and ours against the exact placement."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotline.domain.placement.exact import place_exactly
from spotline.domain.placement.free import Free, placed, reservation_bytes_per_s
from spotline.domain.placement.methods.exact import Exact
from spotline.domain.placement.methods.spotline import Spotline
from spotline.domain.placement.pipeline import NoPlacement, Placement
from spotline.domain.placement.weighing import weigh
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, job_of, moment_of


def every_placement(job, moment):
    """All stall-free placements of a job on what is free, by trying everything."""
    free = Free.of(moment.residual)
    regions = range(len(free.gpus))
    for length in range(1, len(regions) + 1):
        for path in permutations(regions, length):
            for gpus in product(*(range(1, int(free.gpus[region]) + 1) for region in path)):
                if not job.min_gpus <= sum(gpus) <= job.best_gpus:
                    continue
                least = reservation_bytes_per_s(job, sum(gpus))
                if length > 1 and free.bottleneck_bytes_per_s(path) < least:
                    continue
                yield placed(job, free, path, gpus, usd_per_iteration=0.0)


def least_of_all(queue, moment):
    """The least that any answers to the queue come to; somebody is placed if anybody can be."""
    options = [
        [NoPlacement(job_id=job.job_id, reason="waits"), *every_placement(job, moment)]
        for job in queue
    ]
    totals = []
    for answers in product(*options):
        left = moment.residual.copy()
        running = [answer for answer in answers if isinstance(answer, Placement)]
        if not running and any(len(option) > 1 for option in options):
            continue
        try:
            for placement in running:
                left.take(placement)
        except ValueError:
            continue
        totals.append(weigh(queue, answers, moment).total_usd)
    return min(totals)


@st.composite
def tiny(draw):
    count = draw(st.integers(1, 3))
    gpus = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    price = draw(st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=count, max_size=count))
    names = "abc"[:count]
    links = {
        (here, there): draw(st.sampled_from([0.0, 1e8, 3e8, 2e9]))
        for here in names
        for there in names
        if here < there
    }
    graph = graph_of(gpus, price=price, links=links, egress=draw(st.sampled_from([0.0, 0.001])))
    queue = [
        job_of(
            f"job-{i}",
            iterations=draw(st.sampled_from([10, 100])),
            compute_s=draw(st.sampled_from([5.0, 20.0])),
            activation_bytes=draw(st.sampled_from([1e8, 9e8])),
            min_gpus=draw(st.integers(1, 2)),
            max_gpus=draw(st.integers(2, 4)),
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    return graph, queue


@settings(max_examples=examples(20), deadline=None)
@given(drawn=tiny())
def test_nothing_there_is_comes_to_less_than_the_exact_placement(drawn):
    graph, queue = drawn
    moment = moment_of(graph)

    found = place_exactly(queue, moment)

    assert found.proven
    total_usd = weigh(queue, found.answers, moment).total_usd
    assert total_usd == pytest.approx(least_of_all(queue, moment), rel=1e-6)
    assert found.bound_usd == pytest.approx(total_usd, rel=1e-6)


def stalls(job, placement):
    return placement.iteration_s > job.iteration_s(placement.gpus) * (1 + 1e-9)


ONLY_STALLED = (
    graph_of([1, 1], links={("a", "b"): 1e8}),
    [job_of("job-0", activation_bytes=9e8, min_gpus=2, max_gpus=2)],
)


@settings(max_examples=examples(8), deadline=None)
@given(drawn=tiny())
@example(drawn=ONLY_STALLED)
def test_ours_never_comes_to_less_than_the_proven_optimum(drawn):
    graph, queue = drawn
    moment = moment_of(graph)

    exact_usd = weigh(queue, place_exactly(queue, moment).answers, moment).total_usd
    answers = Spotline().place(queue, moment)

    ours = [
        (job, answer)
        for job, answer in zip(queue, answers, strict=True)
        if isinstance(answer, Placement)
    ]
    # Where nothing else is left ours lets stages wait for the network, which the exact one never does.
    if ours and not any(stalls(*one) for one in ours):
        assert weigh(queue, answers, moment).total_usd >= exact_usd * (1 - 1e-6)


def best_alone(job, moment):
    (answer,) = place_exactly([job], moment).answers
    return answer if isinstance(answer, Placement) else None


def test_the_best_single_placement_leaves_a_gpu_for_the_link_alone_where_it_must():
    # Cheapest would be all in b: it has too few, and a is dear, so a holds only what it must.
    job = job_of(min_gpus=6, max_gpus=6)

    found = best_alone(job, moment_of(graph_of([6, 5], price=[3.0, 1.0])))

    assert sorted((share.region_id, share.gpus) for share in found.path) == [("a", 1), ("b", 5)]


def test_no_single_placement_where_memory_asks_for_more_than_there_is():
    assert best_alone(job_of(min_gpus=6), moment_of(graph_of([5]))) is None


def test_spot_risk_moves_the_exact_placement_too():
    job = job_of(restart_s=600.0, checkpoint_interval_iterations=100)
    graph = graph_of([30, 30], price=[1.0, 1.1], interruptions=[1.0, 0.0])

    found = best_alone(job, moment_of(graph))

    assert [share.region_id for share in found.path] == ["b"]


def test_a_queue_too_long_for_the_exact_method_is_placed_greedily_and_says_so():
    queue = [job_of(f"job-{i}") for i in range(6)]
    moment = moment_of(graph_of([64, 64]))

    answers = Exact().place(queue, moment)

    greedy = Spotline().place(queue, moment)
    assert [answer.job_id for answer in answers] == [answer.job_id for answer in greedy]
    assert all(answer.reason.endswith("greedy, more than 5 jobs") for answer in answers)


def test_a_queue_with_a_deadline_is_placed_greedily_and_says_so():
    (answer,) = Exact().place([job_of(deadline_s=1e6)], moment_of(graph_of([64])))

    assert answer.reason.endswith("greedy, a job has a deadline")


def test_more_regions_than_the_program_sees_are_never_called_proven():
    found = place_exactly([job_of(max_gpus=4)], moment_of(graph_of([4] * 11)))

    assert isinstance(found.answers[0], Placement)
    assert not found.proven


def test_a_queue_too_long_to_be_exact_is_refused():
    with pytest.raises(ValueError, match="must have <= 5 jobs, had 6"):
        place_exactly([job_of(f"job-{i}") for i in range(6)], moment_of(graph_of([4])))
