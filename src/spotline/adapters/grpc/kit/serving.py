"""What all our gRPC servers share: how they bind, health checking, reflection, and how they stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from spotline.adapters.grpc.kit.auditing import AuditedCalls, Auditor
from spotline.adapters.grpc.kit.calling import GRACE_S
from spotline.adapters.grpc.kit.doors import Door, Doors, stated_tenant
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.grpc.kit.identity import IdentityDoor
from spotline.adapters.grpc.kit.tenants import bind_tenant
from spotline.adapters.grpc.kit.tracing import server_interceptors
from spotline.adapters.identity.authority import KeyAndChain
from spotline.adapters.identity.shown import LOOK_EVERY_S, ServerIdentity
from spotline.application.identity.ports import AuditTrail
from spotline.contracts.errors import ConfigError
from spotline.contracts.limits import MESSAGE_BYTES, CallerLimits
from spotline.runtime.callers import Denials
from spotline.runtime.telemetry import telemetry_for

_MOST_PENDING = 50_000
_LOOK_S = 1.0
# What a call or a stream that is open when a certificate is renewed has left.
_TAKEN_OVER_S = 60.0

_log = structlog.get_logger(__name__)


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
        self._leaving: dict[grpc.aio.Server, asyncio.Task[None]] = {}
        self._bound_to = ""
        self._shown: KeyAndChain | None = None

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
        self._refuse_taken()
        credentials = await asyncio.to_thread(self.credentials)
        server, port = self._bound(self._address, credentials)
        await server.start()
        self._server = server
        self._bound_to = f"{self._address.rpartition(':')[0]}:{port}"
        if self._identity is not None:
            self._shown = self._identity.key_and_chain
            self._hide_denials = telemetry_for(self.name).observe(
                "spotline.callers.denied", self.denials.readings
            )
        for service in ("", *self.services):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return self._bound_to

    def _refuse_taken(self) -> None:
        """Refuse a port on which anybody listens: with gRPC's reuse each would answer some calls."""
        host, _, port = self._address.rpartition(":")
        if not port.isdecimal() or not int(port) or host.startswith("["):
            return
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except socket.gaierror:
                return  # gRPC reads more kinds of names, and says what it makes of this one
            except OSError as error:
                raise self._cannot_listen(error) from error

    def _cannot_listen(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"cannot listen on {self._address} ({error}); is another {self.name} running "
            "there? Name another address, or port 0 for any free one"
        )

    def _bound(
        self, address: str, credentials: grpc.ServerCredentials | None
    ) -> tuple[grpc.aio.Server, int]:
        """A server of ours that is bound and not started yet, and its port."""
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", self.message_bytes),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                # So that one with a renewed certificate takes the port over while this one ends.
                ("grpc.so_reuseport", 1),
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
        try:
            if credentials is None:
                return server, server.add_insecure_port(address)
            return server, server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise self._cannot_listen(error) from error

    def _identity_doors(self) -> Sequence[IdentityDoor]:
        if self._identity is None:
            return ()
        return (IdentityDoor(self._identity.authenticator, self, self.denials, self._auditor),)

    async def attend(
        self, ready: Callable[[], bool], *, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """Answer health checks by `ready`, as of a second ago, and show a certificate that was renewed.

        Goes on until cancelled.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._show_ready(ready), name=f"{self.name}: ready")
            tasks.create_task(self._keep_current(look_every_s), name=f"{self.name}: certificate")

    async def _show_ready(self, ready: Callable[[], bool]) -> None:
        shown = True
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._server is None or ready() is shown:
                continue
            shown = not shown
            states = health_pb2.HealthCheckResponse
            for service in ("", *self.services):
                await self._health.set(service, states.SERVING if shown else states.NOT_SERVING)

    async def _keep_current(self, every_s: float) -> None:
        identity = self._identity
        if identity is None or identity.look is None:
            return
        trouble = ""
        while True:
            await asyncio.sleep(every_s)
            try:
                found = await asyncio.to_thread(identity.look)
                if found != self._shown:
                    await self._take_over(replace(identity, key_and_chain=found))
                trouble = ""
            except (ConfigError, OSError) as error:
                # What was shown before is good still; said once.
                if str(error) != trouble:
                    _log.error("certificate_not_renewed", server=self.name, error=str(error))
                trouble = str(error)

    async def _take_over(self, identity: ServerIdentity) -> None:
        """Answer new connections by another server of ours, and let the one of before end.

        gRPC could be asked for a certificate with every connection; under asyncio that call comes
        from a thread of its own, which ended the process when two clients dialled at once.
        """
        before = self._server
        if before is None:
            return
        self._identity = identity
        credentials = await asyncio.to_thread(self.credentials)
        server, _ = self._bound(self._bound_to, credentials)
        await server.start()
        self._server, self._shown = server, identity.key_and_chain
        _log.info("certificate_renewed", server=self.name)
        # Its port is closed at once; streams are followed again by whoever they end for.
        # It must end by itself: to cancel gRPC's stop in the middle can end the process.
        leaving = asyncio.create_task(before.stop(_TAKEN_OVER_S), name="leaving")
        self._leaving[before] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(before, None))

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Refuse new calls, give those in progress `grace_s`, then end them. Safe to repeat."""
        if self._server is None:
            return
        server, self._server = self._server, None
        self._hide_denials()
        await self._health.enter_graceful_shutdown()
        self.end_streams()
        leaving, self._leaving = self._leaving, {}
        await asyncio.gather(*(each.stop(grace_s) for each in (server, *leaving)))
        await asyncio.gather(*leaving.values())
        if self._auditor is not None:
            self._auditor.close()
        self.release()
