"""Settings of the allocator, read once at start."""

from __future__ import annotations

from spotline.runtime.settings import ServiceSettings


class AllocatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the allocator; `allocator_address` is where its gRPC server listens.

    Drafts are completed by the configurator at `configurator_address`; empty: they are refused.
    """

    allocator_address: str = "127.0.0.1:7070"
    configurator_address: str = ""
