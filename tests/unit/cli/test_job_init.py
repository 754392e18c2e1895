"""`spotline job init`: what it writes is a job once the blanks are filled in."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spotline.adapters.files.job_file import read_job_file, read_stated_job
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.starter import Starter, starter_text
from spotline.cli.main import app
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job


def init(*arguments: str):
    return CliRunner().invoke(app, ["job", "init", *arguments])


def test_blanks_are_named_and_with_them_filled_in_it_is_a_draft(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").touch()
    file = tmp_path / "job.yaml"

    written = init(str(file))

    assert written.exit_code == 0, written.stderr
    assert written.stdout == f"wrote {file}\n"
    assert "fill in: model, tokens, checkpoint.location" in written.stderr
    with pytest.raises(BadFile) as caught:
        read_stated_job(file)
    assert {one.field for one in caught.value.mistakes} == {
        *("model", "tokens", "checkpoint.location"),
    }
    text = file.read_text()
    for blank, value in (("model", "granite-3.1-8b"), ("tokens", "300M"), ("  location", "c")):
        assert f"\n{blank}: " in text
        text = text.replace(f"\n{blank}: ", f"\n{blank}: {value} ")
    file.write_text(text)
    draft = read_job_file(file, now_ns=0)
    assert isinstance(draft, JobDraft)
    assert draft.run is not None
    assert draft.run.command == ("sh", "-c", "python train.py")
    assert draft.run.setup == "pip install -r requirements.txt"
    assert draft.value_from_quote
    assert read_stated_job(file).workdir == tmp_path


def test_what_options_say_is_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    line = "python 'my train.py' --ratio: \"1\" # x"

    written = init(
        *(str(file), "--command", line, "--model", "llama-3.1-8b", "--tokens", "1.5B"),
        *(
            "--deadline",
            "2d",
            "--checkpoints",
            "s3://a/b",
            "--tenant",
            "research",
            "--name",
            "n: 1",
        ),
        *("--setup", "pip install x", "--workdir", "src"),
    )

    assert written.exit_code == 0, written.stderr
    assert "fill in" not in written.stderr
    draft = read_job_file(file, now_ns=0)
    assert (draft.name, draft.tenant, draft.tokens) == ("n: 1", "research", 1.5e9)
    assert draft.run.command == ("sh", "-c", line)
    assert draft.deadline.after_s == 2 * 86_400


def test_the_work_may_be_stated_in_the_place_of_a_model(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"

    written = init(
        str(file), "--work", "64 instance_hours", "--command", "x", "--checkpoints", "/c"
    )

    assert written.exit_code == 0, written.stderr
    assert "fill in: throughput.*.alpha_per_hour" in written.stderr
    text = file.read_text()
    assert "alpha_per_hour: " in text
    file.write_text(text.replace("alpha_per_hour: ", "alpha_per_hour: 1 "))
    job = read_job_file(file, now_ns=0)
    assert isinstance(job, Job)
    # A program of one process, as `--command` is by default, cannot run on several instances.
    assert job.allowed_counts == (1,)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("mine")

    written = init(str(file))

    assert written.exit_code == 2
    assert "expected a name that is not taken" in written.stderr
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--deadline", "soon"], "deadline.hard: expected a time with its UTC offset"),
        (["--tokens", "many"], "tokens: expected a number, such as"),
        (["--work", "3 parsecs"], "work.unit: expected one of gpu_hours"),
        (["--command", "torchrun x | y"], "run.command: expected a list of words, or a line that"),
    ],
)
def test_what_no_job_file_may_say_is_refused_and_nothing_is_written(
    tmp_path, options, said
) -> None:
    file = tmp_path / "job.yaml"

    written = init(str(file), *options)

    assert written.exit_code == 2
    assert said in written.stderr
    assert not file.exists()


def test_a_place_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    written = init(str(tmp_path / "none" / "job.yaml"))

    assert written.exit_code == 2
    assert "expected a place to write to, found: No such file or directory" in written.stderr


def test_every_line_of_a_starting_file_fits_a_screen() -> None:
    text, _ = starter_text(Starter(tenant="research"))

    assert max(map(len, text.splitlines())) <= 100
