"""The allocator's gRPC server: its two services, health checking and reflection."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from spotline.adapters.grpc.allocator import AllocatorServicer
from spotline.adapters.grpc.errors import MESSAGE_BYTES
from spotline.adapters.grpc.jobs import JobFeed, JobServicer
from spotline.api.v1 import (
    allocator_service_pb2,
    allocator_service_pb2_grpc,
    job_service_pb2,
    job_service_pb2_grpc,
)
from spotline.application.job_ports import JobsHost
from spotline.application.planning import warm_up
from spotline.contracts.errors import ConfigError

_SERVICES = (
    allocator_service_pb2.DESCRIPTOR.services_by_name["AllocatorService"].full_name,
    job_service_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
)


class RpcServer:
    """Serves the allocator's RPC from `host` until stopped.

    Parameters
    ----------
    host
        The running allocator. Start the server when it has recovered.
    feed
        Listens to the same host: give `feed.on_applied` to it.
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    """

    def __init__(self, host: JobsHost, feed: JobFeed, *, address: str) -> None:
        self._allocator = AllocatorServicer(host)
        self._jobs = JobServicer(host, feed)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._address = address
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Bind, make ready to decide, and serve; returns the bound address.

        Raises
        ------
        ConfigError
            The address is malformed or taken.
        """
        # The first decision would else wait for the compiler, and its caller lose patience.
        await asyncio.to_thread(warm_up)
        server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                # Two servers on one port would each answer half of the calls.
                ("grpc.so_reuseport", 0),
            )
        )
        allocator_service_pb2_grpc.add_AllocatorServiceServicer_to_server(self._allocator, server)
        job_service_pb2_grpc.add_JobServiceServicer_to_server(self._jobs, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        try:
            port = server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen on {self._address} ({error}); is another allocator running there? "
                "Name another address, or port 0 for any free one"
            ) from error
        await server.start()
        self._server = server
        for service in ("", *_SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        return f"{self._address.rpartition(':')[0]}:{port}"

    async def stop(self, *, grace_s: float = 1.0) -> None:
        """Refuse new calls, give those in progress `grace_s`, then end them. Safe to repeat."""
        if self._server is None:
            return
        server, self._server = self._server, None
        await self._health.enter_graceful_shutdown()
        self._jobs.end_watches()
        await server.stop(grace_s)
        self._allocator.close()
