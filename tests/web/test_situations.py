"""Five situations, each as the person meets it: the page answers when, how much, why and what to do."""

from __future__ import annotations

import os
import re

import pytest

from spotline.application.page.words import said
from spotline.domain.policies.answer import DecisionReason
from tests.samples.page_logs import AT_RISK, RUNNING, job_named
from tests.web.cases import EVERY, INTERRUPTED_JOB, RECORDED
from tests.web.conftest import shot
from tests.web.test_pages import violations

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("SPOTLINE_WEB_SHORT")), reason="only the main pages are asked for"
)
FIRST_REASON_SLOT = 7
"""Of the first log: from there on each slot decides its running job for another reason."""


def of_kind(page, kind):
    """The rows of the red list of a kind, as text."""
    rows = page.locator(".red-list tbody tr", has=page.locator(".trouble", has_text=kind))
    return [re.sub(r"\s+", " ", text) for text in rows.all_inner_texts()]


def test_a_job_that_was_interrupted_three_times(served, visits):
    """Its owner: how often, with notice, what did it cost me, what was done, is it on time."""
    page = visits.open(f"{served(RECORDED)}/jobs/{INTERRUPTED_JOB}?at=46")
    text = re.sub(r"\s+", " ", page.inner_text("#view"))
    losses = [re.sub(r"\s+", " ", row) for row in page.locator("tr[id^=loss-]").all_inner_texts()]

    assert "interrupted 3 times (7 instances)" in text
    assert "7 4 with notice; 2 moves" in text
    assert len(losses) == 3
    assert "3 of 4" in losses[0]
    assert "without" in losses[1]
    assert "21.0 % 20.4 % 0.6 % lost" in losses[2]
    assert "$162.66" in text
    assert "on-demand alone" in text
    shot(page, "situation-interrupted")
    page.locator("tr[id^=loss-] a").last.click()
    page.wait_for_url(re.compile(r"/decisions/36"))
    assert "interrupted" in page.inner_text("#view").lower()


def test_a_job_at_risk(served, visits):
    """Who is on call, and its owner: by how much, why, and which deadline can still be met."""
    now = visits.open(served(EVERY) + "/")
    (row,) = of_kind(now, "job at risk")
    now.get_by_role("link", name=AT_RISK, exact=True).first.click()
    now.wait_for_url(re.compile(job_named(AT_RISK).job_id))
    job = re.sub(r"\s+", " ", now.inner_text("#need-at_risk"))

    assert "on-demand alone would be 9 h 10 min late" in row
    for text in (row, job):
        assert "its deadline has passed" in text.lower()
        # 9 h 10 min after its deadline of 09:00.
        assert "meets 2026-01-01T18:10:00Z at the earliest" in text
        assert "--deadline 2026-01-01T18:10:00Z" in text
    assert "deadline 2026-01-01 09:00 UTC" in re.sub(r"\s+", " ", now.inner_text("#view"))
    shot(now, "situation-at-risk")
    assert violations(now) == []


def test_a_dead_feed(served, visits):
    """Who is on call: whose, since when, which jobs it touches, what is decided meanwhile."""
    page = visits.open(served(EVERY) + "/")
    (row,) = of_kind(page, "old quotes")

    assert "aws/main" in row
    assert "1 of 2 quotes are older than 90 min, the oldest 11.1 h" in row
    assert "1 job holds something there: it moves" in row
    assert "2025-12-31 23:23" in row
    assert "decided by the last quotes" in row
    assert "spotline status" in row


def test_a_limit_that_is_reached(served, visits):
    """Who is on call, and who pays: which, by how much, until when, who waits, what raises it."""
    page = visits.open(served(EVERY) + "/")
    (row,) = of_kind(page, "limit near")
    jobs = of_kind(page, "at a limit")

    assert "total, a day" in row
    assert "$2,688.00 of $2,500.00 a day is spent (107 %)" in row
    assert re.search(r"used up: \d+\.\d h until it has room again", row)
    assert "spotline limits set total --span day --usd AMOUNT --reason WHY" in row
    assert len(jobs) == 4
    assert all("spotline limits set job --usd AMOUNT" in job for job in jobs)
    page.goto(served(EVERY) + "/money")
    limits = re.sub(r"\s+", " ", page.inner_text("#limit-total-day"))
    assert "$2,688.00" in limits
    assert "$2,500.00" in limits
    shot(page, "situation-limit")


def test_the_end_of_a_month(served, visits):
    """Who pays: what has it cost, what will it, whose was it, was it worth it, where are the books."""
    page = visits.open(served(RECORDED) + "/money?at=46")
    month = re.sub(r"\s+", " ", page.inner_text("section[aria-labelledby=month]"))

    assert "since 2026-01-01 00:00" in month
    assert "charged $531.94" in month
    assert "26 d 1 h to 2026-02-01 00:00" in month
    assert "as much an hour as the last 23 h" in month
    assert "the month before $0.00" in month
    assert "spotline export focus" in month
    text = page.inner_text("#view")
    for words in ("on-demand alone", "saved", "failed spend", "research", "support", "search"):
        assert words in text
    shot(page, "situation-month")
    assert violations(page) == []


def test_every_reason_of_a_decision_is_said_in_words(served, visits):
    """One page after another in one browser: what it was, and what that means."""
    job_id, page = job_named(RUNNING).job_id, visits.open(served(EVERY) + "/jobs")
    shown = {}
    for place, reason in enumerate(DecisionReason):
        page.goto(f"{served(EVERY)}/jobs/{job_id}/decisions/{FIRST_REASON_SLOT + place}")
        shown[reason] = page.inner_text("#view").lower()

    for reason, text in shown.items():
        assert said(reason).name in text, reason
        assert said(reason).means.lower() in text, reason
