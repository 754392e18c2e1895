"""Whatever is asked of a server, it says what is wrong, and goes on."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.depth import examples
from tests.fakes.bad_input import _SERVICES, AskedSystem, message_type
from tests.fakes.mutation import changed_bytes

pytestmark = pytest.mark.integration

METHODS = [
    f"{service}.{method.name}"
    for service, descriptor in sorted(_SERVICES.items())
    for method in descriptor.methods
    # It needs a session, and is tried with the agents.
    if service != "AgentService"
]
# What is answered, or refused with a reason of ours; UNKNOWN and INTERNAL are bugs.
SAID = {
    *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.ABORTED),
    *(grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE),
    *(grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ALREADY_EXISTS),
    *(grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.PERMISSION_DENIED),
}
TEXTS = ("", "research", "x" * 300, "\x1b[2J", "spot", "*", "a\nb", "ü" * 50, "known", "9" * 40)
INTS = (0, 1, -1, 2**31 - 1, -(2**31), 7, 1000)
LONGS = (*INTS, 2**63 - 1, -(2**63), 1_772_323_200 * 10**9)
FLOATS = (0.0, -1.0, 1e308, float("nan"), float("inf"), 0.5)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with AskedSystem(tmp_path_factory.mktemp("fuzzed")) as system:
        yield system


def filled(message: Message, rng: random.Random, depth: int = 0) -> Message:
    """Some fields of a message set to anything."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.4 or (field.message_type is not None and depth > 4):
            continue
        held: Any = getattr(message, field.name)
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            for _ in range(rng.randint(0, 2) if field.is_repeated else 1):
                filled(held.add() if field.is_repeated else held, rng, depth + 1)
        elif field.is_repeated:
            held.extend(anything(field, rng) for _ in range(rng.randint(0, 3)))
        else:
            setattr(message, field.name, anything(field, rng))
    return message


def anything(field: FieldDescriptor, rng: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = rng.choice(TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return rng.choice(FLOATS)
        case FieldDescriptor.CPPTYPE_INT64:
            return rng.choice(LONGS)
        case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
            return abs(rng.choice(INTS[:-3]))
        case _:
            return rng.choice(INTS)


def refusal(ask) -> tuple[grpc.StatusCode | None, str]:
    """How a call ended: its status and what was said, or None where it was answered."""
    try:
        ask()
    except StopIteration:
        return None, ""  # a stream without anything in it
    except grpc.RpcError as error:
        return error.code(), error.details()
    return None, ""


@pytest.mark.parametrize("method", METHODS)
def test_any_request_is_answered_or_refused_with_a_reason(asked, method):
    service, _, name = method.partition(".")
    kind = message_type(_SERVICES[service].methods_by_name[name].input_type)
    rng = random.Random(f"call {method}")
    for number in range(examples(15)):
        request = filled(kind(), rng)
        if number % 3 == 0:
            request = as_read(kind, changed_bytes(request.SerializeToString(), rng), request)
        code, said = refusal(lambda request=request: asked.ask(method, request))
        assert code in (None, *SAID), f"{method} {number}: {code} {said}\n{request}"
        assert said.isprintable(), f"{method} {number}"
    assert asked.system.probes.hosts


def as_read(kind: type[Message], data: bytes, otherwise: Message) -> Message:
    try:
        return kind.FromString(data)
    except Exception:  # noqa: BLE001 - gRPC itself refuses what is no message
        return otherwise


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_are_refused(asked, method):
    service, _, name = method.partition(".")
    found = _SERVICES[service].methods_by_name[name]
    rng = random.Random(f"bytes {method}")
    with asked._channel(service) as channel:
        path = f"/{_SERVICES[service].full_name}/{name}"
        opened = channel.unary_stream if found.server_streaming else channel.unary_unary
        call = opened(path)
        for _ in range(examples(6)):
            data = rng.randbytes(rng.randint(1, 200))

            def ask(data=data):
                answer = call(data, timeout=30)
                if found.server_streaming:
                    next(iter(answer), None)
                    answer.cancel()

            code, said = refusal(ask)
            assert code in (None, *SAID), f"{code} {said}"


def test_after_all_of_it_every_service_is_well(asked):
    assert asked._healthy()
