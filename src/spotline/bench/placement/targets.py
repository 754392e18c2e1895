"""What placements are meant to reach, and whether they did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spotline.bench.placement.sweeps import BASELINES, OURS, PAPER, change_percent

LEAST_JCT_LOWER_PERCENT = 27.9
AIM_JCT_LOWER_PERCENT = 64.7
LEAST_COST_LOWER_PERCENT = 12.6
MOST_GAP_PERCENT = 5.0
MOST_PASS_S = 1.0
# Twice the jobs or regions may take 2 ** 1.2 = 2.3 times as long: near-linear.
MOST_GROWTH = 1.2

Target = dict[str, Any]


def judged(figures: Mapping[str, Any]) -> list[Target]:
    """Every target with what was measured; `met` is None where nothing was."""
    return [
        *_against_baselines(
            figures["settings"]["paper"], figures["bounds"]["paper"]["most_lead_percent"]
        ),
        *_ablations(figures["ablations"]),
        *_gap(figures["exact_gap_percent"]),
        *_fits(figures["checks"]),
        *_deadlines(figures["deadlines"]),
        *_pass(figures["pass_time"]),
    ]


def _target(
    what: str,
    where: str,
    asked: str,
    measured: float | None,
    *,
    met: bool,
    at_most: float | None = None,
) -> Target:
    return {
        "what": what,
        "where": where,
        "target": asked,
        "measured": measured,
        "met": None if measured is None else met,
        "at_most": at_most,
    }


def _against_baselines(
    rows: Mapping[str, Mapping[str, float]], most: Mapping[str, float]
) -> Iterator[Target]:
    for name in (PAPER, OURS):
        for what, key, least in (
            ("mean JCT lower by %", "mean_jct_s", LEAST_JCT_LOWER_PERCENT),
            ("total cost lower by %", "total_cost_usd", LEAST_COST_LOWER_PERCENT),
        ):
            lower = {
                other: -change_percent(rows[name][key], rows[other][key]) for other in BASELINES
            }
            for other, percent in lower.items():
                yield _target(
                    what,
                    f"{name} against {other}, paper's setting",
                    f">= {least:g}",
                    percent,
                    met=percent >= least,
                    at_most=most[other] if key == "mean_jct_s" else None,
                )
            if key == "mean_jct_s":
                yield _target(
                    "mean JCT lower by %, aim",
                    f"{name} against the worst baseline, paper's setting",
                    f">= {AIM_JCT_LOWER_PERCENT:g}",
                    max(lower.values()),
                    met=max(lower.values()) >= AIM_JCT_LOWER_PERCENT,
                    at_most=max(most.values()),
                )


def _ablations(rows: Mapping[str, Mapping[str, float]]) -> Iterator[Target]:
    for name, row in rows.items():
        for what, key in (("JCT", "jct_change_percent"), ("cost", "cost_change_percent")):
            yield _target(
                f"{what} change without a stage, %",
                f"{name}, paper's setting",
                "> 0",
                row[key],
                met=row[key] > 0,
            )


def _gap(gap: Mapping[str, Any]) -> Iterator[Target]:
    for key in ("jct", "cost"):
        yield _target(
            f"mean gap to exact in {key}, %",
            f"{OURS}, {gap['queues']} queues of 2-5 jobs",
            f"<= {MOST_GAP_PERCENT:g}",
            gap[key],
            met=gap[key] <= MOST_GAP_PERCENT,
        )


def _fits(checks: Mapping[str, int]) -> Iterator[Target]:
    # An event that breaks this ends the benchmark with an error.
    yield _target(
        "events after which a region or link held more than it has",
        f"all {checks['events']:,} events of {checks['runs']:,} runs",
        "0",
        float(checks["over_committed"]),
        met=checks["over_committed"] == 0,
    )


def _deadlines(table: Mapping[str, Any]) -> Iterator[Target]:
    parts = [*table["slacks"].values(), *table["queues"].values()]
    ours = [part["methods"][OURS] for part in parts]
    taken = sum(row["deadlines"] - row["refused"] for row in ours)
    for what, key in (
        ("deadlines taken and missed without a failure", "late"),
        ("deadlines refused after a promise", "refused_after_waiting"),
    ):
        count = sum(row[key] for row in ours)
        yield _target(what, f"{OURS}, {taken} taken", "0", float(count), met=count == 0)


def _pass(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[Target]:
    for name, row in rows.items():
        yield _target(
            "seconds of a pass",
            f"{name}, 1,000 jobs x 70 regions",
            f"<= {MOST_PASS_S:g}",
            row["seconds"],
            met=row["seconds"] <= MOST_PASS_S,
        )
        for key in ("jobs", "regions"):
            growth = row[f"growth_with_{key}"]
            yield _target(
                f"growth with {key}, exponent",
                name,
                f"<= {MOST_GROWTH:g}",
                growth,
                met=growth is not None and growth <= MOST_GROWTH,
            )
