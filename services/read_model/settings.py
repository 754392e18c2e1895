"""Settings of the read model, read once at start."""

from __future__ import annotations

from spotline.runtime.settings import ServiceSettings


class ReadModelSettings(ServiceSettings):
    """`SPOTLINE_*` of the read model; `http_address` is where its HTTP server listens.

    `http_hosts` are names, separated by commas, by which callers may speak of it beside
    `localhost`, `127.0.0.1` and `[::1]`; `*` is any: then whoever answers for a name in a browser's
    network may read it. What is expected of jobs is asked of the allocator at `allocator_address`;
    empty: it is not told.
    """

    http_address: str = "127.0.0.1:7080"
    http_hosts: str = ""
    allocator_address: str = ""

    def hosts(self) -> tuple[str, ...]:
        """The names."""
        return tuple(name.strip() for name in self.http_hosts.split(",") if name.strip())
