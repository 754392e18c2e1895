"""Settings of the placer, read once at start."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from spotline.application.placer.options import PlacerOptions
from spotline.runtime.settings import ServiceSettings


class PlacerSettings(ServiceSettings):
    """`SPOTLINE_*` of the placer.

    `placer_address` is where its gRPC server listens. `placement_method` is one of the registry,
    `placement_cost` energy or rent; `placement_moves` lets running jobs move where that pays.
    """

    placer_address: str = "127.0.0.1:7072"
    placement_method: str = "spotline"
    placement_cost: str = "energy"
    placement_moves: bool = True

    @model_validator(mode="after")
    def _known(self) -> Self:
        self.options()
        return self

    def options(self) -> PlacerOptions:
        """How it places; `ValueError` for a method or cost that does not exist."""
        return PlacerOptions(
            method=self.placement_method, cost=self.placement_cost, moves=self.placement_moves
        )
