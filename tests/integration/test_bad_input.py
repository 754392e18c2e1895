"""Each wrong input of tests/data/bad_input is tried, and answered as docs/bad-input.md says."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner

from spotline.adapters.market.parquet import write_market
from spotline.cli.main import app
from tests.fakes.bad_input import (
    AskedSystem,
    changed,
    everything_in,
    refusal_of,
    request_of,
    small_market,
    write_files,
)
from tests.samples.bad_input import Case, groups
from tools.document_bad_input import DOCUMENT, page

pytestmark = pytest.mark.integration

GROUPS = {group.name: group for group in groups()}
CASES = [case for group in GROUPS.values() for case in group.cases]
COMMANDS = [case for case in CASES if not case.call]
CALLS = [case for case in CASES if case.call]


COMMAND_LINE = typer.main.get_command(app)


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=f"{case.group}-{case.wrong}") for case in cases]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedSystem]:
    with AskedSystem(tmp_path_factory.mktemp("asked")) as system:
        yield system


@pytest.fixture(scope="module")
def market_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("market") / "market.parquet"
    write_market(small_market(), path)
    return path


@pytest.fixture(autouse=True)
def one_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the command line once: it takes longer than to find what is wrong with a file."""
    monkeypatch.setattr(typer.testing, "_get_command", lambda _: COMMAND_LINE)


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    """An address that somebody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("case", named(COMMANDS))
def test_a_command_says_what_is_wrong(
    case: Case,
    asked: AskedSystem,
    market_file: Path,
    taken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.link(market_file, "market.parquet")
    write_files(tmp_path, GROUPS[case.group].files_of(case))
    before, stored = everything_in(tmp_path), asked.stored()

    said = {"{taken}": taken, "{port}": taken.rpartition(":")[2]}
    result = CliRunner().invoke(
        app,
        [_with(said, word) for word in case.run],
        input=case.stdin,
        env={**asked.environment(case.run[0]), "COLUMNS": "100", **case.env},
        prog_name="spotline",
    )

    answer = result.stdout if case.json else result.stderr
    for placeholder, value in {**said, "{here}": str(tmp_path)}.items():
        answer = answer.replace(value, placeholder)
    assert answer.rstrip("\n") == case.answer
    assert result.exit_code == case.exit
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert (result.stderr if case.json else result.stdout) == ""
    if not case.json:
        assert all(line.startswith("spotline: ") for line in answer.splitlines())
    assert everything_in(tmp_path) == before, "it left something behind"
    assert asked.stored() == stored, "something was recorded"


def _with(said: dict[str, str], word: str) -> str:
    for placeholder, value in said.items():
        word = word.replace(placeholder, value)
    return word


@pytest.mark.parametrize("case", named(CALLS))
def test_a_call_says_what_is_wrong(case: Case, asked: AskedSystem) -> None:
    stored = asked.stored()
    method = case.call.partition(".")[2]
    base = case.request if case.request is not None else GROUPS[case.group].base.get(method, {})
    request = request_of(case.call, changed(base, case.change))

    with pytest.raises(grpc.RpcError) as caught:
        asked.ask(case.call, request, tuple(case.metadata.items()))

    status, message, reason, fields = refusal_of(caught.value)
    assert (status, reason) == (case.status, case.reason), message
    assert message == case.answer
    assert fields == list(case.fields)
    assert asked.stored() == stored, "something was recorded"
    asked.ask("JobService.GetMarket", request_of("JobService.GetMarket", {}))


def test_after_all_of_it_a_good_job_is_taken(asked: AskedSystem, tmp_path: Path) -> None:
    stored = asked.stored()
    file = tmp_path / "job.yaml"
    file.write_text(next(iter(GROUPS["job_files"].base.values())))

    result = CliRunner().invoke(
        app, ["submit", str(file), "--json"], env=asked.environment("submit")
    )

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["already_submitted"] is False
    assert asked.stored() > stored


def test_the_page_shows_all_of_it() -> None:
    # `python -m tools.document_bad_input` writes it.
    assert DOCUMENT.read_text(encoding="utf-8") == page(list(GROUPS.values()))
