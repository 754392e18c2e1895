"""The sets of the benchmark: zones, windows, and what was learned from what.

Laws come from the first half of what is given, and windows are then of the second; or from other
zones, and windows may be anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spotline.bench.skynomad.learning import learn_zone_laws
from spotline.bench.skynomad.world import (
    CHECKPOINT_GB,
    AlignedZones,
    Moves,
    ZoneTerms,
    moves_between,
    terms_of,
)
from spotline.domain.beliefs.zone_beliefs import ZoneLaws

H100_ZONES: Final = (
    "us-central1-a",
    "us-west1-a",
    "europe-west1-c",
    "europe-west3-c",
    "asia-southeast1-b",
    "asia-south2-b",
)
V100_ZONES: Final = ("us-east-1c", "us-east-2b", "us-west-2a")
H100_DEADLINE_TICKS: Final = 311
V100_DEADLINE_TICKS: Final = 1106
V100_PUBLISHED: Final = (3, 5, 7, 8, 14)
"""Windows that the paper shows, from 0."""
RATIO: Final = 1.5
OVERLAPPING_STARTS: Final = 16

Egress = Mapping[tuple[str, str], float]


class CannotForm(Exception):
    """The data given do not hold what a set needs; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSet:
    """Windows of one market under one job, and the laws that a policy may know of it.

    `independent` is how many windows fit beside each other in the time that `starts` cover.
    """

    name: str
    market: AlignedZones
    moves: Moves
    terms: ZoneTerms
    laws: ZoneLaws
    starts: tuple[int, ...]
    independent: int
    learned_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """Deadline in ticks, how many times the work it is, the size of a checkpoint, GB.

    `transfers` counts the time that a checkpoint takes between regions; published figures do not.
    """

    deadline_ticks: int
    ratio: float = RATIO
    checkpoint_gb: float = CHECKPOINT_GB
    transfers: bool = False


def from_other_zones(
    name: str, given: AlignedZones, zones: Sequence[str], shape: JobShape, egress: Egress
) -> WindowSet:
    """Consecutive windows over all of the time, laws learned from the zones that are not in the set.

    Raises
    ------
    CannotForm
        A zone is missing, there is no other, or the time is shorter than a window.
    """
    market = _zones_of(name, given, zones)
    others = [z for z, zone in enumerate(given.zones) if zone not in zones]
    if not others:
        raise CannotForm(f"{name}: no zones beside {', '.join(zones)} to learn from")
    windows = market.ticks // shape.deadline_ticks
    if windows < 1:
        raise CannotForm(_too_short(name, market.ticks, shape))
    starts = tuple(window * shape.deadline_ticks for window in range(windows))
    laws = learn_zone_laws([given.up[:, z] for z in others], zones=len(zones))
    learned = f"{len(others)} other zones ({', '.join(given.zones[z] for z in others)})"
    return _window_set(name, market, shape, egress, (laws, starts, learned))


def from_first_half(
    name: str,
    given: AlignedZones,
    zones: Sequence[str],
    shape: JobShape,
    egress: Egress,
    *,
    starts: int = 0,
) -> WindowSet:
    """Windows of the second half, laws learned from the first half of all zones, their own with them.

    So many evenly spaced `starts`, which may overlap; by default windows follow one another.

    Raises
    ------
    CannotForm
        A zone is missing, or half of the time is shorter than a window.
    """
    market = _zones_of(name, given, zones)
    split = market.ticks // 2
    last = market.ticks - shape.deadline_ticks
    if last < split:
        raise CannotForm(_too_short(name, market.ticks - split, shape))
    at = (
        np.unique(np.linspace(split, last, starts).astype(np.int64))
        if starts
        else np.arange(split, last + 1, shape.deadline_ticks)
    )
    laws = learn_zone_laws(
        [given.up[:split, z] for z in range(len(given.zones))],
        zones=len(zones),
        own=[given.zones.index(zone) for zone in zones],
    )
    learned = f"the first half of {len(given.zones)} zones, its own among them"
    return _window_set(name, market, shape, egress, (laws, tuple(int(s) for s in at), learned))


def some_windows(name: str, of: WindowSet, numbers: Sequence[int]) -> WindowSet:
    """Some of the windows of a set, from 0.

    Raises
    ------
    CannotForm
        The set has fewer windows.
    """
    if max(numbers) >= len(of.starts):
        raise CannotForm(
            f"{name}: needs windows {', '.join(map(str, numbers))} from 0, "
            f"found {len(of.starts)} windows"
        )
    return WindowSet(
        name=name,
        market=of.market,
        moves=of.moves,
        terms=of.terms,
        laws=of.laws,
        starts=tuple(of.starts[n] for n in numbers),
        independent=len(numbers),
        learned_from=of.learned_from,
    )


def _zones_of(name: str, given: AlignedZones, zones: Sequence[str]) -> AlignedZones:
    missing = [zone for zone in zones if zone not in given.zones]
    if missing:
        raise CannotForm(f"{name}: zones {', '.join(missing)} are not in the data")
    return given.of_zones(zones)


def _too_short(name: str, ticks: int, shape: JobShape) -> str:
    return f"{name}: a window lasts {shape.deadline_ticks} ticks, there are {ticks} to report on"


def _window_set(
    name: str,
    market: AlignedZones,
    shape: JobShape,
    egress: Egress,
    known: tuple[ZoneLaws, tuple[int, ...], str],
) -> WindowSet:
    laws, starts, learned = known
    terms = terms_of(shape.deadline_ticks, market.tick_s, shape.ratio)
    covered = starts[-1] + shape.deadline_ticks - starts[0]
    return WindowSet(
        name=name,
        market=market,
        moves=moves_between(
            market.regions,
            egress,
            shape.checkpoint_gb,
            terms.lattice_s,
            transfers=shape.transfers,
        ),
        terms=terms,
        laws=laws,
        starts=starts,
        independent=covered // shape.deadline_ticks,
        learned_from=learned,
    )
