"""The result in three lines, and rows as tables and CSV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotline.cli.accounts_view import (
    beside_json,
    print_reconciliation,
    print_rules,
    result_lines,
    rows_as_csv,
    write_text,
)
from spotline.contracts.errors import ContractError
from spotline.replay.account import Account, account, read_recorded
from spotline.replay.reconcile import AccountChain, AccountStep
from tests.samples.stored_runs import STORED, unpack


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Account:
    folder = tmp_path_factory.mktemp("log")
    unpack(STORED / "demo-log.tar.xz", folder)
    return account(read_recorded(folder))


def test_a_run_ends_with_its_cost_its_deadlines_and_its_log(made) -> None:
    assert result_lines(made, Path("runs/x/log")) == (
        "2 jobs cost 142.46 USD: 16.2 % less than on-demand only (170.00 USD); 4.9 % less than "
        "uniform_progress (149.77 USD), the best simple rule; each running all jobs by itself",
        "3 of 3 jobs on time, 0 hard deadlines missed; 1 not compared (21.25 USD): "
        "tune granite-3.1-8b: its own reports say how fast it ran",
        "log runs/x/log",
    )


def test_what_cost_more_is_said_to_have_cost_more(made) -> None:
    cheap = {
        name: tuple(replace(life, cost_micro_usd=life.cost_micro_usd // 2) for life in lives)
        for name, lives in made.by_itself.items()
    }

    cost, _, _ = result_lines(replace(made, by_itself=cheap), Path("log"))

    assert "67.6 % more than on-demand only (85.00 USD)" in cost


def test_without_a_job_that_can_be_compared_no_number_is_made_up(made, capsys) -> None:
    nobody = replace(made, counted=frozenset(), rules={}, recorded_counted=None)

    cost, _, _ = result_lines(nobody, Path("log"))
    print_rules(nobody)

    assert cost == "no job that can be compared was over when the run ended"
    assert capsys.readouterr().out == "no job is left to compare\n"


def test_a_difference_without_a_name_is_shouted(capsys) -> None:
    steps = (
        AccountStep(name="this", micro_usd=5, is_account=True),
        AccountStep(name="because", micro_usd=2),
        AccountStep(name="that", micro_usd=8, is_account=True),
    )

    print_reconciliation(AccountChain(steps=steps))

    out = capsys.readouterr().out
    assert "+0.000002" in out
    assert "not explained: 0.000001 USD" in out


def test_no_rows_are_no_csv() -> None:
    assert rows_as_csv([]) == ""


def test_texts_for_people_go_to_stderr_beside_json(capsys) -> None:
    with beside_json("-"):
        print("said")  # noqa: T201
    with beside_json("file.json"):
        print("shown")  # noqa: T201

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("shown\n", "said\n")


def test_a_file_that_cannot_be_written_is_named(tmp_path) -> None:
    with pytest.raises(ContractError, match="expected a place to write to"):
        write_text(str(tmp_path / "no" / "such" / "folder.json"), "{}")
