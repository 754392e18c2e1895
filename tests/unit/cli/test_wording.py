"""Amounts, times and shares in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.board.messages import JobPhase, JobView, WaitingFor
from spotline.application.placer.messages import PlacementPhase
from spotline.cli.phases import JobPhaseWord, PipelinePhaseWord
from spotline.cli.wording import lasting, phase_text, probability, short_ids


@pytest.mark.parametrize(
    ("ppm", "said"),
    [
        (1_000_000, "100 %"),
        (999_999, ">99 %"),
        (994_000, "99 %"),
        (5_000, "0 %"),
        (4_999, "<1 %"),
        (0, "0 %"),
    ],
)
def test_what_is_not_certain_is_not_said_to_be(ppm: int, said: str) -> None:
    assert probability(ppm) == said


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (-90, "-1 min 30 s"), (190_800, "2 d 5 h"), (720, "12 min")]
)
def test_a_duration_has_a_sign(seconds: int, said: str) -> None:
    assert lasting(seconds) == said


def test_what_a_job_waits_for_is_part_of_its_phase() -> None:
    waiting = JobView(phase=JobPhase.WAITING, waiting_for=WaitingFor.PRICE)
    interrupted = JobView(phase=JobPhase.INTERRUPTED, waiting_for=WaitingFor.INSTANCES)

    assert phase_text(waiting) == "waiting for price"
    assert phase_text(interrupted) == "interrupted, waiting for instances"


@given(st.sets(st.text("0123456789abcdef", min_size=32, max_size=32), max_size=40))
def test_shortened_ids_tell_all_jobs_apart(ids: set[str]) -> None:
    short = short_ids(sorted(ids))

    assert set(short) == ids
    assert all(job_id.startswith(begin) and len(begin) >= 8 for job_id, begin in short.items())
    for job_id, begin in short.items():
        assert [other for other in ids if other.startswith(begin)] == [job_id]


def test_options_know_every_phase() -> None:
    assert {phase.value for phase in JobPhaseWord} == {phase.value for phase in JobPhase}
    assert {phase.value for phase in PipelinePhaseWord} == {phase.value for phase in PlacementPhase}
