"""Draw a market: price and availability over time, autocorrelation, tails of run lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spotline.domain.market.market import UNKNOWN, IntArray, Market
from spotline.domain.market.statistics import autocorrelation, run_lengths_h
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S, S_PER_HOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LONGEST_LAG_H = 48
_SHARP_SLOTS = 1000
_MOST_LAGS = 200
_FAR_ABOVE = 1.6
_MOST_LINES = 10  # more offerings than the palette tells apart: the first ones are drawn


def plot_market(market: Market, path: Path) -> None:
    """Draw `market` as a PNG at `path`; all times in UTC.

    Of more than ten offerings the first ten are drawn, and the title says so.

    Raises
    ------
    OSError
        The folder is absent or not writable.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = min(len(market.offerings), _MOST_LINES)
    colors = [f"C{column}" for column in range(drawn)]
    # A figure of its own, not pyplot's: nothing global is touched.
    figure = Figure(figsize=(13.0, 9.0 + 0.15 * drawn), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 2, height_ratios=(3.0, 1.2 + 0.28 * drawn, 3.0))
    price = figure.add_subplot(grid[0, :])
    available = figure.add_subplot(grid[1, :], sharex=price)
    similar = figure.add_subplot(grid[2, 0])
    tails = figure.add_subplot(grid[2, 1])

    _draw_prices(price, market, drawn, colors)
    _draw_availability(figure, available, market, drawn)
    _draw_autocorrelation(similar, market, drawn, colors)
    _draw_run_tails(tails, market, drawn, colors)

    shown = "" if drawn == len(market.offerings) else f", first {drawn} drawn"
    days = market.slots * market.slot_s / S_PER_HOUR / 24
    figure.suptitle(
        f"{len(market.offerings)} offerings{shown}, {market.slots} slots of {market.slot_s} s "
        f"({days:.1f} days)\n{_wrapped(market.source)}",
        fontsize=10,
    )
    figure.savefig(path, format="png", dpi=110, metadata={"Software": None})


def _wrapped(source: str) -> str:
    import textwrap

    return "\n".join(
        textwrap.wrap(source, 150, max_lines=3, placeholder=" ...", break_on_hyphens=False)
    )


def _edges(market: Market) -> list[float]:
    """Slot openings and the end of the last slot, in matplotlib's days."""
    import matplotlib.dates as mdates

    ends_ns = market.start_ns + np.arange(market.slots + 1) * (market.slot_s * NS_PER_S)
    return list(mdates.date2num(ends_ns.astype("datetime64[ns]")))  # type: ignore[no-untyped-call]


def _time_axis(axes: Axes) -> None:
    import matplotlib.dates as mdates

    locator = mdates.AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _draw_prices(axes: Axes, market: Market, drawn: int, colors: list[str]) -> None:
    edges = _edges(market)
    on_demand: dict[int, list[int]] = {}
    for column in range(drawn):
        axes.stairs(
            market.spot_price_micro_usd[:, column] / MICRO_USD_PER_USD,
            edges,
            baseline=None,
            color=colors[column],
            linewidth=1.1,
            label=market.offerings[column].offering_id,
        )
        median = int(np.median(market.on_demand_price_micro_usd[:, column]))
        on_demand.setdefault(median, []).append(column)
    dearest_usd = int(market.spot_price_micro_usd[:, :drawn].max()) / MICRO_USD_PER_USD
    cheapest_usd = int(market.spot_price_micro_usd[:, :drawn].min()) / MICRO_USD_PER_USD
    for micro_usd, columns in on_demand.items():
        usd = micro_usd / MICRO_USD_PER_USD
        # Far above, it would press the spot prices into a flat line.
        far = usd > _FAR_ABOVE * dearest_usd
        axes.plot(
            [] if far else [edges[0], edges[-1]],
            [] if far else [usd, usd],
            color="0.35" if len(columns) > 1 or drawn == 1 else colors[columns[0]],
            linestyle=(0, (5, 4)),
            linewidth=1.0,
            label=f"on-demand {usd:.2f}{' (above)' if far else ''}",
        )
    if dearest_usd > 2 * cheapest_usd:
        axes.set_ylim(bottom=0)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylabel("price,\nUSD per instance-hour")
    axes.set_title("Spot price (dashed: on-demand)", loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    axes.tick_params(labelbottom=False)


def _draw_availability(figure: Figure, axes: Axes, market: Market, drawn: int) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    edges = _edges(market)
    counts = np.ma.masked_array(
        market.spot_available[:, :drawn].T, market.spot_provenance[:, :drawn].T == UNKNOWN
    )
    axes.set_facecolor("0.85")  # where counts are unknown
    scale = Normalize(vmin=0, vmax=max(1, int(market.spot_available.max())))
    for row in range(drawn):
        # One image per offering, so that smoothing over time never mixes two of them.
        axes.imshow(
            counts[row : row + 1],
            aspect="auto",
            interpolation="nearest" if market.slots <= _SHARP_SLOTS else "antialiased",
            interpolation_stage="data",
            extent=(edges[0], edges[-1], row + 0.5, row - 0.5),
            cmap="viridis",
            norm=scale,
        )
    axes.set_ylim(drawn - 0.5, -0.5)
    if counts.mask.all():
        axes.text(0.5, 0.5, "counts unknown", transform=axes.transAxes, ha="center", va="center")
    else:
        bar = figure.colorbar(
            ScalarMappable(norm=scale, cmap="viridis"), cax=axes.inset_axes((1.012, 0, 0.012, 1))
        )
        bar.set_label("instances")
        bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    for line in range(1, drawn):
        axes.axhline(line - 0.5, color="white", linewidth=1.5)
    axes.set_yticks(range(drawn), [o.offering_id for o in market.offerings[:drawn]], fontsize=8)
    axes.set_title("Available spot instances", loc="left", fontsize=10)
    axes.set_xlabel("time, UTC")
    _time_axis(axes)


def _draw_autocorrelation(axes: Axes, market: Market, drawn: int, colors: list[str]) -> None:
    longest = min(_LONGEST_LAG_H * S_PER_HOUR // market.slot_s, market.slots // 2)
    step = max(1, longest // _MOST_LAGS)
    lags = range(step, longest + 1, step)
    hours = [lag * market.slot_s / S_PER_HOUR for lag in lags]
    for column in range(drawn):
        known = bool((market.spot_provenance[:, column] != UNKNOWN).all())
        counts = market.spot_available[:, column]
        if known and (curve := _curve(counts, lags)):
            axes.plot(hours, curve, color=colors[column], linewidth=1.3)
        if curve := _curve(market.spot_price_micro_usd[:, column], lags):
            axes.plot(hours, curve, color=colors[column], linewidth=1.0, linestyle=":")
    axes.axhline(0.0, color="0.4", linewidth=0.8)
    axes.set_xticks(range(0, _LONGEST_LAG_H + 1, 6))
    axes.set_xlim(0, max(hours, default=1))
    axes.set_ylim(top=1.02)
    axes.set_xlabel("lag, hours")
    axes.set_ylabel("autocorrelation")
    axes.set_title("Autocorrelation (line: availability, dots: price)", loc="left", fontsize=10)
    axes.grid(alpha=0.25)


def _curve(series: IntArray, lags: range) -> list[float]:
    values = [autocorrelation(series, lag) for lag in lags]
    return [value for value in values if value is not None]


def _draw_run_tails(axes: Axes, market: Market, drawn: int, colors: list[str]) -> None:
    any_drawn = False
    for column in range(drawn):
        if (market.spot_provenance[:, column] == UNKNOWN).any():
            continue
        up = market.spot_available[:, column] > 0
        for state, style in ((up, "-"), (~up, "--")):
            lengths_h = np.sort(run_lengths_h(state, market.slot_s))
            if len(lengths_h) < 2:
                continue
            longer = 1.0 - np.arange(len(lengths_h)) / len(lengths_h)
            axes.plot(
                lengths_h,
                longer,
                color=colors[column],
                linestyle=style,
                linewidth=1.2,
                drawstyle="steps-post",
            )
            any_drawn = True
    if any_drawn:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(alpha=0.25, which="both")
        axes.xaxis.set_major_formatter(lambda hours, _: f"{hours:g}")
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:g}")
    else:
        axes.text(0.5, 0.5, "no runs to show", transform=axes.transAxes, ha="center", va="center")
        axes.set_xticks([])
        axes.set_yticks([])
    axes.set_xlabel("run length, hours")
    axes.set_ylabel("share of runs at least as long")
    axes.set_title("Runs (line: up, dashes: down)", loc="left", fontsize=10)
