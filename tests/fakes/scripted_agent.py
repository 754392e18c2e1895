"""An agent written by hand on the generated stubs, and a log that the other services would write."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc

from spotline.adapters.agents.identity_documents import DocumentRules
from spotline.adapters.nats.stream import NatsEventStream
from spotline.api.v1 import agent_service_pb2 as pb
from spotline.api.v1 import agent_service_pb2_grpc
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.bootstrap.agents import AgentsAt
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.servers import AllocatorParts, serve_allocator
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import derive_id
from spotline.contracts.publishers import PUBLISHERS
from spotline.contracts.subjects import KINDS
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.jobs.lot import JobHolding, Lot
from tests.eventually import eventually
from tests.fakes.allocator import EAST
from tests.fakes.processes import free_port

# Nobody is silent here, however long the machine stops.
TIMES = AgentTimes(heartbeat_s=0.2, silent_s=60.0)
NONCE = "n" * 40


class WrittenLog:
    """Writes what selector and actuator would, and reads what the allocator wrote."""

    def __init__(self, stream: NatsEventStream) -> None:
        self._stream = stream
        self._numbers = itertools.count()

    async def write(self, *events: Event, source: str = "cloud_actuator") -> None:
        """Publish as the service of that name, or where it may not, as one that may."""
        for event in events:
            kind, cause = KINDS[type(event)], f"cause-{next(self._numbers)}"
            may = PUBLISHERS[kind]
            envelope = envelope_for(
                event,
                event_id=derive_id(cause, kind, 0),
                source=source if source in may else min(may),
                causation_id=cause,
                correlation_id="c",
            )
            await self._stream.publish([entry.envelope for entry in packed([envelope])])

    async def hold(self, job_id: str, *instance_ids: str) -> None:
        lot = Lot(offering_id=EAST, spot=len(instance_ids))
        holding = JobHolding(job_id=job_id, lots=(lot,), instance_ids=instance_ids)
        await self.write(
            CapacityReported(
                slot=0,
                revision=0,
                offset_s=0,
                settled=True,
                holdings=(holding,) if instance_ids else (),
            )
        )

    async def events(self, *types: type[Event]) -> list[Event]:
        found = []
        async for entry in self._stream.read([], last_seq=await self._stream.last_seq()):
            found += [event_of(one) for one in unpacked(entry)]
        return [event for event in found if not types or isinstance(event, types)]


class ControlPlane:
    """An allocator that can be stopped and started again on its ports and its keys."""

    def __init__(
        self, broker_url: str, folder: Path, documents: DocumentRules | None = None
    ) -> None:
        self.bus = BusAddress(nats_url=broker_url)
        self.at = AgentsAt(
            address=f"127.0.0.1:{free_port()}",
            folder=folder / "agents",
            times=TIMES,
            documents=documents,
        )
        self.address = f"127.0.0.1:{free_port()}"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(
            serve_allocator(
                self.bus,
                AllocatorParts(await_admission=False, agents=self.at),
                address=self.address,
                hooks=PartHooks(),
                listening=listening.set_result,
            )
        )
        await asyncio.wait((self._task, listening), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def user_data(self, instance_id: str, job_id: str) -> dict[str, str]:
        made = self.at.enrolment().user_data(
            instance_id=instance_id, job_id=job_id, tenant="research"
        )
        return dict(made)


@asynccontextmanager
async def control_plane(
    broker_url: str, folder: Path, documents: DocumentRules | None = None
) -> AsyncIterator[ControlPlane]:
    plane = ControlPlane(broker_url, folder, documents)
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()


def channel_to(address: str, ca_pem: str) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(ca_pem.encode())
    options = (
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 200),
    )
    return grpc.aio.secure_channel(address, credentials, options=options)


class ScriptedAgent:
    """Joins with its user data, beats, follows its allocation; its program does what it is told.

    Told to run, it says that it has started; told to stop, it ends with 75.
    """

    def __init__(self, user_data: dict[str, str], *, nonce: str = NONCE) -> None:
        self.instance_id = user_data["SPOTLINE_INSTANCE_ID"]
        self._token = user_data["SPOTLINE_JOIN_TOKEN"]
        self.nonce = nonce
        self.channel = channel_to(user_data["SPOTLINE_CONTROL"], user_data["SPOTLINE_CONTROL_CA"])
        self.stub = agent_service_pb2_grpc.AgentServiceStub(self.channel)
        self.session = ""
        self.running = 0
        self.told: list[pb.TrainingAllocation] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> ScriptedAgent:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.channel.close(None)

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        return (("authorization", f"Bearer {self.session}"),)

    @property
    def state(self) -> str:
        if not self.told:
            return ""
        name = pb.AllocationState.Name(self.told[-1].state)
        return name.removeprefix("ALLOCATION_STATE_").lower()

    async def join(self, **changes: str) -> pb.JoinResponse:
        asked = {
            "join_token": self._token,
            "instance_id": self.instance_id,
            "nonce": self.nonce,
            "host": f"host-of-{self.instance_id}",
            **changes,
        }
        joined = await self.stub.Join(pb.JoinRequest(**asked), timeout=60, wait_for_ready=True)
        self.session = joined.session
        return joined

    async def begin(self) -> None:
        await self.join()
        self._tasks = [asyncio.create_task(self._beat()), asyncio.create_task(self._follow())]

    async def say(self, method: str, **fields: object):
        request = getattr(pb, f"{method}Request")(**fields)
        call = getattr(self.stub, method)
        while True:
            try:
                return await call(request, metadata=self.metadata, timeout=60, wait_for_ready=True)
            except grpc.aio.AioRpcError as error:
                # As agents do: the session ended, and by its nonce it gets the next one.
                if not self._tasks or error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                    raise
                await self.join()

    async def end(self, exit_code: int) -> None:
        generation, self.running = self.running, 0
        await self.say(
            "ReportRanks",
            generation=generation,
            state=pb.RANKS_STATE_ENDED,
            exit_code=exit_code,
            detail=f"exited with {exit_code}",
        )

    async def until(self, state: str, generation: int | None = None) -> pb.TrainingAllocation:
        def reached() -> bool:
            return self.state == state and generation in (None, self.told[-1].generation)

        try:
            await eventually(reached, timeout_s=60)
        except AssertionError:
            raise AssertionError(f"{self.instance_id} not told to {state}: {self.told}") from None
        return self.told[-1]

    async def _beat(self) -> None:
        while True:
            with suppress(grpc.aio.AioRpcError):
                await self.say("ReportHeartbeat", generation=self.running)
            await asyncio.sleep(TIMES.heartbeat_s)

    async def _follow(self) -> None:
        while self.state != "over":
            with suppress(grpc.aio.AioRpcError):
                watch = self.stub.WatchAllocation(
                    pb.WatchAllocationRequest(), metadata=self.metadata, wait_for_ready=True
                )
                async for response in watch:
                    self.told.append(response.allocation)
                    await self._obey(response.allocation)
            with suppress(grpc.aio.AioRpcError):
                await self.join()
            await asyncio.sleep(0.05)

    async def _obey(self, allocation: pb.TrainingAllocation) -> None:
        if allocation.state == pb.ALLOCATION_STATE_RUN and not self.running:
            self.running = allocation.generation
            await self.say("ReportRanks", generation=self.running, state=pb.RANKS_STATE_STARTED)
        leaving = (pb.ALLOCATION_STATE_STOP, pb.ALLOCATION_STATE_LEAVE, pb.ALLOCATION_STATE_OVER)
        if allocation.state in leaving and self.running:
            await self.end(75)
        if allocation.state == pb.ALLOCATION_STATE_ABORT and self.running:
            await self.end(-9)
