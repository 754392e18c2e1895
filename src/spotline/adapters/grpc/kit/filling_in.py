"""What a request may leave out: ids, and what a job file may leave out too."""

from __future__ import annotations

import uuid
from typing import cast

import grpc
from google.protobuf.message import Message

from spotline.adapters.grpc.kit.answering import check_request_id
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.api.v1 import allocator_service_pb2, job_pb2, job_service_pb2
from spotline.application.admission import job_id_for
from spotline.contracts.errors import FieldViolation
from spotline.contracts.limits import JOB_BYTES, name_problem
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.job import (
    DEFAULT_CHECKPOINT,
    DEFAULT_OVERHEADS,
    DEFAULT_TOPOLOGY,
    Topology,
)

_DEFAULT_CHECKPOINT = cast("job_pb2.Checkpoint", to_message(DEFAULT_CHECKPOINT))
_DEFAULT_OVERHEADS = cast("job_pb2.Overheads", to_message(DEFAULT_OVERHEADS))
MOST_MICRO_USD = 10**18
"""The greatest value or budget, as in a job file: sums of some of them stay within 64 bits."""

_AMOUNTS = ("value_micro_usd", "budget_micro_usd", "egress_budget_micro_usd")
_TEXTS = ("tenant", "client_request_id", "name", "model_name", "job_id")
_TOPOLOGIES = {
    topology: job_pb2.Topology.Value(f"TOPOLOGY_{topology.name}") for topology in Topology
}


def own_request_id() -> str:
    """An id for a request that came without one."""
    return uuid.uuid4().hex


def name_submission(request: job_service_pb2.SubmitRequest) -> None:
    """Give the request its id, and what it submits its own and the defaults.

    Raises
    ------
    RpcRefused
        Two different request ids are stated, or one that is too long.
    """
    job = request.job if request.HasField("job") else request.draft
    field = "job" if request.HasField("job") else "draft"
    check_stated(job, field)
    _check_size(job, field)
    request.request_id = one_request_id(request.request_id, job.client_request_id)
    if request.HasField("job"):
        _fill_in(request.job, request.request_id)
    if request.HasField("draft"):
        _name(request.draft, request.request_id)


def _check_size(said: Message, field: str) -> None:
    """Refuse a job so large that it would crowd out the others wherever jobs go together."""
    size = said.ByteSize()
    if size > JOB_BYTES:
        problem = f"must have at most {JOB_BYTES:,} bytes, had {size:,}"
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{field} {problem}",
            reason=Reason.FIELD_INVALID,
            violations=(FieldViolation(field=field, description=problem),),
        )


def one_request_id(request_id: str, client_request_id: str) -> str:
    """The id of a request that may state it by its older name, one of ours where it states none.

    Raises
    ------
    RpcRefused
        The two differ, or the id is too long.
    """
    if request_id and client_request_id and request_id != client_request_id:
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "request_id must be the client_request_id of what is submitted, or one of the two be "
            f"empty; they were {request_id[:80]!r} and {client_request_id[:80]!r}",
            reason=Reason.FIELD_INVALID,
            field="request_id",
        )
    check_request_id(request_id)
    return request_id or client_request_id or own_request_id()


def check_stated(said: Message, field: str) -> None:
    """Refuse ids and names that no subject, row or terminal should hold, and sums beyond all money.

    Raises
    ------
    RpcRefused
        A text is too long or holds control characters, an amount is too large; names each of them.
    """
    wrong = []
    for name in _TEXTS:
        problem = name_problem(str(getattr(said, name, "")))
        if problem:
            wrong.append(FieldViolation(field=f"{field}.{name}", description=problem))
    for name in _AMOUNTS:
        amount = int(getattr(said, name, 0))
        if amount > MOST_MICRO_USD:
            problem = f"must be <= {MOST_MICRO_USD} (10^12 USD), was {amount}"
            wrong.append(FieldViolation(field=f"{field}.{name}", description=problem))
    if wrong:
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{wrong[0].field} {wrong[0].description}",
            reason=Reason.FIELD_INVALID,
            violations=wrong,
        )


def name_plan(request: allocator_service_pb2.PlanRequest) -> None:
    """Fill in what is planned: it need not name a request, for nothing is recorded."""
    if request.HasField("job"):
        _fill_in(request.job, "plan")
    if request.HasField("draft"):
        _name(request.draft, "plan")
    for index, job in enumerate(request.jobs):
        _fill_in(job, f"plan-{index}")


def name_draft(draft: job_pb2.JobDraft) -> None:
    """Fill in a draft that is only completed."""
    _name(draft, "draft")


def name_comparison(request: allocator_service_pb2.ComparePoliciesRequest) -> None:
    """Fill in the job that policies are compared for."""
    if request.HasField("job"):
        _fill_in(request.job, "plan")


def _name(job: job_pb2.Job | job_pb2.JobDraft, request_id: str) -> None:
    job.client_request_id = job.client_request_id or request_id
    if not job.job_id and job.tenant:
        job.job_id = job_id_for(job.tenant, job.client_request_id)
    if job.HasField("deadline"):
        _complete(job.deadline)
    if job.HasField("run"):
        # Who runs a program sees it end, whatever is said.
        job.awaits_exit = True


def _fill_in(job: job_pb2.Job, request_id: str) -> None:
    _name(job, request_id)
    if not job.HasField("checkpoint"):
        job.checkpoint.CopyFrom(_DEFAULT_CHECKPOINT)
    if not job.HasField("overheads"):
        job.overheads.CopyFrom(_DEFAULT_OVERHEADS)
    if not job.topology:
        job.topology = _TOPOLOGIES[DEFAULT_TOPOLOGY]


def _complete(deadline: job_pb2.Deadline) -> None:
    """A deadline is hard unless it says from when on the job is worthless."""
    if not deadline.kind and deadline.at_ns:
        soft = deadline.expires_ns not in (0, deadline.at_ns)
        hard_kind, soft_kind = job_pb2.DEADLINE_KIND_HARD, job_pb2.DEADLINE_KIND_SOFT
        deadline.kind = soft_kind if soft else hard_kind
    if deadline.kind == job_pb2.DEADLINE_KIND_HARD and not deadline.expires_ns:
        deadline.expires_ns = deadline.at_ns


def complete_deadline(deadline: job_pb2.Deadline) -> job_pb2.Deadline:
    """A copy of a deadline with what may be left out."""
    whole = job_pb2.Deadline()
    whole.CopyFrom(deadline)
    _complete(whole)
    return whole
