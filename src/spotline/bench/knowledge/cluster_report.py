"""The Markdown report of `spotline bench knowledge`, and its plots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotline.bench.drawing import figure_of, tidy

REPORT_NAME = "knowledge.md"
CLUSTER_PLOT = "knowledge-cluster.png"
SAMPLES_PLOT = "knowledge-samples.png"

Figures = Mapping[str, Any]

# A palette that stays distinct for colour-blind readers and in grey.
_COLOURS = {"none": "#c9c9c9", "predicted": "#b3262e", "true": "#2a78b5"}


def write_report(figures: Figures, directory: Path) -> Path:
    """Write report and plots into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot_cluster(figures, directory / CLUSTER_PLOT)
    _plot_samples(figures, directory / SAMPLES_PLOT)
    path = directory / REPORT_NAME
    path.write_text(report_text(figures), encoding="utf-8")
    return path


def report_text(figures: Figures) -> str:
    """The report: targets first, then predictions, then the cluster."""
    lines = [
        "# Configuration knowledge",
        "",
        *_targets(figures),
        "",
        *_predictions(figures),
        "",
        *_cluster(figures),
        "",
        *_round(figures["sia_round"]),
        "",
        *_completing(figures["complete_ms"]),
        "",
        *_meta(figures["meta"]),
    ]
    return "\n".join(lines) + "\n"


def _targets(figures: Figures) -> list[str]:
    rows = figures["targets"]
    met = sum(one["met"] is True for one in rows)
    lines = [
        "## Targets",
        "",
        f"{met} of {len(rows)} met.",
        "",
        "| what | target | measured | met |",
        "| --- | --- | --- | --- |",
    ]
    for one in rows:
        said = "yes" if one["met"] else "no"
        lines.append(f"| {one['what']} | {one['target']} | {_number(one['measured'])} | {said} |")
    return lines


def _by_stack(random: Figures, left_out: Figures) -> list[str]:
    """The default source, stack by stack: median error, and share inside the intervals."""
    unseen = left_out.get("by_stack", {})
    lines = [
        "",
        "| software stack | random split, % | inside, % | a model left out, % | inside, % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for stack, row in random.get("by_stack", {}).items():
        cells = [
            number
            for one in (row, unseen.get(stack, {}))
            for number in (one.get("mdape_percent"), _percent(one.get("coverage")))
        ]
        lines.append(f"| {stack} | {' | '.join(map(_number, cells))} |")
    return lines if len(lines) > 3 else []


def _by_samples(rows: Figures) -> list[str]:
    if not rows:
        return []
    said = ", ".join(f"{count}: {_number(row['mdape_percent'])} %" for count, row in rows.items())
    return ["", f"By runs of a stack learned from (fewer stacks have more of them): {said}."]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _predictions(figures: Figures) -> list[str]:
    throughput = figures["throughput"]
    random, left_out = throughput["random_split"], throughput["leave_one_model_out"]
    validity = figures["validity"]
    lines = [
        "## Predictions",
        "",
        "Median absolute error of the throughput of measured runs, every stack for itself, "
        "configurations held out at random and models left out:",
        "",
        "| source | random split, % | a model left out, % |",
        "| --- | --- | --- |",
    ]
    for name, row in random.items():
        shown = f"**{name}**" if name == figures["default_source"] else name
        other = left_out.get(name, {}).get("mdape_percent")
        lines.append(f"| {shown} | {_number(row['mdape_percent'])} | {_number(other)} |")
    default = figures["default_source"]
    lines += _by_stack(random[default], left_out.get(default, {}))
    lines += _by_samples(throughput["by_samples"].get(default, {}))
    coverage = ", ".join(
        f"{name.replace('_', ' ')} {100 * value:.1f} %"
        for name, value in figures["interval_coverage_by_split"].items()
        if value is not None
    )
    lines += [
        "",
        f"Inside the 90 % intervals of `{figures['default_source']}`: {coverage}.",
        "",
        f"![error by samples]({SAMPLES_PLOT})",
        "",
        "Whether a run succeeds, on generated runs with the published failure statistics: "
        f"{_number(validity['error_percent'])} % wrong of all and "
        f"{_number(validity['tried_error_percent'])} % of those that break no rule; of failures, "
        f"precision {_number(validity['precision'])} and recall {_number(validity['recall'])}; "
        f"Brier score {_number(validity['brier'], 4)}.",
    ]
    if validity["real"]:
        real = validity["real"]
        lines += [
            "",
            f"On {real['runs']} real runs: precision {_number(real['precision'])} and recall "
            f"{_number(real['recall'])} of failures, Brier score {_number(real['brier'], 4)}.",
        ]
    return lines


def _cluster(figures: Figures) -> list[str]:
    lines = [
        "## Cluster",
        "",
        "Jobs run as they truly do; what a scheduler knows differs. `none`: FIFO starts every job "
        "on one GPU with the default batch, and after every failure with half of it, then with "
        "more GPUs; Sia runs every job on one GPU of each type first and learns from what it sees, "
        "at most doubling the GPUs. `predicted`: from the default source, which has never seen a "
        f"run of the job's model, method and sequence together ({figures['meta']['samples']} "
        "generated runs; `predicted_600`: from 600); on Sia's traces from a fit to half of the "
        "profile rows. `true`: the job's own law. A start costs 30 s, one that fails a minute. "
        "Sia's traces tell neither the worth of a sample in a large batch nor the work of a job: "
        "both are reconstructed (`bench/knowledge/profiles.py`).",
        "",
        f"![completion times]({CLUSTER_PLOT})",
    ]
    for name, schedulers in figures["cluster"].items():
        lines += [
            "",
            f"### {name}",
            "",
            f"{figures['cluster_notes'][name]}.",
            "",
            "| scheduler | knowledge | mean JCT, s | vs none | p99 JCT, s | makespan, s "
            "| GPU-hours | failed starts |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for scheduler, levels in schedulers.items():
            none = levels["none"]["mean_jct_s"]
            for level, row in levels.items():
                change = 100 * (row["mean_jct_s"] / none - 1)
                lines.append(
                    f"| {scheduler} | {level} | {row['mean_jct_s']:,.0f} | {change:+.0f} % | "
                    f"{row['p99_jct_s']:,.0f} | {row['makespan_s']:,.0f} | "
                    f"{row['gpu_hours']:,.0f} | {row['failed_starts']:,.0f} |"
                )
    return lines


def _round(row: Mapping[str, float]) -> list[str]:
    return [
        "## Sia's rounds",
        "",
        f"{row['rounds']:.0f} rounds of {row['jobs']:.0f} jobs on {row['gpus']:.0f} GPUs of three "
        f"types: median {row['p50_ms']:.0f} ms, p99 {row['p99_ms']:.0f} ms, longest "
        f"{row['max_ms']:.0f} ms; {100 * row['optimal_share']:.0f} % proven optimal, largest gap "
        f"{100 * row['largest_gap']:.3f} %.",
    ]


def _completing(row: Mapping[str, float]) -> list[str]:
    return [
        "## Completing a draft",
        "",
        f"{row['calls']:.0f} drafts over gRPC, one after the other, the default source having "
        f"learned {row['runs']:.0f} generated runs: median {row['p50']:.1f} ms, p99 "
        f"{row['p99']:.1f} ms, longest {row['max']:.0f} ms; the first after a slot opened "
        f"{row['new_slot']:.0f} ms. {row['options_considered']:.0f} options considered (median).",
    ]


def _meta(meta: Mapping[str, Any]) -> list[str]:
    here = meta["environment"]
    lines = [
        "## How it was run",
        "",
        f"`{meta['command']}`, {meta['wall_s']:,.0f} s; Spotline {here['spotline']}, Python "
        f"{here['python']}, {here['platform']}. Seeds of the drawn jobs: "
        f"{', '.join(str(seed) for seed in meta['seeds'])}.",
    ]
    if meta["quick"]:
        lines += ["", "**A quick run on few jobs: its figures mean nothing.**"]
    return lines


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


# --- plots ----------------------------------------------------------------------------------------


def _plot_cluster(figures: Figures, path: Path) -> None:
    cluster = figures["cluster"]
    names = list(cluster)
    figure = figure_of(10.0, 1.4 + 0.62 * len(names))
    panels = figure.subplots(1, 2, sharey=True, squeeze=False)[0]
    for axes, scheduler in zip(panels, ("fifo", "sia"), strict=True):
        for shift, (level, colour) in enumerate(_COLOURS.items()):
            values = [
                100 * one[scheduler][level]["mean_jct_s"] / one[scheduler]["none"]["mean_jct_s"]
                for one in cluster.values()
            ]
            bars = axes.barh(
                [place + 0.27 * (shift - 1) for place in range(len(names))],
                values,
                height=0.25,
                color=colour,
                label=level,
            )
            axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=7)
        axes.set_title(scheduler.upper() if scheduler == "fifo" else "Sia", fontsize=10, loc="left")
        axes.set_xlabel("mean job completion time, % of that without knowledge")
        axes.set_yticks(range(len(names)), names)
        tidy(axes, grid="x")
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path)


def _plot_samples(figures: Figures, path: Path) -> None:
    throughput = figures["throughput"]
    default = figures["default_source"]
    figure = figure_of(7.0, 3.6)
    axes = figure.subplots()
    for label, colour, section in (
        ("measured runs", "#b3262e", throughput),
        ("generated runs", "#2a78b5", throughput.get("generated", {})),
    ):
        curve = section.get("by_samples", {}).get(default, {})
        points = [
            (int(samples), row["mdape_percent"])
            for samples, row in curve.items()
            if row["mdape_percent"] is not None
        ]
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker="o", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("configurations learned from")
    axes.set_ylabel("median error, %")
    tidy(axes, grid="both")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)
