"""Command lines of the documents, typed as they stand there; each page in a folder of its own."""

from __future__ import annotations

import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spotline.cli.main import app
from tests.fakes.processes import ROOT
from tools.documents.commands import Said, commands_of, leaf

pytestmark = pytest.mark.integration

COMMANDS = typer.main.get_command(app)
RUN = ROOT / "tests" / "data" / "page" / "rehearsed-aws"
# What needs files alone, and answers at once.
AT_ONCE = {
    ("auth", "keys", "deploy"),
    ("auth", "keys", "rotate"),
    ("auth", "token", "create"),
    ("auth", "token", "list"),
    ("auth", "token", "revoke"),
    ("broker", "tenant"),
    ("config", "check"),
    ("config", "init"),
    ("config", "show"),
    ("context", "add"),
    ("context", "use"),
    ("export", "focus"),
    ("job", "init"),
    ("market", "generate"),
    ("market", "describe"),
    ("place",),
    ("version",),
}
# Lines that need what only their reader has, and the page that they are on.
OF_THE_READER = {
    "docs/pictures.md": ("a.parquet", "aws:us-east-2a:p3.2xlarge"),
    "docs/pipeline-file.md": ("job.yaml",),
    "docs/clouds/rehearsal.md": ("rehearsal/spotline.yaml",),
}
# Folders and files that are there when the first line of a page is typed.
KEYS = ("docs/identity.md", "docs/clients.md", "docs/runbooks/cloud.md")
CONFIGURED = ("docs/runbooks/health.md", "docs/runbooks/cloud.md", "docs/notifications.md")
MARKETS = ("docs/pictures.md", "docs/configuration.md", *CONFIGURED)
# They draw, or read a whole log for each line: seconds.
SLOW = ("docs/exports.md", "docs/market-format.md", "docs/pictures.md")


def lines_of(page: str) -> list[Said]:
    """Lines of a page that are typed here, each once, in their order."""
    left_out = OF_THE_READER.get(page, ())
    found = {
        said.words: said
        for said in commands_of((ROOT / page).read_text(), page)
        if said.whole
        and leaf(COMMANDS, said) in AT_ONCE
        and not any(word in said.words for word in left_out)
    }
    return list(found.values())


def pages() -> list[Any]:
    found = ["README.md", "deploy/README.md"]
    found += sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))
    return [
        pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [], id=page)
        for page in found
        if page != "docs/bad-input.md" and lines_of(page)
    ]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a rehearsal on AWS."""
    folder = tmp_path_factory.mktemp("recorded") / "log"
    folder.mkdir()
    shutil.copy(RUN / "manifest.json", folder)
    for packed in RUN.glob("*.xz"):
        (folder / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return folder


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Path) -> Iterator[Any]:
    """What types a line in a folder of its own, which has the examples beside it."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "docs").symlink_to(ROOT / "docs")
    for folder in ("market", "spotline-store"):
        (here / folder).mkdir()
    (here / "spotline-store" / "log").symlink_to(log)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setattr("typer.testing._get_command", lambda _: COMMANDS)
    monkeypatch.chdir(here)

    def type_(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [str(log) if word == "LOG" else word for word in words])
        return result.exit_code, result.output

    return type_


@pytest.mark.parametrize("page", pages())
def test_every_line_of_a_page_does_what_it_says(page: str, typed: Any) -> None:
    if page in KEYS:
        assert typed("auth", "keys", "deploy", "--store", "spotline-store")[0] == 0
    if page in MARKETS:
        assert typed("market", "generate", "--slots", "48", "-o", "market.parquet")[0] == 0
    if page in CONFIGURED:
        assert typed("config", "init")[0] == 0

    for said in lines_of(page):
        code, output = typed(*said.words[1:])
        assert code == 0, f"{said.place}: {' '.join(said.words)}: {output}"


def test_what_is_typed_here_is_most_of_what_needs_files_alone() -> None:
    assert sum(len(lines_of(*page.values)) for page in pages()) >= 25
