"""What placement methods are measured on: regions, jobs, prices over time, and disruptions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.domain.placement.graph import FloatArray, RegionGraph
from spotline.domain.placement.interface import (
    CostBasis,
)
from spotline.domain.placement.pipeline import PipelineJob

_S_PER_HOUR = 3600.0


class PriceCurve:
    """Prices of a GPU-hour per region, constant between changes; the last one stays.

    Parameters
    ----------
    times_s
        When prices change, ascending, the first <= 0; shape (T,).
    usd_per_gpu_hour
        Shape (T, R).
    """

    def __init__(self, times_s: FloatArray, usd_per_gpu_hour: FloatArray) -> None:
        if times_s[0] > 0 or (np.diff(times_s) <= 0).any():
            raise ValueError("times_s of prices must ascend from <= 0")
        if usd_per_gpu_hour.shape[0] != len(times_s):
            raise ValueError(
                f"usd_per_gpu_hour must have one row per time ({len(times_s)}), "
                f"had {usd_per_gpu_hour.shape[0]}"
            )
        self.times_s = times_s
        self.usd_per_gpu_hour = usd_per_gpu_hour
        hours = np.diff(times_s)[:, None] / _S_PER_HOUR
        self._paid = np.vstack(
            [np.zeros(usd_per_gpu_hour.shape[1]), np.cumsum(usd_per_gpu_hour[:-1] * hours, axis=0)]
        )

    @classmethod
    def constant(cls, usd_per_gpu_hour: FloatArray) -> PriceCurve:
        """Prices that never change."""
        return cls(np.zeros(1), np.asarray(usd_per_gpu_hour, dtype=np.float64)[None, :])

    def at(self, now_s: float) -> FloatArray:
        """Prices at a time, shape (R,)."""
        row: FloatArray = self.usd_per_gpu_hour[self._row(now_s)]
        return row

    def paid(self, start_s: float, end_s: float) -> FloatArray:
        """What one GPU held from start to end costs per region, USD, shape (R,)."""
        return self._until(end_s) - self._until(start_s)

    def next_change_s(self, now_s: float) -> float:
        """The first change after a time; infinite if there is none."""
        row = self._row(now_s) + 1
        return float(self.times_s[row]) if row < len(self.times_s) else math.inf

    def _row(self, now_s: float) -> int:
        return int(np.searchsorted(self.times_s, now_s, side="right")) - 1

    def _until(self, now_s: float) -> FloatArray:
        row = self._row(now_s)
        hours = (now_s - self.times_s[row]) / _S_PER_HOUR
        total: FloatArray = self._paid[row] + hours * self.usd_per_gpu_hour[row]
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """What goes wrong from `at_s` until `until_s` (inf: for good).

    Either a region, which keeps `factor` of its GPUs and of the bandwidth of its links, or a link
    (both directions), which keeps `factor` of its bandwidth. `until_s` = `at_s`: a region's spot
    capacity is taken back and can be had again at once.
    """

    at_s: float
    until_s: float = math.inf
    region_id: str = ""
    link: tuple[str, str] | None = None
    factor: float = 0.0

    def __post_init__(self) -> None:
        if bool(self.region_id) == (self.link is not None):
            raise ValueError("a disruption must name either a region or a link")
        if not (0 <= self.at_s <= self.until_s and math.isfinite(self.at_s)):
            raise ValueError(
                f"a disruption must last from a time >= 0 to a later one, was {self.at_s} to "
                f"{self.until_s}"
            )
        if not 0 <= self.factor < 1:
            raise ValueError(f"factor of a disruption must be in [0, 1), was {self.factor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a method is measured on."""

    name: str
    graph: RegionGraph
    jobs: tuple[PipelineJob, ...]
    basis: CostBasis
    prices: PriceCurve
    disruptions: tuple[Disruption, ...] = ()


def disrupted(graph: RegionGraph, disruptions: Sequence[Disruption]) -> RegionGraph:
    """The graph as disruptions leave it; regions keep their places in it."""
    if not disruptions:
        return graph
    left = RegionGraph(graph.regions, ())
    gpus, bytes_per_s = graph.gpus.copy(), graph.bytes_per_s.copy()
    for one in disruptions:
        if one.link is not None:
            here, there = (graph.index[end] for end in one.link)
            bytes_per_s[[here, there], [there, here]] *= one.factor
        else:
            place = graph.index[one.region_id]
            gpus[place] = math.floor(gpus[place] * one.factor)
            bytes_per_s[place, :] *= one.factor
            bytes_per_s[:, place] *= one.factor
    left.gpus, left.bytes_per_s = gpus, np.floor(bytes_per_s)
    left.egress_usd_per_gb = graph.egress_usd_per_gb
    return left


def scaled(setting: Setting, *, bandwidth: float = 1.0, gpus: float = 1.0) -> Setting:
    """A setting with all links and all regions larger or smaller; GPUs are rounded to whole ones."""
    graph = setting.graph
    regions = [replace(region, gpus=max(1, round(region.gpus * gpus))) for region in graph.regions]
    changed = RegionGraph(regions, ())
    changed.bytes_per_s = graph.bytes_per_s * bandwidth
    changed.egress_usd_per_gb = graph.egress_usd_per_gb
    return replace(setting, graph=changed)
