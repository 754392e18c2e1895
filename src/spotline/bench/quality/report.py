"""The Markdown report of `spotline bench quality`, and its plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotline.bench.drawing import figure_of, tidy
from spotline.bench.quality.cells import BASELINES, CLAIRVOYANT, SPOTLINE

REPORT_NAME = "quality.md"
FAMILIES_PLOT = "quality-families.png"
PAIRED_PLOT = "quality-paired.png"
NOISE_PLOT = "quality-noise.png"

Figures = Mapping[str, Any]

# A palette that stays distinct for colour-blind readers and in grey.
_COLOURS = {
    SPOTLINE: "#b3262e",
    "sdp": "#2a78b5",
    "hybrid(1)": "#5fa8d3",
    "hybrid(2)": "#84bfe0",
    "hybrid(5)": "#b5d6ea",
    "ahap(1,1,0.5)": "#7a5195",
    "ahap(5,1,0.5)": "#1d7a46",
    "ahap(5,5,0.5)": "#8fbf8f",
    "ahanp(0.6)": "#e07b28",
    "msu": "#444444",
    "uniform_progress": "#8a8a8a",
    "on_demand_only": "#c9c9c9",
}
_OTHER = "#e07b28"


def write_report(figures: Figures, directory: Path) -> Path:
    """Write report and plots into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot_families(figures, directory / FAMILIES_PLOT)
    _plot_paired(figures, directory / PAIRED_PLOT)
    _plot_noise(figures, directory / NOISE_PLOT)
    path = directory / REPORT_NAME
    path.write_text(report_text(figures), encoding="utf-8")
    return path


def report_text(figures: Figures) -> str:
    """The report: targets first, then one section per family, then the tables beside them."""
    meta = figures["meta"]
    lines = [
        "# Quality of decisions",
        "",
        *_reading(meta),
        "",
        "## Targets",
        "",
        *_targets(figures["targets"]),
        "",
        f"![% of clairvoyant]({FAMILIES_PLOT})",
        "",
        f"![against the best baseline]({PAIRED_PLOT})",
    ]
    for name, deadlines in figures["families"].items():
        lines += ["", f"## {name}", ""]
        if name in meta["families"]:
            lines += [f"{_sentence(meta['families'][name])}", ""]
        for deadline, rows in deadlines.items():
            lines += [f"d = {deadline}:", "", *_policy_table(rows), ""]
        lines.pop()
    lines += [
        "",
        *_adapting(figures),
        "",
        *_known_laws(figures["known_law"]),
        "",
        *_noise(figures["noise"]),
        "",
        *_selector(figures["selector"]),
        "",
        *_information(figures),
        "",
        *_misses(figures["misses"]),
        "",
        *_meta(meta),
    ]
    return "\n".join(lines) + "\n"


def _reading(meta: Mapping[str, Any]) -> list[str]:
    return [
        "Every job needs 80 instance-slots of work and can use 1 to 12 instances (in "
        "`single-zones` one instance for 80/12 slots); slots have 30 minutes; it is worth 1.5 times "
        "its on-demand cost (`low-margin`: 1.15) until d slots, and nothing after 1.5 d. Growing "
        "and launching cost 180 s, shrinking 90 s (`heavy`: 540 s and 270 s).",
        "",
        "% of clairvoyant is 100 * sum of utilities / sum of the optima's, never a mean of ratios. "
        "The spread is the way from `on_demand_only` to the clairvoyant. Points are paired "
        "differences to the best of "
        + ", ".join(f"`{one}`" for one in BASELINES)
        + " in that family, regime and d, in percent of the clairvoyant, with a 95 % interval of a "
        "moving-block bootstrap over start times (blocks of 2 d slots, longer than any job; zones "
        "that share their time are drawn together). Misses are jobs of the same kind, starts and "
        "policies with a hard deadline that were late; for the default they count under any policy "
        "it may draw.",
        "",
        "Laws of the market are learned on the first half of every series (of `h100` on four days "
        "of seven) and then left alone; reported jobs begin after that. Forecasts are issued slot by slot by "
        f"`{meta['forecaster']}`, which knows that slot and those before. `spotline` draws each job's policy from "
        f"the weights of `{meta['rule']}` over the whole pool ({meta['policies']} policies), warm-"
        "started on jobs of the second quarter (under laws of the first) and moved by jobs whose "
        "deadline has passed; what is reported is the expectation over the draw. A job's value "
        "table is there in its first slot; in the services it comes one slot later.",
    ]


def _targets(targets: Sequence[Mapping[str, Any]]) -> list[str]:
    met = sum(one["met"] is True for one in targets)
    lines = [f"{met} of {len(targets)} met. Missed:", ""]
    missed = [one for one in targets if one["met"] is not True]
    if not missed:
        return [f"All {len(targets)} met."]
    lines += ["| what | where | target | measured |", "| --- | --- | --- | --- |"]
    for one in missed:
        measured = "not known" if one["measured"] is None else f"{one['measured']:.2f}"
        lines.append(f"| {one['what']} | {one['where']} | {one['target']} | {measured} |")
    return lines


def _policy_table(rows: Mapping[str, Any]) -> list[str]:
    lines = [
        "| policy | % of clairvoyant | points vs best baseline | spread captured | misses | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for policy, row in rows.items():
        shown = f"**{policy}**" if policy == SPOTLINE else policy
        lines.append(
            f"| {shown} | {_figure(row['percent_of_clairvoyant'])} | "
            f"{_interval(row['vs_best_baseline_points'])} | "
            f"{_figure(row['spread_captured_percent'], 1)} | {row['misses']} | {row['runs']} |"
        )
    best = rows[SPOTLINE]["best_baseline"]
    closed = _figure(rows[SPOTLINE]["gap_to_clairvoyant_closed_percent"], 0)
    lines += [
        "",
        f"Best baseline `{best}`; of its gap to the clairvoyant the default closes {closed} %.",
    ]
    return lines


def _adapting(figures: Figures) -> list[str]:
    lines = [
        "## Laws that adapt",
        "",
        "The services learn laws anew as the market goes on. Here daily, from the slots seen by "
        "then, without those before the law was seen to change, on the same jobs; % of clairvoyant, in brackets with the law of the first half:",
        "",
        "| family | d | sdp | hybrid(1) | spotline |",
        "| --- | --- | --- | --- | --- |",
    ]
    for family, deadlines in figures["adapting"].items():
        for deadline, rows in deadlines.items():
            frozen = figures["families"][family][deadline]
            cells = " | ".join(
                f"{_figure(rows[p]['percent_of_clairvoyant'])} "
                f"({_figure(frozen[p]['percent_of_clairvoyant'])})"
                for p in ("sdp", "hybrid(1)", SPOTLINE)
            )
            lines.append(f"| {family} | {deadline} | {cells} |")
    return lines


def _known_laws(table: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Markets of a known law",
        "",
        "`sdp` with a law learned from a few slots, against `sdp` with the law that makes the "
        "market, on the same paths, d = 10. Mean and least of five pasts to learn from; the "
        "standard error is that of one past's figure. The ceiling is what no online policy exceeds "
        "on average (the clairvoyant pays for what he foresees: Brown, Sun and Smith 2010), in % "
        "above `sdp` with the true law, with its 95 % interval.",
        "",
        "| market | slots | % of the true law's | least | ± | true law, % of clairvoyant | ceiling |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in table.items():
        lines.append(
            f"| {name}: {row['description']} | {row['learned_slots']} | "
            f"{_figure(row['percent_of_true_law_optimum'])} | {_figure(row['worst'])} | "
            f"{_figure(row['standard_error'])} | "
            f"{_figure(row['true_law_percent_of_clairvoyant'])} | "
            f"{_interval(row['certificate']['above_percent'])} |"
        )
    return lines


def _noise(table: Mapping[str, Any]) -> list[str]:
    policies = list(dict.fromkeys(name for rows in table.values() for name in rows))
    lines = [
        "## Noise in forecasts",
        "",
        "A share of forecasts is replaced by others that were issued for the same offering, at "
        "random; % of clairvoyant, d = 10. `spotline` judges what it is given, all others believe "
        "it.",
        "",
        f"![noise]({NOISE_PLOT})",
        "",
        f"| replaced | {' | '.join(policies)} | spotline above the best ahanp |",
        f"| --- | {' | '.join('---' for _ in policies)} | --- |",
    ]
    for share, rows in table.items():
        cells = " | ".join(
            _figure(rows[name]["percent_of_clairvoyant"]) if name in rows else ""
            for name in policies
        )
        lines.append(
            f"| {share} % | {cells} | {_interval(rows[SPOTLINE]['vs_best_ahanp_points'])} |"
        )
    return lines


def _selector(table: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Choosing a policy",
        "",
        "Ways of choosing on the jobs of the first family (base, d = 10) in the order of their "
        "arrival, from equal weights; regret against the best fixed policy in its mean utilities "
        "per job.",
        "",
        "| way | % of best fixed | regret, jobs |",
        "| --- | --- | --- |",
    ]
    for way, row in table.items():
        lines.append(
            f"| {way} | {_figure(row['percent_of_best_fixed'])} | {_figure(row['regret_jobs'])} |"
        )
    return lines


def _information(figures: Figures) -> list[str]:
    lines = ["## Less information"]
    said = {
        "censored": "Counts are known only where spot is held or was asked for.",
        "decide_first": "A slot is decided on the quote of the slot before; then the market moves "
        "and spot that is gone is lost at once.",
    }
    for section, sentence in said.items():
        for family, deadlines in figures[section].items():
            for deadline, rows in deadlines.items():
                title = section.replace("_", " ")
                lines += ["", f"### {family}, {title}, d = {deadline}", "", sentence]
                lines += ["", *_policy_table(rows)]
                behind = rows[SPOTLINE].get("vs_counted_points")
                if behind is not None:
                    lines += [
                        "",
                        f"Against seeing every count, on the same jobs: {_interval(behind)} points.",
                    ]
    lines += [
        "",
        "The clairvoyant is that of full information; the pool is a short one, since every slot is "
        "decided in Python.",
    ]
    return lines


def _misses(misses: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["## Missed hard deadlines", ""]
    if not misses:
        return [*lines, "None, under any policy shown."]
    lines += [
        "| family | d | policy | series | start | decided in slot | impossible |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in misses:
        lines.append(
            f"| {one['family']} | {one['deadline_slots']} | {one['policy']} ({one['drawn']}) | "
            f"{one['series']} | {one['start_slot']} | {one['deciding_slot']} | "
            f"{'yes' if one['impossible'] else 'no'} |"
        )
    return lines


def _meta(meta: Mapping[str, Any]) -> list[str]:
    here = meta["environment"]
    packages = ", ".join(f"{name} {version}" for name, version in here["packages"].items())
    lines = [
        "## How it was run",
        "",
        f"`{meta['command']}`, {meta['wall_s']:,.0f} s on one core; Spotline {here['spotline']}, "
        f"Python {here['python']}, {here['platform']}, {packages}. Seeds: prices "
        f"{meta['seeds']['prices']}, noise {meta['seeds']['noise']}.",
    ]
    if meta["families_without_data"]:
        absent = ", ".join(meta["families_without_data"])
        lines += ["", f"No data for: {absent}."]
    if meta["quick"]:
        lines += ["", "**A quick run on short series: its figures mean nothing.**"]
    return lines


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(points: Sequence[float | None]) -> str:
    low, mean, high = (_figure(one) for one in points)
    return f"{mean} [{low}, {high}]"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# --- plots ------------------------------------------------------------------------------------


def _plot_families(figures: Figures, path: Path) -> None:
    base = {name: rows for name, rows in figures["families"].items() if "/" not in name}
    deadlines = list(next(iter(base.values())))
    figure = figure_of(10.0, 1.6 + 0.62 * len(base))
    panels = figure.subplots(1, len(deadlines), sharey=True, squeeze=False)[0]
    names = list(base)
    least = 100.0
    for axes, deadline in zip(panels, deadlines, strict=True):
        for place, family in enumerate(names):
            rows = base[family][deadline]
            for policy in _ordered(rows):
                percent = rows[policy]["percent_of_clairvoyant"]
                if percent is None or policy == "on_demand_only":
                    continue
                least = min(least, percent)
                axes.plot(
                    [percent],
                    [place],
                    marker="D" if policy == SPOTLINE else "o",
                    markersize=8 if policy == SPOTLINE else 6,
                    color=_COLOURS.get(policy, _OTHER),
                    linestyle="",
                    alpha=0.9,
                    label=policy if place == 0 else "",
                )
        axes.set_title(f"d = {deadline}", fontsize=10, loc="left")
        axes.set_xlabel("% of the clairvoyant's utility")
        axes.set_yticks(range(len(names)), names)
        tidy(axes, grid="both")
    for axes in panels:
        axes.set_xlim(max(0.0, least - 1.0), 100.2)
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path)


def _ordered(rows: Mapping[str, Any]) -> list[str]:
    """The default last, so that it is drawn on top."""
    return [name for name in rows if name not in (SPOTLINE, CLAIRVOYANT)] + [SPOTLINE]


def _plot_paired(figures: Figures, path: Path) -> None:
    labels, points = [], []
    for family, deadlines in figures["families"].items():
        for deadline, rows in deadlines.items():
            low, mean, high = rows[SPOTLINE]["vs_best_baseline_points"]
            if mean is None:
                continue
            labels.append(f"{family}, d = {deadline}  (vs {rows[SPOTLINE]['best_baseline']})")
            points.append((low, mean, high))
    figure = figure_of(9.0, 1.2 + 0.24 * len(points))
    axes = figure.subplots()
    for place, (low, mean, high) in enumerate(points):
        axes.plot([low, high], [place, place], color=_COLOURS["sdp"], linewidth=2.0)
        axes.plot([mean], [place], marker="D", markersize=5, color=_COLOURS[SPOTLINE])
    axes.axvline(0.0, color="#444444", linewidth=1.0)
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("spotline above the best baseline, points of the clairvoyant (95 % interval)")
    tidy(axes, grid="x")
    figure.savefig(path)


def _plot_noise(figures: Figures, path: Path) -> None:
    table = figures["noise"]
    figure = figure_of(8.0, 4.2)
    axes = figure.subplots()
    policies = list(dict.fromkeys(name for rows in table.values() for name in rows))
    for policy in policies:
        seen = [
            (int(share), rows[policy]["percent_of_clairvoyant"])
            for share, rows in table.items()
            if policy in rows and rows[policy]["percent_of_clairvoyant"] is not None
        ]
        axes.plot(
            [share for share, _ in seen],
            [percent for _, percent in seen],
            marker="D" if policy == SPOTLINE else "o",
            color=_COLOURS.get(policy, _OTHER),
            linewidth=2.2 if policy == SPOTLINE else 1.4,
            label=policy,
        )
    axes.set_xlabel("% of forecasts replaced at random")
    axes.set_ylabel("% of the clairvoyant's utility")
    tidy(axes, grid="both")
    axes.legend(loc="center left", bbox_to_anchor=(1.005, 0.5), fontsize=8, frameon=False)
    figure.savefig(path)
