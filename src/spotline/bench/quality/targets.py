"""What decisions are meant to reach, and whether they did."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from spotline.bench.quality.cells import SPOTLINE

LEAST_PERCENT = {"10": 97.5, "20": 94.0}
LEAST_MEAN_POINTS = -0.2
WORTH_CLOSING_POINTS = 2.0
LEAST_CLOSED_PERCENT = 30.0
LEAST_KNOWN_LAW_PERCENT = 99.8
MOST_CERTIFICATE_PERCENT = 1.5
LEAST_CENSORED_POINTS = -2.0
MOST_REGRET_JOBS = {"adahedge": 2.0, "adahedge/delay-20": 8.0}
_NOISY_POLICIES = ("ahap(5,1,0.5)", "ahap(5,5,0.5)")

Target = dict[str, object]


def judged(figures: Mapping[str, Any]) -> list[Target]:
    """Every target with what was measured; `met` is None where nothing was."""
    return [
        *_families(figures["families"]),
        *_known_laws(figures["known_law"]),
        *_noise(figures["noise"]),
        *_selector(figures["selector"], figures["meta"]["selector_jobs"]),
        *_hard_information(figures),
    ]


def _target(what: str, where: str, asked: str, measured: float, *, met: bool) -> Target:
    known = math.isfinite(measured)
    return {
        "what": what,
        "where": where,
        "target": asked,
        "measured": measured if known else None,
        "met": met if known else None,
    }


def _families(families: Mapping[str, Any]) -> Iterator[Target]:
    for family, deadlines in families.items():
        for deadline, rows in deadlines.items():
            row = rows[SPOTLINE]
            where = f"{family}, d = {deadline}"
            percent = _number(row["percent_of_clairvoyant"])
            if "/" not in family:
                least = LEAST_PERCENT[deadline]
                yield _target(
                    "% of clairvoyant", where, f">= {least:g}", percent, met=percent >= least
                )
            _, mean, high = (_number(one) for one in row["vs_best_baseline_points"])
            best = row["best_baseline"]
            yield _target(
                "interval against the best baseline",
                f"{where}, against {best}",
                "upper end >= 0",
                high,
                met=high >= 0.0,
            )
            yield _target(
                "mean against the best baseline",
                f"{where}, against {best}",
                f">= {LEAST_MEAN_POINTS:g} points",
                mean,
                met=mean >= LEAST_MEAN_POINTS,
            )
            if 100.0 - (percent - mean) > WORTH_CLOSING_POINTS:
                closed = _number(row["gap_to_clairvoyant_closed_percent"])
                yield _target(
                    "share of the baseline's gap to the clairvoyant that is closed",
                    where,
                    f">= {LEAST_CLOSED_PERCENT:g} %",
                    closed,
                    met=closed >= LEAST_CLOSED_PERCENT,
                )
            yield _target(
                "hard-deadline misses", where, "0", float(row["misses"]), met=row["misses"] == 0
            )


def _known_laws(table: Mapping[str, Any]) -> Iterator[Target]:
    for name, row in table.items():
        percent = _number(row["percent_of_true_law_optimum"])
        yield _target(
            "% of the true law's optimum",
            f"{name}, learned from {row['learned_slots']} slots",
            f">= {LEAST_KNOWN_LAW_PERCENT:g}",
            percent,
            met=percent >= LEAST_KNOWN_LAW_PERCENT,
        )
        above = _number(row["certificate"]["above_percent"][2])
        yield _target(
            "ceiling of every online policy above `sdp`, upper end",
            name,
            f"<= {MOST_CERTIFICATE_PERCENT:g} %",
            above,
            met=above <= MOST_CERTIFICATE_PERCENT,
        )


def _noise(table: Mapping[str, Any]) -> Iterator[Target]:
    for share, rows in table.items():
        for policy in _NOISY_POLICIES:
            change = rows.get(policy, {}).get("vs_less_noise_points")
            if change is None:
                continue
            low = _number(change[0])
            yield _target(
                "change with more noise",
                f"{policy}, {share} % replaced",
                "lower end <= 0",
                low,
                met=low <= 0.0,
            )
        points = rows[SPOTLINE]["vs_best_ahanp_points"]
        mean = _number(points[1])
        yield _target(
            "default against the best AHANP",
            f"{share} % replaced",
            ">= 0 points",
            mean,
            met=mean >= 0.0,
        )


def _selector(table: Mapping[str, Any], jobs: int) -> Iterator[Target]:
    for way, most in MOST_REGRET_JOBS.items():
        if way in table:
            regret = _number(table[way]["regret_jobs"])
            yield _target(
                "regret in mean-job utilities",
                f"{way}, {jobs} jobs",
                f"<= {most:g}",
                regret,
                met=regret <= most,
            )
    adversary = table.get("adahedge/alternating")
    if adversary is not None:
        # Either of the adversary's two policies earns a half per job.
        most = 2.0 * adahedge_bound(jobs, 2, 1.0)
        regret = _number(adversary["regret_jobs"])
        yield _target(
            "regret in mean-job utilities",
            f"adahedge/alternating, {jobs} jobs",
            f"<= {most:.0f}, its worst case",
            regret,
            met=regret <= most,
        )


def _hard_information(figures: Mapping[str, Any]) -> Iterator[Target]:
    for section in ("censored", "decide_first"):
        for family, deadlines in figures[section].items():
            for deadline, rows in deadlines.items():
                misses = rows[SPOTLINE]["misses"]
                yield _target(
                    "hard-deadline misses",
                    f"{family}, d = {deadline}, {section.replace('_', ' ')}",
                    "0",
                    float(misses),
                    met=misses == 0,
                )
                if section == "censored":
                    yield from _censored(f"{family}, d = {deadline}", rows[SPOTLINE])


def _censored(where: str, row: Mapping[str, Any]) -> Iterator[Target]:
    points = _number(row["vs_counted_points"][1])
    yield _target(
        "counts hidden, against seeing them",
        where,
        f">= {LEAST_CENSORED_POINTS:g} points",
        points,
        met=points >= LEAST_CENSORED_POINTS,
    )
    ahead = _number(row["vs_best_baseline_points"][1])
    yield _target(
        "counts hidden, against the best rule that sees as little",
        f"{where}, against {row['best_baseline']}",
        ">= 0 points",
        ahead,
        met=ahead >= 0.0,
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def adahedge_bound(jobs: int, policies: int, spread: float) -> float:
    """Worst-case regret of AdaHedge, in the unit of `spread`; no delay, no decay.

    de Rooij, van Erven, Gruenwald, Koolen (2014), theorem 8 with its worst case; `spread` is the
    widest spread of utilities within a job.
    """
    complexity = math.log(policies)
    return spread * (math.sqrt(jobs * complexity) + 16.0 / 3.0 * complexity + 2.0)
