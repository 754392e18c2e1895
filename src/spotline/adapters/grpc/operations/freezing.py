"""Stops of buying that a person begins and ends."""

from __future__ import annotations

from spotline.adapters.grpc.operations.asked import OperationsAsked


class FreezingRpcs(OperationsAsked):
    """Stops of buying that a person begins and ends."""
