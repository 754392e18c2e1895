"""Charts as pages carry them: what is to be drawn, as JSON that `page.js` hands to uPlot.

The same numbers stand in a table under each chart, for those who cannot see it and for whoever
wants to copy one. Colours are names of the page's style: the same kind has the same one everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

Colour = Literal[
    "spot", "on-demand", "reserved", "bad", "good", "done", "pale", "strong",
    "line-1", "line-2", "line-3", "line-4", "line-5", "line-6", "line-7", "line-8",
]  # fmt: skip
Unit = Literal["usd", "usd_per_hour", "instances", "percent", "hours", "share", "points"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """One line of a chart; `values` has None where nothing is known.

    `steps`: each value stays until the next. `dashed`: what is expected, not what was.
    """

    name: str
    colour: Colour
    values: Sequence[float | None]
    steps: bool = False
    dashed: bool = False
    filled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartBand:
    """The area between two series, by their place in the chart."""

    name: str
    low: int
    high: int
    colour: Colour


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """A vertical line: something happened, or a deadline."""

    at_s: float
    name: str
    colour: Colour


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    """Series over market time, seconds since the epoch.

    `stacked`: series lie on each other, in their order. `title` says what is shown, `unit` is the
    unit of all values.
    """

    name: str
    title: str
    unit: Unit
    at_s: Sequence[float]
    series: Sequence[ChartSeries]
    bands: Sequence[ChartBand] = ()
    marks: Sequence[ChartMark] = field(default_factory=tuple)
    stacked: bool = False

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value is not None for line in self.series for value in line.values)

    def json(self) -> str:
        """The chart as its element carries it; nothing in it can end the element."""
        text = json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)
        return text.replace("<", "\\u003c").replace("&", "\\u0026")
