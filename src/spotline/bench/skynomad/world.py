"""The markets of the benchmark: zones with availability and prices in ticks, and what moves cost.

Money is whole micro-USD, time whole seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from spotline.domain.units import MICRO_USD_PER_USD

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

RESTART_S: Final = 720
PROBE_S: Final = 60
CHECKPOINT_GB: Final = 50
NOWHERE: Final = -1
"""Region of a job that has no checkpoint yet."""

_HOUR_S: Final = 3600
# Gbit/s measured between stores, in a region, between those of a continent, between continents.
_SAME_REGION_GBPS, _CONTINENT_GBPS, _FAR_GBPS = 9.72, 8.20, 3.59
# What the artifact assumes where its table of AWS regions has no pair: all pairs of Google Cloud.
_ASSUMED_EGRESS_USD_PER_GB: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignedZones:
    """Aligned zones.

    Attributes
    ----------
    zones, regions
        Names; `region_of[z]` is the index of a zone's region.
    up
        1 where a launch in that tick succeeds, uint8, shape (ticks, zones).
    spot_micro_usd
        Price of a tick, shape (ticks, zones).
    on_demand_micro_usd
        Price of a tick, shape (regions,).
    tick_s
        Seconds of a tick.
    """

    zones: tuple[str, ...]
    regions: tuple[str, ...]
    region_of: IntArray
    up: UpArray
    spot_micro_usd: IntArray
    on_demand_micro_usd: IntArray
    tick_s: int

    @property
    def ticks(self) -> int:
        """Number of ticks."""
        return int(self.up.shape[0])

    def of_zones(self, names: Sequence[str]) -> AlignedZones:
        """The same market with some of its zones, in the order given."""
        at = [self.zones.index(name) for name in names]
        regions = tuple(dict.fromkeys(self.regions[self.region_of[z]] for z in at))
        return AlignedZones(
            zones=tuple(names),
            regions=regions,
            region_of=np.array(
                [regions.index(self.regions[self.region_of[z]]) for z in at], dtype=np.int64
            ),
            up=np.ascontiguousarray(self.up[:, at]),
            spot_micro_usd=np.ascontiguousarray(self.spot_micro_usd[:, at]),
            on_demand_micro_usd=self.on_demand_micro_usd[
                [self.regions.index(region) for region in regions]
            ],
            tick_s=self.tick_s,
        )

    def of_ticks(self, first: int, end: int) -> AlignedZones:
        """The same market from one tick to before another."""
        return AlignedZones(
            zones=self.zones,
            regions=self.regions,
            region_of=self.region_of,
            up=np.ascontiguousarray(self.up[first:end]),
            spot_micro_usd=np.ascontiguousarray(self.spot_micro_usd[first:end]),
            on_demand_micro_usd=self.on_demand_micro_usd,
            tick_s=self.tick_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """What it costs to launch where the checkpoint is not.

    `egress_micro_usd` and `extra_s` (transfer beyond that within a region, in whole lattice steps)
    have shape (regions + 1, regions): from the region of the checkpoint, the last row from
    nowhere.
    """

    egress_micro_usd: IntArray
    extra_s: IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneTerms:
    """A job: seconds of work and of a restart, the deadline in ticks.

    Raises
    ------
    ValueError
        A length is not positive, or the work does not fit before the deadline even on one
        instance that is never interrupted.
    """

    work_s: int
    deadline_ticks: int
    tick_s: int
    restart_s: int = RESTART_S

    def __post_init__(self) -> None:
        if min(self.work_s, self.deadline_ticks, self.tick_s, self.restart_s) <= 0:
            raise ValueError("work, deadline, tick and restart must be positive")
        if self.slack_s < self.restart_s + self.tick_s:
            raise ValueError(
                f"a deadline must leave a restart and a tick beyond the work "
                f"({self.restart_s + self.tick_s} s), left {self.slack_s} s"
            )

    @property
    def slack_s(self) -> int:
        """Seconds to the deadline beyond the work."""
        return self.deadline_ticks * self.tick_s - self.work_s

    @property
    def lattice_s(self) -> int:
        """Every overhead and tick is a whole number of these seconds."""
        return math.gcd(self.tick_s, self.restart_s)


def terms_of(deadline_ticks: int, tick_s: int, ratio: float) -> ZoneTerms:
    """ZoneTerms of a job whose deadline is `ratio` times its work."""
    return ZoneTerms(
        work_s=round(deadline_ticks * tick_s / ratio), deadline_ticks=deadline_ticks, tick_s=tick_s
    )


def tick_micro_usd(usd_per_hour: float, tick_s: int) -> int:
    """Price of a tick, rounded to a micro-USD."""
    return round(usd_per_hour * MICRO_USD_PER_USD * tick_s / _HOUR_S)


def probe_micro_usd(spot_micro_usd: int, tick_s: int) -> int:
    """Price of a probe that finds spot."""
    return spot_micro_usd * PROBE_S // tick_s


def moves_between(
    regions: Sequence[str],
    egress_usd_per_gb: Mapping[tuple[str, str], float],
    checkpoint_gb: float,
    lattice_s: int,
    *,
    transfers: bool,
) -> Moves:
    """Cost of moves with a checkpoint of that size; `transfers` counts their time as well."""
    egress = np.zeros((len(regions) + 1, len(regions)), dtype=np.int64)
    extra = np.zeros_like(egress)
    for i, source in enumerate(regions):
        for j, target in enumerate(regions):
            if i == j:
                continue
            per_gb = egress_usd_per_gb.get((source, target), _ASSUMED_EGRESS_USD_PER_GB)
            egress[i, j] = round(checkpoint_gb * per_gb * MICRO_USD_PER_USD)
            if transfers:
                seconds = extra_transfer_s(source, target, checkpoint_gb)
                extra[i, j] = -(-seconds // lattice_s) * lattice_s
    return Moves(egress_micro_usd=egress, extra_s=extra)


def extra_transfer_s(source: str, target: str, checkpoint_gb: float) -> int:
    """Seconds to move a checkpoint beyond those within a region, which a restart includes."""
    near = source.split("-")[0] == target.split("-")[0]
    gbps = _CONTINENT_GBPS if near else _FAR_GBPS
    bits = checkpoint_gb * 8
    return math.ceil(bits / gbps - bits / _SAME_REGION_GBPS)
