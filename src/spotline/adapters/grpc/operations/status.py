"""How every service is, and the system as a whole."""

from __future__ import annotations

from spotline.adapters.grpc.operations.asked import OperationsAsked


class StatusRpcs(OperationsAsked):
    """How every service is, and the system as a whole."""
