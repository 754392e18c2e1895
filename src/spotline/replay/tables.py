"""Numbers as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from spotline.replay.summary import SPOTLINE, PolicySummary

_MOST_WEIGHTS = 8
_ALWAYS = {SPOTLINE, "on_demand_only"}


def policy_table(
    policies: Mapping[str, PolicySummary],
    clairvoyant: PolicySummary | None,
    *,
    title: str,
    most: int = 0,
) -> Table:
    """One row per policy, the best first, and the clairvoyant; `most` > 0 keeps the best ones.

    `spotline` and the on-demand baseline are always shown.
    """
    table = plain_table(title, "policy")
    for heading in (
        "cost\nUSD",
        "on time",
        "utility\nUSD",
        "lost by\nlateness",
        "% of clair-\nvoyant",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    timed = any(numbers.decisions_per_s is not None for numbers in policies.values())
    if timed:
        table.add_column("decisions\nper s", justify="right", no_wrap=True)
    ordered = sorted(policies.items(), key=lambda item: (-item[1].mean_utility_usd, item[0]))
    kept = {name for name, _ in ordered[: most or len(ordered)]} | _ALWAYS
    for name, summary in ordered:
        if name in kept:
            style = "bold" if name == SPOTLINE else ""
            table.add_row(name, *_numbers(summary, timed), style=style)
    if clairvoyant is not None:
        table.add_section()
        table.add_row("clairvoyant", *_numbers(clairvoyant, timed), style="dim")
    if len(kept & policies.keys()) < len(policies):
        table.caption = f"the best {most} of {len(policies)} policies"
        table.caption_justify = "left"
    return table


def weights_table(weights: Sequence[tuple[str, int]], rounds: int) -> Table:
    """The heaviest policies, and what is left for all others."""
    table = plain_table(f"Learned weights after {rounds} rounds", "policy")
    table.add_column("weight", justify="right")
    for name, weight_ppb in weights[:_MOST_WEIGHTS]:
        table.add_row(name, f"{weight_ppb / 1e7:.1f} %")
    rest = weights[_MOST_WEIGHTS:]
    if rest:
        share = sum(weight_ppb for _, weight_ppb in rest) / 1e7
        table.add_row(f"{len(rest)} others", f"{share:.1f} %", style="dim")
    return table


def _numbers(summary: PolicySummary, timed: bool) -> list[str]:
    share = summary.percent_of_clairvoyant
    cells = [
        f"{summary.mean_cost_usd:,.2f}",
        f"{summary.on_time_fraction:.1%}",
        f"{summary.mean_utility_usd:,.2f}",
        f"{summary.late_value_loss_usd:,.2f}",
        "-" if share is None else f"{share:.2f}",
    ]
    if timed:
        rate = summary.decisions_per_s
        cells.append("" if rate is None else f"{rate:,.0f}")
    return cells


def plain_table(title: str, first: str) -> Table:
    """A table with its first column, in the style all share."""
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column(first, overflow="fold")
    return table
