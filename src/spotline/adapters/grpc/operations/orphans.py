"""Instances that belong to no job."""

from __future__ import annotations

from spotline.adapters.grpc.operations.asked import OperationsAsked


class OrphansRpcs(OperationsAsked):
    """Instances that belong to no job."""
