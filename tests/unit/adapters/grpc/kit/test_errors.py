"""Every refusal carries a status that programs can read, within what a caller's metadata hold."""

from __future__ import annotations

import re

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.grpc.kit.errors import (
    EARLIEST_DEADLINE_KEY,
    FIELD_KEY,
    STATUS_KEY,
    RpcRefused,
    invalid,
    refusal_of,
)
from spotline.application.admission import Refused
from spotline.contracts.errors import FieldViolation
from spotline.contracts.reasons import ERROR_DOMAIN, Reason
from spotline.domain.problems import Problems

CODES = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
)


def status_of(refused: RpcRefused) -> Status:
    return Status.FromString(dict(refused.trailing_metadata())[STATUS_KEY])


def detail(status: Status, detail_type):
    """The only detail of a type, None without one."""
    found = []
    for packed in status.details:
        one = detail_type()
        if packed.Unpack(one):
            found.append(one)
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_one_as_its_readers_expect(reason):
    assert re.fullmatch(r"[A-Z][A-Z0-9_]+[A-Z0-9]", reason.name)
    assert len(reason.name) <= 63
    assert reason.value


@given(st.sampled_from(CODES), st.sampled_from(Reason), st.text(), st.text(max_size=40))
def test_exactly_one_error_info_names_reason_and_domain(code, reason, message, field):
    status = status_of(RpcRefused(code, message, reason=reason, field=field))

    info = detail(status, details.ErrorInfo)
    assert status.code == code.value[0]
    assert (info.reason, info.domain) == (reason.name, ERROR_DOMAIN)
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9-_]*", key) for key in info.metadata)


@pytest.mark.parametrize("code", CODES)
def test_the_details_are_those_that_fit_the_code(code):
    status = status_of(RpcRefused(code, "no", reason=Reason.FIELD_INVALID, field="a.b"))
    passing = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)

    assert detail(status, details.BadRequest).field_violations[0].field == "a.b"
    assert (detail(status, details.RetryInfo) is not None) == passing
    assert (detail(status, details.QuotaFailure) is not None) == (
        code is grpc.StatusCode.RESOURCE_EXHAUSTED
    )
    assert (detail(status, details.PreconditionFailure) is not None) == (
        code is grpc.StatusCode.FAILED_PRECONDITION
    )


def test_what_was_said_before_0_3_0_is_still_said():
    trailing = dict(
        refusal_of(
            Refused(
                field="job.deadline",
                message="cannot be met",
                earliest_feasible_deadline_ns=1_772_323_200_000_000_000,
                reason=Reason.DEADLINE_INFEASIBLE,
            )
        ).trailing_metadata()
    )

    assert trailing[FIELD_KEY] == "job.deadline"
    assert trailing[EARLIEST_DEADLINE_KEY] == "2026-03-01T00:00:00Z"
    info = detail(Status.FromString(trailing[STATUS_KEY]), details.ErrorInfo)
    assert dict(info.metadata) == {
        "field": "job.deadline",
        "earliestFeasibleDeadline": "2026-03-01T00:00:00Z",
    }


@given(
    st.text(max_size=100_000),
    st.lists(
        st.builds(FieldViolation, field=st.text(), description=st.text(min_size=1)), max_size=60
    ),
)
def test_a_callers_metadata_hold_any_refusal(message, violations):
    refused = RpcRefused(
        grpc.StatusCode.INVALID_ARGUMENT,
        message * 3,
        reason=Reason.FIELD_INVALID,
        violations=[
            FieldViolation(field=one.field, description=one.description * 100) for one in violations
        ],
    )
    # Percent-encoding makes up to three characters of a byte, base64 four of three.
    size = 3 * len(str(refused).encode()) + sum(
        len(key) + 4 * len(value) // 3 for key, value in refused.trailing_metadata()
    )

    assert size < 8 << 10


def test_all_fields_are_told_or_how_many_more_there_are():
    some = [FieldViolation(field=f"f{n}", description="wrong") for n in range(5)]
    many = [FieldViolation(field=f"f{n}", description="wrong" * 99) for n in range(50)]

    def told(violations):
        refused = RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "no",
            reason=Reason.FIELD_INVALID,
            violations=violations,
        )
        bad = detail(status_of(refused), details.BadRequest)
        return [(said.field, said.description) for said in bad.field_violations]

    assert told(some) == [(one.field, one.description) for one in some]
    *_, last = told(many)
    assert re.fullmatch(r"\d+ more are wrong", last[1])


def test_every_problem_of_a_value_is_a_field():
    refused = invalid(Problems(["a must be 1, was 2", "b.c: must be there"]))

    assert [said.field for said in refused.violations] == ["a", "b.c"]
    assert str(refused) == "a must be 1, was 2 (and 1 more field is wrong)"
