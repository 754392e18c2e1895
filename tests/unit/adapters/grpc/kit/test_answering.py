"""A request that changes something has one effect and one answer, however often it is sent."""

from __future__ import annotations

import asyncio

import pytest

from spotline.adapters.grpc.kit.answering import RequestLog, with_clock
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.api.v1 import (
    allocator_service_pb2,
    analytics_service_pb2,
    configuration_service_pb2,
    job_service_pb2,
    placement_service_pb2,
)
from spotline.application.market_view import ClockReading
from spotline.contracts.reasons import Reason

SERVICES = (
    allocator_service_pb2,
    analytics_service_pb2,
    configuration_service_pb2,
    job_service_pb2,
    placement_service_pb2,
)
METHODS = [
    method
    for module in SERVICES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
# The selector's own call, which says which slot it is about; and pieces of what a program wrote,
# which have the wall time of their instance.
WITHOUT_CLOCK = {"Allocate", "ReadOutput"}
CHANGES = {
    *("Submit", "Cancel", "UpdateJob", "ReportProgress", "ReportExit"),
    *("Place", "Release", "Learn"),
}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_every_answer_to_a_client_carries_the_clock(method):
    fields = method.output_type.fields_by_name

    assert ("clock" in fields) == (method.name not in WITHOUT_CLOCK)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.full_name)
def test_every_request_that_changes_something_takes_an_id(method):
    assert ("request_id" in method.input_type.fields_by_name) == (method.name in CHANGES)


def test_the_clock_is_filled_in_where_it_is_not_told():
    clock = ClockReading(market_ns=5, slot=1, slot_s=600)

    message = with_clock(job_service_pb2.CancelResponse(), clock)

    assert (message.clock.market_ns, message.clock.slot, message.clock.slot_s) == (5, 1, 600)
    assert not with_clock(job_service_pb2.CancelResponse(), None).HasField("clock")


def cancel(request_id: str = "r", job_id: str = "j"):
    return job_service_pb2.CancelRequest(job_id=job_id, request_id=request_id)


class Work:
    def __init__(self, *outcomes) -> None:
        self.outcomes = list(outcomes)
        self.done = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self):
        self.done += 1
        await self.go_on.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


async def test_the_same_request_has_the_earlier_answer():
    log, work = RequestLog(), Work("first", "second")

    assert await log.once(cancel(), "j", work) == "first"
    assert await log.once(cancel(), "j", work) == "first"
    assert work.done == 1


async def test_requests_at_the_same_time_are_one():
    log, work = RequestLog(), Work("first", "second")
    work.go_on.clear()

    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(log.once(cancel(), "j", work)) for _ in range(2)]
        work.go_on.set()

    assert [one.result() for one in both] == ["first", "first"]


async def test_without_an_id_nothing_is_remembered():
    log, work = RequestLog(), Work("first", "second")

    assert await log.once(cancel(""), "j", work) == "first"
    assert await log.once(cancel(""), "j", work) == "second"


async def test_what_failed_is_tried_again_even_with_other_content():
    log, work = RequestLog(), Work(ValueError("no"), "second")

    with pytest.raises(ValueError, match="no"):
        await log.once(cancel(job_id="typo"), "t", work)
    assert await log.once(cancel(), "t", work) == "second"


async def test_an_id_of_another_request_is_refused():
    log, work = RequestLog(), Work("first")
    await log.once(cancel(), "t", work)

    with pytest.raises(RpcRefused) as caught:
        await log.once(cancel(job_id="another"), "t", work)
    assert caught.value.reason is Reason.REQUEST_ID_REUSED
    assert caught.value.field == "request_id"


async def test_only_so_many_answers_are_kept():
    log, work = RequestLog(most=2), Work(*"abcd")

    for request_id in ("1", "2", "3", "1"):
        await log.once(cancel(request_id), "j", work)

    assert work.done == 4
