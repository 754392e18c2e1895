"""What a job file may leave out, a submission may leave out, and it means the same."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotline.adapters.files.job_fields import rows
from spotline.adapters.files.job_file import parse_job_file
from spotline.adapters.files.mistake import BadFile
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.grpc.kit.filling_in import name_submission
from spotline.api.v1 import job_pb2, job_service_pb2
from spotline.application.admission import job_id_for, refuse_run
from spotline.application.allocator.messages import Submission
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import DeadlineKind, Job

EXAMPLES = Path(__file__).parents[5] / "docs" / "examples"
HARD = yaml.safe_load((EXAMPLES / "job.yaml").read_text())
SOFT = {
    **HARD,
    "deadline": {"soft": "2026-03-02T18:00:00Z", "worthless_after": "2026-03-03T18:00:00Z"},
    "checkpoint": {"interval_s": 60, "save_s": 30, "size_gb": 2.0, "location": "s3://a"},
}
ALLOWED = {**HARD, "instances": {"allowed": [2, 4]}}
TRAIN = {
    **yaml.safe_load((EXAMPLES / "train.yaml").read_text()),
    "deadline": HARD["deadline"],
}
METRICS = {
    **TRAIN,
    "run": {**TRAIN["run"], "progress": {"file": "metrics.jsonl", "field": "tokens"}},
}
DRAFT = yaml.safe_load((EXAMPLES / "draft.yaml").read_text())

# The wire has no way to tell 0 from nothing, and 0 is a value of these: a file that leaves one out
# is taken for a slip of the pen, a message that does for one that says 0.
ZERO_IS_A_VALUE = {f"overhead_s.{name}" for name in ("launch", "shrink", "interrupted")}

# What belongs to a field and goes with it: in a file, and in a message.
WITH_IT_IN_FILE = {"run": ("data",)}
WITH_IT_IN_MESSAGE = {"run": ("awaits_exit",)}


def message_of(content: dict[str, Any]) -> job_service_pb2.SubmitRequest:
    found = parse_job_file(yaml.safe_dump(content))
    whole = Submission(draft=found) if isinstance(found, JobDraft) else Submission(job=found)
    return to_message(whole)


def taken(message: job_service_pb2.SubmitRequest) -> Job | JobDraft:
    """What a server reads; raises where it refuses the message."""
    message = copy.deepcopy(message)
    name_submission(message)
    asked = from_message(Submission, message)
    found = asked.job or asked.draft
    for refused in refuse_run(found, "job"):
        raise ContractError(refused.field, refused.message)
    return found


def without_key(content: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The file without a key, None where it does not have it."""
    left = copy.deepcopy(content)
    *parents, last = path.split(".")
    part = left
    for key in parents:
        part = next(iter(part.values())) if key == "<where>" else part.get(key)
        if not isinstance(part, dict):
            return None
    return left if part.pop(last, None) is not None else None


def clear(part: Any, wire: str) -> None:
    """Leave a field of a message out; of a list's elements, that of the first."""
    *parents, last = wire.split(".")
    for name in parents:
        part = getattr(part, name.removesuffix("[]"))
        part = part[0] if name.endswith("[]") else part
    part.ClearField(last)


def cases():
    every = list(rows())
    for name, content in (
        *(("hard", HARD), ("soft", SOFT), ("allowed", ALLOWED), ("draft", DRAFT)),
        *(("train", TRAIN), ("metrics", METRICS)),
    ):
        for path, row in every:
            left = without_key(content, path)
            if left is None:
                continue
            for other in WITH_IT_IN_FILE.get(path, ()):
                left.pop(other)
            inner = [one.wire for below, one in every if below.startswith(f"{path}.")]
            wires = [row.wire] if row.wire else [wire for wire in inner if wire]
            wires += WITH_IT_IN_MESSAGE.get(path, ())
            yield pytest.param(content, left, path, wires, id=f"{name} {path}")


@pytest.mark.parametrize(("content", "left", "path", "wires"), [*cases()])
def test_a_submission_without_a_field_is_taken_exactly_when_the_file_is(
    content, left, path, wires
) -> None:
    message = message_of(content)
    part = message.draft if message.HasField("draft") else message.job
    for wire in wires:
        clear(part, wire)
    if path == "value_usd":
        # A message says so: in it, 0 is a value.
        part.value_from_quote = True
    part.job_id = ""

    try:
        by_file = parse_job_file(yaml.safe_dump(left))
    except BadFile:
        if path in ZERO_IS_A_VALUE:
            taken(message)
            return
        with pytest.raises(ContractError):
            taken(message)
        return
    by_wire = taken(message)
    assert type(by_wire) is type(by_file)
    if "." not in path:
        named = {"client_request_id": by_file.client_request_id, "job_id": by_file.job_id}
        assert replace(by_wire, **named) == by_file


def test_every_field_of_the_file_is_walked() -> None:
    walked = {case.values[2] for case in cases()}
    unwalked = {path for path, _ in rows()} - walked

    # Nothing but what the examples do not state.
    assert len(walked) > 30, sorted(unwalked)


def test_ids_are_the_servers() -> None:
    message = message_of(HARD)
    message.job.client_request_id = message.job.job_id = ""
    first, second = taken(message), taken(message)
    message.request_id = "mine"
    third = taken(message)

    assert first.client_request_id != second.client_request_id
    assert third.client_request_id == "mine"
    assert third.job_id == job_id_for(third.tenant, "mine")


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("x" * 201, ""), ("a\nb", "")])
def test_a_request_has_one_id_of_a_sane_length(one, other) -> None:
    message = message_of(HARD)
    message.request_id, message.job.client_request_id = one, other

    with pytest.raises(RpcRefused) as caught:
        taken(message)
    assert caught.value.field == "request_id"


def test_a_deadline_is_hard_unless_it_says_when_nothing_is_had_any_more() -> None:
    message = message_of(HARD)
    at_ns = message.job.deadline.at_ns
    message.job.deadline.CopyFrom(job_pb2.Deadline(at_ns=at_ns))
    hard = taken(message).deadline
    message.job.deadline.CopyFrom(job_pb2.Deadline(at_ns=at_ns, expires_ns=at_ns + 1))
    soft = taken(message).deadline

    assert (hard.kind, hard.expires_ns) == (DeadlineKind.HARD, at_ns)
    assert soft.kind is DeadlineKind.SOFT


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("tenant", "x" * 5000, "job.tenant must have at most 200 characters, had 5,000"),
        ("name", "\x1b[2J", "job.name must be one line without control characters, was "),
        ("value_micro_usd", 2**63 - 1, "job.value_micro_usd must be <= 1000000000000000000"),
        ("client_request_id", "a\nb", "job.client_request_id must be one line without"),
    ],
)
def test_a_text_that_no_subject_or_terminal_should_hold_is_refused(field, text, said) -> None:
    request = job_service_pb2.SubmitRequest(job=job_pb2.Job(tenant="t", client_request_id="r"))
    setattr(request.job, field, text)

    with pytest.raises(RpcRefused, match=re.escape(said)) as caught:
        name_submission(request)

    assert caught.value.field == f"job.{field}"
