"""Which pages there are, in the order of the navigation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.adapters.page.app import PageSpec
from spotline.adapters.page.making.comparison import ComparisonMaker
from spotline.adapters.page.making.job_pages import job_pages
from spotline.adapters.page.making.jobs import JobsMaker, jobs_page
from spotline.adapters.page.making.market import market_page, offering_page
from spotline.adapters.page.making.money import charges_csv, charges_page, money_page
from spotline.adapters.page.making.now import now_page
from spotline.adapters.page.making.policies import policies_page
from spotline.adapters.page.making.replay import replay_page
from spotline.adapters.page.making.system import system_page
from spotline.adapters.page.sources import PageSources

PAGES: Sequence[PageSpec] = (
    PageSpec(path="/", template="now.html", build=now_page, name="Now"),
    PageSpec(path="/jobs", template="jobs.html", build=jobs_page, name="Jobs"),
    PageSpec(path="/market", template="market.html", build=market_page, name="Market"),
    PageSpec(
        path="/market/{offering_id:path}",
        template="offering.html",
        build=offering_page,
        under="/market",
    ),
    PageSpec(path="/money", template="money.html", build=money_page, name="Money"),
    PageSpec(path="/money/charges", template="charges.html", build=charges_page, under="/money"),
    PageSpec(
        path="/money/charges.csv",
        template="plain.txt",
        build=charges_csv,
        under="/money",
        download="charges.csv",
    ),
    PageSpec(
        path="/policies", template="policies.html", build=policies_page, name="Policies", whole=True
    ),
    PageSpec(path="/replay", template="replay.html", build=replay_page, name="Replay", whole=True),
    PageSpec(path="/system", template="system.html", build=system_page, name="System", whole=True),
)


def pages_with(sources: PageSources) -> Sequence[PageSpec]:
    """All pages: `PAGES`, and those that ask others for what is not in the book."""
    comparison, jobs = ComparisonMaker(sources), JobsMaker(sources)
    return (
        *(replace(page, build=jobs.page) if page.path == "/jobs" else page for page in PAGES),
        PageSpec(
            path="/jobs/expected",
            template="jobs_expected.html",
            build=jobs.expected_part,
            under="/jobs",
            gather=jobs.expected,
        ),
        PageSpec(
            path="/money/rules",
            template="money_rules.html",
            build=comparison.rules_part,
            under="/money",
            gather=comparison.rules,
        ),
        PageSpec(
            path="/policies/bound",
            template="policies_bound.html",
            build=comparison.bound_part,
            under="/policies",
            whole=True,
            gather=comparison.bound,
        ),
        *job_pages(sources),
    )
