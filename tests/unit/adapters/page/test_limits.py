"""Where the page of money learns the limits that are in force."""

from __future__ import annotations

import asyncio

import pytest

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.limits import live_limits, recorded_limits, with_limits
from spotline.adapters.page.pages import PAGES
from spotline.application.operations.messages import LimitsInForce
from spotline.contracts.errors import ProviderUnavailable
from tests.fakes.paged import page_text, paid_story

ASKED = PageAsked(path="/money")
SPENDING = '{"total": {"micro_usd_per_day": 1100000}}'


def test_limits_of_a_log_are_those_that_its_selector_was_started_with() -> None:
    gather = recorded_limits({"selector": {"spending": SPENDING, "limits": True}})

    text = page_text(paid_story().state, "/money", found=asyncio.run(gather(ASKED)))
    assert "$1.10" in text
    assert "Every job has a limit of its own" in text


def test_a_log_that_states_no_selector_has_no_known_limits() -> None:
    assert asyncio.run(recorded_limits({})(ASKED)) == {}
    assert "not known here" in page_text(paid_story().state, "/money")


def test_settings_that_are_malformed_are_refused() -> None:
    with pytest.raises(ValueError, match="total"):
        recorded_limits({"selector": {"spending": '{"total": 3}'}})


def test_a_system_that_does_not_answer_leaves_the_limits_unknown() -> None:
    async def silent() -> LimitsInForce:
        raise ProviderUnavailable("no answer")

    async def known() -> LimitsInForce:
        return LimitsInForce(jobs_judged=True)

    assert asyncio.run(live_limits(silent)(ASKED)) == {}
    assert asyncio.run(live_limits(known)(ASKED)) == {"limits": LimitsInForce(jobs_judged=True)}


def test_the_page_of_money_alone_asks_for_limits() -> None:
    gather = recorded_limits({})

    asking = [page.path for page in with_limits(PAGES, gather) if page.gather is gather]
    assert asking == ["/money"]
