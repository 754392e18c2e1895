"""The port that agents dial: AgentService and health over TLS, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from spotline.adapters.agents.identity_documents import IdentityDocuments
from spotline.adapters.agents.keys import AgentKeys
from spotline.adapters.grpc.agent.keeper import GangKeeper
from spotline.adapters.grpc.agent.servicer import AgentServicer
from spotline.adapters.grpc.agent.sessions import DocumentsTaken, Sessions
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.api.v1 import agent_service_pb2, agent_service_pb2_grpc
from spotline.application.allocator.output import OutputStore
from spotline.application.allocator.ports import JobsHost
from spotline.contracts.limits import CallerLimits
from spotline.runtime.metrics import REASON, Readings

# Every agent holds a watch, and says in a call of its own what it has to say.
_LIMITS = CallerLimits(most_calls=8_192, most_streams=50_000)


class AgentServer(GrpcServer):
    """Serves `AgentService` over TLS; a caller without a session can join and no more.

    Parameters
    ----------
    hosts
        What it is reached as, beside loopback: its certificate names them.
    documents
        By what instances of EC2 may join; None: by tokens alone.
    """

    name = "allocator"
    services = (agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"].full_name,)
    # A piece of output has 64 KiB; nothing that an agent says is as long as this.
    message_bytes = 1 << 20
    reflected = False
    more_options = (
        # An agent that vanished without a word holds no watch for long, and may ask as often.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )

    def __init__(
        self,
        host: JobsHost,
        keeper: GangKeeper,
        output: OutputStore,
        keys: AgentKeys,
        *,
        address: str,
        hosts: Sequence[str] = (),
        documents: IdentityDocuments | None = None,
    ) -> None:
        super().__init__(address)
        self.bound_by(_LIMITS)
        self._keeper = keeper
        self._keys = keys
        self._hosts = tuple(hosts)
        sessions = Sessions(
            keys.signer,
            lambda: host.state.gangs,
            lasts_s=keeper.times.session_s,
            taken=None
            if documents is None
            else DocumentsTaken(documents=documents, age_s=keeper.age_s),
        )
        self._servicer = AgentServicer(host, keeper, sessions, output)

    def joins_refused(self) -> Readings:
        """How often an agent was not let in, as a metric has it. Any thread may ask."""
        return [
            (float(count), {REASON: reason.name.lower()})
            for reason, count in tuple(self._servicer.joins_refused.items())
        ]

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service."""
        agent_service_pb2_grpc.add_AgentServiceServicer_to_server(self._servicer, server)

    def credentials(self) -> grpc.ServerCredentials:
        """Our certificate as it is at the start, where it is renewed for more than a year.

        gRPC can ask for it with every connection; under asyncio that call comes from a thread of its
        own and ended the process with a segmentation fault when two agents dialled at once.
        """
        return grpc.ssl_server_credentials([self._keys.server_identity(self._hosts)])

    def end_streams(self) -> None:
        """End every watch."""
        self._keeper.end()
