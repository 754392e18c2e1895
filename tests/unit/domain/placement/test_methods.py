from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.placement.sweeps import ABLATIONS
from spotline.domain.placement.interface import Release
from spotline.domain.placement.methods.bace_pipe import BacePipe
from spotline.domain.placement.methods.registry import method_named
from spotline.domain.placement.methods.spotline import Spotline
from spotline.domain.placement.pipeline import NoPlacement, Placement, RegionShare
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, graphs, job_of, moment_of, queues

# K* of `job_of` is round(sqrt(7 * 10 / 0.1)) = 26.
BEST = 26


def shares(answer):
    return {share.region_id: share.gpus for share in answer.path}


def only(method, job, graph, **moment):
    (answer,) = method.place([job], moment_of(graph, **moment))
    return answer


def held(path, *, reserved=0.0, job_id="held"):
    return Placement(
        job_id=job_id,
        path=tuple(RegionShare(region_id=name, gpus=gpus) for name, gpus in path),
        reserved_bytes_per_s=reserved,
        iteration_s=1.0,
        usd_per_iteration=0.0,
    )


def test_lcf_takes_the_cheapest_region_and_ldf_the_largest():
    graph = graph_of([8, 20, 12], price=[2.0, 3.0, 1.0])

    assert shares(only(method_named("lcf"), job_of(), graph)) == {"c": 12}
    assert shares(only(method_named("ldf"), job_of(), graph)) == {"b": 20}


def test_lcf_passes_over_a_cheap_region_that_cannot_hold_the_model():
    graph = graph_of([8, 20, 12], price=[2.0, 3.0, 1.0])

    assert shares(only(method_named("lcf"), job_of(min_gpus=13), graph)) == {"b": 20}


def test_cr_lcf_fills_regions_by_price_up_to_k_star():
    graph = graph_of([8, 20, 12], price=[2.0, 3.0, 1.0], width=1e10)

    assert shares(only(method_named("cr_lcf"), job_of(), graph)) == {"c": 12, "a": 8, "b": 6}


def test_cr_ldf_fills_regions_by_their_free_gpus():
    graph = graph_of([8, 20, 12], price=[2.0, 3.0, 1.0], width=1e10)

    assert shares(only(method_named("cr_ldf"), job_of(), graph)) == {"b": 20, "c": 6}


def test_cross_region_baselines_let_stages_wait_for_the_network():
    graph = graph_of([16, 16], width=1e8)

    answer = only(method_named("cr_ldf"), job_of(), graph)

    assert answer.reserved_bytes_per_s == 1e8
    # 10 s to send what a stage computes in 10 / 26 s.
    assert answer.iteration_s == pytest.approx((8 + BEST - 1) * 10.0 + BEST * 0.1)


@pytest.mark.parametrize("name", ["lcf", "ldf", "cr_lcf", "cr_ldf"])
def test_an_early_large_job_blocks_a_baselines_queue(name):
    early = job_of("early", min_gpus=30, arrival_s=0.0)
    small = job_of("small", arrival_s=1.0)

    answers = method_named(name).place([small, early], moment_of(graph_of([16])))

    assert [answer.job_id for answer in answers] == ["early", "small"]
    assert isinstance(answers[0], NoPlacement)
    assert answers[1] == NoPlacement(job_id="small", reason="waits behind early")


def test_bace_pipe_passes_over_a_job_that_does_not_fit():
    early = job_of("early", min_gpus=30, iterations=1)
    small = job_of("small", arrival_s=1.0)
    moment = moment_of(graph_of([16]))

    placed = {answer.job_id: answer for answer in BacePipe().place([early, small], moment)}
    blocked = ABLATIONS["no_priority"].place([early, small], moment)

    assert isinstance(placed["small"], Placement)
    assert all(isinstance(answer, NoPlacement) for answer in blocked)


def test_bace_pipe_takes_the_cheapest_of_equally_fast_paths():
    graph = graph_of([32, 16, 16], price=[3.0, 1.0, 1.5], width=1e10)

    assert shares(only(BacePipe(), job_of(), graph)) == {"b": 16, "c": 10}
    assert shares(only(ABLATIONS["no_cost_min"], job_of(), graph)) == {"a": BEST}


def test_bace_pipe_never_waits_for_the_network_and_without_its_pathfinder_does():
    graph = graph_of([16, 14, 16], links={("a", "b"): 1e8, ("b", "c"): 3e9, ("a", "c"): 1e8})
    job = job_of()

    with_paths = only(BacePipe(), job, graph)
    without = only(ABLATIONS["no_pathfinder"], job, graph)

    assert set(shares(with_paths)) == {"b", "c"}
    assert with_paths.iteration_s == pytest.approx(job.iteration_s(BEST))
    assert without.iteration_s > 10 * with_paths.iteration_s


def test_egress_keeps_ours_in_one_region_where_two_would_be_faster():
    job, hurried = job_of(), Spotline(time_weight=4.0)
    assert len(only(hurried, job, graph_of([10, 10, 10], width=1e10)).path) == 2

    dear = graph_of([10, 10, 10], width=1e10, egress=0.1)

    assert len(only(hurried, job, dear).path) == 1
    assert len(only(BacePipe(), job, dear).path) == 3


def test_spot_risk_is_worth_a_higher_price():
    job = job_of(restart_s=600.0, checkpoint_interval_iterations=100)
    graph = graph_of([30, 30], price=[1.0, 1.1], interruptions=[1.0, 0.0])

    assert set(shares(only(Spotline(), job, graph))) == {"b"}
    assert set(shares(only(BacePipe(), job, graph))) == {"a"}


def test_ours_prices_egress_and_risk_into_an_iteration():
    job = job_of(min_gpus=20, activation_bytes=1e6, restart_s=60.0, checkpoint_gb=10.0)
    graph = graph_of([10, 10], egress=0.1, interruptions=[0.5, 0.25], width=1e10)

    answer = only(Spotline(), job, graph)

    iteration_s = job.iteration_s(20)
    rate_per_s = 0.75 / 3600
    lost_s = rate_per_s * iteration_s * (60.0 + iteration_s / 2)
    gpus_usd = 20 * 1.0 / 3600 * (iteration_s + lost_s)
    activations_usd = 2 * 8 * 1e6 / 1e9 * 0.1
    copies_usd = rate_per_s * iteration_s * 10.0 * 0.1
    assert answer.usd_per_iteration == pytest.approx(gpus_usd + activations_usd + copies_usd)


def test_a_job_waits_for_a_place_that_is_soon_and_far_better():
    job = job_of(iterations=1000)
    graph = graph_of([30])
    running = held([("a", 29)])
    soon = [Release(at_s=5.0, placement=running)]
    late = [Release(at_s=1e6, placement=running)]

    waits = only(Spotline(), job, graph, held=[running], releases=soon)
    starts = only(Spotline(), job, graph, held=[running], releases=late)
    unknowing = only(Spotline(), job, graph, held=[running])

    assert isinstance(waits, NoPlacement)
    assert waits.reason.startswith("waits 5 s for a better place")
    assert shares(starts) == shares(unknowing) == {"a": 1}


def test_what_a_job_waits_for_is_kept_from_those_behind_it():
    graph = graph_of([30])
    running = held([("a", 29)])
    first = job_of("first", iterations=500)
    second = job_of("second", iterations=5000)

    answers = Spotline().place(
        [first, second],
        moment_of(graph, held=[running], releases=[Release(at_s=5.0, placement=running)]),
    )

    assert all(isinstance(answer, NoPlacement) for answer in answers)


def test_a_deadline_is_met_at_least_cost():
    # In time on 8 GPUs, and cheapest on as few as possible.
    job = job_of(deadline_s=100 * job_of().iteration_s(8) + 1)
    graph = graph_of([30, 30], price=[2.0, 1.0])

    assert shares(only(Spotline(), job, graph)) == {"b": 8}


def test_a_deadline_beyond_one_region_takes_a_path_that_meets_it():
    job = job_of(deadline_s=100 * job_of().iteration_s(15) + 1)

    answer = only(Spotline(), job, graph_of([10, 10], width=1e10, egress=0.1))

    assert answer.gpus == 15


def test_a_deadline_that_no_graph_meets_is_refused_with_the_earliest_finish():
    job = job_of(deadline_s=60.0)

    answer = only(Spotline(), job, graph_of([64]), now_s=10.0)

    assert isinstance(answer, NoPlacement)
    assert answer.earliest_finish_s == pytest.approx(10.0 + 100 * job.iteration_s(BEST))


def test_a_deadline_that_only_a_release_meets_waits_for_it():
    job = job_of(deadline_s=100 * job_of().iteration_s(20) + 50.0)
    running = held([("a", 20)])
    graph = graph_of([30])

    in_time = only(
        Spotline(), job, graph, held=[running], releases=[Release(at_s=40.0, placement=running)]
    )
    never = only(Spotline(), job, graph, held=[running])

    assert isinstance(in_time, NoPlacement)
    assert in_time.earliest_finish_s is None
    assert never.earliest_finish_s == pytest.approx(100 * job.iteration_s(10))


def test_a_release_may_show_too_late_for_a_deadline():
    job = job_of(deadline_s=100 * job_of().iteration_s(20) + 50.0)
    running = held([("a", 20)])
    moment = moment_of(
        graph_of([30]), held=[running], releases=[Release(at_s=40.0, placement=running)]
    )

    (at_once,) = Spotline().place([job], moment)
    (noticed,) = Spotline().place([job], replace(moment, notice_s=60.0))

    assert at_once.earliest_finish_s is None
    assert noticed.earliest_finish_s == pytest.approx(100.0 + 100 * job.iteration_s(BEST))


def test_a_notice_of_less_than_nothing_is_refused():
    with pytest.raises(ValueError, match="notice_s must be finite and >= 0"):
        replace(moment_of(graph_of([4])), notice_s=-1.0)


def test_a_promised_deadline_that_cannot_be_kept_is_missed_by_as_little_as_can_be():
    job = job_of(deadline_s=60.0, promised=True)
    running = held([("a", 20)])
    soon = [Release(at_s=5.0, placement=running)]

    now = only(Spotline(), job, graph_of([30]), held=[running])
    later = only(Spotline(), job, graph_of([30]), held=[running], releases=soon)

    assert shares(now) == {"a": 10}
    assert later.reason.startswith("waits 5 s for a place where it is done first")


def test_what_was_promised_to_one_who_waits_is_kept_from_who_asks_only_now():
    release_s = 1000.0
    running = held([("a", BEST)])
    run_s = 100 * job_of().iteration_s(BEST)
    waiting = job_of("waiting", deadline_s=release_s + run_s + 1.0, promised=True)
    # It would have to begin first, and would be in time only where the other waits for.
    asking = job_of("asking", arrival_s=500.0, deadline_s=release_s + run_s)
    moment = moment_of(
        graph_of([BEST]),
        now_s=500.0,
        held=[running],
        releases=[Release(at_s=release_s, placement=running)],
    )

    answers = {answer.job_id: answer for answer in Spotline().place([waiting, asking], moment)}

    assert answers["waiting"].earliest_finish_s is None
    # It is told of the time after the other.
    assert answers["asking"].earliest_finish_s == pytest.approx(release_s + run_s + run_s, rel=0.05)


def test_who_could_be_taken_if_it_went_first_goes_first():
    # Eight GPUs in time for `small`, all of them for `large`; both begin at the same time at best.
    large = job_of("large", min_gpus=16, deadline_s=100 * job_of().iteration_s(16) + 1)
    small = job_of("small", deadline_s=100 * job_of().iteration_s(14) + 1)
    graph = graph_of([16, 14], links={("a", "b"): 0.0}, price=[1.0, 3.0])

    answers = Spotline().place([small, large], moment_of(graph))

    assert {answer.job_id: shares(answer) for answer in answers} == {
        "large": {"a": 16},
        "small": {"b": 14},
    }


def test_urgent_deadlines_go_before_smaller_jobs():
    urgent = job_of("urgent", iterations=100, deadline_s=100 * job_of().iteration_s(BEST) + 60.0)
    small = job_of("small", iterations=10)

    answers = Spotline().place([small, urgent], moment_of(graph_of([BEST])))

    assert [answer.job_id for answer in answers] == ["urgent", "small"]
    assert answers[0].gpus > answers[1].gpus if isinstance(answers[1], Placement) else True
    assert answers[0].iteration_s * 100 <= urgent.deadline_s


def test_a_job_that_no_network_keeps_fed_is_placed_and_waits_for_it_within_bounds():
    job = job_of(min_gpus=12)
    # Twelve stages ask for 1.2e9 bytes/s, both regions together have 12 GPUs.
    slow = only(Spotline(), job, graph_of([6, 6], width=9e8))
    absurd = only(Spotline(), job, graph_of([6, 6], width=1e6))

    assert slow.gpus == 12
    assert slow.iteration_s > job.iteration_s(12)
    assert isinstance(absurd, NoPlacement)


def test_the_job_with_the_larger_bill_gets_the_cheaper_gpus():
    graph = graph_of([16, 16], price=[1.0, 2.0], links={("a", "b"): 0.0})
    small, large = job_of("small", iterations=10), job_of("large", iterations=1000)

    answers = Spotline(time_weight=4.0).place([small, large], moment_of(graph))

    where = {answer.job_id: set(shares(answer)) for answer in answers}
    assert where["large"] == {"a"}


def test_a_time_weight_of_nothing_is_refused():
    for weight in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="time_weight must be finite and > 0"):
            Spotline(time_weight=weight)


@settings(max_examples=examples(60), deadline=None)
@given(
    graph=graphs(),
    jobs=queues(most_jobs=5, deadlines=True),
    ends=st.lists(st.integers(1, 4000), min_size=5, max_size=5),
)
def test_a_deadline_is_met_or_refused_with_one_that_is_taken(graph, jobs, ends):
    """What is placed is in time; what is refused is taken with the finish it was told."""
    first = Spotline().place(
        [replace(job, deadline_s=math.inf) for job in jobs[:3]], moment_of(graph)
    )
    running = [answer for answer in first if isinstance(answer, Placement)]
    releases = [
        Release(at_s=float(end_s), placement=placement)
        for end_s, placement in zip(ends, running, strict=False)
    ]
    moment = moment_of(graph, held=running, releases=releases)
    asking = [replace(job, job_id=f"new-{job.job_id}") for job in jobs]

    answers = {answer.job_id: answer for answer in Spotline().place(asking, moment)}

    for job in asking:
        answer = answers[job.job_id]
        if isinstance(answer, Placement):
            assert job.iterations * answer.iteration_s <= job.deadline_s
        elif answer.earliest_finish_s is not None:
            assert answer.earliest_finish_s > job.deadline_s
            (alone,) = Spotline().place([job], moment)
            if isinstance(alone, NoPlacement) and math.isfinite(
                alone.earliest_finish_s or math.inf
            ):
                later = replace(job, deadline_s=alone.earliest_finish_s * (1 + 1e-12))
                (taken,) = Spotline().place([later], moment)
                assert isinstance(taken, Placement) or taken.earliest_finish_s is None
