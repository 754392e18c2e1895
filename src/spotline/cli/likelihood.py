"""How likely a job must be on time: the level that `plan` and `submit` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import SubmissionReceipt
    from spotline.domain.jobs.draft import JobDraft
    from spotline.domain.jobs.job import Job

OnTime = Annotated[
    float | None,
    typer.Option(
        "--on-time",
        min=0.0,
        max=1.0,
        metavar="P",
        help="Probability of being on time that is asked for, such as 0.95. Default: 0.99 of a hard "
        "deadline, any of a soft one.",
    ),
]

_HARD_PPM = 990_000


def least_on_time_ppm(job: Job | JobDraft, on_time: float | None) -> int:
    """The probability of being on time that is asked of a job, parts per million; 0: any."""
    from spotline.domain.jobs.job import DeadlineKind

    if on_time is not None:
        return round(on_time * 1e6)
    return _HARD_PPM if job.deadline.kind is DeadlineKind.HARD else 0


async def submitted_if_likely(
    client: JobClient, job: Job | JobDraft, least_ppm: int, *, certainly: bool
) -> SubmissionReceipt:
    """Hand a job over that is likely enough to be on time; `RpcFailed` where it is not.

    Before a market's first slot nobody can say: it is handed over then, unless the level was asked
    for `certainly`.
    """
    from spotline.adapters.grpc.kit.errors import RpcFailed
    from spotline.contracts.reasons import Reason

    try:
        return await client.submit(job, least_on_time_ppm=least_ppm)
    except RpcFailed as error:
        if certainly or not least_ppm or error.reason != Reason.MARKET_NOT_OPEN.name:
            raise
    return await client.submit(job)
