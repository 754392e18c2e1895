"""What the agent needs from outside: the control plane, and time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from spotline.adapters.grpc.agent.messages import AgentTask, Enrolled, News, Order, OutputPiece


class AgentControl(Protocol):
    """The control plane as an agent calls it; each method may raise `AgentCallFailed`."""

    async def join(
        self,
        *,
        join_token: str,
        instance_id: str,
        nonce: str,
        host: str,
        release: str,
        identity_document: str = "",
        identity_signature: str = "",
    ) -> Enrolled:
        """Trade the token, or the signed document, for a session, which all later calls carry. Idempotent by nonce."""
        ...

    def watch(self) -> AsyncIterator[Order]:
        """Yield what to do, now and after every change."""
        ...

    async def heartbeat(self, generation: int) -> None:
        """Say that the agent is there, and which generation runs here (0: none)."""
        ...

    async def tell(self, news: News) -> None:
        """Deliver one piece of news; told again it is the same news."""
        ...

    async def send_output(self, pieces: Sequence[OutputPiece], task: AgentTask) -> None:
        """Hand over pieces of output; sent again they are the same pieces."""
        ...


class AgentClock(Protocol):
    """Time as the agent sees it."""

    def wall_s(self) -> float:
        """Seconds since the epoch."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since some moment; never goes back, and goes on while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause."""
        ...
