"""Where the page of money learns the limits that are in force."""

from __future__ import annotations

import asyncio

import pytest

from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.asked_live import LiveAbout, limits_of
from spotline.adapters.page.shared_answer import FRESH_S, SharedAnswer
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


class Allocator:
    """Answers once it may, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.may.set()
        self.fails = False

    async def limits(self) -> LimitsInForce:
        self.asked += 1
        await self.may.wait()
        if self.fails:
            raise ProviderUnavailable("no answer")
        return await _said()


async def test_readers_of_a_moment_share_one_answer() -> None:
    allocator, now = Allocator(), [0.0]
    shared = SharedAnswer(allocator.limits, clock=lambda: now[0])
    allocator.may.clear()
    readers = [asyncio.create_task(shared.get()) for _ in range(50)]
    await asyncio.sleep(0)
    allocator.may.set()
    answers = await asyncio.gather(*readers)
    now[0] = FRESH_S / 2
    within = await shared.get()
    asked_within = allocator.asked
    now[0] = FRESH_S
    await shared.get()

    assert all(answer is within for answer in answers)
    assert (asked_within, allocator.asked) == (1, 2)


async def test_a_reader_who_gives_up_leaves_the_question_to_the_others() -> None:
    allocator = Allocator()
    allocator.may.clear()
    shared = SharedAnswer(allocator.limits)
    leaving = asyncio.create_task(shared.get())
    await asyncio.sleep(0)
    staying = asyncio.create_task(shared.get())
    leaving.cancel()
    await asyncio.wait((leaving,))
    allocator.may.set()

    assert (await staying).jobs_judged
    assert (leaving.cancelled(), allocator.asked) == (True, 1)


async def test_what_failed_is_asked_again_by_the_next_reader() -> None:
    allocator = Allocator()
    allocator.fails = True
    shared = SharedAnswer(allocator.limits)
    with pytest.raises(ProviderUnavailable):
        await shared.get()
    allocator.fails = False

    assert (await shared.get()).jobs_judged
    assert allocator.asked == 2


async def test_all_pages_of_a_moment_ask_the_allocator_once() -> None:
    allocator = Allocator()
    about = LiveAbout(limits=limits_of(allocator.limits))
    told = await asyncio.gather(*(about.of(NOW) for _ in range(20)))
    about.close()

    assert {each.limits for each in told} == {await _said()}
    assert allocator.asked == 1
