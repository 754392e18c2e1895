"""The noise ladder: what decisions lose when forecasts are replaced at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spotline.bench.quality.cells import (
    CLAIRVOYANT,
    COLUMN,
    SPOTLINE,
    Cell,
    Course,
    Density,
    Forecasts,
    run_cell,
)
from spotline.bench.quality.episodes import BASE, joined, program_of, replay_series
from spotline.bench.quality.families import Family
from spotline.bench.quality.forecasts import Said, window_forecasts, with_noise
from spotline.bench.quality.statistics import FloatArray, bootstrap_points, percent
from spotline.domain.policies.registry import policy_named

SHARES_PERCENT = (0, 10, 25, 50, 75, 100)
NOISE_SEEDS = (31, 32, 33)
FORECAST_POLICIES = ("ahap(1,1,0.5)", "ahap(5,1,0.5)", "ahap(5,5,0.5)", "hybrid(1)", "hybrid(5)")
AHANP = tuple(name for name in COLUMN if name.startswith("ahanp("))
DEADLINE_SLOTS = 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rung:
    """One share of noise: utilities by policy, micro-USD, mean over the seeds, shape (jobs,)."""

    cell: Cell
    unjudged: Mapping[str, FloatArray]
    spotline: FloatArray


def noise_table(
    family: Family,
    courses: Sequence[Course],
    said: Sequence[Said],
    density: Density,
    *,
    shares_percent: Sequence[int] = SHARES_PERCENT,
    seeds: Sequence[int] = NOISE_SEEDS,
) -> dict[str, dict[str, object]]:
    """Replay a family with more and more of its forecasts replaced.

    Policies that use forecasts are given all of them, believable or not; `spotline` judges them
    first, as it does in the services. Rehearsals had the same share of noise. By share in percent:
    per policy the % of the clairvoyant and, for those that use forecasts, the paired change
    against the rung before in points with its interval; for `spotline` also what it is above the
    best AHANP.
    """
    table: dict[str, dict[str, object]] = {}
    before: _Rung | None = None
    for share in shares_percent:
        rung = _rung(family, courses, said, density, share, seeds if share else seeds[:1])
        table[str(share)] = _rows(rung, before)
        before = rung
    return table


def _rung(
    family: Family,
    courses: Sequence[Course],
    said: Sequence[Said],
    density: Density,
    share_percent: int,
    seeds: Sequence[int],
) -> _Rung:
    unjudged: dict[str, list[FloatArray]] = {name: [] for name in FORECAST_POLICIES}
    spotline: list[FloatArray] = []
    cell: Cell | None = None
    for seed in seeds:
        noisy = [with_noise(one, share_percent / 100.0, seed) for one in said]
        placed = _placed(courses, noisy, judged=True)
        cell = run_cell(family, placed, BASE, DEADLINE_SLOTS, density, adapt=False, strict=False)
        spotline.append(cell.utility(SPOTLINE))
        utility = _unjudged(cell, _placed(courses, noisy, judged=False))
        for column, name in enumerate(FORECAST_POLICIES):
            unjudged[name].append(utility[:, column])
    if cell is None:
        raise ValueError("a ladder needs a seed")
    return _Rung(
        cell=cell,
        unjudged={name: np.mean(runs, axis=0) for name, runs in unjudged.items()},
        spotline=np.mean(spotline, axis=0),
    )


def _placed(courses: Sequence[Course], said: Sequence[Said], *, judged: bool) -> list[Course]:
    forecasts: Forecasts = {
        (one.together, one.name, one.world): found[one.name]
        for group in said
        for found in (window_forecasts(group, judged=judged),)
        for one in group.series
    }
    return [course.told(forecasts) for course in courses]


def _unjudged(cell: Cell, courses: Sequence[Course]) -> FloatArray:
    """What the same jobs earn under those that use forecasts, shape (jobs, policies)."""
    policies = [policy_named(name) for name in FORECAST_POLICIES]
    parts = []
    for index, one in enumerate(courses):
        program = program_of(
            BASE, cell.family.size, DEADLINE_SLOTS, one.series.on_demand_price, hard=False
        )
        starts = cell.soft.start[cell.soft.series == index]
        parts.append(
            replay_series(index, program, one.market, policies, one.frozen, starts, optimum=False)
        )
    return joined(parts).utility.astype(np.float64)


def _rows(rung: _Rung, before: _Rung | None) -> dict[str, object]:
    cell = rung.cell
    optimum = cell.utility(CLAIRVOYANT)
    rows: dict[str, object] = {}
    for name, utility in rung.unjudged.items():
        row: dict[str, object] = {"percent_of_clairvoyant": percent(utility, optimum)}
        if before is not None:
            row["vs_less_noise_points"] = _points(cell, utility - before.unjudged[name])
        rows[name] = row
    best = max(AHANP, key=lambda name: float(cell.utility(name).sum()))
    rows[best] = {"percent_of_clairvoyant": percent(cell.utility(best), optimum)}
    rows[SPOTLINE] = {
        "percent_of_clairvoyant": percent(rung.spotline, optimum),
        "vs_best_ahanp_points": _points(cell, rung.spotline - cell.utility(best)),
    }
    return rows


def _points(cell: Cell, difference: FloatArray) -> list[float]:
    return list(
        bootstrap_points(
            difference,
            cell.utility(CLAIRVOYANT),
            cell.lines,
            block_slots=2 * DEADLINE_SLOTS,
            seed=NOISE_SEEDS[0],
        )
    )
