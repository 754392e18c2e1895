"""The allocator's port of agents: where it listens, who may join, and what keeps gangs going."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.output import OUTPUT_KEPT, NatsOutput
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.allocator.ports import JobsHost
from spotline.application.identity.ports import AuditTrail
from spotline.bootstrap.parts import BusAddress
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ConfigError
from spotline.domain.events.event import Event
from spotline.domain.units import NS_PER_S
from spotline.runtime.metrics import AGENT_STATE
from spotline.runtime.stream import EventStream
from spotline.runtime.telemetry import telemetry_for

if TYPE_CHECKING:
    from spotline.adapters.agents.enrolment import SignedEnrolment
    from spotline.adapters.agents.identity_documents import DocumentRules
    from spotline.adapters.grpc.agent.keeper import GangKeeper
    from spotline.adapters.grpc.agent.server import AgentServer
    from spotline.adapters.nats.configured import StreamLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsAt:
    """Where agents dial in.

    Parameters
    ----------
    address
        `HOST:PORT` to listen at; port 0 takes a free one.
    folder
        Of keys, shared by allocator and actuator.
    advertise
        `HOST:PORT` under which instances reach it; empty: the address, which is loopback then.
    output
        What is kept of what programs write.
    documents
        Whose instances of EC2 may join by their identity documents; None: nobody's.
    """

    address: str
    folder: Path
    advertise: str = ""
    times: AgentTimes = field(default_factory=AgentTimes)
    output: StreamLimits = OUTPUT_KEPT
    documents: DocumentRules | None = None

    def __post_init__(self) -> None:
        for name, value in (("agents address", self.address), ("advertise", self.advertise)):
            if name == "advertise" and not value:
                continue
            host, _, port = value.rpartition(":")
            if not host or not port.isdecimal() or not int(port) < 1 << 16:
                raise ConfigError(f"{name} must be HOST:PORT, was {value!r}")
        if not self.advertise and not _is_loopback(host_of(self.address)):
            raise ConfigError(
                f"agents are to dial {self.address}: state as which HOST:PORT instances reach it "
                "(--advertise, SPOTLINE_AGENTS_ADVERTISE)"
            )

    def enrolment(self, bound: str = "") -> SignedEnrolment:
        """What makes the user data of instances; `bound` is where the port was bound.

        Raises
        ------
        ConfigError
            The folder cannot be used.
        """
        from spotline.adapters.agents.enrolment import SignedEnrolment
        from spotline.adapters.agents.keys import AgentKeys

        advertise = self.advertise or bound or self.address
        return SignedEnrolment(AgentKeys(self.folder), advertise=advertise)


class AgentSide:
    """The port of agents of one allocator, and the gangs behind it."""

    def __init__(
        self, keeper: GangKeeper, server: AgentServer, output: NatsOutput, log: EventStream
    ) -> None:
        self._keeper = keeper
        self._server = server
        self.output = output
        self._log = log
        self._hidden: Sequence[Callable[[], None]] = ()
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        agents: AgentsAt,
        host: JobsHost,
        connection: NatsConnection,
        bus: BusAddress,
        log: EventStream,
    ) -> AgentSide:
        """Open keys and output stream beside the log; nothing is answered yet.

        Raises
        ------
        ConfigError
            The folder of keys or the stream cannot be used.
        """
        from spotline.adapters.agents.identity_documents import IdentityDocuments
        from spotline.adapters.agents.keys import AgentKeys
        from spotline.adapters.grpc.agent.keeper import GangKeeper
        from spotline.adapters.grpc.agent.server import AgentServer

        keys = await asyncio.to_thread(AgentKeys, agents.folder)
        documents = None
        if agents.documents is not None:
            documents = await asyncio.to_thread(IdentityDocuments, agents.documents)
        output = await NatsOutput.open(connection, partition=bus.partition, limits=agents.output)
        keeper = GangKeeper(host, agents.times)
        hosts = [host_of(address) for address in (agents.address, agents.advertise) if address]
        reached = [name for name in hosts if name not in ("0.0.0.0", "::", "[::]")]  # noqa: S104 - any of ours is no name
        server = AgentServer(
            host,
            keeper,
            output,
            keys,
            address=agents.address,
            hosts=[*map(_bare, reached)],
            documents=documents,
        )
        return cls(keeper, server, output, log)

    def audited_by(self, trail: AuditTrail | None) -> None:
        """Record what agents report, and who is turned away; as `GrpcServer` has it."""
        self._server.audited_by(trail)

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the allocator's host."""
        self._keeper.on_applied(event, envelope, seq)

    async def start(self, tasks: asyncio.TaskGroup) -> str:
        """Take over the gangs as the log has them, and answer; returns the bound address.

        Raises
        ------
        ConfigError
            The address is taken.
        """
        self._keeper.begin(slot_age_s=await self._slot_age_s())
        bound = await self._server.start()
        self._keeping = tasks.create_task(self._keeper.run(), name="gangs")
        states, stalled = self._keeper.states, self._keeper.stalled
        telemetry = telemetry_for("allocator")
        self._hidden = (
            telemetry.observe(
                "spotline.agents",
                lambda: [(count, {AGENT_STATE: state}) for state, count in states().items()],
            ),
            telemetry.observe("spotline.jobs.stalled", lambda: [(stalled(), {})]),
            telemetry.observe("spotline.joins.refused", self._server.joins_refused),
        )
        return bound

    async def _slot_age_s(self) -> float:
        """Seconds of wall time since the open slot was opened, 0 where none is."""
        seq = self._keeper.slot_seq
        if not seq:
            return 0.0
        async for entry in self._log.read([], first_seq=seq, last_seq=seq):
            # The broker's clock may be ahead of ours.
            return max(0.0, (time.time_ns() - entry.stored_ns) / NS_PER_S)
        return 0.0

    async def stop(self) -> None:
        """Answer no more. Safe to repeat."""
        for hide in self._hidden:
            hide()
        if self._keeping is not None:
            self._keeping.cancel()
        await self._server.stop()


def host_of(address: str) -> str:
    """The host of `HOST:PORT`."""
    return address.rpartition(":")[0]


def _bare(host: str) -> str:
    return host.removeprefix("[").removesuffix("]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(_bare(host)).is_loopback
    except ValueError:
        return host == "localhost"
