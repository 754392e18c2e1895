from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.placement.interface import Residual
from spotline.domain.placement.methods.registry import method_named
from spotline.domain.placement.methods.spotline import Spotline
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.placement.replacing import (
    PricesAhead,
    affected,
    checkpointed_iterations,
    consider_move,
    migration_usd,
    resumed,
    weigh_move,
)
from tests.depth import examples
from tests.unit.domain.placement.worlds import graph_of, graphs, job_of, moment_of, queues


def held(job, path, *, job_id="job", reserved=0.0):
    gpus = sum(count for _, count in path)
    return Placement(
        job_id=job_id,
        path=tuple(RegionShare(region_id=name, gpus=count) for name, count in path),
        reserved_bytes_per_s=reserved,
        iteration_s=job.iteration_s(gpus),
        usd_per_iteration=0.0,
    )


def ahead(*rows, start_s=0.0):
    return PricesAhead(start_s=start_s, usd_per_gpu_hour=np.array(rows, dtype=np.float64))


def test_prices_ahead_add_up_over_hours_and_the_last_holds_on():
    prices = ahead([1.0, 4.0], [2.0, 5.0], start_s=3600.0)

    # Half an hour of the first, an hour of the second, and half an hour beyond.
    assert prices.usd_per_gpu(5400.0, 12600.0) == pytest.approx([0.5 + 3.0, 2.0 + 7.5])
    assert prices.usd_per_gpu(0.0, 1800.0) == pytest.approx([0.5, 2.0])


def test_prices_without_an_hour_are_refused():
    with pytest.raises(ValueError, match=r"shape \(hours, regions\)"):
        PricesAhead(start_s=0.0, usd_per_gpu_hour=np.ones(3))


def test_work_since_the_last_checkpoint_is_lost():
    job = job_of(iterations=100, checkpoint_interval_iterations=30)

    assert [checkpointed_iterations(job, done) for done in (0, 29, 30, 99, 100)] == [
        0, 0, 30, 90, 90,
    ]  # fmt: skip
    assert resumed(job, 65).iterations == 40


def test_a_resumed_job_can_keep_its_depth():
    left = resumed(job_of(iterations=100), 40, gpus=7)

    assert (left.iterations, left.min_gpus, left.max_gpus, left.best_gpus) == (60, 7, 7, 7)


def test_nothing_is_left_of_a_finished_job():
    assert resumed(job_of(iterations=100), 100) is None


def test_moving_costs_the_restart_and_the_copy_of_the_checkpoint():
    job = job_of(restart_s=360.0, checkpoint_gb=50.0)
    graph = graph_of([8, 8], egress=0.1)
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])
    prices = ahead([1.0, 2.0])

    assert migration_usd(job, graph, here, there, 0.0, prices) == pytest.approx(8 * 0.2 + 5.0)
    assert migration_usd(job, graph, here, here, 0.0, prices) == pytest.approx(8 * 0.1)


def test_a_move_pays_only_if_prices_stay_apart_long_enough():
    job = job_of(iterations=2000, restart_s=600.0, checkpoint_gb=10.0)
    graph = graph_of([8, 8], egress=0.1)
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])

    for_good = weigh_move(job, graph, here, there, 0.0, ahead([2.0, 1.0]))
    for_an_hour = weigh_move(job, graph, here, there, 0.0, ahead([2.0, 1.0], [1.0, 2.0]))

    assert for_good.pays
    assert for_good.move_usd < for_good.stay_usd
    assert for_good.move_finish_s == pytest.approx(for_good.stay_finish_s + 600.0)
    assert not for_an_hour.pays


def test_a_move_that_would_miss_a_deadline_does_not_pay():
    base = job_of(iterations=2000)
    deadline_s = 2000 * base.iteration_s(8) + 100.0
    graph = graph_of([8, 8])
    here, there = held(base, [("a", 8)]), held(base, [("b", 8)])

    slow = job_of(iterations=2000, restart_s=600.0, deadline_s=deadline_s)
    quick = job_of(iterations=2000, restart_s=60.0, deadline_s=deadline_s)

    assert not weigh_move(slow, graph, here, there, 0.0, ahead([2.0, 1.0])).pays
    assert weigh_move(quick, graph, here, there, 0.0, ahead([2.0, 1.0])).pays


def test_the_time_a_move_takes_counts_where_time_is_worth_something():
    job = job_of(iterations=2000, restart_s=600.0)
    graph = graph_of([8, 8])
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])

    assert not weigh_move(job, graph, here, there, 0.0, ahead([2.0, 1.0]), time_usd_per_s=1.0).pays


def test_a_method_finds_the_cheaper_place_beside_what_it_holds():
    job = job_of(iterations=2000, min_gpus=8, max_gpus=8, restart_s=60.0)
    graph = graph_of([8, 8])
    here = held(job, [("a", 8)])

    move = consider_move(job, here, Spotline(), moment_of(graph, held=[here]), ahead([2.0, 1.0]))
    stay = consider_move(
        job, here, method_named("lcf"), moment_of(graph, held=[here]), ahead([1.0, 2.0])
    )

    assert move.pays
    assert [share.region_id for share in move.placement.path] == ["b"]
    assert not stay.pays
    assert stay.placement is None


def test_a_lost_region_takes_only_those_that_touch_it():
    job = job_of()
    running = [
        held(job, [("a", 2)], job_id="in-a"),
        held(job, [("a", 2), ("b", 2)], job_id="across", reserved=1e8),
        held(job, [("c", 2)], job_id="in-c"),
    ]

    found = affected(running, graph_of([8, 0, 8]))

    assert found.job_ids == ("across",)
    assert found.reasons["across"] == "b is lost"


def test_a_region_that_is_no_longer_in_the_graph_is_lost_too():
    found = affected([held(job_of(), [("z", 2)])], graph_of([8]))

    assert found.job_ids == ("job",)


def test_a_narrowed_link_takes_the_fewest_that_must_go():
    job = job_of()
    running = [
        held(job, [("a", 1), ("b", 1)], job_id=name, reserved=reserved)
        for name, reserved in (("p", 3e8), ("q", 2e8), ("r", 4e8), ("s", 1e8))
    ]
    graph = graph_of([8, 8], width=6.5e8)

    # 10 of 6.5 units: only r lets go of enough alone.
    assert affected(running, graph).job_ids == ("r",)


def test_of_equally_few_victims_the_smaller_goes():
    job = job_of()
    running = [
        held(job, [("a", 1), ("b", 3)], job_id="large", reserved=4e8),
        held(job, [("a", 1), ("b", 1)], job_id="small", reserved=4e8),
    ]

    assert affected(running, graph_of([8, 8], width=5e8)).job_ids == ("small",)


def test_nobody_is_touched_where_all_still_fits():
    running = [held(job_of(), [("a", 1), ("b", 1)], reserved=4e8)]

    assert affected(running, graph_of([1, 1], width=4e8)).job_ids == ()


@settings(max_examples=examples(60), deadline=None)
@given(graph=graphs(most_regions=4), queue=queues(), data=st.data())
def test_victims_are_the_fewest_without_whom_the_rest_fits(graph, queue, data):
    answers = Spotline().place(queue, moment_of(graph))
    running = [answer for answer in answers if isinstance(answer, Placement)]
    gpus = [data.draw(st.sampled_from([0, count // 2, count])) for count in graph.gpus.tolist()]
    share = data.draw(st.sampled_from([0.5, 0.8, 1.0]))
    links = {
        (here, there): float(graph.bytes_per_s[graph.index[here], graph.index[there]]) * share
        for here in graph.region_ids
        for there in graph.region_ids
        if here != there
    }
    after = graph_of(gpus, links=links)

    victims = affected(running, after).job_ids

    def fits(gone):
        left = Residual.of(after, [held for held in running if held.job_id not in gone])
        return (left.gpus >= 0).all() and (left.bytes_per_s >= 0).all()

    assert fits(victims)
    ids = [placement.job_id for placement in running]
    assert not any(fits(fewer) for size in range(len(victims)) for fewer in combinations(ids, size))


def test_a_deadline_that_staying_meets_within_its_iteration_is_not_moved_beyond():
    # 26 stages are done at 100 iterations; the one it is in counts as not begun.
    job = job_of(deadline_s=100 * job_of().iteration_s(8) - 1.0)
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])
    graph = graph_of([8, 8], price=[9.0, 1.0])

    move = weigh_move(job, graph, here, there, 0.0, ahead([9.0, 1.0]))

    assert move.move_finish_s > job.deadline_s
    assert not move.pays
    assert move.reason == "would miss its deadline"


def test_a_deadline_that_is_lost_anyway_is_no_reason_to_stay():
    job = job_of(deadline_s=10.0)
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])

    move = weigh_move(job, graph_of([8, 8], price=[9.0, 1.0]), here, there, 0.0, ahead([9.0, 1.0]))

    assert move.pays


def test_a_move_to_where_spot_is_taken_back_counts_what_that_wastes():
    job = job_of(restart_s=600.0)
    here, there = held(job, [("a", 8)]), held(job, [("b", 8)])
    sure = graph_of([8, 8], price=[1.0, 0.9])
    risky = graph_of([8, 8], price=[1.0, 0.9], interruptions=[0.0, 1.0])
    prices = ahead([1.0, 0.9])
    quick = replace(job, restart_s=0.0, checkpoint_interval_iterations=200)

    assert weigh_move(quick, sure, here, there, 0.0, prices).pays
    assert not weigh_move(quick, risky, here, there, 0.0, prices).pays


def test_a_candidate_is_asked_for_with_the_time_a_restart_takes():
    # In time on 8 GPUs if it computed at once; after the restart it takes more.
    job = job_of(restart_s=100.0, deadline_s=100 * job_of().iteration_s(8), promised=True)
    here = held(job, [("a", 8)])
    graph = graph_of([8, 30], price=[9.0, 1.0])

    move = consider_move(
        job,
        here,
        Spotline(),
        moment_of(graph, held=[here]),
        ahead([9.0, 1.0]),
    )

    assert move.pays
    assert move.placement.gpus > 8
    assert move.move_finish_s <= job.deadline_s


def test_what_has_begun_was_promised():
    assert resumed(job_of(), 50).promised
    assert not resumed(job_of(), 0).promised
