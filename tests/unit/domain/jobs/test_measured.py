"""What is believed of saves and overheads once they were measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.job import Checkpoint, Overheads
from spotline.domain.jobs.measured import (
    ENOUGH,
    KEPT,
    NEVER,
    NOTHING,
    Change,
    Measured,
    Quantity,
    corrected,
    high_of,
    planned_lead_s,
    stepped,
)
from spotline.domain.jobs.program import interruption_s
from spotline.domain.jobs.run import Run
from tests.fakes.selector import job_of

SECONDS = st.integers(0, 10**6)


def run_job(**changes: object):
    return job_of(run=Run(command=("train",)), **changes)


def after(samples: list[int]) -> Quantity:
    quantity = NEVER
    for sample in samples:
        quantity = quantity.with_sample(sample)
    return quantity


# --- one quantity -----------------------------------------------------------------------------


@given(SECONDS)
def test_the_grid_rounds_up_by_an_eighth_at_most(amount: int) -> None:
    assert amount <= stepped(amount) <= max(1, amount * 9 / 8)
    assert stepped(stepped(amount)) == stepped(amount)


def test_of_few_samples_a_quarter_more_than_the_greatest_counts() -> None:
    assert high_of((40,)) == 50
    assert high_of((10, 40, 20)) == 50


def test_of_many_samples_a_single_outlier_does_not_count() -> None:
    assert high_of((*[30] * (ENOUGH - 1), 900)) == 30
    assert high_of((*[30] * (ENOUGH - 2), 900, 900)) == 900


@given(st.lists(SECONDS, min_size=1, max_size=2 * KEPT))
def test_what_is_believed_is_never_below_the_rule_and_always_time(samples: list[int]) -> None:
    quantity = after(samples)

    assert quantity.believed is not None
    assert quantity.believed >= max(1, high_of(quantity.samples))
    assert len(quantity.samples) <= KEPT


def test_jitter_changes_what_is_believed_only_once_the_margin_is_gone() -> None:
    jitter = [60, *[40 + 7 * n % 21 for n in range(3 * KEPT)]]

    believed = [after(jitter[:count]).believed for count in range(1, len(jitter))]

    assert believed[: ENOUGH - 1] == [80] * (ENOUGH - 1)
    assert len(set(believed[ENOUGH - 1 :])) == 1


def test_more_is_believed_at_once_and_less_once_it_is_a_fifth() -> None:
    assert after([40] * 5 + [80]).believed == stepped(100)
    assert after([40] * KEPT + [36] * KEPT).believed == 40
    assert after([40] * KEPT + [32] * KEPT).believed == 32


# --- the job ----------------------------------------------------------------------------------


def test_a_job_of_which_nothing_was_measured_is_as_it_was_stated() -> None:
    stated = run_job()

    assert corrected(stated, stated, NOTHING) is stated


def test_a_save_corrects_seconds_and_size() -> None:
    stated = run_job(checkpoint=Checkpoint(interval_s=900, save_s=60, location="file:///c"))

    job = corrected(stated, stated, NOTHING.saved(16, 14_100_000_000))

    assert job.checkpoint == Checkpoint(
        interval_s=900, save_s=20, size_gb=14.336, location="file:///c"
    )
    assert job.overheads == stated.overheads


def test_a_smaller_checkpoint_does_not_make_the_known_size_smaller() -> None:
    measured = NOTHING.saved(16, 14_100_000_000).saved(16, 5)

    assert measured.size_mb == 14_336


def test_a_restart_corrects_the_overhead_of_its_kind() -> None:
    stated = run_job()

    job = corrected(stated, stated, NOTHING.restarted(Change.LAUNCH, 240))

    assert job.overheads == replace(stated.overheads, launch_s=320)


def test_a_slow_shrink_raises_what_was_not_measured() -> None:
    stated = run_job()

    job = corrected(stated, stated, NOTHING.restarted(Change.SHRINK, 320))

    assert job.overheads == Overheads(
        launch_s=416, grow_s=416, shrink_s=416, migrate_s=416, interrupted_s=416
    )


def test_a_quick_move_lowers_what_is_smaller() -> None:
    stated = run_job()

    job = corrected(stated, stated, NOTHING.restarted(Change.MIGRATE, 8))

    assert (job.overheads.shrink_s, job.overheads.grow_s, job.overheads.migrate_s) == (10, 10, 10)


@given(st.lists(st.tuples(st.sampled_from(list(Change)), SECONDS), max_size=30))
def test_corrected_overheads_are_always_in_order(samples: list[tuple[Change, int]]) -> None:
    stated = run_job()
    measured: Measured = NOTHING
    for change, seconds in samples:
        measured = measured.restarted(change, seconds)

    # Overheads out of order would be refused.
    job = corrected(stated, stated, measured)

    known = dict(measured.restarts)
    for change in (Change.LAUNCH, Change.GROW, Change.INTERRUPTED, Change.MIGRATE):
        believed = known[change].believed
        assert believed is None or getattr(job.overheads, f"{change.value}_s") >= believed


# --- the notice to plan with ------------------------------------------------------------------


@pytest.mark.parametrize("stated", [None, 0, 30, 120])
def test_until_a_save_was_measured_a_notice_saves_nothing(stated: int | None) -> None:
    job = run_job(checkpoint=Checkpoint(interval_s=900, save_s=0))

    unmeasured = planned_lead_s(job, stated)

    # Not even where a save is said to take no time.
    assert interruption_s(job, unmeasured) == (60, 900)


def test_a_measured_save_is_weighed_against_the_notice() -> None:
    stated = run_job()
    measured = NOTHING.saved(80, 1)
    job = corrected(stated, stated, measured)

    assert job.checkpoint.save_s == 104
    assert interruption_s(job, planned_lead_s(job, 120, measured)) == (60, 0)
    assert interruption_s(job, planned_lead_s(job, 100, measured)) == (60, 900)


@pytest.mark.parametrize("stated", [None, 0, 120])
def test_a_job_that_somebody_else_runs_is_planned_with_the_stated_notice(
    stated: int | None,
) -> None:
    assert planned_lead_s(job_of(), stated) == stated
