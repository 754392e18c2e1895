"""OperationsService, put together of its parts."""

from __future__ import annotations

from spotline.adapters.grpc.operations.freezing import FreezingRpcs
from spotline.adapters.grpc.operations.limits import LimitsRpcs
from spotline.adapters.grpc.operations.log import LogRpcs
from spotline.adapters.grpc.operations.modes import ModesRpcs
from spotline.adapters.grpc.operations.orphans import OrphansRpcs
from spotline.adapters.grpc.operations.parked import ParkedRpcs
from spotline.adapters.grpc.operations.status import StatusRpcs


class OperationsServicer(
    ParkedRpcs, FreezingRpcs, StatusRpcs, OrphansRpcs, LimitsRpcs, ModesRpcs, LogRpcs
):
    """Answers what those ask who run Spotline."""
