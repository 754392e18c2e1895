"""The knowledge base: what it answers depends on its runs and their order, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.configurator.knowledge import (
    LEAST_LIVE_RUNS,
    KnowledgeBase,
    RunList,
    fitted_runs,
    why_not_learned,
)
from spotline.application.configurator.messages import PredictionRequest
from spotline.domain.configuration.configuration import RunOutcome
from spotline.domain.configuration.registry import DEFAULT_SOURCE, source_names
from tests.fakes.knowledge import (
    RecallingSource,
    configuration,
    measured,
    measured_runs,
    recalling,
)

COUNTS = st.integers(min_value=0, max_value=400)


def base_of(*arguments, **options) -> KnowledgeBase:
    return KnowledgeBase(*arguments, make=recalling, **options)


def rate_of(base: KnowledgeBase) -> float:
    """Thousands are runs learned in full, ones are runs observed."""
    (prediction,) = base.predict([configuration()])
    return prediction.tokens_per_s


# --- when to learn again ----------------------------------------------------------------------


@given(imported=COUNTS, more=COUNTS)
def test_less_than_a_tenth_or_ten_runs_are_left_to_observation(imported, more) -> None:
    fitted = fitted_runs(imported, imported + more)

    assert imported <= fitted <= imported + more
    assert imported + more - fitted < max(10, fitted / 10 + 1)


@given(imported=COUNTS, more=COUNTS, still_more=COUNTS)
def test_what_was_learned_in_full_stays_so(imported, more, still_more) -> None:
    before = fitted_runs(imported, imported + more)

    assert fitted_runs(imported, imported + more + still_more) >= before


@given(
    imported=st.integers(0, 40), learned=st.integers(0, 60), asked_at=st.sets(st.integers(0, 60))
)
def test_a_restarted_base_answers_as_the_one_that_lived_through_it(
    imported, learned, asked_at
) -> None:
    runs = measured_runs(imported + learned + 1)
    lived = base_of(runs[:imported])
    for number, run in enumerate(runs[imported:]):
        lived.observe(run)
        if number in asked_at:
            rate_of(lived)
        lived.refit()
    restarted = base_of(runs[:imported])
    for run in runs[imported:]:
        restarted.observe(run)

    assert rate_of(lived) == rate_of(restarted)
    assert lived.runs == restarted.runs == runs


def test_ten_more_runs_make_a_source_learn_anew_and_nine_do_not() -> None:
    runs = measured_runs(30)
    base = base_of(runs[:20])
    rate_of(base)

    for run in runs[20:29]:
        base.observe(run)
    refitted_at_nine = base.refit()
    rate_at_nine = rate_of(base)
    base.observe(runs[29])
    refitted_at_ten = base.refit()

    assert (refitted_at_nine, rate_at_nine) == (False, 20_009.0)
    assert (refitted_at_ten, rate_of(base)) == (True, 30_000.0)


def test_runs_that_come_during_a_fit_are_observed_when_it_is_adopted() -> None:
    runs = measured_runs(33)
    base = base_of(runs[:20])
    rate_of(base)
    for run in runs[20:30]:
        base.observe(run)
    plan = base.plan_refit()
    fit = plan.fit()
    for run in runs[30:]:
        base.observe(run)
    rate_meanwhile = rate_of(base)

    base.adopt(fit)

    assert rate_meanwhile == 20_013.0
    assert rate_of(base) == 30_003.0


def test_a_lesson_far_beyond_the_next_refit_is_not_observed_run_by_run() -> None:
    runs = measured_runs(500)
    base = base_of(runs[:20])
    rate_of(base)

    for run in runs[20:]:
        base.observe(run)

    assert rate_of(base) == 20_020.0
    assert base.refit()
    assert rate_of(base) == 1_000.0 * fitted_runs(20, 500) + 500 - fitted_runs(20, 500)


# --- runs -------------------------------------------------------------------------------------


def test_a_run_that_is_known_is_not_taken_twice() -> None:
    base = base_of([measured()])

    assert not base.observe(measured())
    assert base.observe(measured(20_001.0))
    assert len(base.runs) == 2


def test_a_run_list_keeps_the_first_of_equal_runs_in_order() -> None:
    one, other, *_ = measured_runs(2)

    runs = RunList([other, one, other])

    assert runs.first(5) == (other, one)
    assert runs.behind(1) == (one,)
    assert (len(runs), one in runs, measured(1.0) in runs) == (2, True, False)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (measured(model_name="nobody-knows"), "nobody-knows"),
        (measured(gpu_model="abacus"), "abacus"),
        (measured(1e308), "tokens_per_s must be 0 or within"),
        (measured(1e-300), "tokens_per_s must be 0 or within"),
        (measured(batch_size=3), "outcome must not be succeeded: batch_size must be a multiple"),
    ],
)
def test_a_run_that_cannot_be_learned_is_told_why(run, said) -> None:
    assert said in why_not_learned(run)


@pytest.mark.parametrize(
    "run",
    [
        measured(),
        measured(batch_size=3, outcome=RunOutcome.REJECTED),
        measured(outcome=RunOutcome.OUT_OF_MEMORY),
    ],
)
def test_runs_that_ended_as_they_had_to_are_learned(run) -> None:
    assert why_not_learned(run) == ""


def test_a_recorded_run_of_an_absurd_rate_is_passed_over() -> None:
    base = base_of(measured_runs(3))

    assert not base.observe(measured(1e308))
    assert len(base.runs) == 3


# --- the assumed stack ------------------------------------------------------------------------


def test_the_stack_with_most_successful_runs_is_assumed_and_by_name_among_equals() -> None:
    failed = [
        measured(stack="nemo", outcome=RunOutcome.OUT_OF_MEMORY, batch_size=8 * n)
        for n in range(1, 9)
    ]
    base = base_of([*measured_runs(3, stack="vectorlm"), *measured_runs(3), *failed])

    assert base.stack == "sfttrainer"


def test_runs_of_our_own_platform_come_before_all_others_once_there_are_some() -> None:
    base = base_of(measured_runs(50))
    own = measured_runs(LEAST_LIVE_RUNS, stack="live")

    for run in own[:-1]:
        base.observe(run)
    before = base.stack
    base.observe(own[-1])

    assert (before, base.stack) == ("sfttrainer", "live")


def test_a_configured_stack_stands_whatever_was_measured() -> None:
    base = base_of([measured(stack="live")], stack="nemo")

    assert base.stack == "nemo"


def test_without_any_run_no_stack_is_assumed() -> None:
    assert base_of().stack == ""


# --- answers ----------------------------------------------------------------------------------


def test_a_source_is_made_when_it_is_first_asked_and_not_before() -> None:
    made: list[str] = []

    def make(name: str):
        made.append(name)
        return recalling(name)

    base = KnowledgeBase(measured_runs(3), make=make)
    before = tuple(made)
    base.predict([configuration()], source_id="history")
    base.predict([configuration()], source_id="history")

    assert (before, made) == ((), ["history"])


def test_an_answer_is_a_prediction_or_a_reason() -> None:
    base = base_of(measured_runs(3))

    known = base.answer(PredictionRequest(configurations=(configuration(),)))
    unknown = base.answer(PredictionRequest(configurations=(configuration(),), stack="nemo"))

    assert known.answers[0].prediction.tokens_per_s == 3_000.0
    assert unknown.answers[0].prediction is None
    assert unknown.answers[0].reason == "no run of stack 'nemo'"


def test_an_unknown_source_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"source_id must be one of analytic, .*was 'oracle'"):
        base_of().plan_first_fit(["oracle"])


def test_only_sources_never_asked_are_planned_and_the_empty_name_is_the_default() -> None:
    base = base_of(measured_runs(3))
    base.predict([configuration()])

    plan = base.plan_first_fit(["", "history"])

    assert plan.source_ids == ("history",)
    assert base.plan_first_fit([""]) is None


def test_description_names_every_source_what_it_learned_and_the_assumed_stack() -> None:
    base = base_of([*measured_runs(3), measured(outcome=RunOutcome.FAILED)])

    known = base.describe()

    assert known.default_source_id == DEFAULT_SOURCE
    assert known.stack == "sfttrainer"
    assert tuple(one.source_id for one in known.sources) == source_names()
    assert {(one.runs, one.failed_runs) for one in known.sources} == {(3, 1)}


def test_a_default_that_combines_others_describes_them_and_they_need_not_learn_alone() -> None:
    made: list[str] = []

    class Combining(RecallingSource):
        def members(self):
            return tuple(
                replace(self.describe(), source_id=name, weight=0.5)
                for name in ("history", "online")
            )

    def make(name: str):
        made.append(name)
        return Combining() if name == DEFAULT_SOURCE else recalling(name)

    known = KnowledgeBase(measured_runs(3), make=make).describe()

    assert tuple(one.source_id for one in known.sources) == source_names()
    assert {one.source_id for one in known.sources if one.weight} == {"history", "online"}
    assert set(made) == set(source_names()) - {"history", "online"}
