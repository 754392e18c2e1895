"""Settings of the allocator, read once at start."""

from __future__ import annotations

from spotline.runtime.settings import ServiceSettings


class AllocatorSettings(ServiceSettings):
    """`SPOTLINE_*` of the allocator; `allocator_address` is where its gRPC server listens."""

    allocator_address: str = "127.0.0.1:7070"
