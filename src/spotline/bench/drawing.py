"""What the benchmarks' plots and JSON have in common."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

GRID_COLOUR = "#e6e6e6"
_DPI = 130


def figure_of(width: float, height: float) -> Any:
    """An empty figure of so many inches."""
    # pyplot would keep global state and may open a window; a bare figure does neither.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Any, *, grid: str) -> None:
    """Draw a faint grid along `grid` (x, y or both) behind the data, and no box around it."""
    axes.grid(axis=grid, color=GRID_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def without_nan(value: Any) -> Any:
    """JSON knows no NaN: None stands for what cannot be computed."""
    match value:
        case dict():
            return {key: without_nan(one) for key, one in value.items()}
        case list() | tuple():
            return [without_nan(one) for one in value]
        case np.generic():
            return without_nan(value.item())
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
