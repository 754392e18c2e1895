"""What owners are told of every event of a job."""

from __future__ import annotations

import pytest

from spotline.application.allocator.handler import SPEC
from spotline.application.allocator.happenings import LONGEST_TEXT, happening_text
from spotline.domain.events.lifecycle import JobExited
from tests.samples.events import SAMPLES

# What changes too often, or is no news to an owner.
QUIET = {
    *("MarketOpened", "SlotOpened", "ForecastIssued", "JobAdvanced", "JobProgressReported"),
    *("AdmissionRecorded", "ValueTableRequested", "CapacityReported", "InstancesEnded"),
    *("PipelineSubmitted", "PlacementDecided", "PlacementEnded", "CostAccrued"),
}


@pytest.mark.parametrize(
    "event",
    [one for one in SAMPLES if type(one) in SPEC.consumes],
    ids=lambda one: type(one).__name__,
)
def test_every_event_of_a_job_is_told_or_known_to_be_no_news(event):
    text = happening_text(event)

    assert (text is None) == (type(event).__name__ in QUIET)
    assert text is None or (text and "\n" not in text and "None" not in text)


def test_a_programs_last_words_are_one_line_of_bounded_length():
    exited = JobExited(
        job_id="j",
        tenant="t",
        generation=1,
        exit_code=1,
        detail="Trace\n  back\n" * 200,
        ts_event_ns=0,
    )

    text = happening_text(exited)

    assert text.startswith("the program failed with exit code 1: Trace back")
    assert len(text) == LONGEST_TEXT
