"""The pages as the browser visits them: a line for each."""

from __future__ import annotations

from dataclasses import dataclass

EVERY, ENDED, EMPTY = "every-member", "ended-market", "empty-market"
RECORDED = "recorded"
"""A run on a rehearsed AWS, of tests/data/page."""
LEARNED = "learned"
"""A small run of which laws of the market were learned."""
CUT, CUT_AT = "cut", 9
"""The first log as it was at the end of that slot."""

INTERRUPTED_JOB = "d81e6a759b0288610c71b2db79242370"
"""Of the recorded run: it lost instances in slots 36, 39 and 45."""


@dataclass(frozen=True)
class PageCase:
    """A page to visit: of which log, and words that it must show."""

    name: str
    path: str
    says: tuple[str, ...]
    log: str = EVERY


CASES = (
    PageCase("now", "/", ("Needs a look", "job at risk", "Slack of open jobs")),
    PageCase("now-past", "/?at=3", ("Now", "as it was at the end of slot 3")),
    PageCase("now-good", "/", ("Nothing needs you",), log=EMPTY),
    PageCase("now-ended", "/", ("market ended",), log=ENDED),
    PageCase("jobs", "/jobs", ("it runs", "P(on time)")),
    PageCase("jobs-filtered", "/jobs?phase=missed", ("2 of 15 jobs",)),
    PageCase("jobs-none", "/jobs?text=nothing-like-it", ("No job is like that",)),
    PageCase("jobs-empty", "/jobs", ("There is no job yet",), log=EMPTY),
    PageCase("replay", "/replay", ("Verify this log", "Run it again")),
    PageCase("system", "/system", ("Parked entries", "made for tests", "i-orphan")),
    PageCase("system-empty", "/system", ("Nothing stops buying",), log=EMPTY),
    PageCase("market", "/market", ("Market",)),
    PageCase("market-empty", "/market", ("Market",), log=EMPTY),
    PageCase("money", "/money", ("Money",)),
    PageCase("money-empty", "/money", ("Money",), log=EMPTY),
    PageCase("charges", "/money/charges", ("charges",)),
    PageCase("policies", "/policies", ("Policies",)),
    PageCase("recorded-now", "/?at=46", ("Needs a look", "launches refused"), log=RECORDED),
    PageCase("recorded-jobs", "/jobs?at=46", ("fine-tune",), log=RECORDED),
    PageCase("recorded-job", f"/jobs/{INTERRUPTED_JOB}", ("fine-tune",), log=RECORDED),
    PageCase(
        "recorded-decision", f"/jobs/{INTERRUPTED_JOB}/decisions/39", ("interrupted",), log=RECORDED
    ),
    PageCase("recorded-market", "/market?at=46", ("Market",), log=RECORDED),
    PageCase("recorded-money", "/money?at=46", ("Money",), log=RECORDED),
    PageCase("recorded-policies", "/policies", ("Policies",), log=RECORDED),
    PageCase("refused", "/jobs?phase=nonsense", ("expected one of waiting",)),
)

SHORT = ("now", "jobs", "system", "replay")
"""What `make test-web SHORT=1` visits."""
