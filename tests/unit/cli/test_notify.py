"""`spotline notify test`: what came back from each receiver, and whether all took it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spotline.cli.main import app
from tests.fakes.receiver import Receiver, receiving

SECRET = "a secret of the hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def run(file: Path, *words: str) -> Result:
    return CliRunner().invoke(
        app, ["notify", "test", *words, "--config", str(file)], env={"HOOK": SECRET}
    )


def file_of(folder: Path, receiver: Receiver) -> Path:
    file = folder / "spotline.yaml"
    file.write_text(
        f"""
notify:
  - {{name: ops, url: "{receiver.url}", secret: {{env: HOOK}}}}
  - {{name: chat, url: "{receiver.url}", format: slack}}
""",
        encoding="utf-8",
    )
    return file


def test_each_receiver_gets_a_test_and_what_came_back_is_said(tmp_path, receiver):
    result = run(file_of(tmp_path, receiver))

    assert result.exit_code == 0, result.output
    assert result.output.count("taken: HTTP 204") == 2
    assert len(receiver.posted) == 2
    assert SECRET not in result.output
    assert "/hook" not in result.output


def test_one_that_does_not_take_it_fails_the_command(tmp_path, receiver):
    receiver.answers = [(403, {})]
    result = run(file_of(tmp_path, receiver), "ops", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == [{"name": "ops", "taken": False, "answer": "HTTP 403"}]
    assert len(receiver.posted) == 1


def test_a_receiver_that_is_not_in_the_file_is_named(tmp_path, receiver):
    result = run(file_of(tmp_path, receiver), "oops")

    assert result.exit_code == 2
    assert "a receiver of" in result.output
    assert "ops, chat" in result.output
    assert receiver.posted == []


def test_a_file_without_receivers_says_so(tmp_path, receiver):
    file = tmp_path / "empty.yaml"
    file.write_text("", encoding="utf-8")

    assert run(file).exit_code == 2
