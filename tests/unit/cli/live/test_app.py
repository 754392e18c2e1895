"""The live view, driven by keys, without a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.widgets import DataTable, Static

from spotline.cli.live.app import DetailScreen, LiveView
from tests.fakes.boards import EXPLANATION, FakeFeed, at_risk, board, hostile, running

WIDE = (160, 48)


def text_of(app: LiveView) -> str:
    """The screen as it is seen, line by line."""
    lines = app.screen._compositor.render_strips(app.screen.size)
    return "\n".join(strip.text.rstrip() for strip in lines)


async def seen(pilot: object, app: LiveView, what: Callable[[str], bool]) -> str:
    """The screen once it shows something."""
    for _ in range(500):
        shown = text_of(app)
        if what(shown):
            return shown
        await pilot.pause()  # type: ignore[attr-defined]
    raise AssertionError(text_of(app))


@pytest.mark.parametrize("size", [WIDE, (120, 40), (80, 36)])
async def test_everything_is_on_one_screen_and_nothing_is_cut(size: tuple[int, int]) -> None:
    shown = board()
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=size) as pilot:
        screen = await seen(pilot, app, lambda text: "of 45.00 quoted" in text)

    assert "2026-03-01T01:30:00Z, slot 9 of 10 min, open" in screen
    assert "3 spot + 1 on-demand, 19.00 USD per hour" in screen
    assert "AT RISK, STALLED" in screen
    assert "waiting for capacity" in screen
    assert "12.30 USD of 45.00 quoted (38.00 to 61.00)" in re.sub(r"\s+", " ", screen)
    assert running().job.job_id[:8] in screen
    assert "\x1b" not in screen
    assert "\u202e" not in screen


@pytest.mark.parametrize(("size", "keys"), [(WIDE, ()), ((80, 36), ("m",))])
async def test_the_market_of_the_chosen_job_is_beside_it_or_a_key_away(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    shown = board()
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        screen = await seen(pilot, app, lambda text: "of on-demand" in text)

    assert "aws/us-east-1/use1-az1/p4d.24xlarge" in screen
    assert "there are  4 spot" in screen


async def test_arrows_choose_a_job_and_enter_shows_all_of_it() -> None:
    shown = board(running(), at_risk())
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        # What deserves a look comes first.
        await seen(pilot, app, lambda text: "Waits for capacity; 42 % done" in text)
        await pilot.press("down")
        await seen(pilot, app, lambda text: "Runs on 3 spot" in text)
        await pilot.press("enter")
        details = await seen(pilot, app, lambda text: "otherwise" in text)
        await pilot.press("escape")
        await seen(pilot, app, lambda text: "otherwise" not in text)

    assert running().job.job_id in details
    assert "3 interruptions (2 with a notice)" in details


async def test_the_slash_narrows_the_table_and_escape_ends_that() -> None:
    shown = board(running(), at_risk(), hostile())
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("slash", *"capacity")
        await pilot.pause()
        narrowed = app.query_one(DataTable).row_count
        await pilot.press("enter", "escape")
        await pilot.pause()
        again = app.query_one(DataTable).row_count

    assert (narrowed, again) == (1, 3)


async def test_events_are_shown_the_newest_first_and_escaped() -> None:
    shown = board()
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("e")
        events = await seen(pilot, app, lambda text: "capacity.lost" in text)

    assert events.index("capacity.lost") < events.index("job.submitted")
    assert "\\x1b[2J" in events


async def test_x_says_why() -> None:
    shown = board(running())
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("x")
        why = await seen(pilot, app, lambda text: EXPLANATION.method[:20] in text)

    assert "why not" in why


async def test_a_change_is_drawn_and_the_chosen_job_stays_chosen() -> None:
    shown = board(running(), at_risk())
    feed = FakeFeed(shown)
    app = LiveView(feed, shown, selected=at_risk().job.job_id)
    async with app.run_test(size=WIDE) as pilot:
        await seen(pilot, app, lambda text: "Waits for capacity" in text)
        feed.shown = board(replace(running(), progress_ppm=990_000), at_risk())
        app.look()
        screen = await seen(pilot, app, lambda text: "99 %" in text)

    assert "Waits for capacity" in screen


async def test_what_does_not_answer_is_said_and_the_last_stays() -> None:
    shown = board()
    feed = FakeFeed(shown)
    app = LiveView(feed, shown)
    async with app.run_test(size=WIDE) as pilot:
        feed.broken = "the allocator cannot be reached"
        app.look()
        screen = await seen(pilot, app, lambda text: "NO ANSWER" in text)
        feed.broken = ""
        app.look()
        await seen(pilot, app, lambda text: "NO ANSWER" not in text)

    assert "the allocator cannot be reached" in screen
    assert "waiting for capacity" in screen


async def test_without_jobs_it_says_how_to_hand_one_over() -> None:
    shown = replace(board(), statuses=())
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        await seen(pilot, app, lambda text: "spotline submit FILE" in text)
        await pilot.press("x", "e", "enter")
        await pilot.pause()

        assert not isinstance(app.screen, DetailScreen)


async def test_q_ends_it() -> None:
    shown = board()
    app = LiveView(FakeFeed(shown), shown)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("q")

    assert app.return_code == 0
    assert app.query(Static) is not None
