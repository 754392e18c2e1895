"""Settings of the configurator, read once at start."""

from __future__ import annotations

from pathlib import Path

from spotline.runtime.settings import ServiceSettings


class ConfiguratorSettings(ServiceSettings):
    """`SPOTLINE_*` of the configurator.

    `configurator_address` is where its gRPC server listens. `knowledge` is a file of measured runs
    (`spotline knowledge import` makes one; empty: none), `knowledge_stack` the software stack to
    assume unless a caller names one (empty: `live`, or the one with most runs).
    """

    configurator_address: str = "127.0.0.1:7071"
    knowledge: str = ""
    knowledge_stack: str = ""

    @property
    def knowledge_file(self) -> Path | None:
        """The file of measured runs, None for none."""
        return Path(self.knowledge) if self.knowledge else None
