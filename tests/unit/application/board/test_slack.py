"""A job's slack does not depend on how many places there are that are alike to it."""

import pytest

from spotline.application.board.slack import pace_of
from tests.samples.page_logs import RUNNING, book_of, every_member, large


def paces(entries):
    state = book_of(entries).head.jobs
    now_ns = max(state.board.now_ns, state.now_ns)
    return {
        status.job.name: pace_of(state.board.entries[job_id], status.job, state.recent, now_ns)
        for job_id, status in state.statuses.items()
        if not state.board.entries[job_id].over
    }


@pytest.mark.parametrize("of", [2, 9])
def test_more_places_that_are_alike_change_no_slack(of):
    few, many = paces(large(jobs=4, of=1, slots=4)), paces(large(jobs=4, of=of, slots=4))
    assert {name: pace.latest_start_ns for name, pace in few.items()} == {
        name: pace.latest_start_ns for name, pace in many.items()
    }
    assert any(pace.done_at_ns for pace in many.values())


def test_what_is_held_says_when_the_work_is_done():
    assert paces(every_member())[RUNNING].done_at_ns > 0
