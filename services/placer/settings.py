"""Settings of the placer, read once at start."""

from __future__ import annotations

from typing import Annotated

from spotline.application.placer.options import PlacerOptions
from spotline.runtime.settings import OptionVariables, ServiceSettings


class PlacerSettings(ServiceSettings):
    """`SPOTLINE_*` of the placer.

    `placer_address` is where its gRPC server listens, `placement` the options of `PlacerOptions`:
    `SPOTLINE_PLACEMENT_METHOD`, `SPOTLINE_PLACEMENT_COST`, `SPOTLINE_PLACEMENT_MOVES`.
    """

    placer_address: str = "127.0.0.1:7072"
    placement: Annotated[PlacerOptions, OptionVariables(prefix="placement_")] = PlacerOptions()
