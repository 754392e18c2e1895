"""The Markdown report of `spotline bench placement`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotline.bench.placement.plots import (
    MAP_PLOT,
    SETTINGS_PLOT,
    SPEED_PLOT,
    SWEEPS_PLOT,
    TABLES_PLOT,
    plot_map,
    plot_pass_time,
    plot_settings,
    plot_sweeps,
    plot_tables,
)
from spotline.bench.placement.report_events import (
    deadlines_lines,
    failures_lines,
    interruptions_lines,
)
from spotline.bench.placement.report_paper import ablations_lines, claims_lines, readings_lines
from spotline.bench.placement.sweeps import (
    BASELINES,
    OURS,
    PAPER,
    change_percent,
)
from spotline.bench.placement.targets import LEAST_JCT_LOWER_PERCENT

REPORT_NAME = "placement.md"

Figures = Mapping[str, Any]


def write_report(figures: Figures, directory: Path) -> Path:
    """Write report and plots into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    plot_settings(figures, directory / SETTINGS_PLOT)
    plot_tables(figures, directory / TABLES_PLOT)
    plot_sweeps(figures, directory / SWEEPS_PLOT)
    plot_pass_time(figures, directory / SPEED_PLOT)
    for setting, pictures in _by_setting(figures).items():
        plot_map(pictures, directory / MAP_PLOT.format(setting))
    path = directory / REPORT_NAME
    path.write_text(report_text(figures), encoding="utf-8")
    return path


def _by_setting(figures: Figures) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {}
    for picture in figures["pictures"]:
        found.setdefault(picture["setting"], []).append(picture)
    return found


def report_text(figures: Figures) -> str:
    """The report: targets first, then what was measured, then how."""
    sections = [
        ["# Placing pipelines over regions", "", *_reading()],
        ["## Targets", "", *_targets(figures["targets"])],
        ["## Settings", "", *_settings(figures)],
        ["## Drawn tables", "", *_tables(figures["tables"])],
        ["## What is possible at all", "", *_bounds(figures)],
        ["## Ablations", "", *ablations_lines(figures)],
        ["## What the paper reports", "", *claims_lines(figures)],
        ["## Other readings of the paper", "", *readings_lines(figures)],
        ["## Sweeps", "", *_sweeps(figures)],
        ["## Gap to the exact placement", "", *_gap(figures["exact_gap_percent"])],
        ["## Failures", "", *failures_lines(figures["failures"])],
        ["## Deadlines", "", *deadlines_lines(figures["deadlines"])],
        ["## Interruptions", "", *interruptions_lines(figures.get("interruptions"))],
        ["## Time of a pass", "", *_pass_time(figures["pass_time"])],
        ["## Where jobs run", "", *_maps(figures)],
        ["## What was assumed", "", *_assumed(figures["meta"])],
        ["## How it was run", "", *_meta(figures)],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections) + "\n"


def _reading() -> list[str]:
    return [
        "JCT is completion minus arrival, mean over jobs. Cost is what GPUs cost while they are held "
        "(power or rent) and egress. A change is in percent of the other method's figure; below zero "
        "is better.",
        "",
        "`lcf`, `ldf`, `cr_lcf`, `cr_ldf` are the paper's baselines (arXiv:2605.25375), `bace_pipe` "
        "its three stages, `spotline` ours: GPUs, egress and interruptions priced with the path, and "
        "running jobs moved where that pays; `spotline_fixed` is ours without moving anybody.",
    ]


def _targets(targets: Sequence[Figures]) -> list[str]:
    met = sum(one["met"] is True for one in targets)
    lines = [
        f"{met} of {len(targets)} met.",
        "",
        "| what | where | target | measured | possible | |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for one in targets:
        said = {True: "met", False: "**missed**", None: "not known"}[one["met"]]
        possible = "" if one["at_most"] is None else f"<= {one['at_most']:.2f}"
        lines.append(
            f"| {one['what']} | {one['where']} | {one['target']} | {_figure(one['measured'])} | "
            f"{possible} | {said} |"
        )
    lines += [
        "",
        "*Possible*: no method can do better than this against that baseline in this setting; see "
        "below.",
    ]
    return lines


def _settings(figures: Figures) -> list[str]:
    lines = [f"![JCT and cost]({SETTINGS_PLOT})"]
    for name, rows in figures["settings"].items():
        if not rows:
            lines += ["", f"`{name}`: no data."]
            continue
        lines += [
            "",
            f"### {name}",
            "",
            _about(name, figures),
            "",
            "| method | mean JCT h | p99 h | makespan h | mean wait h | cost USD | energy | rent | "
            "egress | across regions | moves | struck |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for method, row in rows.items():
            hours = " | ".join(
                f"{row[key] / 3600:.2f}"
                for key in ("mean_jct_s", "p99_jct_s", "makespan_s", "mean_wait_s")
            )
            usd = " | ".join(
                f"{row[key]:,.1f}"
                for key in ("total_cost_usd", "energy_usd", "rent_usd", "egress_usd")
            )
            counts = " | ".join(f"{row[key]:.1f}" for key in ("spanning", "moves", "strikes"))
            shown = f"**{method}**" if method in (PAPER, OURS) else method
            lines.append(f"| {shown} | {hours} | {usd} | {counts} |")
    return lines


def _about(name: str, figures: Figures) -> str:
    if name == "paper":
        return "Our table, eight jobs; no egress, as in the paper."
    starts = ", ".join(figures["real_starts"][name])
    energy = name == "real_energy" or (name == "real" and figures["meta"]["basis"] == "energy")
    what = (
        "18 European regions, power at the hourly day-ahead price, 16 jobs"
        if energy
        else "8 GCP regions with A100-40GB, spot rent that is never taken back, 8 jobs"
    )
    return f"{what}; egress is paid. Means over runs that start on {starts}."


def _tables(tables: Figures) -> list[str]:
    lines = [
        f"{tables['count']} tables with GPUs, bandwidth, prices and jobs drawn; change against each "
        "baseline: median, worst table, and in how many tables it is below zero.",
        "",
        f"![drawn tables]({TABLES_PLOT})",
        "",
        "| method | against | JCT median % | worst | lower in | cost median % | worst | lower in |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, others in tables["methods"].items():
        for other, row in others.items():
            lines.append(f"| {name} | {other} | {_spread(row, 'jct')} | {_spread(row, 'cost')} |")
    return lines


def _spread(row: Figures, key: str) -> str:
    return (
        f"{row[f'median_{key}_change_percent']:+.1f} | {row[f'worst_{key}_change_percent']:+.1f} | "
        f"{row[f'lower_in_{key}_percent_of_tables']:.0f} %"
    )


def _bounds(figures: Figures) -> list[str]:
    bounds, grid = figures["bounds"], figures["readings"]
    paper, tables = bounds["paper"], bounds["tables"]
    asked = LEAST_JCT_LOWER_PERCENT
    lines = [
        "Nobody can be done sooner than alone, from arrival on, at K* stages that never wait for the "
        "network; nor can the jobs together, if all GPUs were one machine that does the least GPU "
        "time of each, shortest rest first. The greater of the two means is a bound on the mean JCT of "
        "any method, whatever it knows and moves. In the paper's setting it is "
        f"{paper['mean_jct_s'] / 3600:.2f} h. The lead over a baseline is possible up to:",
        "",
        "| against | our table % | drawn tables: median % | of which "
        f"{asked:g} % is possible in | readings: {asked:g} % is possible in |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in BASELINES:
        row = tables["against"][name]
        able = sum(one["most_lead_percent"][name] >= asked for one in grid)
        lines.append(
            f"| {name} | {paper['most_lead_percent'][name]:.1f} | {row['median_percent']:.1f} | "
            f"{row['possible_in']} of {tables['tables']} | {able} of {len(grid)} |"
        )
    whole = sum(all(one["most_lead_percent"][o] >= asked for o in BASELINES) for one in grid)
    lines += [
        "",
        f"Against all four at once it is possible in {tables['possible_against_all_in']} of "
        f"{tables['tables']} drawn tables and in {whole} of {len(grid)} readings (medians over the "
        "tables of a reading). Where it is not, the baselines are too close to the best there is, "
        "not the method too far from it.",
    ]
    return lines


def _sweeps(figures: Figures) -> list[str]:
    lines = [f"![sweeps]({SWEEPS_PLOT})"]
    for name, points in figures["sweeps"].items():
        methods = list(next(iter(points.values())))
        lines += [
            "",
            f"### {name.replace('_', ', ')}{' traffic (x64)' if name == 'bandwidth_heavy' else ''}",
            "",
            "Median over drawn tables: mean JCT in hours / cost in USD.",
            "",
            f"| {name.partition('_')[0]} | {' | '.join(methods)} | {PAPER} against {', '.join(BASELINES)}: JCT % |",
            f"| --- | {' | '.join('---' for _ in methods)} | --- |",
        ]
        for value, rows in points.items():
            cells = " | ".join(
                f"{row['median_mean_jct_s'] / 3600:.2f} / {row['median_total_cost_usd']:.0f}"
                for row in rows.values()
            )
            ours = rows[PAPER]["median_mean_jct_s"]
            against = ", ".join(
                f"{change_percent(ours, rows[other]['median_mean_jct_s']):+.1f}"
                for other in BASELINES
            )
            times = "" if name == "jobs" else "x"
            lines.append(f"| {times}{value} | {cells} | {against} |")
    return lines


def _gap(gap: Figures) -> list[str]:
    lines = [
        f"{gap['queues']} queues of two to five jobs that arrive together on drawn tables, run to "
        "their end; `exact` places each moment's queue as a whole for the weighed sum of time and "
        f"money ({gap['proven_percent']:.0f} % of its placements proven), so one of JCT and cost may "
        "come out below it. Without moves of running jobs.",
        "",
        "| method | JCT mean % | worst | cost mean % | worst |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, row in gap["methods"].items():
        lines.append(
            f"| {name} | {row['jct']:+.2f} | {row['worst_jct']:+.2f} | {row['cost']:+.2f} | "
            f"{row['worst_cost']:+.2f} |"
        )
    return lines


def _pass_time(rows: Figures) -> list[str]:
    lines = [
        "Seconds of one pass over 1,000 jobs and 70 regions: nothing running (empty), half of what "
        "fits running (busy), and a few GPUs left everywhere behind links that are too narrow, so "
        "that a path is searched for every job and none is found (starved); busy, and every job due at "
        "once to three times its shortest time from now (due). Growth is the exponent "
        "of a power law through the slowest of these: 1 is linear.",
        "",
        f"![pass time]({SPEED_PLOT})",
        "",
        "| method | empty | busy | starved | due | growth with jobs | growth with regions |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        lines.append(
            f"| {name} | {row['empty_s']:.3f} | {row['busy_s']:.3f} | "
            f"{row['starved_s']:.3f} | {row['due_s']:.3f} | {_figure(row['growth_with_jobs'])} | "
            f"{_figure(row['growth_with_regions'])} |"
        )
    return lines


def _maps(figures: Figures) -> list[str]:
    lines = [
        "The moment at which most jobs span regions. A disc's area is the region's GPUs, its dark "
        "part those in use; grey lines are links, wider for more bandwidth; a coloured line is a job's "
        "pipeline.",
    ]
    for setting in _by_setting(figures):
        lines += ["", f"![{setting}]({MAP_PLOT.format(setting)})"]
    return lines


def _assumed(meta: Figures) -> list[str]:
    lines = [
        "Our table for the paper's setting, within its published ranges and written down before "
        "anything was run:",
        "",
        "| region | A6000 | Gbit/s | USD per kWh |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {site['region_id']} | {site['gpus']} | {site['gbit_per_s']:g} | {site['usd_per_kwh']} |"
        for site in meta["paper_table"]
    ]
    lines += [
        "",
        "Profiles from first principles: 6 FLOPs per parameter and token at 40 % of the GPU's dense "
        "16-bit rate, sequences of 4096 tokens, 64 micro-batches, 2 bytes per activation, 3 ms per "
        "micro-batch and stage for launching, 16 bytes per parameter in 80 % of the memory; at least "
        "one layer per stage. The last column is what one job asks of a link at K* stages.",
        "",
        "| GPU | model | compute s | MB per boundary | least GPUs | K* | iteration s | Gbit/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for gpu, rows in meta["profiles"].items():
        lines += [
            f"| {gpu} | {row['model']} | {row['compute_s']:.1f} | {row['activation_mb']:.0f} | "
            f"{row['min_gpus']} | {row['best_gpus']} | {row['iteration_s']:.1f} | "
            f"{row['demand_gbit_per_s']:.1f} |"
            for row in rows
        ]
    lines += [
        "",
        "Against links of 25-100 Gbit/s such jobs are small: the network of the paper's setting "
        "hardly matters unless what is sent is far more than activations are (see the sweep of "
        "traffic).",
        "",
        "Real settings: bandwidth measured between two VMs times the 8-GPU machines at either end, at "
        "most 8; GPUs per region are 16, 32 and 64 in turn; electricity is the day-ahead price of the "
        "region's bidding zone at 1.08 USD per EUR, without taxes, network charges and cooling. GCP "
        "does not publish how often spot is taken back: the interruptions are those of the run laws of "
        "nine AWS zones (V100, 2023), dealt to the regions in the order of names and shifted by one "
        "from start to start.",
        "",
        "What a second of a job is worth to `spotline` (1.25 seconds of its K* GPUs) was chosen on 30 "
        "drawn tables that are not among those reported: the most at which the median cost still lay "
        "12.6 % below every baseline's. How a checkpoint's egress is guessed was chosen on draws of "
        "interruptions that are not reported.",
    ]
    return lines


def _meta(figures: Figures) -> list[str]:
    meta = figures["meta"]
    here = meta["environment"]
    packages = ", ".join(f"{name} {number}" for name, number in here["packages"].items())
    lines = [
        f"`{meta['command']}`, {meta['wall_s']:,.0f} s on one core; {figures['checks']['runs']:,} "
        f"runs, {figures['checks']['passes']:,} passes; Spotline {here['spotline']}, Python "
        f"{here['python']}, {here['platform']}, {packages}."
    ]
    if meta["settings_without_data"]:
        lines += ["", f"No data for: {', '.join(meta['settings_without_data'])}."]
    if meta["quick"]:
        lines += ["", "**A quick run on few tables: its figures mean little.**"]
    return lines


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
