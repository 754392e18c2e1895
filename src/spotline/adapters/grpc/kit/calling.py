"""What all our gRPC clients share: their channel, and how it is closed."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

import grpc

from spotline.adapters.grpc.kit.errors import MESSAGE_BYTES
from spotline.adapters.grpc.kit.tracing import client_interceptors
from spotline.runtime.telemetry import telemetry_for

# Whoever is no service: a command, a training platform.
ANY_CLIENT = "client"


def open_channel(address: str, *, caller: str = ANY_CLIENT) -> grpc.aio.Channel:
    """A channel that finds a service again soon after it was restarted; `caller` names its user."""
    return grpc.aio.insecure_channel(
        address,
        options=(
            ("grpc.max_receive_message_length", MESSAGE_BYTES),
            ("grpc.max_send_message_length", MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.enable_http_proxy", 0),
        ),
        interceptors=client_interceptors(telemetry_for(caller)),
    )


class RpcClient:
    """A client of one service, to be used as an asynchronous context manager.

    Parameters
    ----------
    caller
        The service that calls, as its traces name it.

    Attributes
    ----------
    service
        Whom it calls, for people.
    """

    service: ClassVar[str]

    def __init__(self, address: str, *, caller: str = ANY_CLIENT) -> None:
        self.address = address
        self._channel = open_channel(address, caller=caller)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._channel.close(None)
