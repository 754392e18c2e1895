"""Where the page of money learns the limits that are in force."""

from __future__ import annotations

import asyncio

import pytest

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.asked_live import LiveAbout, limits_of
from spotline.application.operations.messages import LimitsInForce, SpendUse
from spotline.application.page.about import About
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.replay.handlers import selector_options
from tests.fakes.paged import page_text, paid_story

SPENDING = '{"total": {"micro_usd_per_day": 1100000}}'
NOW, PAST = PageAsked(path="/money"), PageAsked(path="/money", at=0)


async def _said() -> LimitsInForce:
    use = SpendUse(what="total", span="day", used_micro_usd=5, limit_micro_usd=1_234_000)
    return LimitsInForce(jobs_judged=True, uses=(use,))


async def _never() -> LimitsInForce:
    await asyncio.Event().wait()
    raise AssertionError("it is given up")


async def _silent() -> LimitsInForce:
    raise ProviderUnavailable("no answer")


def test_limits_of_a_log_are_those_that_its_selector_was_started_with() -> None:
    options = selector_options({"selector": {"spending": SPENDING, "limits": True}})

    text = page_text(paid_story().state, "/money", found={"about": About(selector=options)})
    assert "$1.10" in text
    assert "Every job has a limit of its own" in text


def test_without_settings_limits_are_not_known() -> None:
    assert "not known here" in page_text(paid_story().state, "/money")


def test_settings_that_are_malformed_are_refused() -> None:
    with pytest.raises(ContractError, match="total"):
        selector_options({"selector": {"spending": '{"total": 3}'}})


def test_a_running_system_says_its_limits_for_now_alone() -> None:
    about = LiveAbout(limits=limits_of(_said))

    text = page_text(paid_story().state, "/money", found={"about": asyncio.run(about.of(NOW))})
    assert "$1.23" in text
    assert asyncio.run(about.of(PAST)) == About()


def test_a_system_that_does_not_answer_leaves_the_limits_unknown() -> None:
    about = LiveAbout(limits=limits_of(_silent))

    assert asyncio.run(about.of(NOW)).limits is None


def test_a_page_does_not_wait_for_a_system_that_never_answers() -> None:
    about = LiveAbout(limits=limits_of(_never), wait_s=0.01)

    assert asyncio.run(about.of(NOW)).limits is None
