"""Where a job stands, as the service answers it: with its place in the log and its etag."""

from __future__ import annotations

from dataclasses import replace

import grpc

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.application.allocator.handler import JobsState
from spotline.application.allocator.messages import JobStatus
from spotline.contracts.mapping import digest
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.job import Job

_ETAG_CHARACTERS = 16


def etag_of(job: Job) -> str:
    """A text that changes when what the owner of a job states does."""
    return digest(job)[:_ETAG_CHARACTERS]


def status_of(state: JobsState, feed: JobFeed, job_id: str) -> JobStatus:
    """Where a job stands.

    Raises
    ------
    RpcRefused
        There is no such job.
    """
    status, stated = state.statuses.get(job_id), state.owners(job_id)
    if status is None or stated is None:
        raise unknown_job(job_id)
    return replace(status, seq=feed.seq_of(job_id), etag=etag_of(stated))


def unknown_job(job_id: str, of: str = "") -> RpcRefused:
    """The refusal for a job that does not exist; `of` says more of it, such as its tenant."""
    if not job_id:
        return RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "job_id must not be empty",
            reason=Reason.FIELD_INVALID,
            field="job_id",
        )
    return RpcRefused(
        grpc.StatusCode.NOT_FOUND,
        f"there is no job {job_id}{of}; `spotline status` lists all",
        reason=Reason.UNKNOWN_JOB,
        field="job_id",
    )


def need_open(status: JobStatus) -> None:
    """Refuse what comes for a job that is over."""
    if status.state.over:
        raise RpcRefused(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"job {status.job.job_id} is over ({status.state.value}); nothing was recorded",
            reason=Reason.JOB_OVER,
            field="job_id",
        )
