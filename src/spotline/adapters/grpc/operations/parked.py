"""Parked entries: listed, published again, given up."""

from __future__ import annotations

import asyncio
import json

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.operations.messages import ParkedEntry, ParkedPage, ParkedQuery
from spotline.application.operations.ports import ParkedLog
from spotline.application.paging import page_of_ids
from spotline.contracts.codec import json_of
from spotline.contracts.envelope import StoredEntry, derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.event import Event
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried

_SETTLED_S = 10.0
_LOOK_AGAIN_S = 0.02
_LONGEST_DETAIL = 500


class ParkedRpcs(OperationsAsked):
    """Parked entries: listed, published again, given up."""

    @answers
    async def ListParked(self, request: pb.ListParkedRequest, context: ServerContext) -> ParkedPage:
        """The parked entries that nobody has dealt with, oldest first."""
        query = from_message(ParkedQuery, request)
        by_place = {
            _place(parked): parked
            for parked in self._operations.parked.values()
            if query.service in ("", parked.service) and query.job_id in ("", parked.job_id)
        }
        shown, token = page_of_ids(query, by_place)
        entries = [by_place[place] for place in shown]
        contents = [await self._content(parked) if query.with_content else "" for parked in entries]
        return ParkedPage(
            entries=tuple(
                ParkedEntry(parked=parked, content_json=content)
                for parked, content in zip(entries, contents, strict=True)
            ),
            next_page_token=token,
        )

    @answers
    async def RetryParked(
        self, request: pb.RetryParkedRequest, context: ServerContext
    ) -> pb.RetryParkedResponse:
        """Publish a parked entry again, for the service that had parked it."""

        async def retry() -> str:
            parked = self._parked(request.service, request.event_id)
            stored = await self._stored(parked)
            if stored is None:
                raise RpcRefused(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"the log no longer keeps entry {parked.seq}; drop it",
                    reason=Reason.ENTRY_GONE,
                )
            retried_as = await self._log_or_refuse().publish_again(stored, parked.service)
            await self._settle(
                parked,
                ParkedEntryRetried(
                    service=parked.service, event_id=parked.event_id, retried_as=retried_as
                ),
            )
            return retried_as

        retried_as = await self._requests.once(request, request.event_id, retry)
        return pb.RetryParkedResponse(retried_as=retried_as)

    @answers
    async def DropParked(
        self, request: pb.DropParkedRequest, context: ServerContext
    ) -> pb.DropParkedResponse:
        """Give a parked entry up: nobody is reminded of it any more."""
        if len(request.detail) > _LONGEST_DETAIL:
            raise ContractError(
                "detail",
                f"must have at most {_LONGEST_DETAIL} characters, has {len(request.detail)}",
            )

        async def drop() -> bool:
            parked = self._parked(request.service, request.event_id)
            dropped = ParkedEntryDropped(
                service=parked.service, event_id=parked.event_id, detail=request.detail
            )
            await self._settle(parked, dropped)
            return True

        await self._requests.once(request, request.event_id, drop)
        return pb.DropParkedResponse()

    def _parked(self, service: str, event_id: str) -> EntryParked:
        parked = self._operations.parked.get((service, event_id))
        if parked is None:
            raise RpcRefused(
                grpc.StatusCode.NOT_FOUND,
                f"service and event_id must be those of a parked entry, were {service[:80]!r} and "
                f"{event_id[:80]!r}; list what is parked",
                reason=Reason.UNKNOWN_PARKED_ENTRY,
                field="event_id",
            )
        return parked

    async def _settle(self, parked: EntryParked, event: Event) -> None:
        """Record what was done about an entry, and wait until it is off the list."""
        key = parked.service, parked.event_id
        await self._host.publish_observation(
            event,
            event_id=derive_id(parked.event_id, f"settled:{parked.service}:{type(event).__name__}"),
            correlation_id=parked.event_id,
        )
        try:
            async with asyncio.timeout(_SETTLED_S):
                # A person waits, for milliseconds: the fold tells nobody that it moved on.
                while key in self._operations.parked:  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded, but not applied within {_SETTLED_S:g} s; list what is parked to learn more",
                reason=Reason.NOT_APPLIED_YET,
            ) from None

    async def _content(self, parked: EntryParked) -> str:
        stored = await self._stored(parked)
        if stored is None:
            return ""
        content = json_of(parked.kind, stored.payload)
        return "" if content is None else json.dumps(content, ensure_ascii=False)

    async def _stored(self, parked: EntryParked) -> StoredEntry | None:
        """The entry as the log holds it, None where it is another by now, or gone."""
        stored = await self._log_or_refuse().event_at(parked.seq, parked.place)
        if stored is None or stored.envelope().event_id != parked.event_id:
            return None
        return stored

    def _log_or_refuse(self) -> ParkedLog:
        if self.log is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "this server does not read the log",
                reason=Reason.BUS_UNAVAILABLE,
            )
        return self.log


def _place(parked: EntryParked) -> str:
    """Where a parked entry is in the list: text that sorts as the log does."""
    return f"{parked.seq:020d}.{parked.place:010d}.{parked.service}"
