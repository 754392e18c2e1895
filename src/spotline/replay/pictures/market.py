"""Markets as a picture: which zone has spot when, for how long, how cheap, and how many at once.

Several markets stand side by side on equal axes: shares 0..1, stays on one logarithmic scale of
hours, prices as 0..1.2 of on-demand, and as many days.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spotline.domain.market.market import Market
from spotline.domain.market.stays import FloatArray
from spotline.domain.market.supply import HOURS, MarketSupply, OfferingSupply
from spotline.domain.units import S_PER_HOUR
from spotline.replay.pictures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From a few minutes to six weeks: what spot traces hold.
STAY_SCALE_H = (0.05, 1000.0)
MOST_MARKETS = 4

_MOST_STRIPES = 480
_MOST_PRICES = 120
_STAY_TICKS = (0.1, 0.5, 1, 3, 6, 12, 24, 72, 168, 720)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DescribedMarket:
    """A market, what it is called, and what was measured of it."""

    name: str
    market: Market
    supply: MarketSupply

    @property
    def hours(self) -> float:
        """How long it is."""
        return self.market.slots * self.market.slot_s / S_PER_HOUR


def draw_markets(described: Sequence[DescribedMarket], path: Path) -> None:
    """Draw one market, or up to `MOST_MARKETS` side by side, to a PNG.

    Raises
    ------
    ValueError
        There are none, or too many.
    OSError
        The file cannot be written.
    """
    if not 1 <= len(described) <= MOST_MARKETS:
        raise ValueError(f"1 to {MOST_MARKETS} markets can be drawn, were {len(described)}")
    hours = max(each.hours for each in described)
    with style.drawing():
        figure = _alone(described[0], hours) if len(described) == 1 else _abreast(described, hours)
        style.save(figure, path)


def _alone(described: DescribedMarket, hours: float) -> Figure:
    rows = len(described.supply.offerings)
    strip = 0.5 + 0.26 * rows
    heights = (0.5, strip, 1.9, 2.3, strip + 0.4)
    figure = style.empty_figure(11.5, sum(heights) + 1.4)
    grid = figure.add_gridspec(5, 2, height_ratios=heights, width_ratios=(2.5, 1.0))
    _head(figure.add_subplot(grid[0, :]), described, 150)
    panels = _Panels(
        calendar=figure.add_subplot(grid[1, 0]),
        price=figure.add_subplot(grid[2, 0]),
        stays=figure.add_subplot(grid[3, 0]),
        by_hour=figure.add_subplot(grid[4, 0]),
        together=figure.add_subplot(grid[4, 1]),
        price_names=figure.add_subplot(grid[2, 1]),
        stay_names=figure.add_subplot(grid[3, 1]),
    )
    _scale(figure, panels.calendar, figure.add_subplot(grid[1, 1]))
    _draw(panels, described, hours, numbers=True)
    return figure


def _abreast(described: Sequence[DescribedMarket], hours: float) -> Figure:
    rows = max(len(each.supply.offerings) for each in described)
    strip = 0.5 + 0.26 * rows
    heights = (0.75, strip, 1.6, 2.1, 0.1 + 0.17 * rows, strip, 1.6)
    figure = style.empty_figure(6.2 * len(described), sum(heights) + 2.2)
    grid = figure.add_gridspec(7, len(described), height_ratios=heights)
    for column, each in enumerate(described):
        axes = [figure.add_subplot(grid[row, column]) for row in range(7)]
        head, calendar, price, stays, names, by_hour, together = axes
        panels = _Panels(
            calendar=calendar,
            price=price,
            stays=stays,
            by_hour=by_hour,
            together=together,
            stay_names=names,
        )
        _head(head, each, 88)
        _draw(panels, each, hours, numbers=False)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Panels:
    calendar: Axes
    price: Axes
    stays: Axes
    by_hour: Axes
    together: Axes
    stay_names: Axes
    price_names: Axes | None = None


def _draw(panels: _Panels, described: DescribedMarket, hours: float, *, numbers: bool) -> None:
    names = style.short_names(described.market.offerings)
    supply = described.supply
    shown = [names[offering.offering_id] for offering in supply.offerings]
    _draw_calendar(panels.calendar, described, shown, hours)
    _draw_prices(panels.price, described, shown, hours)
    _draw_stays(panels.stays, supply, shown, with_price=panels.price_names is None)
    _draw_by_hour(panels.by_hour, supply, shown, numbers=numbers)
    _draw_together(panels.together, supply)
    if panels.price_names is not None:
        _names(panels.price_names, panels.price)
    _names(panels.stay_names, panels.stays)


def _names(place: Axes, lines: Axes) -> None:
    """Say in a place of their own what the lines are."""
    place.axis("off")
    handles, labels = lines.get_legend_handles_labels()
    if not labels:
        return
    place.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(-0.04, 1.0),
        fontsize=style.SMALL,
        frameon=False,
        borderaxespad=0.0,
        handlelength=2.6,
        labelspacing=0.35,
    )


def _head(axes: Axes, described: DescribedMarket, width: int) -> None:
    market, supply = described.market, described.supply
    total, shown = len(market.offerings), len(supply.offerings)
    which = f"{shown} of {total} offerings" if shown < total else f"{total} offerings"
    said = (
        f"{style.fits(described.name, 60)}: {which}, {described.hours / HOURS:.1f} days from "
        f"{style.utc(market.start_ns):%Y-%m-%d %H:%M} UTC, slots of {market.slot_s} s. Spot for a "
        f"job of {supply.instances} instance{'s' if supply.instances > 1 else ''}."
    )
    source = style.printable(f"source: {market.source[: 3 * width]}")
    lines = textwrap.wrap(said, width)
    lines += textwrap.wrap(
        source, width, max_lines=4 - len(lines), placeholder=" ...", break_on_hyphens=False
    )
    axes.axis("off")
    axes.text(0.0, 1.0, "\n".join(lines), va="top", fontsize=style.SMALL, linespacing=1.25)


def _nothing(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])


# --- over time --------------------------------------------------------------------------------


def binned(values: FloatArray, most: int) -> tuple[FloatArray, int]:
    """Means of as many slots each as leave at most `most` values, NaN passed over; and how many."""
    size = -(-len(values) // most)
    whole = np.full(-(-len(values) // size) * size, np.nan)
    whole[: len(values)] = values
    rows = whole.reshape(-1, size)
    counted = (~np.isnan(rows)).sum(axis=1)
    sums = np.nansum(rows, axis=1)
    means: FloatArray = np.divide(sums, counted, out=np.full(len(rows), np.nan), where=counted > 0)
    return means, size


def _draw_calendar(axes: Axes, described: DescribedMarket, shown: list[str], hours: float) -> None:
    supply = described.supply
    style.tidy(axes, "When was there enough spot? (dark: always, light: never)", grid="x")
    if not shown:
        _nothing(axes, "no spot: all offerings are reservations")
        return
    stripes, size = [], 1
    for offering in supply.offerings:
        share = np.where(offering.known, offering.there.astype(np.float64), np.nan)
        stripe, size = binned(share, _MOST_STRIPES)
        stripes.append(stripe)
    edges = _edges(described, size, len(stripes[0]))
    _heat(axes, np.array(stripes), edges)
    _rows(axes, [f"{n}  {_percent(o)}" for n, o in zip(shown, supply.offerings, strict=True)])
    begin = style.utc(described.market.start_ns)
    end = begin + timedelta(hours=hours)
    # Beyond the file's end is nothing; grey is for what it does not say.
    axes.axvspan(edges[-1], end, color="white", linewidth=0)  # type: ignore[arg-type]
    style.time_axis(axes, begin, end)


def _percent(offering: OfferingSupply) -> str:
    share = offering.share_there
    return "unknown" if share is None else f"{100 * share:3.0f} %"


def _edges(described: DescribedMarket, size: int, bins: int) -> list[Any]:
    market = described.market
    begin = style.utc(market.start_ns)
    slots = [min(market.slots, number * size) for number in range(bins + 1)]
    return [begin + timedelta(seconds=slot * market.slot_s) for slot in slots]


def _draw_prices(axes: Axes, described: DescribedMarket, shown: list[str], hours: float) -> None:
    style.tidy(axes, "What did spot cost of the on-demand price?")
    above = False
    looks = style.spread(len(shown))
    size = 1
    for offering, name, look in zip(described.supply.offerings, shown, looks, strict=True):
        ratio, size = binned(offering.price_ratio, _MOST_PRICES)
        above |= bool(offering.price_ratio.max() > style.PRICE_SCALE[1])
        edges = _edges(described, size, len(ratio))
        label = f"{name}: mean {offering.mean_price_ratio:.2f}"
        axes.stairs(ratio, edges, baseline=None, linewidth=1.4, label=label, **look)
    axes.axhline(1.0, color=style.DARK, linewidth=0.9, linestyle=":")
    axes.annotate(
        "on-demand",
        xy=(0.995, 1.0),
        xycoords=("axes fraction", "data"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL,
    )
    per = size * described.market.slot_s / S_PER_HOUR
    over = f"means of {per:.3g} h" if size > 1 else "every slot"
    axes.set_ylabel("spot / on-demand", fontsize=style.SMALL)
    axes.set_xlabel(
        f"UTC; {over}" + ("; some are above the scale" if above else ""), fontsize=style.SMALL
    )
    axes.set_ylim(*style.PRICE_SCALE)
    begin = style.utc(described.market.start_ns)
    style.time_axis(axes, begin, begin + timedelta(hours=hours))


# --- stays ------------------------------------------------------------------------------------


def stay_text(offering: OfferingSupply) -> str:
    """Median and p10 of an offering's stays, for people: a bound where the curve ends before."""
    if offering.share_there is None:
        return "counts unknown"
    curve = offering.survival
    if curve is None:
        return "never there"
    median, short = (
        f"> {style.duration(curve.longest_h)}" if hours is None else style.duration(hours)
        for hours in (curve.median_h, curve.p10_h)
    )
    return f"median {median}, p10 {short}"


def _draw_stays(axes: Axes, supply: MarketSupply, shown: list[str], *, with_price: bool) -> None:
    style.tidy(axes, "How long does spot stay, once it is there?")
    looks = style.spread(len(shown))
    for offering, name, look in zip(supply.offerings, shown, looks, strict=True):
        stays = offering.stays
        cut = f", {stays.cut} cut" if stays.cut else ""
        label = f"{name}: {stay_text(offering)} ({len(stays.hours)} stays{cut})"
        if with_price:
            label += f"; price {offering.mean_price_ratio:.2f}"
        curve = offering.survival
        if curve is None:
            axes.plot([], [], label=f"{name}: {stay_text(offering)}", **look)
            continue
        hours = np.append(curve.hours, curve.longest_h)
        hours[0] = STAY_SCALE_H[0]
        share = np.append(curve.share, curve.share[-1])
        axes.step(hours, share, where="post", linewidth=1.5, label=label, **look)
        for crossed, at in ((0.9, curve.p10_h), (0.5, curve.median_h)):
            if at is not None:
                axes.plot([at], [crossed], marker="o", markersize=4.5, color=look["color"])
    for crossed, said in ((0.5, "half stay longer: median"), (0.9, "9 of 10 stay longer: p10")):
        axes.axhline(crossed, color=style.FAINT, linewidth=0.9)
        axes.annotate(
            said,
            xy=(0.995, crossed),
            xycoords=("axes fraction", "data"),
            xytext=(0, -2),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=style.SMALL,
        )
    axes.set_xscale("log")
    axes.set_xlim(*STAY_SCALE_H)
    axes.set_ylim(0.0, 1.02)
    axes.set_xticks(_STAY_TICKS, [_hours_label(hours) for hours in _STAY_TICKS])
    axes.minorticks_off()
    axes.set_xlabel("hours since it came", fontsize=style.SMALL)
    axes.set_ylabel("share still there", fontsize=style.SMALL)


def _hours_label(hours: float) -> str:
    return f"{hours / HOURS:g} d" if hours >= HOURS else f"{hours:g} h"


# --- by hour, and together --------------------------------------------------------------------


def _draw_by_hour(axes: Axes, supply: MarketSupply, shown: list[str], *, numbers: bool) -> None:
    style.tidy(axes, "At which hour of the day? (% of the time)", grid="x")
    if not shown:
        _nothing(axes, "no spot")
        return
    shares = np.array([offering.share_by_hour for offering in supply.offerings])
    _heat(axes, shares, list(range(HOURS + 1)))
    _rows(axes, shown)
    if numbers:
        for (row, hour), share in np.ndenumerate(shares):
            if not np.isnan(share):
                axes.text(
                    hour + 0.5,
                    row,
                    f"{100 * share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=style.SMALL,
                    color="white" if share > 0.55 else style.DARK,
                )
    axes.set_xlim(0, HOURS)
    axes.set_xticks(range(0, HOURS + 1, 3))
    axes.set_xlabel("hour of the day, UTC", fontsize=style.SMALL)


def _draw_together(axes: Axes, supply: MarketSupply) -> None:
    style.tidy(axes, "How many have enough at once?", grid="y")
    if not supply.at_least:
        _nothing(axes, "counts unknown")
        return
    most = len(supply.at_least)
    counts = range(1, most + 1)
    axes.bar(counts, supply.at_least, width=0.7, color=style.SPOT)
    axes.plot(
        counts,
        supply.if_independent,
        linestyle="none",
        marker="D",
        markersize=5,
        markerfacecolor="white",
        markeredgecolor=style.DARK,
    )
    named = [str(count) for count in counts]
    if most > 1:
        named[0], named[-1] = "any", "all"
    said = [f"{n}\n{100 * share:.0f}" for n, share in zip(named, supply.at_least, strict=True)]
    axes.set_xticks(counts, said)
    axes.set_xlim(0.4, most + 0.6)
    axes.set_ylim(0.0, 1.05)
    axes.set_xlabel(
        "so many offerings or more; % of the time\n\N{WHITE DIAMOND} if each came and went by itself",
        fontsize=style.SMALL,
    )
    axes.set_ylabel("share of the time", fontsize=style.SMALL)


def _heat(axes: Axes, shares: FloatArray, edges: list[Any]) -> None:
    rows = len(shares)
    axes.set_facecolor("0.82")
    axes.pcolormesh(
        edges,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(shares),
        cmap=style.SHARES,
        vmin=0.0,
        vmax=1.0,
        edgecolors="none",
    )
    for line in range(1, rows):
        axes.axhline(line - 0.5, color="white", linewidth=1.5)
    axes.set_ylim(rows - 0.5, -0.5)


def _rows(axes: Axes, shown: list[str]) -> None:
    axes.set_yticks(range(len(shown)), shown, fontsize=style.SMALL)


def _scale(figure: Figure, axes: Axes, beside: Axes) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    beside.axis("off")
    bar = figure.colorbar(
        ScalarMappable(norm=Normalize(0.0, 1.0), cmap=style.SHARES),
        cax=axes.inset_axes((1.015, 0.0, 0.015, 1.0)),
    )
    bar.set_ticks([0.0, 0.5, 1.0])
    bar.set_label("share of the time", fontsize=style.SMALL)
    bar.ax.tick_params(labelsize=style.SMALL)
