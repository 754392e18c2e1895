"""The list of jobs: what its address asks for, nothing left out between its pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.board.messages import JobFlag, JobPhase
from spotline.application.page import job_list as module
from spotline.application.page.about import NOTHING_KNOWN
from spotline.application.page.job_list import JobOrder, JobsAsked, job_list
from spotline.application.page.now import rows_of
from tests.samples.page_logs import book_of, every_member

STATE = book_of(every_member()).head
ROWS = rows_of(STATE, NOTHING_KNOWN, "")


@pytest.mark.parametrize("phase", JobPhase, ids=lambda phase: phase.value)
def test_a_phase_leaves_its_own_jobs(phase):
    listed = job_list(STATE, ROWS, JobsAsked(phase=phase)).listed
    assert bool(listed) == (phase is not JobPhase.MARKET_ENDED)
    assert {each.row.view.phase for each in listed} <= {phase}


@pytest.mark.parametrize("flag", JobFlag, ids=lambda flag: flag.value)
def test_a_flag_leaves_the_jobs_that_have_it(flag):
    listed = job_list(STATE, ROWS, JobsAsked(flag=flag)).listed
    assert listed
    assert all(flag in each.row.view.flags for each in listed)


def test_text_is_found_in_names_and_ids():
    (only,) = job_list(STATE, ROWS, JobsAsked(text="IT WAITS")).listed
    again = job_list(STATE, ROWS, JobsAsked(text=only.row.job_id[:9])).listed
    assert only in again


@given(order=st.sampled_from(JobOrder), descending=st.booleans(), size=st.integers(1, 20))
def test_pages_hold_each_job_once(order, descending, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAGE_SIZE", size)
        asked = JobsAsked(order=order, descending=descending)
        pages = job_list(STATE, ROWS, asked).pages
        ids = [
            each.row.job_id
            for page in range(1, pages + 1)
            for each in job_list(
                STATE, ROWS, JobsAsked(order=order, descending=descending, page=page)
            ).listed
        ]
    assert sorted(ids) == sorted(row.job_id for row in ROWS)


def test_a_page_behind_the_last_is_the_last():
    assert job_list(STATE, ROWS, JobsAsked(page=99)).page == 1
