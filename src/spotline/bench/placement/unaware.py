"""A method that is not told how often spot is taken back, to see what knowing it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.bench.placement.setting import Setting
from spotline.bench.placement.simulate import Replacing, RunningJob
from spotline.domain.placement.graph import RegionGraph
from spotline.domain.placement.interface import PlacementMethod, PlacementMoment, Residual
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement


class Unaware:
    """A method that takes spot to be as sure as what is on demand."""

    def __init__(self, method: PlacementMethod) -> None:
        self.method_id = f"{method.method_id}_no_risk"
        self._method = method

    def place(
        self, queue: Sequence[PipelineJob], moment: PlacementMoment
    ) -> tuple[Placement | NoPlacement, ...]:
        """Place as the method does where nothing is ever taken back."""
        return self._method.place(queue, without_risk(moment))


class UnawareMoves:
    """Moves that are weighed as if spot were never taken back."""

    def __init__(self, replacing: Replacing) -> None:
        self._replacing = replacing

    def __call__(
        self, one: RunningJob, moment: PlacementMoment, setting: Setting
    ) -> Placement | None:
        """Where to move to."""
        return self._replacing(one, without_risk(moment), setting)


def without_risk(moment: PlacementMoment) -> PlacementMoment:
    """The same moment on regions that take nothing back."""
    graph = moment.residual.graph
    sure = RegionGraph(
        [replace(region, interruptions_per_hour=0.0) for region in graph.regions], ()
    )
    sure.gpus, sure.bytes_per_s = graph.gpus, graph.bytes_per_s
    sure.egress_usd_per_gb = graph.egress_usd_per_gb
    residual = Residual(sure, moment.residual.gpus.copy(), moment.residual.bytes_per_s.copy())
    return replace(moment, residual=residual)
