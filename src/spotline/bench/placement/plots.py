"""Pictures of `spotline bench placement`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from spotline.bench.drawing import figure_of, tidy

Figures = Mapping[str, Any]

SETTINGS_PLOT = "placement-settings.png"
TABLES_PLOT = "placement-tables.png"
SWEEPS_PLOT = "placement-sweeps.png"
SPEED_PLOT = "placement-pass-time.png"
MAP_PLOT = "placement-map-{}.png"

# A palette that stays distinct for colour-blind readers and in grey.
_COLOURS = {
    "spotline": "#b3262e",
    "spotline_fixed": "#dd8b8f",
    "bace_pipe": "#1d7a46",
    "lcf": "#2a78b5",
    "ldf": "#84bfe0",
    "cr_lcf": "#e07b28",
    "cr_ldf": "#f2b37e",
}
_JOB_COLOURS = (
    "#b3262e", "#2a78b5", "#e07b28", "#1d7a46", "#7a5195", "#0b9a9a", "#c2569b", "#6b4c2a",
    "#8a9a00", "#444444", "#5fa8d3", "#d08c8c",
)  # fmt: skip
_LINK, _LAND, _USED = "#c3ccd4", "#f6f8fa", "#8fa3b3"
_SWEEP_LABELS = {
    "bandwidth": "bandwidth, times the published",
    "bandwidth_heavy": "bandwidth, times the published,\nwith 64 times the activations",
    "gpus": "GPUs, times the published",
    "jobs": "jobs",
    "traffic": "activations, times those\nof first principles",
}


def plot_settings(figures: Figures, path: Path) -> None:
    """Draw JCT against cost of every method, one panel per setting."""
    settings = {name: rows for name, rows in figures["settings"].items() if rows}
    figure = figure_of(4.4 * len(settings) + 0.6, 4.3)
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for axes, (name, rows) in zip(panels, settings.items(), strict=True):
        for method, row in reversed(rows.items()):
            axes.plot(
                [row["total_cost_usd"]],
                [row["mean_jct_s"] / 3600],
                marker="D" if method.startswith("spotline") else "o",
                markersize=8,
                linestyle="",
                color=_COLOURS[method],
                label=method,
            )
        costs = [row["total_cost_usd"] for row in rows.values()]
        if min(costs) > 0 and max(costs) > 5 * min(costs):
            axes.set_xscale("log")
        axes.set_title(name, fontsize=10, loc="left")
        axes.set_xlabel("total cost, USD")
        axes.margins(0.15)
        tidy(axes, grid="both")
    panels[0].set_ylabel("mean JCT, hours")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=7, fontsize=8, frameon=False)
    figure.savefig(path)


def plot_tables(figures: Figures, path: Path) -> None:
    """Draw the spread of changes against each baseline over the drawn tables."""
    table = figures["tables"]["methods"]
    ours = ("bace_pipe", "spotline")
    figure = figure_of(10.0, 4.2)
    panels = figure.subplots(1, 2)
    for axes, (key, label) in zip(
        panels,
        (("jct_change_percents", "mean JCT"), ("cost_change_percents", "total cost")),
        strict=True,
    ):
        baselines = list(table[ours[0]])
        for offset, name in zip((-0.18, 0.18), ours, strict=True):
            drawn = axes.boxplot(
                [table[name][other][key] for other in baselines],
                positions=[place + offset for place in range(len(baselines))],
                widths=0.3,
                patch_artist=True,
                whis=(0, 100),
                medianprops={"color": "white", "linewidth": 1.6},
                boxprops={"facecolor": _COLOURS[name], "edgecolor": _COLOURS[name]},
                whiskerprops={"color": _COLOURS[name]},
                capprops={"color": _COLOURS[name]},
                manage_ticks=False,
            )
            drawn["boxes"][0].set_label(name)
        axes.axhline(0.0, color="#444444", linewidth=1.0)
        axes.set_xticks(range(len(baselines)), baselines)
        axes.set_title(f"{label}, % above the baseline", fontsize=10, loc="left")
        tidy(axes, grid="y")
    panels[0].legend(fontsize=8, frameon=False)
    figure.savefig(path)


def plot_sweeps(figures: Figures, path: Path) -> None:
    """Draw JCT and cost of every method along each sweep, medians over drawn tables."""
    sweeps = figures["sweeps"]
    figure = figure_of(3.1 * len(sweeps), 6.2)
    panels = figure.subplots(2, len(sweeps), sharex="col", squeeze=False)
    for column, (name, points) in enumerate(sweeps.items()):
        values = [float(value) for value in points]
        for row, (key, scale, label) in enumerate(
            (
                ("median_mean_jct_s", 3600.0, "median of mean JCT, hours"),
                ("median_total_cost_usd", 1.0, "median of total cost, USD"),
            )
        ):
            axes = panels[row][column]
            for method in next(iter(points.values())):
                axes.plot(
                    values,
                    [points[value][method][key] / scale for value in points],
                    marker="D" if method == "spotline" else "o",
                    markersize=4,
                    linewidth=2.2 if method in ("spotline", "bace_pipe") else 1.3,
                    color=_COLOURS[method],
                    label=method,
                )
            if name == "traffic":
                axes.set_xscale("log", base=2)
                axes.set_xticks(values, [f"{value:g}" for value in values])
            if column == 0:
                axes.set_ylabel(label)
            tidy(axes, grid="both")
        panels[1][column].set_xlabel(_SWEEP_LABELS[name], fontsize=8.5)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    figure.savefig(path)


def plot_pass_time(figures: Figures, path: Path) -> None:
    """Draw seconds of a pass by jobs and by regions, on logarithmic scales."""
    figure = figure_of(9.0, 3.8)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, key, label in zip(
        panels,
        ("jobs", "regions"),
        ("jobs in the queue (70 regions)", "regions (1,000 jobs)"),
        strict=True,
    ):
        ticks: list[int] = []
        for method, row in figures["pass_time"].items():
            points = row[f"by_{key}"]
            ticks = [int(value) for value in points]
            axes.plot(
                ticks,
                [max(point.values()) for point in points.values()],
                marker="o",
                color=_COLOURS[method],
                label=f"{method}, exponent {row[f'growth_with_{key}']:.2f}",
            )
        axes.axhline(1.0, color="#444444", linewidth=1.0, linestyle="--")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(ticks, [f"{value:,}" for value in ticks])
        axes.minorticks_off()
        axes.set_xlabel(label)
        tidy(axes, grid="both")
        # Room for the legend above the target.
        axes.set_ylim(top=6.0)
        axes.legend(fontsize=8, frameon=False, loc="upper left")
    panels[0].set_ylabel("seconds of a pass (target: 1)")
    figure.savefig(path)


# --- maps -----------------------------------------------------------------------------------------


def plot_map(pictures: Sequence[Figures], path: Path) -> None:
    """Draw the same setting under several methods, one below the other.

    Regions lie at their longitude and latitude, those of one city side by side; a disc's area is
    its GPUs, the dark part those in use. Grey lines are links, wider for more bandwidth. A coloured
    line is the path of a job that spans regions. Numbers are explained at the side, where jobs
    within one region are listed too.
    """
    where = _spots(pictures[0]["regions"])
    wide, high = _extent(where)
    lines = max(len(one["regions"]) + len(one["jobs"]) + 4 for one in pictures)
    height = max(4.6, 0.165 * lines)
    figure = figure_of(12.5, height * len(pictures))
    panels = figure.subplots(
        len(pictures), 2, squeeze=False, gridspec_kw={"width_ratios": [1.9, 1.0]}
    )
    for (axes, key), one in zip(panels, pictures, strict=True):
        numbers = {region["region_id"]: i + 1 for i, region in enumerate(one["regions"])}
        _draw_map(axes, one, where, numbers)
        axes.set_xlim(*wide)
        axes.set_ylim(*high)
        axes.set_title(
            f"{one['method']} on {one['setting']}, {one['at_s'] / 3600:.1f} h after the start",
            fontsize=10,
            loc="left",
        )
        _draw_key(key, one, numbers, lines)
    figure.savefig(path)


def _spots(regions: Sequence[Figures]) -> dict[str, tuple[float, float]]:
    """Where to draw each region: those of the same city around it."""
    longitudes = [region["longitude"] for region in regions]
    latitudes = [region["latitude"] for region in regions]
    aside = 0.035 * max(max(longitudes) - min(longitudes), 10.0)
    above = 0.045 * max(max(latitudes) - min(latitudes), 10.0)
    groups: dict[tuple[int, int], list[Figures]] = {}
    for region in regions:
        city = (round(region["longitude"]), round(region["latitude"]))
        groups.setdefault(city, []).append(region)
    where = {}
    for group in groups.values():
        for place, region in enumerate(group):
            angle = 2 * math.pi * place / len(group) + 0.4
            reach = 1.0 if len(group) > 1 else 0.0
            where[region["region_id"]] = (
                region["longitude"] + reach * aside * math.cos(angle),
                region["latitude"] + reach * above * math.sin(angle),
            )
    return where


def _extent(
    where: Mapping[str, tuple[float, float]],
) -> tuple[tuple[float, float], tuple[float, float]]:
    longitudes = [spot[0] for spot in where.values()]
    latitudes = [spot[1] for spot in where.values()]
    wide = max(longitudes) - min(longitudes)
    high = max(latitudes) - min(latitudes)
    return (
        (min(longitudes) - 0.08 * wide, max(longitudes) + 0.08 * wide),
        (min(latitudes) - 0.14 * high, max(latitudes) + 0.18 * high),
    )


def _draw_map(
    axes: Any,
    one: Figures,
    where: Mapping[str, tuple[float, float]],
    numbers: Mapping[str, int],
) -> None:
    axes.set_facecolor(_LAND)
    widest = max((link["gbit_per_s"] for link in one["links"]), default=1.0) or 1.0
    for link in one["links"]:
        here, there = (where[end] for end in link["ends"])
        axes.plot(
            [here[0], there[0]],
            [here[1], there[1]],
            color=_LINK,
            linewidth=0.25 + 3.0 * link["gbit_per_s"] / widest,
            alpha=0.6,
            zorder=1,
        )
    largest = max(region["gpus"] for region in one["regions"])
    for region in one["regions"]:
        spot = where[region["region_id"]]
        area = 130.0 + 520.0 * region["gpus"] / largest
        axes.scatter(*spot, s=area, color="white", edgecolor="#5b6b78", linewidth=1.0, zorder=3)
        if region["used"]:
            used = area * region["used"] / region["gpus"]
            axes.scatter(*spot, s=used, color=_USED, linewidth=0, zorder=4)
        axes.annotate(
            str(numbers[region["region_id"]]),
            spot,
            ha="center",
            va="center",
            fontsize=7.5,
            fontweight="bold",
            zorder=8,
        )
    _draw_jobs(axes, one, where)
    axes.set_xlabel("longitude", fontsize=8)
    axes.set_ylabel("latitude", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _colours(one: Figures) -> dict[str, str]:
    """A colour for each job that spans regions."""
    spanning = [job["job_id"] for job in one["jobs"] if len(job["path"]) > 1]
    return {job_id: _JOB_COLOURS[i % len(_JOB_COLOURS)] for i, job_id in enumerate(spanning)}


def _draw_jobs(axes: Any, one: Figures, where: Mapping[str, tuple[float, float]]) -> None:
    from matplotlib.patches import FancyArrowPatch

    colours = _colours(one)
    for place, job in enumerate(job for job in one["jobs"] if job["job_id"] in colours):
        # Jobs on one link bend apart.
        bend = 0.10 + 0.07 * (place % 5)
        ids = [region_id for region_id, _ in job["path"]]
        for here, there in pairwise(ids):
            axes.add_patch(
                FancyArrowPatch(
                    where[here],
                    where[there],
                    connectionstyle=f"arc3,rad={bend if place % 2 else -bend}",
                    arrowstyle="-|>",
                    mutation_scale=9,
                    shrinkA=9,
                    shrinkB=9,
                    linewidth=2.0,
                    color=colours[job["job_id"]],
                    zorder=5,
                )
            )


def _draw_key(axes: Any, one: Figures, numbers: Mapping[str, int], lines: int) -> None:
    """What the numbers and colours mean, line by line."""
    axes.axis("off")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(lines, 0.0)
    colours = _colours(one)
    text: list[tuple[str, str]] = [("GPUs in use, price of one per hour", "#444444")]
    text += [
        (
            f"{numbers[region['region_id']]:2d}  {_name(region['region_id'])}  "
            f"{region['used']}/{region['gpus']}, {region['usd_per_gpu_hour']:.3f} USD",
            "#111111",
        )
        for region in one["regions"]
    ]
    spanning = sum(len(job["path"]) > 1 for job in one["jobs"])
    text += [
        ("", "#111111"),
        (f"{len(one['jobs'])} jobs run, {spanning} across regions (region: GPUs)", "#444444"),
    ]
    for job in one["jobs"]:
        stages = " > ".join(f"{numbers[region_id]}: {gpus}" for region_id, gpus in job["path"])
        text.append(
            (f"{job['job_id']} {job['model']}   {stages}", colours.get(job["job_id"], "#666666"))
        )
    for line, (said, colour) in enumerate(text):
        axes.text(0.0, line + 0.5, said, fontsize=8, color=colour, va="center")


def _name(region_id: str) -> str:
    """Without the letter of a GCP zone."""
    provider, _, name = region_id.rpartition(":")
    if provider == "gcp":
        name = name.rpartition("-")[0]
    return f"{provider}:{name}" if provider else name
