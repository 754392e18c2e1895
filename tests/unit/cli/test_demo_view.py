"""What `spotline demo` says while it runs: counter and money first, nothing cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from spotline.cli.demo_view import ProgressShown, fitted, opening, progress_parts
from spotline.demo.run import DemoProgress
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.slot_quote import SlotQuote
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=24)
OPENED = SlotOpened(
    slot=7,
    slot_s=MARKET.slot_s,
    ts_event_ns=MARKET.start_ns,
    last=False,
    quotes=tuple(SlotQuote(quote=quote, age_s=0) for quote in MARKET.quotes(7)),
)


def progress(*, slot: int = 7) -> DemoProgress:
    return DemoProgress(
        jobs=12,
        slots=24,
        slot=slot,
        opened=OPENED,
        admitted=5,
        closed=3,
        spent_micro_usd=1_242_310_000,
        spot=8,
        on_demand=1,
        settled=True,
    )


def test_the_counter_and_the_money_come_first() -> None:
    parts = progress_parts(progress(), 24)

    assert parts[:3] == [
        "3/12 jobs over, 1,242.31 USD",
        "slot 8/24",
        "2 running on 8 spot + 1 on-demand",
    ]
    assert parts[3].startswith("spot offered, USD/h: ")


@pytest.mark.parametrize("width", [10, 40, 60, 80, 160])
def test_what_does_not_fit_is_left_out_whole(width: int) -> None:
    parts = progress_parts(progress(), 24)

    text = fitted(parts, width)

    assert text.split(" | ") == parts[: len(text.split(" | "))]
    assert len(text) <= max(width, len(parts[0]))


def test_a_pipe_gets_a_line_now_and_then(capsys) -> None:
    with ProgressShown(Console(file=io.StringIO()), MARKET) as tell:
        for slot in range(24):
            tell(progress(slot=slot))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert all(line.startswith("3/12 jobs over, 1,242.31 USD | slot ") for line in lines)


def test_the_opening_says_what_runs_on_what() -> None:
    text = opening(MARKET, 12, "demo-1")

    assert text.startswith("demo-1: 12 jobs, 24 slots of 30 min (12 h from 2026-01-01T00:00:00Z)")
    assert all(offering.offering_id in text for offering in MARKET.offerings)
