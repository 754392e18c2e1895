"""Where the live view gets what it shows."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.happenings import JobHappening
    from spotline.application.explaining.messages import DecisionExplanation
    from spotline.cli.status_view import JobBoard
    from spotline.domain.market.slot_quote import SlotQuote


class FeedBroken(Exception):
    """Nothing answers; the text says why."""


class LiveFeed(Protocol):
    """What is asked again and again; every method may raise `FeedBroken`."""

    async def board(self) -> JobBoard:
        """All jobs, the market and what is held."""
        ...

    async def quotes(self, offering_id: str) -> tuple[SlotQuote, ...]:
        """Quotes of an offering in the latest slots, oldest first."""
        ...

    async def events(self, job_id: str) -> tuple[JobHappening, ...]:
        """What has happened to a job, oldest first."""
        ...

    async def explanation(self, job_id: str) -> DecisionExplanation:
        """Why a job's latest decision was what it was."""
        ...


class RpcFeed:
    """The same from a running allocator."""

    def __init__(self, client: JobClient, tenant: str = "") -> None:
        self._client = client
        self._tenant = tenant

    async def board(self) -> JobBoard:
        """All jobs, the market and what is held."""
        from spotline.adapters.grpc.kit.errors import RpcFailed
        from spotline.cli.listing import listed_jobs

        try:
            return await listed_jobs(self._client, self._tenant)
        except RpcFailed as error:
            raise FeedBroken(str(error)) from error

    async def quotes(self, offering_id: str) -> tuple[SlotQuote, ...]:
        """Quotes of an offering in the latest slots, oldest first."""
        from spotline.adapters.grpc.kit.errors import RpcFailed

        try:
            return (await self._client.market(offering_id)).quotes
        except RpcFailed as error:
            raise FeedBroken(str(error)) from error

    async def events(self, job_id: str) -> tuple[JobHappening, ...]:
        """What has happened to a job, oldest first."""
        from spotline.adapters.grpc.kit.errors import RpcFailed

        try:
            return tuple([found async for found in self._client.happenings(job_id)])
        except RpcFailed as error:
            raise FeedBroken(str(error)) from error

    async def explanation(self, job_id: str) -> DecisionExplanation:
        """Why a job's latest decision was what it was."""
        from spotline.adapters.grpc.kit.errors import RpcFailed
        from spotline.application.explaining.messages import DecisionQuery

        try:
            return await self._client.explain(DecisionQuery(job_id=job_id))
        except RpcFailed as error:
            raise FeedBroken(str(error)) from error
