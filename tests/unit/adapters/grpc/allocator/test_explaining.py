"""What cannot be explained is refused with a status and a reason of its own."""

from __future__ import annotations

import grpc
import pytest

from spotline.adapters.grpc.allocator.explaining import Explaining
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.api.v1 import job_service_pb2 as pb
from spotline.application.explaining.ports import ExplainerBusy, LogBeginsLate, UnknownDecision
from spotline.contracts.reasons import Reason


class Refusing:
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def explain(self, query):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (ExplainerBusy("busy"), grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.EXPLAINER_BUSY),
        (LogBeginsLate(7), grpc.StatusCode.FAILED_PRECONDITION, Reason.LOG_BEGINS_LATE),
        (
            UnknownDecision("no", job_known=True),
            grpc.StatusCode.NOT_FOUND,
            Reason.UNKNOWN_DECISION,
        ),
        (UnknownDecision("no", job_known=False), grpc.StatusCode.NOT_FOUND, Reason.UNKNOWN_JOB),
    ],
)
async def test_each_failure_has_its_status(error, code, reason) -> None:
    explaining = Explaining(Refusing(error))

    with pytest.raises(RpcRefused) as refused:
        await explaining.explain(pb.ExplainDecisionRequest(job_id="j"))

    assert (refused.value.code, refused.value.reason) == (code, reason)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ExplainDecisionRequest(), "job_id"),
        (pb.ExplainDecisionRequest(job_id="j", slot=-1), "slot"),
        (pb.ExplainDecisionRequest(job_id="j", revision=-2), "revision"),
    ],
)
async def test_a_wrong_request_names_its_field(request_, field) -> None:
    with pytest.raises(RpcRefused) as refused:
        await Explaining(None).explain(request_)

    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.field == field


async def test_without_an_explainer_none_is_explained() -> None:
    with pytest.raises(RpcRefused) as refused:
        await Explaining(None).explain(pb.ExplainDecisionRequest(job_id="j"))

    assert refused.value.reason is Reason.NO_EXPLAINER
