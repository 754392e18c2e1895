"""What the commands of benchmarks print where no terminal looks on."""

from __future__ import annotations

import pytest
from rich.table import Table

from spotline.bench.command_options import open_console

WORDS = [f"a column of policy {number}" for number in range(6)]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    table = Table(*WORDS)
    table.add_row(*WORDS)
    open_console().print(table)
    return capsys.readouterr().out


def test_a_table_in_a_log_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)

    assert printed(capsys).count(WORDS[-1]) == 2


def test_who_says_how_wide_a_log_is_is_believed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")

    assert max(len(line) for line in printed(capsys).splitlines()) <= 60
