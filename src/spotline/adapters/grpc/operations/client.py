"""A caller of OperationsService: the commands of those who run Spotline."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.grpc.kit.errors import failure_of
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.api.v1 import operations_service_pb2_grpc
from spotline.application.operations.messages import (
    AccountModes,
    LimitNowSet,
    LimitsInForce,
    LimitWanted,
    ModeSet,
    ModeWanted,
    Orphans,
    ParkedPage,
    ParkedQuery,
    Pause,
    Paused,
    Resume,
    Resumed,
    SystemStatus,
)
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.mapping import from_message

DEFAULT_ADDRESS = "127.0.0.1:7070"

_ANSWER_TIMEOUT_S = 30.0


class OperationsClient(RpcClient):
    """How the system is, and what a person can do, as domain values. May raise `RpcFailed`."""

    service = "allocator"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        caller: str = ANY_CLIENT,
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._stub = operations_service_pb2_grpc.OperationsServiceStub(self._channel)

    async def status(self) -> SystemStatus:
        """How every service is, and the system as a whole."""
        response = await self._call(
            self._stub.GetSystemStatus, pb.GetSystemStatusRequest(), timeout_s=_ANSWER_TIMEOUT_S
        )
        return from_message(SystemStatus, response)

    async def limits(self) -> LimitsInForce:
        """The limits on money that are in force, and what is used of them."""
        response = await self._call(
            self._stub.GetLimits, pb.GetLimitsRequest(), timeout_s=_ANSWER_TIMEOUT_S
        )
        return from_message(LimitsInForce, response)

    async def parked(self, query: ParkedQuery) -> ParkedPage:
        """Entries that are parked, a page of them."""
        return await self._ask(
            self._stub.ListParked, query, ParkedPage, timeout_s=_ANSWER_TIMEOUT_S
        )

    async def retry_parked(self, service: str, event_id: str, *, request_id: str) -> str:
        """Publish a parked entry again; the id of the event that it became."""
        request = pb.RetryParkedRequest(request_id=request_id, service=service, event_id=event_id)
        response = await self._call(self._stub.RetryParked, request, timeout_s=_ANSWER_TIMEOUT_S)
        return str(response.retried_as)

    async def drop_parked(
        self, service: str, event_id: str, *, request_id: str, detail: str = ""
    ) -> None:
        """Give a parked entry up."""
        request = pb.DropParkedRequest(
            request_id=request_id, service=service, event_id=event_id, detail=detail
        )
        await self._call(self._stub.DropParked, request, timeout_s=_ANSWER_TIMEOUT_S)

    async def pause(self, pause: Pause) -> Paused:
        """Stop buying for a scope."""
        return await self._ask(self._stub.Pause, pause, Paused, timeout_s=_ANSWER_TIMEOUT_S)

    async def resume(self, resume: Resume) -> Resumed:
        """Go on buying."""
        return await self._ask(self._stub.Resume, resume, Resumed, timeout_s=_ANSWER_TIMEOUT_S)

    async def orphans(self) -> Orphans:
        """Instances that belong to no job."""
        response = await self._call(
            self._stub.ListOrphans, pb.ListOrphansRequest(), timeout_s=_ANSWER_TIMEOUT_S
        )
        return from_message(Orphans, response)

    async def reap_orphans(
        self, instance_ids: tuple[str, ...], *, request_id: str
    ) -> tuple[str, ...]:
        """Have such instances ended (none: all of them); which."""
        request = pb.ReapOrphansRequest(request_id=request_id, instance_ids=instance_ids)
        response = await self._call(self._stub.ReapOrphans, request, timeout_s=_ANSWER_TIMEOUT_S)
        return tuple(response.instance_ids)

    async def account_modes(self) -> AccountModes:
        """The mode of every account."""
        response = await self._call(
            self._stub.ListAccountModes, pb.ListAccountModesRequest(), timeout_s=_ANSWER_TIMEOUT_S
        )
        return from_message(AccountModes, response)

    async def set_account_mode(self, wanted: ModeWanted) -> ModeSet:
        """Have an account in a mode."""
        return await self._ask(
            self._stub.SetAccountMode, wanted, ModeSet, timeout_s=_ANSWER_TIMEOUT_S
        )

    async def set_limit(self, wanted: LimitWanted) -> LimitNowSet:
        """Have another limit count than settings state."""
        return await self._ask(
            self._stub.SetLimit, wanted, LimitNowSet, timeout_s=_ANSWER_TIMEOUT_S
        )

    async def read_log(
        self, first_seq: int = 0, *, follow: bool = False
    ) -> AsyncIterator[tuple[tuple[StoredEntry, ...], int]]:
        """The log from an entry on, in portions, each with the last entry's place by then.

        With `follow` it goes on with what is stored later; an empty portion says that there is
        nothing more so far. Going on after a failure is the caller's: it knows how far it came.
        """
        stream = self._stub.ReadLog(pb.ReadLogRequest(first_seq=first_seq, follow=follow))
        try:
            async for response in stream:
                entries = tuple(
                    StoredEntry(
                        seq=entry.seq,
                        stored_ns=entry.stored_ns,
                        subject=entry.subject,
                        headers=dict(entry.headers),
                        payload=entry.payload,
                    )
                    for entry in response.entries
                )
                yield entries, response.last_seq
        except grpc.aio.AioRpcError as error:
            raise failure_of(error, self.address, service=self.service) from error
        finally:
            stream.cancel()
