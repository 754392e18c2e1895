"""The command line with nonsense: a line and an exit code for everything, a traceback for nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spotline.cli.main import app
from tests.fakes.processes import ROOT

pytestmark = pytest.mark.integration

SPOTLINE = (
    sys.executable,
    "-c",
    "from spotline.cli.main import app; app(prog_name='spotline')",
)
START_NS = 1_767_571_200_000_000_000
NOBODY = "127.0.0.1:1"
BINARY = bytes(range(256)) * 8


def commands(group: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command there is, hidden ones and those of groups included."""
    found = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += commands(command, (*path, name))
        else:
            found.append((*path, name))
    return found


ROOT_COMMAND = typer.main.get_command(app)
COMMANDS = commands(ROOT_COMMAND)
# They need nothing but their name, or serve until they are stopped.
WITHOUT_ARGUMENTS = {"version", "policies", "forecasters", "presets"}
ENVIRONMENT = {
    name: NOBODY
    for name in (
        "SPOTLINE_ALLOCATOR_ADDRESS",
        "SPOTLINE_PLACER_ADDRESS",
        "SPOTLINE_ANALYTICS_ADDRESS",
        "SPOTLINE_CONFIGURATOR_ADDRESS",
    )
}


@pytest.fixture(autouse=True)
def built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner would put all commands together again for every call."""
    monkeypatch.setattr("typer.testing._get_command", lambda _: ROOT_COMMAND)


def said(*words: str, columns: int = 80) -> tuple[int, str]:
    """The exit code and all that is printed; a traceback fails the test."""
    result = CliRunner().invoke(app, list(words), env={**ENVIRONMENT, "COLUMNS": str(columns)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"{words}: {result.exception!r}") from result.exception
    assert "Traceback" not in result.output
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", result.output), words
    return result.exit_code, result.output


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_takes_h_and_says_its_options_whole(command: tuple[str, ...]) -> None:
    code, output = said(*command, "-h")

    assert code == 0
    assert "Usage:" in output
    assert max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unknown_option_is_said_with_the_prefix(command: tuple[str, ...]) -> None:
    code, output = said(*command, "--no-such-thing\x1b[2J")

    assert code == 2
    assert "spotline: --no-such-thing" in output
    assert "expected an option of this command" in output


def _refused(words: tuple[str, ...], command: tuple[str, ...]) -> None:
    code, output = said(*command, *words)
    assert code in (1, 2), (command, output)
    lines = [line for line in output.splitlines() if line.startswith("spotline: ")]
    assert lines, (command, output)


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if c[-1] not in WITHOUT_ARGUMENTS], ids=" ".join
)
def test_files_that_are_none_are_said_in_a_line(command: tuple[str, ...], tmp_path: Path) -> None:
    binary, nameless = tmp_path / "binary", tmp_path / os.fsdecode(b"caf\xe9\x1b[31m.yaml")
    binary.write_bytes(BINARY)
    nameless.write_bytes(BINARY)

    for path in (binary, tmp_path, nameless):
        _refused((str(path), str(path)), command)
    _refused((str(tmp_path / "nowhere"), "--no\u202e"), command)


def test_json_has_one_form_for_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("tenant: a\n")

    for words in (
        ("status", "--json", "--no-such"),
        ("submit", str(tmp_path / "job.yaml"), "--json"),
        ("status", "--json"),
        ("pipelines", "status", "--json"),
        ("status", "--state", "lost", "--json"),
    ):
        result = CliRunner().invoke(app, list(words), env=ENVIRONMENT)
        answer = json.loads(result.stdout)
        assert result.exit_code == 2
        assert answer["error"], words
        assert set(answer) <= {"error", "code", "reason", "field", "problems"}


@pytest.mark.parametrize(
    ("words", "said_of_it"),
    [
        (("sumbit", "job.yaml"), "did you mean submit?"),
        (("status", "--tenat", "a"), "did you mean --tenant?"),
        (("status", "--phase", "lost"), "expected"),
        (("up", "--slot", "-1"), "--slot: expected a number >= 0, found '-1'"),
        (("watch", "a", "b"), "expected no more words, found b"),
        (("pipelines", "status", "--phase", "lost"), "expected"),
    ],
)
def test_what_is_meant_is_suggested(words: tuple[str, ...], said_of_it: str) -> None:
    code, output = said(*words)

    assert code == 2
    assert said_of_it in " ".join(output.split())


@pytest.mark.parametrize("words", [("status", "--state", "pending"), ("pipelines", "list")])
def test_old_spellings_go_on_working(words: tuple[str, ...]) -> None:
    code, output = said(*words)

    assert code == 2
    assert "cannot be reached" in output


@pytest.mark.parametrize("name", ["policies", "forecasters", "presets"])
@pytest.mark.parametrize("columns", [40, 80, 160])
def test_what_there_is_is_listed_with_a_line_each(name: str, columns: int) -> None:
    _, listed = said(name, columns=columns)
    _, as_json = said(name, "--json")

    rows = json.loads(as_json)
    assert all(row["what"] for row in rows)
    words = listed.split()
    for row in rows[-1:]:
        assert str(next(iter(row.values()))) in words
    assert max(map(len, listed.splitlines())) <= columns


def test_version_says_what_matters_and_json_the_same() -> None:
    _, listed = said("version")
    _, as_json = said("version", "--json")
    _, short = said("--version")

    found = json.loads(as_json)
    assert short == f"spotline {found['spotline']}\n"
    assert {"decisions", "log_format", "ledger_schema", "python", "packages"} <= set(found)
    assert f"numba {found['packages']['numba']}" in " ".join(listed.split())


# --- as processes -----------------------------------------------------------------------------


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SPOTLINE_")}
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    return {**kept, **ENVIRONMENT, "PYTHONPATH": paths, "HOME": str(tmp_path), **more}


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*SPOTLINE, "policies", "--json"],
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
        code = process.wait(timeout=60)

    assert (code, errors) == (141, b"")


def test_a_terminal_without_utf_8_gets_escapes(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SPOTLINE, "status", "caf\u00e9\u2026"],
        env=environment(tmp_path, PYTHONIOENCODING="ascii"),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.startswith(b"spotline: ")
    assert b"Traceback" not in done.stderr


def test_shell_completion_is_silent_where_nothing_answers(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SPOTLINE],
        env=environment(
            tmp_path,
            _SPOTLINE_COMPLETE="complete_bash",
            COMP_WORDS="spotline status ",
            COMP_CWORD="2",
        ),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == (b"", b"")


def test_shell_completion_knows_commands(tmp_path: Path) -> None:
    done = subprocess.run(
        [*SPOTLINE],
        env=environment(
            tmp_path,
            _SPOTLINE_COMPLETE="complete_bash",
            COMP_WORDS="spotline sta",
            COMP_CWORD="1",
        ),
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.split() == [b"status", b"stats"]
