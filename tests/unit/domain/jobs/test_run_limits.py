"""What a server takes of how a program is to be run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.admission import check_job
from spotline.domain.jobs.job import Checkpoint
from spotline.domain.jobs.run import (
    DataSet,
    EnvironmentVariable,
    ProgressReading,
    ProgressSource,
    Run,
    RunPackage,
)
from spotline.domain.jobs.run_limits import MOST_RUN_BYTES, run_problems
from tests.fakes.allocator import job
from tests.unit.application.allocation.test_on_demand_quote import view

KEPT = Checkpoint(interval_s=600, save_s=60, location="s3://a/b")
RUN = Run(command=("python", "train.py"))


def variables(count: int, value: str = "x") -> tuple[EnvironmentVariable, ...]:
    return tuple(EnvironmentVariable(name=f"V{index:04}", value=value) for index in range(count))


def test_a_usual_program_has_no_problems() -> None:
    run = replace(
        RUN,
        environment=variables(3),
        secrets=("TOKEN",),
        package=RunPackage(sha256="a" * 64, uri="s3://a/b/packages/a.tar.gz", size_bytes=1),
        data=(DataSet(uri="s3://x"),),
        progress=ProgressReading(source=ProgressSource.FILE, pattern="done", path="out/a.jsonl"),
    )

    assert [*run_problems(run, KEPT)] == []
    assert [*run_problems(None, None)] == []


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"command": ("x",) * 1001}, "run.command", "at most 1,000, held 1,001"),
        ({"command": ("x", "y" * 16_385)}, "run.command[1]", "at most 16,384 characters"),
        ({"command": ("x", "a\0b")}, "run.command[1]", "must hold no NUL character"),
        ({"setup": "y" * 16_385}, "run.setup", "at most 16,384 characters, had 16,385"),
        ({"image": "y" * 1001}, "run.image", "at most 1,000 characters"),
        ({"environment": variables(257)}, "run.environment", "at most 256, held 257"),
        ({"environment": variables(2, "y" * 8193)}, "run.environment[1].value", "at most 8,192"),
        (
            {"environment": (EnvironmentVariable(name="RANK", value=""),)},
            "run.environment[0].name",
            "must not be a variable that Spotline sets, was RANK",
        ),
        ({"secrets": ("SPOTLINE_JOIN_TOKEN",)}, "run.secrets[0]", "that Spotline sets"),
        ({"secrets": tuple(f"S{i:03}" for i in range(65))}, "run.secrets", "at most 64, held 65"),
        ({"data": (DataSet(uri="x"),) * 65}, "run.data", "at most 64, held 65"),
        ({"data": (DataSet(uri="x" * 1001),)}, "run.data[0].uri", "at most 1,000 characters"),
        ({"ranks_per_instance": 65}, "run.ranks_per_instance", "must be <= 64, was 65"),
        ({"grace_s": 3601}, "run.grace_s", "must be <= 3,600, was 3,601"),
        (
            {"progress": ProgressReading(source=ProgressSource.FILE, pattern="a", path="/etc/x")},
            "run.progress.path",
            "must be a path below the working directory, was '/etc/x'",
        ),
        (
            {
                "progress": ProgressReading(
                    source=ProgressSource.FILE, pattern="a", path="a/../../x"
                )
            },
            "run.progress.path",
            "must be a path below the working directory",
        ),
        ({"environment": variables(20, "y" * 8000)}, "run", "at most 65,536 bytes of text, held"),
    ],
)
def test_what_is_beyond_a_bound_is_refused_by_its_field(changes, field, said) -> None:
    found = dict(run_problems(replace(RUN, **changes), KEPT))

    assert field in found
    assert said in found[field]


def test_text_is_measured_in_bytes() -> None:
    setup = "\N{EURO SIGN}" * 16_000
    command = ("x", "\N{EURO SIGN}" * 6_000)

    found = dict(run_problems(replace(RUN, setup=setup, command=command), KEPT))

    assert len(setup + "".join(command)) < MOST_RUN_BYTES
    assert [*found] == ["run"]


@pytest.mark.parametrize("checkpoint", [None, replace(KEPT, location="")])
def test_its_checkpoints_need_a_place(checkpoint) -> None:
    found = dict(run_problems(RUN, checkpoint))

    assert "must be a folder or a URL that every instance reaches" in found["checkpoint.location"]


def test_a_job_is_refused_for_all_of_it_at_once() -> None:
    refused = check_job(view(), replace(job(), run=replace(RUN, grace_s=4000, setup="\0")))

    assert refused is not None
    assert [one.field for one in (refused, *refused.others)] == [
        *("job.checkpoint.location", "job.run.setup", "job.run.grace_s"),
    ]
