"""Handing a job over until it is taken."""

from __future__ import annotations

import asyncio
from typing import Protocol

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.allocator.messages import SubmissionReceipt
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job

# The market's first entry may still be on its way to the job board, and what is recorded to the
# ledger: the same submission again says more.
_TOO_EARLY = frozenset(
    reason.name
    for reason in (Reason.MARKET_NOT_OPEN, Reason.NOT_APPLIED_YET, Reason.NOT_ADMITTED_YET)
)
_GIVE_UP_S = 120.0
_ASK_AGAIN_S = 0.05


class Submitting(Protocol):
    """A client of the job board."""

    async def submit(self, job: Job | JobDraft) -> SubmissionReceipt:
        """Hand a job over, or a draft of one; idempotent by its client request id."""
        ...


async def submit_until_taken(
    client: Submitting, job: Job | JobDraft, *, give_up_s: float = _GIVE_UP_S
) -> SubmissionReceipt:
    """Submit a job, again while it is too early for a word on it.

    Raises
    ------
    RpcFailed
        It is refused, or was too early for `give_up_s` wall seconds.
    """
    loop = asyncio.get_running_loop()
    give_up_at_s = loop.time() + give_up_s
    while True:
        try:
            return await client.submit(job)
        except RpcFailed as error:
            if error.reason not in _TOO_EARLY or loop.time() >= give_up_at_s:
                raise
        await asyncio.sleep(_ASK_AGAIN_S)
