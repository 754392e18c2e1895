"""Traces of the benchmark: 0/1 availability per zone in ticks of 600 s, and windows on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.parse import count, field, read_json
from spotline.contracts.errors import ContractError

TICK_S = 600
WINDOWS_PER_TRACE = 30

# The zone's letter and whatever names the instance: us-east-1a_v100_1 lies in us-east-1.
_REGION = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-?\d+)(?:-?[a-z])?(?=[_./]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Availability of one zone.

    `up` is 1 where an instance could run in that tick, uint8, shape (ticks,), ticks of 600 s.
    """

    name: str
    region: str
    zone: str
    up: npt.NDArray[np.uint8]


def region_of(name: str) -> str:
    """Region in a trace's name: the zone without its letter and the instance suffix."""
    match = _REGION.search(name)
    return match["region"] if match else name


def zone_of(name: str) -> str:
    """Zone in a trace's name, without the instance suffix."""
    match = _REGION.search(name)
    return match.group(0) if match else name


def read_traces(directory: Path) -> list[Trace]:
    """Read every skypilot JSON file under a directory, by name.

    Raises
    ------
    ContractError
        No such directory, no file in it, or a file that breaks the format; names file and field.
    """
    if not directory.is_dir():
        raise ContractError(str(directory), "expected a directory of skypilot JSON traces")
    paths = sorted(
        path
        for path in directory.rglob("*")
        if path.is_file() and path.name.endswith((".json", ".json.gz"))
    )
    if not paths:
        raise ContractError(str(directory), "expected skypilot traces (*.json), found none")
    names = _names(directory, paths)
    return [_read(path, name) for path, name in zip(paths, names, strict=True)]


def _names(directory: Path, paths: Sequence[Path]) -> list[str]:
    stems = [path.name.removesuffix(".gz").removesuffix(".json") for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    # The same zone in several sets: the folder tells them apart.
    return [
        f"{path.parent.relative_to(directory).as_posix()}/{stem}".removeprefix("./")
        for path, stem in zip(paths, stems, strict=True)
    ]


def _read(path: Path, name: str) -> Trace:
    document = read_json(path)
    metadata = field(document, "metadata", str(path))
    gap = field(metadata, "gap_seconds", f"{path}, field metadata")
    if isinstance(gap, float) and gap.is_integer():
        gap = int(gap)
    gap_s = count(gap, f"{path}, field metadata.gap_seconds")
    if gap_s < 1:
        raise ContractError(
            f"{path}, field metadata.gap_seconds", f"expected seconds >= 1, found {gap_s}"
        )
    values = field(document, "data", str(path))
    if not isinstance(values, list) or not values:
        raise ContractError(f"{path}, field data", "expected a list of counts, found none")
    counts = np.array(
        [count(value, f"{path}, field data, tick {tick}") for tick, value in enumerate(values)],
        dtype=np.int64,
    )
    return Trace(
        name=name, region=region_of(name), zone=zone_of(name), up=resample(counts >= 1, gap_s)
    )


def resample(up: npt.NDArray[np.bool_], gap_s: int) -> npt.NDArray[np.uint8]:
    """Bring probes every `gap_s` seconds to ticks of 600 s: a tick is as its first probe was.

    A tick that holds no probe (gaps longer than a tick) is as the last probe before it. Only whole
    ticks are kept.
    """
    ticks = len(up) * gap_s // TICK_S
    begins_s = np.arange(ticks, dtype=np.int64) * TICK_S
    first = -(-begins_s // gap_s)
    empty = first * gap_s >= begins_s + TICK_S
    first = np.where(empty, begins_s // gap_s, first)
    return up[np.minimum(first, len(up) - 1)].astype(np.uint8)


def window_starts(
    first: int, end: int, longest_ticks: int, windows: int = WINDOWS_PER_TRACE
) -> npt.NDArray[np.int64]:
    """Evenly spaced starts in ticks [first, end) such that the longest deadline fits.

    Raises
    ------
    ValueError
        Not even one window fits.
    """
    last = end - longest_ticks
    if last < first:
        raise ValueError(
            f"a trace must last {longest_ticks} ticks of {TICK_S} s, "
            f"the longest deadline; found {end - first}"
        )
    return np.linspace(first, last, windows).astype(np.int64)
