"""What all pictures have in common: colours, axes in UTC, labels that fit, files that are equal."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinct for colour-blind readers and, by lightness and dashes, in grey.
SPOT, ON_DEMAND, RESERVED = "#2a78b5", "#e8a33d", "#6f6f6f"
BAD, GOOD, DONE = "#b3262e", "#1d7a46", "#0f4c3a"
PALE, STRONG = "#fbe7c6", "#8a5a00"
GRID, FAINT, DARK = "#e6e6e6", "#c9d3dc", "#333333"
LINES = ("#0b3c5d", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b07d00", "#000000", "#8c8c8c")
# For areas: each much lighter or darker than the one before.
FILLS = ("#0b3c5d", "#e8a33d", "#2f8f6b", "#c3d6e8", "#8c3b1f", "#9a9a9a")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
# None (light) to all (dark): one hue, so that it is read in grey as well.
SHARES = "Blues"

# Spot by on-demand price: one scale in all pictures.
PRICE_SCALE = (0.0, 1.2)
SMALL, NORMAL, LARGE = 8.0, 9.0, 11.0
_DPI = 110
_LONGEST_LABEL = 30


def spread(count: int) -> list[dict[str, Any]]:
    """Colour and dashes of so many lines."""
    return [
        {"color": LINES[n % len(LINES)], "linestyle": DASHES[n % len(DASHES)]} for n in range(count)
    ]


@contextmanager
def drawing() -> Iterator[None]:
    """Draw inside: names are taken as they are, and a letter no font has is a box, not a warning."""
    import matplotlib as mpl

    settings: Any = {"text.parse_math": False, "font.size": NORMAL, "axes.unicode_minus": False}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def empty_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure of so many inches."""
    # pyplot would keep global state and may open a window; a bare figure does neither.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG that says neither when nor by which version it was made."""
    figure.savefig(path, format="png", metadata={"Software": None})


def utc(ts_ns: int) -> datetime:
    """Nanoseconds since the epoch as a time."""
    return datetime.fromtimestamp(ts_ns / NS_PER_S, tz=UTC)


def time_axis(axes: Axes, begin: datetime, end: datetime, *, most_ticks: int = 10) -> None:
    """Show `begin` to `end` on the x axis, in UTC."""
    from matplotlib import dates

    # matplotlib ships no types for its dates.
    ticks: Any = dates
    locator = ticks.AutoDateLocator(minticks=3, maxticks=most_ticks, tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator, tz=UTC))
    axes.set_xlim(begin, end)  # type: ignore[arg-type]
    axes.tick_params(labelsize=SMALL)


def tidy(axes: Axes, title: str = "", *, grid: Any = "both") -> None:
    """Draw a faint grid behind the data and no box around it; the title says what is shown."""
    axes.grid(axis=grid, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL)
    if title:
        axes.set_title(title, loc="left", fontsize=NORMAL, fontweight="bold")


def whole_numbers(axes: Axes, most: int) -> None:
    """Count from 0 to `most` and a little more on the y axis, in whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(0, most * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def beside(axes: Axes, **options: Any) -> None:
    """Put the legend, if there is something to name, right of the axes, where it covers nothing."""
    if not axes.get_legend_handles_labels()[1]:
        return
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        fontsize=SMALL,
        frameon=False,
        borderaxespad=0.0,
        handlelength=2.6,
        **options,
    )


def printable(text: str) -> str:
    """A text with a question mark for every control character."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def duration(hours: float) -> str:
    """A length of time in the unit that fits it."""
    if hours < 1.0:
        return f"{60.0 * hours:.3g} min"
    return f"{hours:.3g} h" if hours < 48.0 else f"{hours / 24.0:.3g} d"


def fits(text: str, most: int = _LONGEST_LABEL) -> str:
    """A text that can be drawn on a line: without control characters, its middle left out."""
    shown = printable(text)
    if len(shown) <= most:
        return shown
    head = (most - 1) // 2
    return f"{shown[:head]}\N{HORIZONTAL ELLIPSIS}{shown[-(most - 1 - head) :]}"


def short_names(offerings: Sequence[Offering]) -> dict[str, str]:
    """A short name of each offering, by id: of what it consists of, what tells them apart."""
    shorter = (
        [offering.zone for offering in offerings],
        [offering.instance_type for offering in offerings],
        [f"{offering.zone} {offering.instance_type}" for offering in offerings],
        [offering.offering_id for offering in offerings],
    )
    ids = [offering.offering_id for offering in offerings]
    for names in shorter:
        shown = [fits(name) for name in names]
        if len(set(shown)) == len(shown):
            return dict(zip(ids, shown, strict=True))
    return {name: f"{number} {fits(name)}" for number, name in enumerate(ids, start=1)}
