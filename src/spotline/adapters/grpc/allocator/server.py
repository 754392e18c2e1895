"""The allocator's gRPC server: its services, health checking and reflection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc

from spotline.adapters.grpc.allocator.allocator_servicer import AllocatorServicer
from spotline.adapters.grpc.allocator.explaining import Explaining
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.job_servicer import JobServicer
from spotline.adapters.grpc.allocator.standing import JobViews, unknown_job
from spotline.adapters.grpc.identity.servicer import IdentityServicer
from spotline.adapters.grpc.kit.doors import stated_tenant
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.adapters.grpc.operations.servicer import OperationsServicer
from spotline.api.v1 import (
    allocator_service_pb2,
    allocator_service_pb2_grpc,
    identity_service_pb2,
    identity_service_pb2_grpc,
    job_service_pb2,
    job_service_pb2_grpc,
    operations_service_pb2,
    operations_service_pb2_grpc,
)
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.application.allocator.output import OutputStore
from spotline.application.allocator.planning import warm_up
from spotline.application.allocator.ports import ConfiguratorPort, JobsHost
from spotline.application.explaining.ports import DecisionExplainer
from spotline.application.health.conditions import HealthLimits
from spotline.application.operations.messages import ServiceStatus
from spotline.application.operations.ports import ParkedLog
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.limits import CallerLimits, name_problem
from spotline.runtime.parked_log import StreamParkedLog
from spotline.runtime.stream import EventStream


class RpcServer(GrpcServer):
    """Serves the allocator's RPC from `host` until stopped.

    Parameters
    ----------
    host
        The running allocator. Start the server when it has recovered.
    feed
        Listens to the same host: give `feed.on_applied` to it.
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    configurator
        Completes drafts; None refuses them. The giver closes it.
    await_admission
        Whether a submission is acknowledged only once the ledger holds it too.
    output
        Where what programs write is kept; None: nowhere.
    quote_margin
        A job that states no value is worth (1 + this) x its on-demand quote.
    views
        Where jobs stand as people are shown it; None: without outlooks.
    """

    name = "allocator"
    services = (
        allocator_service_pb2.DESCRIPTOR.services_by_name["AllocatorService"].full_name,
        job_service_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
        operations_service_pb2.DESCRIPTOR.services_by_name["OperationsService"].full_name,
        identity_service_pb2.DESCRIPTOR.services_by_name["IdentityService"].full_name,
    )

    def __init__(
        self,
        host: JobsHost,
        feed: JobFeed,
        *,
        address: str,
        configurator: ConfiguratorPort | None = None,
        await_admission: bool = True,
        output: OutputStore | None = None,
        quote_margin: float = DEFAULT_QUOTE_MARGIN,
        views: JobViews | None = None,
    ) -> None:
        super().__init__(address)
        self._host = host
        self._allocator = AllocatorServicer(host, configurator, quote_margin=quote_margin)
        self._operations = OperationsServicer(host)
        self._jobs = JobServicer(
            host,
            feed,
            self._allocator,
            configurator,
            await_admission=await_admission,
            output=output,
            quote_margin=quote_margin,
            views=views,
        )

    def bound_by(self, limits: CallerLimits) -> None:
        """Take so much from callers; to be called before `start`."""
        super().bound_by(limits)
        self._jobs.admitting.most_open = limits.most_open_jobs_a_tenant

    def hold_to(self, selector: SelectorOptions) -> None:
        """Tell of the limits on money of a selector with such options."""
        self._operations.hold_to(selector)

    def explain_with(self, explainer: DecisionExplainer) -> None:
        """Explain decisions from now on."""
        self._jobs.explaining = Explaining(explainer)

    def read_log(self, explainer: DecisionExplainer, stream: EventStream) -> None:
        """Explain decisions, deal with parked entries and let others read, by the log from now on."""
        self.explain_with(explainer)
        self.deal_with_parked(StreamParkedLog(stream))
        self._operations.whole_log = stream

    def deal_with_parked(self, log: ParkedLog) -> None:
        """Show and publish parked entries again from now on."""
        self._operations.log = log

    def tell_of(
        self, services: Callable[[], Sequence[ServiceStatus]], limits: HealthLimits
    ) -> None:
        """Tell how these services are from now on."""
        self._operations.watch(services, limits)

    def register(self, server: grpc.aio.Server) -> None:
        """Add its services."""
        allocator_service_pb2_grpc.add_AllocatorServiceServicer_to_server(self._allocator, server)
        job_service_pb2_grpc.add_JobServiceServicer_to_server(self._jobs, server)
        operations_service_pb2_grpc.add_OperationsServiceServicer_to_server(
            self._operations, server
        )
        identity_service_pb2_grpc.add_IdentityServiceServicer_to_server(IdentityServicer(), server)

    def tenant_of(self, request: Any) -> str:
        """The tenant that a request states, or whose job it names."""
        status = self._host.state.statuses.get(getattr(request, "job_id", ""))
        return stated_tenant(request) if status is None else status.job.tenant

    def hidden_from(self, request: Any, tenant: str) -> RpcRefused | None:
        """A job that is not, or is another tenant's, is none to this tenant."""
        job_id: str = getattr(request, "job_id", "")
        if not job_id or name_problem(job_id):
            return None  # what reads it says so
        status = self._host.state.statuses.get(job_id)
        theirs = status is not None and status.job.tenant == tenant
        return None if theirs else unknown_job(job_id)

    def prepare(self) -> None:
        """Compile: the first decision would else wait for it, and its caller lose patience."""
        warm_up()

    def end_streams(self) -> None:
        """End every watch, and all that follow the log."""
        self._jobs.end_watches()
        self._operations.end_reading()

    def release(self) -> None:
        """Let go of the threads."""
        self._allocator.close()
