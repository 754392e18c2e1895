"""What `up` says while it runs."""

from __future__ import annotations

from spotline.cli.up_notes import UpNotes
from spotline.contracts.build import envelope_for
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed, JobOutcome, JobSubmitted
from tests.fakes.allocator import START_NS, job, slot_opened


def closed(request_id: str, outcome: JobOutcome) -> JobClosed:
    return JobClosed(
        job_id=job(request_id).job_id,
        tenant="research",
        slot=4,
        outcome=outcome,
        policy_id="msu",
        cost_micro_usd=5_000_000,
        value_micro_usd=0,
        progress_ppm=1_000_000,
    )


def noted(before: list[Event], after: list[Event]) -> list[str]:
    """What is said of events after the beginning."""
    said: list[str] = []
    notes = UpNotes(said.append)
    for index, event in enumerate([*before, None, *after]):
        if event is None:
            notes.begin()
            continue
        envelope = envelope_for(
            event, event_id=str(index), source="test", causation_id="", correlation_id="c"
        )
        notes.on_applied(event, envelope, index)
    return said


def submitted(request_id: str) -> JobSubmitted:
    return JobSubmitted(job=job(request_id), ts_event_ns=START_NS)


def test_one_line_says_that_all_jobs_are_over_and_how() -> None:
    said = noted(
        [submitted("a")],
        [
            submitted("b"),
            closed("a", JobOutcome.COMPLETED),
            closed("b", JobOutcome.MISSED_DEADLINE),
        ],
    )

    assert said == ["all jobs are over: 1 completed, 1 missed deadline; 10.00 USD spent"]


def test_the_end_of_a_market_is_said_with_what_is_left_undone() -> None:
    said = noted([submitted("a")], [slot_opened(3), slot_opened(4, last=True)])

    assert said == [
        "the market's last slot has opened, it ends at 2026-03-01T00:50:00Z: no slot follows, "
        "nothing more is decided; not over: 1 of its jobs"
    ]


def test_the_past_of_a_store_is_not_said_again_but_that_its_market_ended() -> None:
    said = noted([submitted("a"), closed("a", JobOutcome.COMPLETED), slot_opened(4, last=True)], [])

    assert len(said) == 1
    assert said[0].startswith("the market's last slot has opened")
