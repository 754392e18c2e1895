"""Jobs placed over time: completion, money, failures, moves, and what a method may not do."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.placement.moves import PayingMoves, prices_ahead
from spotline.bench.placement.setting import Disruption, PriceCurve, Setting, disrupted, scaled
from spotline.bench.placement.settings_paper import drawn_setting
from spotline.bench.placement.simulate import CHECKPOINT_BYTES_PER_S, simulate
from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.interface import CostBasis
from spotline.domain.placement.methods.registry import METHODS
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement, RegionShare
from tests.depth import examples

WIDE = 1e9


def a_job(job_id="one", **changed):
    # 4 stages of 1 s and 10 micro-batches: 13 s per iteration on 4 GPUs.
    given = {
        "arrival_s": 0.0,
        "iterations": 100,
        "microbatches": 10,
        "compute_s": 4.0,
        "activation_bytes": 1e6,
        "max_gpus": 4,
    }
    return PipelineJob(job_id=job_id, **{**given, **changed})


def a_setting(*jobs, gpus=(4, 4), prices=(1.0, 2.0), egress=0.0, disruptions=(), curve=None):
    regions = [
        Region(region_id=name, gpus=count, energy_usd_per_kwh=0.1)
        for name, count in zip("ab", gpus, strict=True)
    ]
    links = [
        Link(source=here, destination=there, bytes_per_s=WIDE, egress_usd_per_gb=egress)
        for here, there in ("ab", "ba")
    ]
    return Setting(
        name="two regions",
        graph=RegionGraph(regions, links),
        jobs=tuple(jobs),
        basis=CostBasis.ENERGY,
        prices=curve or PriceCurve.constant(np.array(prices)),
        disruptions=tuple(disruptions),
    )


def placement_of(job, *shares, **changed):
    path = tuple(RegionShare(region_id=name, gpus=gpus) for name, gpus in shares)
    count = sum(gpus for _, gpus in shares)
    reserved = float(math.ceil(job.demand_bytes_per_s(count))) if len(path) > 1 else 0.0
    given = {
        "job_id": job.job_id,
        "path": path,
        "reserved_bytes_per_s": reserved,
        "iteration_s": job.iteration_s(count),
        "usd_per_iteration": 0.0,
    }
    return Placement(**{**given, **changed})


class FirstFit:
    """Takes the first of the shares it was given that fit."""

    method_id = "first_fit"

    def __init__(self, *options):
        self.options = options

    def place(self, queue, moment):
        left = moment.residual.copy()
        answers = []
        for job in queue:
            for shares in self.options:
                wanted = placement_of(job, *shares)
                if left.fits(wanted):
                    left.take(wanted)
                    answers.append(wanted)
                    break
            else:
                answers.append(NoPlacement(job_id=job.job_id, reason="full"))
        return tuple(answers)


class Answers:
    """Gives each job the answer it was told to."""

    method_id = "answers"

    def __init__(self, answer):
        self.answer = answer

    def place(self, queue, moment):
        return tuple(self.answer(job) for job in queue)


IN_A, IN_B, ACROSS = (("a", 4),), (("b", 4),), (("a", 2), ("b", 2))


def test_job_alone_takes_its_iterations_and_pays_its_gpu_hours():
    course = simulate(a_setting(a_job(arrival_s=50.0)), FirstFit(IN_A))

    figures = course.figures(CostBasis.ENERGY)
    assert figures["mean_jct_s"] == pytest.approx(1300.0)
    assert figures["makespan_s"] == pytest.approx(1350.0)
    assert figures["energy_usd"] == pytest.approx(4 * 1.0 * 1300 / 3600)
    assert figures["rent_usd"] == 0.0


def test_rent_is_reported_as_rent():
    course = simulate(a_setting(a_job()), FirstFit(IN_A))

    assert course.figures(CostBasis.RENT)["rent_usd"] > 0
    assert course.figures(CostBasis.RENT)["energy_usd"] == 0


def test_price_that_changes_midway_is_paid_by_the_hour():
    curve = PriceCurve(np.array([0.0, 1000.0]), np.array([[1.0, 1.0], [3.0, 1.0]]))

    course = simulate(a_setting(a_job(), curve=curve), FirstFit(IN_A))

    paid = course.figures(CostBasis.ENERGY)["total_cost_usd"]
    assert paid == pytest.approx(4 * (1000 * 1.0 + 300 * 3.0) / 3600)


def test_second_job_waits_until_the_first_is_done():
    course = simulate(a_setting(a_job(), a_job("two")), FirstFit(IN_A))

    assert course.jobs["two"].first_start_s == pytest.approx(1300.0)
    assert course.jobs["two"].jct_s == pytest.approx(2600.0)


def test_activations_pay_egress_in_both_directions():
    course = simulate(a_setting(a_job(), egress=0.5), FirstFit(ACROSS))

    # 100 iterations x 10 micro-batches x 1 MB, both ways.
    assert course.jobs["one"].egress_usd == pytest.approx(2 * 1.0 * 0.5)


def test_refused_job_is_dropped_and_counted():
    refused = NoPlacement(job_id="one", reason="too late", earliest_finish_s=9.0)

    course = simulate(a_setting(a_job(deadline_s=1.0)), Answers(lambda job: refused))

    figures = course.figures(CostBasis.ENERGY)
    assert (figures["refused"], figures["deadlines"], figures["deadlines_met"]) == (1, 1, 0)


def test_deadline_counts_as_met_when_the_job_is_done_by_then():
    jobs = (a_job(deadline_s=1301.0), a_job("two", deadline_s=1301.0))

    course = simulate(a_setting(*jobs), FirstFit(IN_A))

    assert course.figures(CostBasis.ENERGY)["deadlines_met"] == 1


def test_job_that_is_left_waiting_was_promised_its_deadline():
    seen = []

    class Watches(FirstFit):
        def place(self, queue, moment):
            seen.append({job.job_id: job.promised for job in queue})
            return super().place(queue, moment)

    jobs = (a_job(), a_job("two", deadline_s=1e6), a_job("three", arrival_s=1.0, deadline_s=1e6))

    simulate(a_setting(*jobs), Watches(IN_A))

    assert seen[:2] == [{"one": False, "two": False}, {"two": True, "three": False}]


def test_refusal_after_a_promise_is_counted():
    class Fickle(FirstFit):
        def place(self, queue, moment):
            if moment.now_s < 5:
                return super().place(queue, moment)
            return tuple(
                NoPlacement(job_id=job.job_id, reason="after all", earliest_finish_s=9e9)
                for job in queue
            )

    jobs = (a_job(), a_job("two", deadline_s=1e6), a_job("three", arrival_s=9.0))

    figures = simulate(a_setting(*jobs), Fickle(IN_A)).figures(CostBasis.ENERGY)

    assert (figures["refused"], figures["refused_after_waiting"]) == (2, 1)


# --- failures -------------------------------------------------------------------------------------


def test_lost_region_sends_its_job_to_the_last_checkpoint_and_leaves_the_other_alone():
    jobs = (
        a_job(checkpoint_interval_iterations=20, restart_s=60.0),
        a_job("two", checkpoint_interval_iterations=20),
    )
    # After 50 iterations of 13 s; back when job two is done.
    loss = Disruption(at_s=655.0, until_s=5000.0, region_id="a")

    course = simulate(a_setting(*jobs, disruptions=[loss]), FirstFit(IN_A, IN_B))

    one, two = course.jobs["one"], course.jobs["two"]
    assert course.struck == (("one",),)
    assert course.untouched == (("two",),)
    assert one.lost_iterations == 10
    assert len(two.placements) == 1
    assert two.finish_s == pytest.approx(1300.0)
    assert one.finish_s == pytest.approx(1300.0 + 60.0 + 60 * 13.0)


def test_struck_job_with_a_deadline_is_promised_and_asked_for_its_restart():
    seen = []

    class Watches(FirstFit):
        def place(self, queue, moment):
            seen.extend(queue)
            return super().place(queue, moment)

    job = a_job(deadline_s=1300.0, restart_s=60.0, checkpoint_gb=2.5)
    taken = Disruption(at_s=650.0, until_s=650.0, region_id="a")

    course = simulate(a_setting(job, disruptions=[taken]), Watches(IN_A))

    again = seen[1]
    assert again.promised
    assert again.deadline_s == pytest.approx(1300.0 - 60.0 - 2.5e9 / CHECKPOINT_BYTES_PER_S)
    figures = course.figures(CostBasis.ENERGY)
    assert (figures["late"], figures["late_struck"], figures["refused"]) == (1, 1, 0)


def test_region_comes_back_and_is_used_again():
    loss = Disruption(at_s=100.0, until_s=400.0, region_id="a")

    course = simulate(a_setting(a_job(), disruptions=[loss]), FirstFit(IN_A))

    assert [stay.start_s for stay in course.jobs["one"].placements] == [0.0, 400.0]


def test_spot_taken_back_can_be_had_again_at_once():
    taken = Disruption(at_s=130.0, until_s=130.0, region_id="a")

    course = simulate(a_setting(a_job(), disruptions=[taken]), FirstFit(IN_A))

    one = course.jobs["one"]
    assert one.strikes == 1
    assert [stay.start_s for stay in one.placements] == [0.0, 130.0]


def test_degraded_link_strikes_only_who_crosses_it():
    jobs = (a_job(), a_job("two", max_gpus=4))
    narrow = Disruption(at_s=130.0, until_s=200.0, link=("b", "a"), factor=1e-9)

    course = simulate(a_setting(*jobs, gpus=(6, 2), disruptions=[narrow]), FirstFit(ACROSS, IN_A))

    assert course.struck == (("one",),)
    assert course.untouched == (("two",),)
    assert math.isfinite(course.jobs["one"].finish_s)


def test_lost_time_of_a_failure_is_paid_for():
    calm = simulate(a_setting(a_job(checkpoint_interval_iterations=100)), FirstFit(IN_A))
    taken = Disruption(at_s=655.0, until_s=655.0, region_id="a")
    struck = simulate(
        a_setting(a_job(checkpoint_interval_iterations=100), disruptions=[taken]), FirstFit(IN_A)
    )

    extra = struck.jobs["one"].gpu_usd - calm.jobs["one"].gpu_usd
    assert extra == pytest.approx(4 * 655.0 / 3600)


@pytest.mark.parametrize(
    "wrong",
    [
        {"at_s": 1.0},
        {"at_s": 1.0, "region_id": "a", "link": ("a", "b")},
        {"at_s": 2.0, "until_s": 1.0, "region_id": "a"},
        {"at_s": 1.0, "region_id": "a", "factor": 1.0},
    ],
)
def test_disruption_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="disruption"):
        Disruption(**wrong)


def test_disrupted_graph_keeps_what_is_not_hit():
    graph = a_setting(a_job()).graph

    left = disrupted(graph, [Disruption(at_s=0.0, region_id="a", factor=0.5)])

    assert left.gpus.tolist() == [2, 4]
    assert left.bytes_per_s[0, 1] == WIDE / 2
    assert graph.gpus.tolist() == [4, 4]


# --- moves ----------------------------------------------------------------------------------------


def test_moved_job_keeps_what_it_did_and_pays_for_its_checkpoint():
    job = a_job(checkpoint_gb=2.5, restart_s=100.0)
    curve = PriceCurve(np.array([0.0, 655.0]), np.array([[1.0, 1.0], [9.0, 1.0]]))

    def to_b(one, moment, setting):
        at_b = one.placement.path[0].region_id == "b"
        return None if at_b or moment.now_s < 655 else placement_of(one.job, ("b", 4))

    course = simulate(a_setting(job, egress=0.2, curve=curve), FirstFit(IN_A), replacing=to_b)

    one = course.jobs["one"]
    copy_s = 2.5e9 / CHECKPOINT_BYTES_PER_S
    assert (one.moves, one.lost_iterations) == (1, 0)
    assert one.finish_s == pytest.approx(655.0 + 100.0 + copy_s + 50 * 13.0)
    assert one.egress_usd == pytest.approx(2.5 * 0.2)


def test_nobody_moves_while_somebody_waits():
    def always(one, moment, setting):
        return placement_of(one.job, ("b", 4))

    jobs = (a_job(), a_job("two", arrival_s=10.0))

    course = simulate(a_setting(*jobs), FirstFit(IN_A), replacing=always)

    assert course.jobs["one"].moves == 0


def test_paying_move_goes_where_power_has_become_cheaper():
    job = a_job(iterations=4000)
    curve = PriceCurve(np.array([0.0, 3600.0]), np.array([[1.0, 1.0], [9.0, 0.5]]))
    method = METHODS["spotline"]

    stays = simulate(a_setting(job, curve=curve), method)
    moves = simulate(a_setting(job, curve=curve), method, replacing=PayingMoves(method))

    assert moves.jobs["one"].moves == 1
    assert moves.jobs["one"].gpu_usd < 0.5 * stays.jobs["one"].gpu_usd


def test_prices_are_known_to_the_end_of_the_day_until_noon():
    curve = PriceCurve(np.arange(72) * 3600.0, np.arange(72.0)[:, None] * np.ones((1, 2)))

    morning, afternoon = prices_ahead(curve, 9.5 * 3600), prices_ahead(curve, 13.5 * 3600)

    # Hours 9 to 23, then their mean; hours 13 to 47, then theirs.
    assert morning.usd_per_gpu_hour[:, 0].tolist() == [*range(9, 24), 16.0]
    assert afternoon.usd_per_gpu_hour[:, 0].tolist() == [*range(13, 48), 30.0]


# --- what a method may not do ---------------------------------------------------------------------


def test_method_that_takes_more_gpus_than_there_are_is_stopped():
    setting = a_setting(a_job(), a_job("two"))

    with pytest.raises(ValueError, match="must fit"):
        simulate(setting, Answers(lambda job: placement_of(job, ("a", 4))))


def test_method_that_takes_more_bandwidth_than_there_is_is_stopped():
    setting = scaled(a_setting(a_job()), bandwidth=1e-6)

    with pytest.raises(ValueError, match="must fit"):
        simulate(setting, Answers(lambda job: placement_of(job, *ACROSS)))


def test_method_that_promises_to_be_faster_than_the_formula_is_stopped():
    def fast(job):
        return placement_of(job, ("a", 4), iteration_s=1.0)

    with pytest.raises(ValueError, match="iteration_s"):
        simulate(a_setting(a_job()), Answers(fast))


def test_method_that_ignores_memory_is_stopped():
    with pytest.raises(ValueError, match="gpus of one"):
        simulate(a_setting(a_job(min_gpus=3)), Answers(lambda job: placement_of(job, ("a", 2))))


def test_method_that_does_not_answer_is_stopped():
    class Silent:
        method_id = "silent"

        def place(self, queue, moment):
            return ()

    with pytest.raises(ValueError, match="answer every job"):
        simulate(a_setting(a_job()), Silent())


def test_job_that_is_never_placed_ends_the_run():
    waits = Answers(lambda job: NoPlacement(job_id=job.job_id, reason="no"))

    with pytest.raises(RuntimeError, match="never places one"):
        simulate(a_setting(a_job()), waits)


# --- laws -----------------------------------------------------------------------------------------


@given(
    times=st.lists(st.floats(1.0, 1e5), min_size=0, max_size=5, unique=True),
    seed=st.integers(0, 99),
    marks=st.tuples(*[st.floats(0.0, 2e5)] * 3),
)
def test_what_is_paid_adds_up_over_time(times, seed, marks):
    changes = np.array([0.0, *sorted(times)])
    curve = PriceCurve(changes, np.random.default_rng(seed).uniform(-1, 5, (len(changes), 3)))
    first, second, third = sorted(marks)

    whole = curve.paid(first, third)

    assert whole == pytest.approx(curve.paid(first, second) + curve.paid(second, third), abs=1e-6)


DISRUPTIONS = st.lists(
    st.tuples(
        st.floats(0.0, 40_000.0),
        st.floats(0.0, 20_000.0),
        st.integers(0, 5),
        st.integers(0, 5),
        st.floats(0.0, 0.9),
    ),
    max_size=4,
)


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 500),
    count=st.integers(1, 10),
    traffic=st.sampled_from([1.0, 30.0, 100.0]),
    drawn=DISRUPTIONS,
)
@pytest.mark.parametrize("name", [name for name in METHODS if name != "exact"])
def test_every_method_does_all_work_and_never_overcommits(name, seed, count, traffic, drawn):
    setting = drawn_setting(seed, count, least_largest_gpus=128)
    ids = setting.graph.region_ids
    disruptions = tuple(
        Disruption(at_s=at_s, until_s=at_s + lasts_s, factor=factor, **_struck(ids, here, there))
        for at_s, lasts_s, here, there, factor in drawn
    )
    setting = replace(
        setting,
        jobs=tuple(
            replace(job, activation_bytes=traffic * job.activation_bytes) for job in setting.jobs
        ),
        disruptions=disruptions,
    )
    method = METHODS[name]
    replacing = PayingMoves(method) if name == "spotline" else None

    # Whatever does not fit, at any event, raises.
    course = simulate(setting, method, replacing=replacing)
    again = simulate(setting, method, replacing=replacing)

    for job in setting.jobs:
        one = course.jobs[job.job_id]
        assert one.done_iterations == job.iterations
        assert one.jct_s >= job.iterations * job.iteration_s(job.best_gpus) * (1 - 1e-9)
        assert one.gpu_usd > 0
    assert course.figures(setting.basis) == again.figures(setting.basis)


def _struck(ids, here, there):
    return {"region_id": ids[here]} if here == there else {"link": (ids[here], ids[there])}


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 500),
    count=st.integers(2, 10),
    gpus=st.sampled_from([0.5, 1.0]),
    traffic=st.sampled_from([1.0, 60.0]),
    slacks=st.lists(
        st.sampled_from([0.9, 1.05, 1.2, 1.5, 2.0, math.inf]), min_size=10, max_size=10
    ),
    moves=st.booleans(),
)
def test_a_deadline_that_was_taken_is_met_where_nothing_fails(
    seed, count, gpus, traffic, slacks, moves
):
    setting = drawn_setting(seed, count, least_largest_gpus=128)
    jobs = tuple(
        replace(
            job,
            activation_bytes=traffic * job.activation_bytes,
            deadline_s=job.arrival_s + slack * job.iterations * job.iteration_s(job.best_gpus),
        )
        for job, slack in zip(setting.jobs, slacks, strict=False)
    )
    setting = scaled(replace(setting, jobs=jobs), gpus=gpus)
    method = METHODS["spotline"]

    course = simulate(setting, method, replacing=PayingMoves(method) if moves else None)

    for one in course.jobs.values():
        assert not one.late
        assert not one.after_waiting
        if one.refused:
            assert one.earliest_finish_s > one.job.deadline_s
