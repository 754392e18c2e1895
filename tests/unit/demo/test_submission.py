"""A job that is handed over too early is handed over again; one that is refused is not."""

from __future__ import annotations

import pytest

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.allocator.messages import SubmissionReceipt
from spotline.contracts.reasons import Reason
from spotline.demo.submission import submit_until_taken
from tests.fakes.allocator import job

JOB = job()


class Refusing:
    """Refuses for these reasons in turn, then takes the job."""

    def __init__(self, *reasons: Reason) -> None:
        self.left = list(reasons)
        self.asked = 0

    async def submit(self, job):
        self.asked += 1
        if self.left:
            raise RpcFailed("UNAVAILABLE", "not now", reason=self.left.pop(0).name)
        return SubmissionReceipt(job_id=job.job_id, already_submitted=False)


async def test_what_is_too_early_is_submitted_again():
    early = (Reason.MARKET_NOT_OPEN, Reason.NOT_APPLIED_YET, Reason.NOT_ADMITTED_YET)
    client = Refusing(*early)

    receipt = await submit_until_taken(client, JOB)

    assert receipt.job_id == JOB.job_id
    assert client.asked == 1 + len(early)


async def test_what_is_refused_is_not_submitted_again():
    client = Refusing(Reason.DEADLINE_INFEASIBLE)

    with pytest.raises(RpcFailed) as refused:
        await submit_until_taken(client, JOB)

    assert refused.value.reason == "DEADLINE_INFEASIBLE"
    assert client.asked == 1


async def test_what_stays_too_early_is_given_up():
    client = Refusing(*[Reason.NOT_ADMITTED_YET] * 1000)

    with pytest.raises(RpcFailed, match="not now"):
        await submit_until_taken(client, JOB, give_up_s=0.2)

    assert client.left
