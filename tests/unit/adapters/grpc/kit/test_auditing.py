"""What changes something is recorded before it is done, and before it is answered."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from spotline.adapters.grpc.kit.auditing import AuditedCalls, Auditor, about
from spotline.adapters.grpc.kit.doors import stated_tenant
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.api.v1 import agent_service_pb2, job_service_pb2, operations_service_pb2
from spotline.application.identity.audit import BEGUN
from spotline.contracts.access import COUNTED, GRPC_ACTIONS, Caller, Does, Role
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import answer_for
from tests.fakes.access_doors import descriptor_of
from tests.fakes.audit_trails import MemoryTrail

CANCEL = "/spotline.api.v1.JobService/Cancel"
ANN = Caller(subject="ann", role=Role.OWNER, tenant="research", credential_id="key:1")


class Aborted(Exception):
    pass


class Context:
    """A call's context; what the trail held when the status went out."""

    def __init__(self, trail: MemoryTrail) -> None:
        self._trail = trail
        self.sent: grpc.StatusCode | None = None
        self.recorded_when_sent: list[tuple[str, str]] = []

    def peer(self) -> str:
        return "ipv6:%5B::1%5D:4242"

    async def abort(self, code, details="", trailing_metadata=()):
        self.sent = code
        self.recorded_when_sent = self._trail.outcomes()
        raise Aborted


async def called(trail: MemoryTrail, behavior, *, method: str = CANCEL, request=None, context=None):
    """Call a method of this behavior through the door."""
    auditor = Auditor(trail, stated_tenant)
    door = AuditedCalls(auditor)
    handler = grpc.unary_unary_rpc_method_handler(behavior)

    class Details:
        invocation_metadata = ()

    Details.method = method

    async def continuation(details):
        return handler

    audited = await door.intercept_service(continuation, Details)
    if request is None:
        request = job_service_pb2.CancelRequest(job_id="j1", request_id="again-1")
    answer_for(ANN)
    try:
        return await audited.unary_unary(request, context or Context(trail))
    finally:
        auditor.close()


async def test_a_call_is_recorded_before_and_after_it_is_done():
    trail = MemoryTrail()

    async def cancel(request, context):
        assert trail.outcomes() == [(BEGUN, "")]
        return job_service_pb2.CancelResponse()

    await called(trail, cancel)

    began, ended = trail.acts
    assert (ended.outcome, ended.of_seq) == ("OK", 1)
    assert (began.subject, began.role, began.tenant) == ("ann", "owner", "research")
    assert (began.credential_id, began.target) == ("key:1", "job_id=j1")
    assert (began.peer, began.request_id) == ("ipv6:[::1]:4242", "again-1")


async def test_a_refusal_is_recorded_with_its_reason_before_it_is_sent():
    trail = MemoryTrail()
    context = Context(trail)

    async def cancel(request, context):
        refused = RpcRefused(grpc.StatusCode.NOT_FOUND, "none", reason=Reason.UNKNOWN_JOB)
        await context.abort(refused.code, str(refused), refused.trailing_metadata())

    with pytest.raises(Aborted):
        await called(trail, cancel, context=context)

    assert trail.outcomes() == [(BEGUN, ""), ("NOT_FOUND", "UNKNOWN_JOB")]
    assert context.recorded_when_sent == trail.outcomes()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("postgresql://u:hunter2@db"), ("UNKNOWN", "ValueError")),
        (asyncio.CancelledError(), ("CANCELLED", "")),
        (
            RpcRefused(grpc.StatusCode.UNAVAILABLE, "later", reason=Reason.BUS_UNAVAILABLE),
            ("UNAVAILABLE", "BUS_UNAVAILABLE"),
        ),
    ],
    ids=["a bug", "the caller went away", "a refusal of a door"],
)
async def test_what_ends_otherwise_is_recorded_too(error, outcome):
    trail = MemoryTrail()

    async def cancel(request, context):
        raise error

    with pytest.raises(type(error)):
        await called(trail, cancel)

    assert trail.outcomes() == [(BEGUN, ""), outcome]
    assert "hunter2" not in str(trail.acts)


async def test_nothing_is_done_where_it_cannot_be_recorded():
    trail = MemoryTrail()
    trail.full = True
    context, done = Context(trail), []

    async def cancel(request, context):
        done.append(request)

    with pytest.raises(Aborted):
        await called(trail, cancel, context=context)

    assert context.sent is grpc.StatusCode.UNAVAILABLE
    assert done == trail.acts == []


async def test_reports_are_recorded_by_their_sum():
    trail = MemoryTrail()

    @asynccontextmanager
    async def reporting():
        auditor = Auditor(trail, stated_tenant)
        request = agent_service_pb2.ReportHeartbeatRequest(generation=3)
        act = auditor.act(next(iter(COUNTED)), request, Context(trail))
        yield auditor, replace(act, outcome="OK", subject="i-1")
        auditor.close()

    async with reporting() as (auditor, act):
        for _ in range(50):
            auditor.counted(act)

    first, others = trail.acts
    assert (first.count, others.count) == (1, 49)


async def test_a_flood_of_bad_tokens_is_some_records():
    trail = MemoryTrail()
    auditor = Auditor(trail, stated_tenant)
    refused = RpcRefused(grpc.StatusCode.UNAUTHENTICATED, "no", reason=Reason.UNAUTHENTICATED)

    for _ in range(5_000):
        auditor.denied(CANCEL, refused, Context(trail))
    auditor.close()

    assert len(trail.acts) == 21
    assert sum(act.count for act in trail.acts) == 5_000
    assert {act.subject for act in trail.acts} == {"anonymous"}


def test_what_is_counted_changes_something_and_no_write_answers_with_a_stream():
    writes = {name for name, action in GRPC_ACTIONS.items() if action.does is Does.WRITE}

    assert set(COUNTED) <= writes
    assert not [name for name in writes if descriptor_of(name).server_streaming]


def test_what_a_request_is_about_are_its_ids_and_nothing_else():
    pause = operations_service_pb2.PauseRequest(
        scope=1, key="research", detail="the password is hunter2"
    )
    reap = operations_service_pb2.ReapOrphansRequest(instance_ids=[f"i-{n}" for n in range(9)])
    join = agent_service_pb2.JoinRequest(join_token="join.secret", instance_id="i-1")

    promote = operations_service_pb2.SetAccountModeRequest(account="aws/1", mode=1, reason="ready")

    assert "account=aws/1" in about(promote)
    assert "mode=" in about(promote)
    assert "ready" not in about(promote)
    assert about(operations_service_pb2.PauseRequest(scope=999)) == "scope=999"
    assert "key=research" in about(pause)
    assert "hunter2" not in about(pause)
    assert about(reap) == "instance_ids=i-0+i-1+i-2+i-3+5 more"
    assert about(join) == "instance_id=i-1"
    assert about(b"no message") == ""
