"""Charts of characters: a job's way to its deadline, and a line of bars for a series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotline.cli.wording import short_moment

_BARS = "▁▂▃▄▅▆▇█"
_PPM = 1_000_000
_LABEL = 5

PLANNED, DONE = "·", "█"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPoint:
    """How far a job was: market time, share done, what it had spent."""

    market_ns: int
    done_ppm: int
    spent_micro_usd: int


def progress_chart(
    points: Sequence[ProgressPoint],
    *,
    start_ns: int,
    deadline_ns: int,
    width: int,
    height: int,
) -> list[str]:
    """Work done over market time, beside the straight line to the deadline.

    `·` is that line, `█` what is done; the first points of a job that was not watched from its
    beginning are where it was seen first. Lines of at most `width` characters, `height` of them.
    """
    columns, rows = max(8, width - _LABEL - 1), max(3, height - 1)
    last_ns = max([deadline_ns, *(point.market_ns for point in points)])
    span_ns = max(1, last_ns - start_ns)
    grid = [[" "] * columns for _ in range(rows)]

    def column_of(ns: int) -> int:
        return min(columns - 1, max(0, (ns - start_ns) * (columns - 1) // span_ns))

    def row_of(ppm: int) -> int:
        return rows - 1 - min(rows - 1, max(0, ppm * (rows - 1) // _PPM))

    end = column_of(deadline_ns)
    for column in range(end + 1):
        share = _PPM if not end else _PPM * column // end
        grid[row_of(share)][column] = PLANNED
    for point in points:
        grid[row_of(point.done_ppm)][column_of(point.market_ns)] = DONE
    labels = {0: "100 %", rows // 2: " 50 %", rows - 1: "  0 %"}
    lines = [
        f"{labels.get(index, ''):>{_LABEL}} {''.join(row)}".rstrip()
        for index, row in enumerate(grid)
    ]
    return [*lines, _time_axis(start_ns, last_ns, columns)]


def _time_axis(start_ns: int, end_ns: int, columns: int) -> str:
    first, last = short_moment(start_ns), short_moment(end_ns)
    space = columns - len(first) - len(last)
    if space < 1:
        return f"{'':{_LABEL}} {last}"
    return f"{'':{_LABEL}} {first}{' ' * space}{last}"


def bars(values: Sequence[float], width: int) -> str:
    """The latest values as bars of eight heights, from 0 to the highest of them."""
    shown = list(values)[-width:] if width > 0 else []
    most = max(shown, default=0.0)
    if most <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[round(value / most * (len(_BARS) - 1))] for value in shown)
