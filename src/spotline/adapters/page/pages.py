"""Which pages there are, in the order of the navigation."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.app import Page
from spotline.adapters.page.making.jobs import jobs_page
from spotline.adapters.page.making.market import market_page, offering_page
from spotline.adapters.page.making.money import charges_csv, charges_page, money_page
from spotline.adapters.page.making.policies import policies_page

PAGES: Sequence[Page] = (
    Page(path="/jobs", template="jobs.html", build=jobs_page, name="Jobs"),
    Page(path="/market", template="market.html", build=market_page, name="Market"),
    Page(
        path="/market/{offering_id:path}",
        template="offering.html",
        build=offering_page,
        under="/market",
    ),
    Page(path="/money", template="money.html", build=money_page, name="Money"),
    Page(path="/money/charges", template="charges.html", build=charges_page, under="/money"),
    Page(
        path="/money/charges.csv",
        template="plain.txt",
        build=charges_csv,
        under="/money",
        download="charges.csv",
    ),
    Page(
        path="/policies", template="policies.html", build=policies_page, name="Policies", whole=True
    ),
)
