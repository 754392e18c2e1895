"""What `status` and `watch` print of a view: whole numbers and ids, words beside colours, no escapes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocator.messages import JobUpdate
from spotline.application.board.messages import JobPhase
from spotline.application.market_view import MarketState
from spotline.cli.jobs_view import print_status
from spotline.cli.status_view import board_json, print_board, update_line
from tests.fakes.boards import WALL_NS, at_risk, board, hostile, market, running


@pytest.mark.parametrize("columns", [40, 80, 100, 120, 160])
def test_a_board_fits_and_nothing_in_it_is_cut(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    print_board(board())

    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    words = shown.split()
    for status in (running(), at_risk()):
        assert status.job.job_id[:8] in words
    assert "RISK," in words
    assert "STALLED" in words
    assert "19.00" in words
    assert not any(character in shown for character in "\x1b\u202e\x07")


def test_the_header_says_time_market_and_money(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")

    print_board(board())

    assert capsys.readouterr().out.splitlines()[:5] == [
        "market  2026-03-01T01:30:00Z, slot 9 of 10 min, open, ends 2026-03-02T00:00:00Z",
        "wall    2026-11-18T11:06:40Z when that slot opened",
        "held    3 spot + 1 on-demand, 19.00 USD per hour",
        "billed  24.60 USD",
        "jobs    0 open, 1 AT RISK, 1 STALLED",
    ]


def test_a_market_that_ended_says_that_nothing_follows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")

    print_board(replace(board(), market=market(143, MarketState.ENDED)))

    assert "ended at 2026-03-02T00:00:00Z: no slot follows" in capsys.readouterr().out


def test_one_job_begins_with_its_headline_and_says_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")

    print_status(at_risk())

    first, *rest = capsys.readouterr().out.splitlines()
    facts = dict(line.split(maxsplit=1) for line in rest)
    assert first == "Waits for capacity; 42 % done, on time with 31 %."
    assert facts["phase"] == "waiting for capacity, since 2026-03-01T00:20:00Z"
    assert facts["look"] == "AT RISK, STALLED"
    assert facts["holds"] == "nothing"
    assert facts["slack"].startswith("-10 min; on-demand alone is on time until")
    assert facts["expected"].startswith("on time 31 %; costs 44.00 USD (38.00 to 61.00")
    assert "never" in facts["quoted"]
    assert facts["happened"] == ("3 interruptions (2 with a notice), 9 checkpoints, 4 starts")
    assert "(2026-11-18T11:06:40Z wall)" in "\n".join(rest)


def test_a_job_of_an_older_server_is_shown_by_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(hostile())

    shown = capsys.readouterr().out
    assert "phase      running" in shown
    assert "\\x1b[2J\\u202e[bold]\\x07" in shown


@pytest.mark.parametrize("phase", [JobPhase.COMPLETED, JobPhase.MARKET_ENDED])
def test_a_job_for_which_nothing_is_decided_any_more_expects_nothing(
    phase: JobPhase, capsys: pytest.CaptureFixture[str]
) -> None:
    view = running().view
    assert view is not None
    print_status(replace(running(), view=replace(view, phase=phase)))

    shown = capsys.readouterr().out
    assert "expected" not in shown
    assert "slack" not in shown
    assert "quoted" in shown


def test_a_change_is_one_line_with_both_times() -> None:
    line = update_line(
        JobUpdate(status=at_risk(), change="capacity.lost", seq=7, clock=market().clock)
    )

    assert line.startswith("2026-03-01T01:30:00Z (11:06:40 wall)  capacity.lost")
    assert "AT RISK, STALLED" in line
    assert "\n" not in line


def test_json_is_that_of_http_with_iso_times_and_units() -> None:
    said = board_json(board(running()))

    assert said["clock"]["market"] == "2026-03-01T01:30:00Z"
    assert said["clock"]["wall"] == "2026-11-18T11:06:40Z"
    assert said["market"]["state"] == "open"
    assert said["fleet"]["micro_usd_per_hour"] == 19_000_000
    assert said["jobs"][0]["view"]["phase"] == "running"
    assert WALL_NS not in said["jobs"][0]["view"].values()
