"""A channel that shows its user's token with every call.

Not by gRPC's call credentials: under asyncio their plug-in is called on a thread of gRPC's own. The
channel is encrypted, so nobody on the way sees the token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from spotline.adapters.grpc.kit.identity import METADATA_KEY

if TYPE_CHECKING:
    _Calling = Callable[..., Any]


class TokenedChannel(grpc.aio.Channel):
    """Calls through another channel, with `authorization: Bearer TOKEN`.

    Parameters
    ----------
    inner
        An encrypted channel; closed with this one.
    token_for
        The token to show to a method (`/package.Service/Method`), empty for none.
    """

    def __init__(self, inner: grpc.aio.Channel, token_for: Callable[[str], str]) -> None:
        self._inner = inner
        self._token_for = token_for

    def unary_unary(self, method: str, *args: Any, **options: Any) -> Any:
        """One request, one response."""
        return self._shown(method, self._inner.unary_unary(method, *args, **options))

    def unary_stream(self, method: str, *args: Any, **options: Any) -> Any:
        """One request, a stream of responses."""
        return self._shown(method, self._inner.unary_stream(method, *args, **options))

    def stream_unary(self, method: str, *args: Any, **options: Any) -> Any:
        """A stream of requests, one response."""
        return self._shown(method, self._inner.stream_unary(method, *args, **options))

    def stream_stream(self, method: str, *args: Any, **options: Any) -> Any:
        """A stream of requests, a stream of responses."""
        return self._shown(method, self._inner.stream_stream(method, *args, **options))

    def _shown(self, method: str, calling: _Calling) -> _Calling:
        def called(*args: Any, metadata: Any = None, **options: Any) -> Any:
            # Asked for with every call: a token may be renewed while the channel lives.
            token = self._token_for(method)
            said = ((METADATA_KEY, f"Bearer {token}"),) if token else ()
            return calling(*args, metadata=(*(metadata or ()), *said), **options)

        return called

    async def __aenter__(self) -> TokenedChannel:
        """Use it, and close it in the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Close the other channel."""
        await self._inner.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Whether it is connected."""
        return self._inner.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Return when the state is another."""
        await self._inner.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Return when it is connected."""
        await self._inner.channel_ready()
