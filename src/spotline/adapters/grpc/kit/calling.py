"""What all our gRPC clients share: their channel, and how it is closed."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Self, TypeVar

import grpc
from google.protobuf.message import Message

from spotline.adapters.grpc.kit.errors import RpcFailed, failure_of, was_hung_up
from spotline.adapters.grpc.kit.tokened import TokenedChannel
from spotline.adapters.grpc.kit.tracing import client_interceptors
from spotline.adapters.identity.endpoints import ClientIdentity, client_identity
from spotline.contracts.limits import MESSAGE_BYTES
from spotline.contracts.mapping import from_message, to_message
from spotline.runtime.telemetry import telemetry_for

# Who is no service: a command, a training platform.
ANY_CLIENT = "client"

# What is told to wait for longer is told to people.
_LONGEST_PAUSE_S = 30.0
# What a server gives the calls that it has taken up, before it ends them, seconds.
GRACE_S = 1.0
# Between two tries to reach the next server of an address, seconds.
_AGAIN_S = 0.02

ResponseT = TypeVar("ResponseT")
AnswerT = TypeVar("AnswerT")


# Targets that gRPC knows beside HOST:PORT.
_SCHEMES = ("dns:", "unix:", "unix-abstract:", "ipv4:", "ipv6:", "vsock:", "xds:")
_HOST_AND_PORT = re.compile(r"(?:[^\s:/\[\]]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>\d{1,5})")


_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    # No least backoff: it also bounds how long a server may take to say its first words.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
)


def open_channel(
    address: str, *, caller: str = ANY_CLIENT, identity: ClientIdentity | None = None
) -> grpc.aio.Channel:
    """A channel that finds a service again soon after it was restarted; `caller` names its user.

    Parameters
    ----------
    identity
        Whom to trust and what to show there; None: as environment, contexts and this machine's
        running systems say (`adapters.identity.endpoints`), in the clear where none of them does.

    Raises
    ------
    RpcFailed
        The address is none.
    ConfigError, ContractError
        What says how to speak to it cannot be used.
    """
    _check_address(address)
    interceptors = client_interceptors(telemetry_for(caller))
    identity = identity or client_identity(address)
    if identity is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS, interceptors=interceptors)
    key, chain = identity.key_and_chain or (None, None)
    # The name is checked against the certificate; what is dialled stays the address.
    named = (("grpc.ssl_target_name_override", identity.server_name),)
    channel = grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(identity.ca_pem, key, chain),
        options=_OPTIONS + (named if identity.server_name else ()),
        interceptors=interceptors,
    )
    return TokenedChannel(channel, identity.token_for)


def _check_address(address: str) -> None:
    if address.startswith(_SCHEMES):
        return
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16 or not address.isprintable():
        raise RpcFailed(
            grpc.StatusCode.INVALID_ARGUMENT.name,
            f"address: expected HOST:PORT, such as 127.0.0.1:7070, found {address!r}",
            field="address",
        )


def was_left_lying(error: grpc.aio.AioRpcError, after_s: float) -> bool:
    """Whether a server that ended never took the call up, `after_s` after it was made.

    gRPC cancels what reaches a server between the start of its end and the client's hearing of it
    (grpc/grpc#41785), and closes connections that wait to be accepted; calls that were taken up
    have `GRACE_S` or longer to be answered. Where nobody listens, there is none to wait for.
    """
    if after_s >= GRACE_S:
        return False
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return was_hung_up(error.details() or "")
    return error.code() is grpc.StatusCode.CANCELLED


def pause_before(failed: RpcFailed) -> float:
    """How long to wait before the same call again, seconds; 0: it would not help.

    Callers that were refused together do not come back together.
    """
    if failed.code != grpc.StatusCode.RESOURCE_EXHAUSTED.name or failed.retry_s > _LONGEST_PAUSE_S:
        return 0.0
    return failed.retry_s * random.uniform(1.0, 2.0)  # noqa: S311 - only to be apart


class RpcClient:
    """A client of one service, to be used as an asynchronous context manager.

    Parameters
    ----------
    caller
        The service that calls, as its traces name it.
    identity
        As `open_channel` has it.

    Attributes
    ----------
    service
        Whom it calls, for people.
    """

    service: ClassVar[str]

    def __init__(
        self, address: str, *, caller: str = ANY_CLIENT, identity: ClientIdentity | None = None
    ) -> None:
        self.address = address
        self._channel = open_channel(address, caller=caller, identity=identity)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def _call(
        self, method: Callable[..., Awaitable[ResponseT]], request: Any, *, timeout_s: float
    ) -> ResponseT:
        """Call a method of the stub; what it refuses is an `RpcFailed`.

        A server that has no room says when to come again: it is asked then, until the time is over.
        """
        clock = asyncio.get_running_loop().time
        asked_at = clock()
        give_up_at = asked_at + timeout_s
        while True:
            try:
                return await method(request, timeout=max(0.001, give_up_at - clock()))
            except grpc.aio.AioRpcError as error:
                failed = failure_of(error, self.address, service=self.service)
                lying = was_left_lying(error, clock() - asked_at)
                wait_s = _AGAIN_S if lying else pause_before(failed)
                if not wait_s or clock() + wait_s >= give_up_at:
                    raise failed from error
            await asyncio.sleep(wait_s)

    async def _ask(
        self,
        method: Callable[..., Awaitable[Message]],
        request: object,
        answer_type: type[AnswerT],
        *,
        timeout_s: float,
    ) -> AnswerT:
        """Call a method with a value, and read its answer as one."""
        response = await self._call(method, to_message(request), timeout_s=timeout_s)
        return from_message(answer_type, response)
