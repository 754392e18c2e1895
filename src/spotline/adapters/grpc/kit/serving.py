"""What all our gRPC servers share: how they bind, health checking, reflection, and how they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from spotline.adapters.grpc.kit.auditing import AuditedCalls, Auditor
from spotline.adapters.grpc.kit.doors import Door, Doors, stated_tenant
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.grpc.kit.identity import IdentityDoor
from spotline.adapters.grpc.kit.tenants import bind_tenant
from spotline.adapters.grpc.kit.tracing import server_interceptors
from spotline.adapters.identity.shown import ServerIdentity
from spotline.application.identity.ports import AuditTrail
from spotline.contracts.errors import ConfigError
from spotline.contracts.limits import MESSAGE_BYTES, CallerLimits
from spotline.runtime.callers import Denials
from spotline.runtime.telemetry import telemetry_for

_MOST_PENDING = 50_000
_LOOK_S = 1.0


class GrpcServer:
    """A server of some services; subclasses say which.

    Parameters
    ----------
    address
        `host:port`; port 0 takes a free one, which `start` returns.

    Attributes
    ----------
    name
        The service it belongs to, for people and for traces.
    services
        Full names of what `register` adds.
    message_bytes
        How large a request may be.
    reflected
        Whether it tells what it serves.
    more_options
        Of gRPC's own, beside those that all servers have.
    """

    name: ClassVar[str]
    services: ClassVar[tuple[str, ...]]
    message_bytes: ClassVar[int] = MESSAGE_BYTES
    reflected: ClassVar[bool] = True
    more_options: ClassVar[tuple[tuple[str, int], ...]] = ()

    def __init__(self, address: str) -> None:
        self._address = address
        self.doors = Doors(CallerLimits())
        self.denials = Denials()
        self._identity: ServerIdentity | None = None
        self._auditor: Auditor | None = None
        self._hide_denials: Callable[[], None] = lambda: None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._server: grpc.aio.Server | None = None

    def bound_by(self, limits: CallerLimits) -> None:
        """Take so much at a time; to be called before `start`."""
        self.doors = Doors(limits)

    def identify(self, identity: ServerIdentity | None) -> None:
        """Speak TLS, and ask every caller who he is; None: neither. To be called before `start`."""
        self._identity = identity

    def audited_by(self, trail: AuditTrail | None) -> None:
        """Record what changes something, and who is turned away; None: nobody does.

        To be called before `start`; the trail is closed after `stop`.
        """
        self._auditor = None if trail is None else Auditor(trail, self.tenant_of)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the services to gRPC's own server."""
        raise NotImplementedError

    def credentials(self) -> grpc.ServerCredentials | None:
        """What it identifies itself with over TLS; None: it serves in the clear."""
        if self._identity is None:
            return None
        clients_ca = self._identity.clients_ca_pem
        return grpc.ssl_server_credentials(
            [self._identity.key_and_chain],
            root_certificates=clients_ca or None,
            require_client_auth=bool(clients_ca),
        )

    def tenant_of(self, request: Any) -> str:
        """Whose a request is, empty where that cannot be said: a tenant's calls are bounded."""
        return stated_tenant(request)

    def bind(self, request: Any, tenant: str) -> str:
        """Fill in the tenant where a request leaves it out; returns another one that it names."""
        return bind_tenant(request, tenant)

    def hidden_from(self, request: Any, tenant: str) -> RpcRefused | None:
        """The refusal of a request about what is not there, for this tenant; None: it may go on.

        What is another tenant's is refused in the words for what never was.
        """
        return None

    def prepare(self) -> None:
        """Get ready to answer, in a thread, before anybody can ask."""

    def end_streams(self) -> None:
        """End what would not end by itself, once no new call gets in."""

    def release(self) -> None:
        """Let go of what the services held; no call is in progress any more."""

    async def start(self) -> str:
        """Get ready, bind, and serve; returns the bound address.

        Raises
        ------
        ConfigError
            The address is malformed or taken.
        """
        await asyncio.to_thread(self.prepare)
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self.message_bytes),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                # Two servers on one port would each answer half of the calls.
                ("grpc.so_reuseport", 0),
                # Beyond its own limit gRPC cancels calls at random, and their callers learn
                # neither why nor when to come again; what is too much is ours to refuse.
                ("grpc.server.max_pending_requests", _MOST_PENDING),
                ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
                *self.more_options,
            ),
            interceptors=(
                *server_interceptors(telemetry_for(self.name), self.services),
                *self._identity_doors(),
                Door(self.doors, self.services, self.tenant_of),
                *(() if self._auditor is None else (AuditedCalls(self._auditor),)),
            ),
        )
        self.register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if self.reflected:
            reflection.enable_server_reflection(
                (*self.services, health.SERVICE_NAME, reflection.SERVICE_NAME), server
            )
        credentials = self.credentials()
        try:
            if credentials is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, credentials)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {self._address} ({error}); is another {self.name} running "
                "there? Name another address, or port 0 for any free one"
            ) from error
        await server.start()
        self._server = server
        if self._identity is not None:
            self._hide_denials = telemetry_for(self.name).observe(
                "spotline.callers.denied", self.denials.readings
            )
        for service in ("", *self.services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return f"{self._address.rpartition(':')[0]}:{port}"

    def _identity_doors(self) -> Sequence[IdentityDoor]:
        if self._identity is None:
            return ()
        return (IdentityDoor(self._identity.authenticator, self, self.denials, self._auditor),)

    async def show_ready(self, ready: Callable[[], bool]) -> None:
        """Answer health checks by `ready`, as of a second ago, until cancelled."""
        shown = True
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._server is None or ready() is shown:
                continue
            shown = not shown
            states = health_pb2.HealthCheckResponse
            for service in ("", *self.services):
                await self._health.set(service, states.SERVING if shown else states.NOT_SERVING)

    async def stop(self, *, grace_s: float = 1.0) -> None:
        """Refuse new calls, give those in progress `grace_s`, then end them. Safe to repeat."""
        if self._server is None:
            return
        server, self._server = self._server, None
        self._hide_denials()
        await self._health.enter_graceful_shutdown()
        self.end_streams()
        await server.stop(grace_s)
        if self._auditor is not None:
            self._auditor.close()
        self.release()
