"""The configurator's gRPC server."""

from __future__ import annotations

import gc

import grpc

from spotline.adapters.grpc.configurator.servicer import ConfigurationServicer, SharedKnowledge
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.api.v1 import configuration_service_pb2, configuration_service_pb2_grpc
from spotline.application.configurator.completion import warm_up
from spotline.application.configurator.handler import ConfiguratorHost


class ConfiguratorServer(GrpcServer):
    """Serves the configurator's RPC from `host` and `knowledge` until stopped.

    Parameters
    ----------
    host
        The running configurator. Start the server when it has recovered.
    knowledge
        What it knows; to be closed when the server has stopped.
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    """

    name = "configurator"
    services = (
        configuration_service_pb2.DESCRIPTOR.services_by_name["ConfigurationService"].full_name,
    )

    def __init__(self, host: ConfiguratorHost, knowledge: SharedKnowledge, *, address: str) -> None:
        super().__init__(address)
        self._servicer = ConfigurationServicer(host, knowledge)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service."""
        configuration_service_pb2_grpc.add_ConfigurationServiceServicer_to_server(
            self._servicer, server
        )

    def prepare(self) -> None:
        """Compile what options are priced with."""
        warm_up()
        # What the sources have learned lives as long as the server: looking through it again and
        # again for garbage would hold up one answer in a hundred.
        gc.collect()
        gc.freeze()
