"""Admission for methods that have none, and the most deadlines that can be met."""

from dataclasses import replace

import pytest

from spotline.bench.placement.admission import Admitting, most_deadlines
from spotline.bench.placement.deadlines import due
from spotline.bench.placement.setting import scaled
from spotline.bench.placement.settings_paper import drawn_setting, paper_setting
from spotline.bench.placement.simulate import simulate
from spotline.domain.placement.methods.registry import METHODS
from spotline.domain.placement.pipeline import NoPlacement, Placement
from tests.unit.domain.placement.worlds import graph_of, job_of, moment_of


def test_every_second_job_is_due_so_many_times_its_shortest_time_after_arrival():
    setting = due(paper_setting(), 1.5)

    first, second = setting.jobs[:2]
    assert second.deadline_s == float("inf")
    shortest_s = first.iterations * first.iteration_s(first.best_gpus)
    assert first.deadline_s - first.arrival_s == pytest.approx(1.5 * shortest_s)


def test_admission_refuses_whose_place_would_be_late_and_gives_it_to_others():
    late = job_of("late", deadline_s=100 * job_of().iteration_s(20))
    other = job_of("other", arrival_s=1.0)

    answers = Admitting(METHODS["lcf"]).place([late, other], moment_of(graph_of([16])))

    by_id = {answer.job_id: answer for answer in answers}
    assert by_id["late"].earliest_finish_s == pytest.approx(100 * job_of().iteration_s(16))
    assert isinstance(by_id["other"], Placement)


def test_admission_lets_a_job_wait_while_empty_regions_would_do():
    first = job_of("first")
    waits = job_of("waits", arrival_s=1.0, deadline_s=100 * job_of().iteration_s(16) + 50.0)
    method, moment = Admitting(METHODS["lcf"]), moment_of(graph_of([16]))

    early = {answer.job_id: answer for answer in method.place([first, waits], moment)}
    late = {
        answer.job_id: answer
        for answer in method.place([first, waits], replace(moment, now_s=100.0))
    }

    assert isinstance(early["waits"], NoPlacement)
    assert early["waits"].earliest_finish_s is None
    assert late["waits"].earliest_finish_s is not None


def test_two_that_need_all_gpus_at_once_cannot_both_be_met():
    setting = paper_setting()
    graph = graph_of([16])
    deadline_s = 100 * job_of().iteration_s(16) + 120.0
    both = tuple(job_of(name, deadline_s=deadline_s) for name in ("one", "two"))
    later = (both[0], replace(both[1], deadline_s=2 * deadline_s))

    assert most_deadlines(replace(setting, graph=graph, jobs=both)) == 1
    assert most_deadlines(replace(setting, graph=graph, jobs=later)) == 2


@pytest.mark.parametrize("name", ["spotline", "bace_pipe", "cr_ldf"])
def test_nobody_meets_more_than_the_most_and_admitted_jobs_are_not_late(name):
    for seed in (3, 4):
        setting = scaled(due(drawn_setting(seed, least_largest_gpus=128), 1.2, every=1), gpus=0.5)
        method = METHODS[name] if name == "spotline" else Admitting(METHODS[name])

        figures = simulate(setting, method).figures(setting.basis)

        assert figures["deadlines_met"] <= most_deadlines(setting)
        assert figures["late"] == 0
