"""Command lines in the documents are command lines that there are, and each command runs in a test."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from spotline.cli.main import app
from tools.documents.commands import Said, commands_of, leaf, mistake
from tools.documents.nav import nav_of, pages_in

# What stands there runs, each line of it, in tests/integration/test_bad_input.py.
RUN_ELSEWHERE = {"docs/bad-input.md"}
# What was, and is no longer.
OF_THE_PAST = {"CHANGELOG.md"}
TARGET = re.compile(r"`make ([a-z][a-z-]*)|^make ([a-z][a-z-]*)", re.MULTILINE)
TOOL = re.compile(r"python (?:-m (tools(?:\.\w+)+)|((?:tools|docs)/[\w/]+\.py))")


@pytest.fixture(scope="module")
def root() -> Any:
    return typer.main.get_command(app)


@pytest.fixture(scope="module")
def texts(repository: Path) -> dict[str, str]:
    pages = {"README.md", *pages_in(nav_of(repository))} - RUN_ELSEWHERE - OF_THE_PAST
    return {page: (repository / page).read_text() for page in sorted(pages)}


@pytest.fixture(scope="module")
def said(texts: dict[str, str]) -> list[Said]:
    return [said for page, text in texts.items() for said in commands_of(text, page)]


def test_every_command_line_is_one(root: Any, said: list[Said]) -> None:
    assert len(said) > 500
    assert [wrong for shown in said if (wrong := mistake(root, shown))] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("spotline statuss", "No such command|no command"),
        ("spotline market generat -o m.parquet", "no command"),
        ("spotline status --sytem", "--sytem"),
        ("spotline market generate --seed 1", "lacks"),
        ("spotline explain", "lacks"),
        ("spotline store backup a b", "too much: b"),
        ("spotline plan job.yaml --deadlines", "--deadlines"),
        ("spotline pause --job JOB | --tennant NAME", "--tennant"),
        ("X=1 ; spotline cancel JOB ; spotline cancle JOB", "no command 'cancle'"),
    ],
)
def test_a_command_line_that_is_none_is_found(root: Any, line: str, wrong: str) -> None:
    found = [mistake(root, shown) for shown in commands_of(f"```sh\n{line}\n```\n", "page.md")]

    assert re.search(wrong, "\n".join(found)), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```sh\nspotline plan a.yaml \\\n   --all  # all\n```", [("plan", "a.yaml", "--all")]),
        (
            "```\n$ spotline status ; .venv/bin/spotline version > v\n```",
            [("status",), ("version",)],
        ),
        ("```\nspotline parked list [--job JOB]\n```", [("parked", "list", "--job", "JOB")]),
        ("a `spotline audit\nverify` is", [("audit", "verify")]),
        ("```python\nspotline = 1\n```\n`spotline.yaml` and spotline status", []),
    ],
)
def test_command_lines_are_read_as_a_shell_reads_them(text: str, words: list) -> None:
    assert [shown.words[1:] for shown in commands_of(text, "page.md")] == words


def test_every_documented_command_is_run_by_a_test(
    repository: Path, root: Any, said: list[Said]
) -> None:
    listed = tomllib.loads((repository / "tests/architecture/documented_commands.toml").read_text())
    shown = {" ".join(leaf(root, line)) for line in said}
    # The name of a group alone, in the text, is no command.
    groups = {name for name in shown if hasattr(_command(root, name), "commands")} - {"audit"}
    run, parsed = listed["run"], listed["parsed"]

    assert shown - groups == run.keys() | parsed.keys()
    assert run.keys() & parsed.keys() == set()
    for name, test in run.items():
        text = (repository / test).read_text()
        for word in name.split():
            assert re.search(rf"\b{re.escape(word)}\b", text), f"{test} does not run {name}"
    assert all(len(reason) > 20 for reason in parsed.values())


def _command(root: Any, name: str) -> Any:
    command = root
    for word in name.split():
        command = command.commands[word]
    return command


def test_every_make_target_that_is_named_exists(repository: Path, texts: dict[str, str]) -> None:
    known = set(re.findall(r"^([a-z][a-z-]*):", (repository / "Makefile").read_text(), re.M))
    named = {
        found[1] or found[2]: page
        for page, text in texts.items()
        for found in TARGET.finditer(text)
    }

    assert {name: page for name, page in named.items() if name not in known} == {}


def test_every_tool_that_is_named_exists(repository: Path, texts: dict[str, str]) -> None:
    absent = [
        (page, found[0])
        for page, text in texts.items()
        for found in TOOL.finditer(text)
        if not (repository / (found[2] or found[1].replace(".", "/") + ".py")).exists()
        and not (repository / (found[1] or "").replace(".", "/") / "__main__.py").exists()
    ]

    assert absent == []
