"""The placement report: failures, deadlines and interruptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotline.bench.placement.sweeps import (
    FIXED,
    OURS,
)

Figures = Mapping[str, Any]


def failures_lines(settings: Figures) -> list[str]:
    """Table of jobs struck by failures, and of what that costs."""
    lines = [
        "Two hours after the start, for six hours: a region is lost, or a link keeps 2 % of its "
        "bandwidth. Struck jobs go back to their last checkpoint and are placed anew; all others keep "
        "their placement through the event.",
        "",
        "| setting | what | method | runs | struck | untouched | finished | iterations lost | "
        "JCT % | worst | cost % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for setting, kinds in settings.items():
        for kind, rows in kinds.items():
            for name, row in rows.items():
                lines.append(
                    f"| {setting} | {kind.replace('_', ' ')} | {name} | {row['runs']} | "
                    f"{row['struck']} | {row['untouched']} | {row['finished_jobs']} of "
                    f"{row['jobs']} | {row['lost_iterations']} | "
                    f"{row['jct_change_percent']:+.1f} | {row['worst_jct_change_percent']:+.1f} | "
                    f"{row['cost_change_percent']:+.1f} |"
                )
    return lines


def deadlines_lines(table: Figures) -> list[str]:
    """Deadlines promised, kept and refused."""
    lines = [
        "Every second job is due at a multiple of its shortest time after arrival. Deadlines met by "
        "methods that take every job, and by ours, which refuses with the earliest finish there is:",
        "",
        *_met(table["slacks"], "methods"),
        "",
        "The same where the others refuse, too: a job whose place would be late when it is given, or "
        "that has waited until even empty regions could not meet its deadline (in brackets: of the "
        "refused, those who had been left waiting). *Most*: what no method can exceed, though it "
        "knows all arrivals, links carry anything, and jobs without a deadline are not there.",
        "",
        *_met(table["slacks"], "admitting"),
    ]
    if table["queues"]:
        lines += [
            "",
            "Queues of five jobs that arrive together, all due, with half the GPUs: whom to take is "
            "the whole question.",
            "",
            *_met(table["queues"], "admitting"),
        ]
    lines += [
        "",
        "With one region lost two hours in, for six hours, in turn: jobs struck, or promised what then "
        "is lost, may be late.",
        "",
        f"| multiple | deadlines | met by {OURS} | refused | taken but late | of these struck |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {slack} | {row['deadlines']} | {row['deadlines_met']} | {row['refused']} | {row['late']} | "
        f"{row['late_struck']} |"
        for slack, row in table["after_loss"].items()
    ]
    return lines


def _met(table: Figures, which: str) -> list[str]:
    """Deadlines met per method at each multiple."""
    first = next(iter(table.values()))
    names = [name for name in first["methods"] if name in first[which] or name == OURS]
    lines = [
        f"| multiple | deadlines | {' | '.join(names)} | most | refused by {OURS} | taken but late |",
        f"| --- | --- | {' | '.join('---' for _ in names)} | --- | --- | --- |",
    ]
    for slack, part in table.items():
        ours = part["methods"][OURS]
        cells = []
        for name in names:
            row = part[which].get(name, ours)
            waited = f" ({row['refused_after_waiting']})" if which == "admitting" else ""
            cells.append(f"{row['deadlines_met']}{waited}")
        lines.append(
            f"| {slack} | {ours['deadlines']} | {' | '.join(cells)} | {part['most']} | "
            f"{ours['refused']} | {ours['late']} |"
        )
    return lines


def interruptions_lines(found: Figures | None) -> list[str]:
    """What interruptions cost where spot is rented."""
    if found is None:
        return ["No data."]
    rates = ", ".join(f"{rate['ends']:.2f}" for rate in found["rates_per_hour"])
    down_h = ", ".join(f"{1 / rate['returns']:.1f}" for rate in found["rates_per_hour"])
    lines = [
        f"The rent setting with spot that is taken back: {found['runs']} runs, {found['draws']} draws "
        "for each start, the same for every method. A region is lost when an up run of its law ends "
        f"({rates} times per hour of being up) and comes back when a down run does (after {down_h} h "
        "on average). Whoever runs there loses what was done since the last checkpoint, restarts "
        "elsewhere or later, and pays for GPUs all the while and for the checkpoint's egress. In "
        "brackets: against the same without interruptions.",
        "",
        "| method | mean JCT h | cost USD | rent | egress | struck | iterations lost |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in found["methods"].items():
        lines.append(
            f"| {name} | {row['mean_jct_s'] / 3600:.2f} ({row['jct_change_percent_against_calm']:+.0f} %)"
            f" | {row['total_cost_usd']:,.0f} ({row['cost_change_percent_against_calm']:+.0f} %) | "
            f"{row['rent_usd']:,.0f} | {row['egress_usd']:,.0f} | {row['strikes']:.1f} | "
            f"{row['lost_iterations']:.0f} |"
        )
    lines += [
        "",
        "`no_risk` is not told the rates. What knowing them changes:",
        "",
        "| method | JCT % | cost % | median of runs: JCT % | cost % | cheaper in |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in (OURS, FIXED):
        mean, row = found["knowing"][f"{name}_mean"], found["knowing"][name]
        lines.append(
            f"| {name} | {mean['jct_change_percent']:+.1f} | {mean['cost_change_percent']:+.1f} | "
            f"{row['median_jct_change_percent']:+.1f} | {row['median_cost_change_percent']:+.1f} | "
            f"{row['lower_in_cost_percent_of_tables']:.0f} % |"
        )
    return lines
