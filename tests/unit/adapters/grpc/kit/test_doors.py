"""What a server's door takes, and what it says to the rest."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from spotline.adapters.grpc.kit.calling import pause_before
from spotline.adapters.grpc.kit.doors import (
    NAMES,
    Door,
    Doors,
    Lane,
    check_names,
    stated_tenant,
)
from spotline.adapters.grpc.kit.errors import STATUS_KEY, RpcFailed, RpcRefused
from spotline.api.v1 import (
    agent_service_pb2,
    allocator_service_pb2,
    configuration_service_pb2,
    job_pb2,
    job_service_pb2,
    operations_service_pb2,
    placement_service_pb2,
    statistics_pb2,
)
from spotline.contracts.access import Caller, Role
from spotline.contracts.limits import LONGEST_NAME, CallerLimits
from spotline.runtime.callers import answer_for
from tests.eventually import eventually

FILES = (
    *(agent_service_pb2, allocator_service_pb2, configuration_service_pb2, job_service_pb2),
    *(operations_service_pb2, placement_service_pb2, statistics_pb2),
)
# Texts of requests that are no names: what they may hold is said by their own readers.
FREE = {
    *("command", "currency", "detail", "drift_detector", "etag", "image", "join_token", "location"),
    *("identity_document", "identity_signature"),
    *("native_price_unit", "nonce", "page_token", "parameter", "path", "paths", "pattern"),
    *(
        "reason",
        "release",
        "resumed_sha256",
        "secrets",
        "setup",
        "sha256",
        "stack",
        "table_id",
        "text",
    ),
    *("unit", "uri", "value"),
}


def texts_of_requests() -> set[str]:
    found, seen = set(), set()

    def look(kind):
        if kind.full_name in seen:
            return
        seen.add(kind.full_name)
        for field in kind.fields:
            if field.message_type is not None:
                look(field.message_type)
            elif field.type == field.TYPE_STRING:
                found.add(field.name)

    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                look(method.input_type)
    return found


def test_every_text_of_a_request_is_a_name_or_known_to_be_none():
    assert texts_of_requests() - FREE - NAMES == set()
    assert set() == FREE & NAMES


@pytest.mark.parametrize("text", ["x" * (LONGEST_NAME + 1), "a\x1b[2J", "a\nb", "a\u202eb", "\0"])
@pytest.mark.parametrize(
    ("request_type", "place"),
    [
        (job_service_pb2.GetRequest, "job_id"),
        (job_service_pb2.ListRequest, "tenant"),
        (job_service_pb2.WatchRequest, "job_id"),
        (job_service_pb2.SubmitRequest, "job.tenant"),
        (job_service_pb2.SubmitRequest, "draft.client_request_id"),
        (job_service_pb2.ReportProgressRequest, "request_id"),
        (allocator_service_pb2.PlanRequest, "job.name"),
        (operations_service_pb2.DropParkedRequest, "event_id"),
    ],
)
def test_a_name_that_is_none_is_refused_with_its_field(request_type, place, text):
    request = target = request_type()
    *path, last = place.split(".")
    for name in path:
        target = getattr(target, name)
    setattr(target, last, text)

    with pytest.raises(RpcRefused) as caught:
        check_names(request)

    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in caught.value.violations] == [place]
    assert str(caught.value).isprintable()


def test_every_wrong_name_is_told_and_names_of_lists_by_their_place():
    job = job_pb2.Job(tenant="t\n", offerings=["good", "b\ad"])
    job.throughputs.add(offering="x" * 201)
    request = allocator_service_pb2.PlanRequest(jobs=[job_pb2.Job(tenant="t"), job])

    with pytest.raises(RpcRefused) as caught:
        check_names(request)

    assert [violation.field for violation in caught.value.violations] == [
        "jobs[1].tenant",
        "jobs[1].throughputs[0].offering",
        "jobs[1].offerings[1]",
    ]


def test_names_up_to_the_limit_are_taken():
    check_names(job_service_pb2.GetRequest(job_id="ü" * LONGEST_NAME))
    check_names(job_service_pb2.GetRequest())


def test_many_wrong_names_are_told_as_some():
    request = allocator_service_pb2.PlanRequest(policy_ids=["\n"] * 10_000)

    with pytest.raises(RpcRefused) as caught:
        check_names(request)
    assert len(caught.value.violations) == 20


LIMITS = CallerLimits(most_calls=3, most_calls_a_tenant=2, most_streams=1, most_allocations=1)


def retry_of(refused: RpcRefused) -> float:
    status = Status.FromString(dict(refused.trailing_metadata())[STATUS_KEY])
    for packed in status.details:
        retry = details.RetryInfo()
        if packed.Unpack(retry):
            return retry.retry_delay.ToNanoseconds() / 1e9
    raise AssertionError("no RetryInfo")


def test_one_tenant_leaves_room_for_others():
    doors = Doors(LIMITS)
    with doors.room(Lane.CALLS, "a"), doors.room(Lane.CALLS, "a"):
        with pytest.raises(RpcRefused, match="2 calls of tenant 'a'") as caught:
            doors.room(Lane.CALLS, "a").__enter__()
        assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_of(caught.value) > 0
        with (
            doors.room(Lane.CALLS, "b"),
            pytest.raises(RpcRefused, match="3 calls are in progress"),
        ):
            doors.room(Lane.CALLS, "c").__enter__()
        with doors.room(Lane.ALLOCATIONS, ""), doors.room(Lane.STREAMS, "a"):
            assert doors.held(Lane.CALLS) == 2
    assert {lane: doors.held(lane) for lane in Lane} == dict.fromkeys(Lane, 0)
    assert not doors._of_tenants


class Turned(Exception):
    """Stands for the end of a call that was refused."""


class Refusing:
    """The context of a call, as far as a refusal needs it."""

    async def abort(self, code, message, trailing_metadata=()):
        raise Turned(code, message)


async def test_what_names_no_tenant_counts_for_the_tenant_of_who_asks():
    door = Door(Doors(LIMITS), ("spotline.api.v1.JobService",), stated_tenant)
    asked, go_on = [], asyncio.Event()

    async def behavior(request, context):
        asked.append(request)
        await go_on.wait()
        return "market"

    method = door._once("/spotline.api.v1.JobService/GetMarket", behavior)

    async def ask(tenant):
        answer_for(Caller(subject="ann", role=Role.OWNER, tenant=tenant))
        return await method(job_service_pb2.GetMarketRequest(), Refusing())

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        loud = [tasks.create_task(ask("loud")) for _ in range(2)]
        await eventually(lambda: len(asked) == 2)
        with pytest.raises(Turned, match="2 calls of tenant 'loud'"):
            await asyncio.create_task(ask("loud"))
        quiet = tasks.create_task(ask("quiet"))
        await eventually(lambda: len(asked) == 3)
        go_on.set()

    assert [task.result() for task in (*loud, quiet)] == ["market"] * 3


def test_a_place_is_given_back_whatever_happens():
    doors = Doors(LIMITS)
    for _ in range(5):
        with pytest.raises(KeyError), doors.room(Lane.STREAMS, "a"):
            raise KeyError

    assert doors.held(Lane.STREAMS) == 0


def test_the_tenant_of_a_request_is_the_one_it_states():
    assert stated_tenant(job_service_pb2.ListRequest(tenant="a")) == "a"
    assert stated_tenant(job_service_pb2.SubmitRequest(job=job_pb2.Job(tenant="b"))) == "b"
    assert stated_tenant(job_service_pb2.SubmitRequest(draft=job_pb2.JobDraft(tenant="c"))) == "c"
    assert stated_tenant(job_service_pb2.GetRequest(job_id="x")) == ""


@pytest.mark.parametrize(
    "limit", ["most_calls", "most_streams_a_tenant", "most_open_jobs_a_tenant"]
)
def test_a_limit_of_nothing_is_refused(limit):
    with pytest.raises(ValueError, match=f"{limit} must be >= 1, was 0"):
        CallerLimits(**{limit: 0})


@pytest.mark.parametrize(
    ("code", "retry_s", "least_s", "most_s"),
    [
        ("RESOURCE_EXHAUSTED", 2.0, 2.0, 4.0),
        ("RESOURCE_EXHAUSTED", 0.0, 0.0, 0.0),
        ("RESOURCE_EXHAUSTED", 60.0, 0.0, 0.0),
        ("INVALID_ARGUMENT", 2.0, 0.0, 0.0),
    ],
)
def test_a_client_waits_as_it_is_told(code, retry_s, least_s, most_s):
    waits = [pause_before(RpcFailed(code, "full", retry_s=retry_s)) for _ in range(20)]

    assert all(least_s <= wait_s <= most_s for wait_s in waits)
    if most_s:
        assert len(set(waits)) > 1
