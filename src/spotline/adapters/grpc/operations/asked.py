"""What all that is asked about the system shares: the host that knows, and its clock."""

from __future__ import annotations

import asyncio

from spotline.adapters.grpc.kit.answering import RequestLog
from spotline.api.v1 import operations_service_pb2_grpc
from spotline.application.allocator.ports import JobsHost
from spotline.application.market_view import ClockReading
from spotline.application.operations.fold import OperationsState
from spotline.application.operations.ports import LogReading, ParkedLog


class OperationsAsked(operations_service_pb2_grpc.OperationsServiceServicer):
    """A part of `OperationsService`; what no part answers is UNIMPLEMENTED.

    Parameters
    ----------
    host
        The running allocator: its state, and a way to record what a person wants.
    """

    def __init__(self, host: JobsHost) -> None:
        self._host = host
        self._requests = RequestLog()
        # Where single entries can be read and published again; its server says so.
        self.log: ParkedLog | None = None
        # Where the whole of it can be read, and how many read it.
        self.whole_log: LogReading | None = None
        self.log_readers = 0
        self.ended = asyncio.Event()

    @property
    def _operations(self) -> OperationsState:
        return self._host.state.operations

    def clock(self) -> ClockReading | None:
        """Market time, None before it is known."""
        return self._host.state.market_status().clock
