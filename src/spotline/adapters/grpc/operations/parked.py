"""Parked entries: listed, published again, given up."""

from __future__ import annotations

from spotline.adapters.grpc.operations.asked import OperationsAsked


class ParkedRpcs(OperationsAsked):
    """Parked entries: listed, published again, given up."""
