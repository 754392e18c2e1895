"""The Markdown report of `spotline bench forecast`, and its plot."""

from __future__ import annotations

from pathlib import Path

from spotline.bench.forecast.families import SLOT_S
from spotline.bench.forecast.measure import HORIZON_SLOTS, FamilyResult, ForecastBench

REPORT_NAME = "forecast.md"
PLOT_NAME = "forecast.png"


def write_report(bench: ForecastBench, directory: Path) -> Path:
    """Write report and plot into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot(bench, directory / PLOT_NAME)
    path = directory / REPORT_NAME
    path.write_text(report_text(bench), encoding="utf-8")
    return path


def report_text(bench: ForecastBench) -> str:
    """The report: how to read it, one section per family."""
    lines = [
        "# Forecasts compared",
        "",
        f"Slots of {SLOT_S // 60} minutes, 1 to {HORIZON_SLOTS} steps ahead. Every forecaster "
        "learns online from the first slot on; only forecasts issued in the second half of a "
        "trace are scored. Constants were tuned on first halves.",
        "",
        "Counts are scored by the ranked probability score (CRPS), which for persistence is its "
        "absolute error; below 1.00 is better than persistence. Coverage is the share of counts "
        "inside the central 90 % interval, spread over the probability of the count that came: "
        "a calibrated forecast has 0.90.",
        "",
        f"The default is `{bench.default}`.",
        "",
        f"![CRPS against persistence]({PLOT_NAME})",
    ]
    for family in bench.families:
        lines += ["", *_section(bench, family)]
    return "\n".join(lines) + "\n"


def _section(bench: ForecastBench, family: FamilyResult) -> list[str]:
    head = " | ".join(str(step) for step in range(1, HORIZON_SLOTS + 1))
    rule = " | ".join("---" for _ in range(HORIZON_SLOTS))
    lines = [
        f"## {family.name}",
        "",
        f"{family.description[:1].upper()}{family.description[1:]}. "
        f"{family.offerings} offerings, {family.scored_slots:,} slots scored.",
        "",
        "CRPS as a multiple of persistence's, by steps ahead:",
        "",
        f"| forecaster | {head} | coverage 90 % | ms per slot and offering |",
        f"| --- | {rule} | --- | --- |",
    ]
    for name, result in family.forecasters.items():
        cells = " | ".join(f"{step.vs_persistence:.2f}" for step in result.steps)
        coverage = sum(step.coverage_90 for step in result.steps) / HORIZON_SLOTS
        shown = f"**{name}**" if name == bench.default else name
        lines.append(f"| {shown} | {cells} | {coverage:.2f} | {result.ms_per_slot:.2f} |")
    lines += [
        "",
        "Error of the price as a multiple of persistence's (inf: persistence never erred):",
        "",
        f"| forecaster | {head} |",
        f"| --- | {rule} |",
    ]
    for name, result in family.forecasters.items():
        cells = " | ".join(f"{step.price_vs_persistence:.2f}" for step in result.steps)
        lines.append(f"| {name} | {cells} |")
    lines += ["", *_worse(bench, family)]
    return lines


def _worse(bench: ForecastBench, family: FamilyResult) -> list[str]:
    """Name the single offerings on which the default is behind persistence at some step."""
    if bench.default not in family.forecasters:
        return []
    worse = []
    for offering_id, ratios in family.forecasters[bench.default].offerings:
        steps = [step for step, ratio in enumerate(ratios, start=1) if ratio > 1.0]
        if steps:
            worse.append(
                f"`{offering_id}` at steps {', '.join(map(str, steps))} (worst {max(ratios):.2f})"
            )
    if not worse:
        return [f"`{bench.default}` is no worse than persistence on any single offering."]
    return [f"`{bench.default}` is worse than persistence on {'; '.join(worse)}."]


def _plot(bench: ForecastBench, path: Path) -> None:
    # Only a report needs the plotting library, which takes long to load.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * len(bench.families), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(bench.families), sharey=True, squeeze=False)[0]
    for panel, family in zip(panels, bench.families, strict=True):
        for name, result in family.forecasters.items():
            panel.plot(
                range(1, HORIZON_SLOTS + 1),
                [step.vs_persistence for step in result.steps],
                label=name,
                linewidth=2.4 if name == bench.default else 1.2,
            )
        panel.set_title(family.name)
        panel.set_xlabel("steps ahead")
        panel.set_ylim(0.4, 1.6)
    panels[0].set_ylabel("CRPS / persistence's")
    panels[-1].legend(fontsize="small")
    figure.savefig(path, dpi=120)
