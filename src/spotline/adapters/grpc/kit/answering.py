"""How a service answers: values as messages with the market's clock, refusals as statuses."""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message

from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, unreadable
from spotline.application.market_view import ClockReading
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.contracts.limits import name_problem
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason

Params = ParamSpec("Params")
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

_CLOCK = "clock"


class Clocked(Protocol):
    """A servicer that can say what time it is in the market."""

    def clock(self) -> ClockReading | None:
        """Market time, None before it is known."""
        ...


ServicerT = TypeVar("ServicerT", bound=Clocked)


async def refuse(
    context: ServerContext, error: RpcRefused | ContractError | ProviderUnavailable
) -> NoReturn:
    """End the call with the status of `error`."""
    if isinstance(error, ContractError):
        error = unreadable(error)
    elif isinstance(error, ProviderUnavailable):
        error = RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            f"the event bus does not take it now ({error}); nothing was recorded, try again",
            reason=Reason.BUS_UNAVAILABLE,
        )
    await context.abort(error.code, str(error), error.trailing_metadata())


def answers(
    method: Callable[[ServicerT, RequestT, ServerContext], Awaitable[object]],
) -> Callable[[ServicerT, RequestT, ServerContext], Awaitable[Any]]:
    """Send what a unary method answers as a message with the clock, what it refuses as a status.

    A bug stays UNKNOWN.
    """

    @functools.wraps(method)
    async def answered(servicer: ServicerT, request: RequestT, context: ServerContext) -> Message:
        try:
            answer = await method(servicer, request, context)
            message = answer if isinstance(answer, Message) else to_message(answer)
            return with_clock(message, servicer.clock())
        except (RpcRefused, ContractError, ProviderUnavailable) as error:
            await refuse(context, error)

    return answered


def with_clock(message: Message, clock: ClockReading | None) -> Message:
    """Fill in the message's clock, where it has one and is not told it already."""
    if clock is None or _CLOCK not in message.DESCRIPTOR.fields_by_name:
        return message
    if not message.HasField(_CLOCK):
        getattr(message, _CLOCK).CopyFrom(to_message(clock))
    return message


# --- requests that change something -----------------------------------------------------------


@dataclass(slots=True)
class _Request:
    """A request that was seen: its content, and its answer once there is one."""

    content: bytes
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: Any = None


class RequestLog:
    """Gives a repeated request the answer of the first, as far back as `most` of them.

    What outlives this process is not kept here: a request's event has an id that follows from the
    request's, so that a repeated one changes nothing; its answer then says how things stand.
    """

    def __init__(self, most: int = 20_000) -> None:
        self._most = most
        self._seen: OrderedDict[tuple[str, ...], _Request] = OrderedDict()

    async def once(
        self, request: Message, scope: str, work: Callable[[], Awaitable[AnswerT]]
    ) -> AnswerT:
        """Do `work` unless the same request of this `scope` (a job, a tenant) was answered.

        What failed is not kept: it is tried again.

        Raises
        ------
        RpcRefused
            The request's id is too long, or was another request's.
        """
        request_id: str = cast("Any", request).request_id
        check_request_id(request_id)
        if not request_id:
            return await work()
        key = (request.DESCRIPTOR.name, scope, request_id)
        content = request.SerializeToString(deterministic=True)
        seen = self._seen.setdefault(key, _Request(content))
        self._seen.move_to_end(key)
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
        if seen.content != content:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"request_id {request_id!r} was used for another request; take a new one",
                reason=Reason.REQUEST_ID_REUSED,
                field="request_id",
            )
        async with seen.turn:
            if seen.answer is None:
                try:
                    seen.answer = await work()
                except BaseException:
                    # Mended, it may be sent again under the same id.
                    self._seen.pop(key, None)
                    raise
            return cast("AnswerT", seen.answer)


def check_request_id(request_id: str) -> None:
    """Refuse an id that is too long to be kept, or more than one line; empty is none."""
    problem = name_problem(request_id)
    if problem:
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"request_id {problem}",
            reason=Reason.FIELD_INVALID,
            field="request_id",
        )
