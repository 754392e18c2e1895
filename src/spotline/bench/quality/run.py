"""`spotline bench quality`: every family, regime and deadline, and the tables beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.eventlog.manifest import environment
from spotline.bench.drawing import without_nan
from spotline.bench.quality.cells import (
    POLICY_IDS,
    SHOWN,
    SPOTLINE,
    Cell,
    Course,
    Density,
    Forecasts,
    courses_of,
    run_cell,
    under_laws,
)
from spotline.bench.quality.episodes import BASE, DEADLINES_SLOTS, REGIMES, program_of
from spotline.bench.quality.families import (
    FAMILY_NAMES,
    PRICE_SEEDS,
    SLOT_S,
    Family,
    load_families,
)
from spotline.bench.quality.forecasts import (
    Said,
    forecast_family,
    uncounted_forecasts,
    window_forecasts,
)
from spotline.bench.quality.information import points_behind, run_counted, run_information
from spotline.bench.quality.known_law import known_law_table
from spotline.bench.quality.misses import listed_misses
from spotline.bench.quality.noise import NOISE_SEEDS, SHARES_PERCENT, noise_table
from spotline.bench.quality.selector import selector_table
from spotline.bench.quality.targets import judged
from spotline.domain.certificates.certificate import MOST_ENTRIES
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.selection.rules import DEFAULT_RULE
from spotline.domain.units import MICRO_USD_PER_USD, cost_micro_usd
from spotline.replay.clouds import Information

Table = dict[str, dict[str, object]]
Tell = Callable[[str], None]

# The first of them that is there also serves the noise ladder and the selector.
_LEADING = FAMILY_NAMES[0]
_HARD_INFORMATION = ("16-node", "single-zones")
_SELECTOR_DEADLINE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityExtent:
    """How much is run. Counts of jobs are per series, `dense` those of the leading family's base.

    `relearn_slots` is how often laws are learned anew where they may adapt, `known_law_entries` how
    finely foresight is charged on known laws.
    """

    base: Mapping[int, Density] = field(
        default_factory=lambda: {
            10: Density(reported=60, rehearsed=24),
            20: Density(reported=40, rehearsed=24),
        }
    )
    other: Mapping[int, Density] = field(
        default_factory=lambda: {
            10: Density(reported=40, rehearsed=24),
            20: Density(reported=30, rehearsed=24),
        }
    )
    dense: Density = field(default_factory=lambda: Density(reported=400, rehearsed=24))
    aside: Density = field(default_factory=lambda: Density(reported=40, rehearsed=24))
    selector_jobs: int = 1000
    known_law_jobs: int = 4000
    known_law_pasts: int = 5
    known_law_futures: int = 400
    known_law_entries: int = MOST_ENTRIES
    noise_shares_percent: tuple[int, ...] = SHARES_PERCENT
    noise_seeds: tuple[int, ...] = NOISE_SEEDS
    relearn_slots: int = 48
    most_series: int | None = None
    most_slots: int | None = None


FULL = QualityExtent()
_FEW = Density(reported=6, rehearsed=4)
QUICK = QualityExtent(
    base={10: _FEW, 20: _FEW},
    other={10: _FEW, 20: _FEW},
    dense=_FEW,
    aside=_FEW,
    selector_jobs=50,
    known_law_jobs=60,
    known_law_pasts=1,
    known_law_futures=20,
    noise_shares_percent=(0, 100),
    noise_seeds=NOISE_SEEDS[:1],
    most_series=2,
    most_slots=240,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A family with its forecasts."""

    family: Family
    said: tuple[Said, ...]
    courses: tuple[Course, ...]


def run_quality(
    data: Path,
    *,
    extent: QualityExtent = FULL,
    names: Sequence[str] = (),
    forecaster: str = DEFAULT_FORECASTER,
    command: str = "",
    censored: bool = False,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:
    """Run the benchmark; the figures as `--json` writes them.

    Equal arguments and versions give equal figures, but for `meta.wall_s`.

    Parameters
    ----------
    data
        Folder of the recorded data.
    extent
        How much is run.
    names
        Families to run; none means all.
    command
        How it was called, for the record.
    censored
        Hide counts in a run of every family, not of a few.
    tell
        Is told what is being done, line by line.

    Raises
    ------
    ContractError
        A family is unknown, a file breaks its format, or no family's data is there.
    """
    began_s = time.perf_counter()
    families, missing = load_families(data, names=names, most_slots=extent.most_slots)
    figures: dict[str, Any] = {
        "families": {},
        "adapting": {},
        "known_law": {},
        "noise": {},
        "selector": {},
        "censored": {},
        "decide_first": {},
        "misses": [],
    }
    selector_jobs = 0
    leading = next((one.name for one in families if one.name == _LEADING), families[0].name)
    for whole in families:
        tell(f"{whole.name}: forecasting {len(whole.series)} series")
        prepared = _prepare(_fewer(whole, extent.most_series), forecaster, extent)
        first = _regimes(figures, prepared, extent, tell, dense=whole.name == leading)
        if whole.name == leading:
            tell(f"{whole.name}: selector, noise")
            figures["selector"] = _selector(first, extent)
            selector_jobs = min(extent.selector_jobs, int(first.soft.start.size))
            figures["noise"] = noise_table(
                prepared.family,
                prepared.courses,
                prepared.said,
                extent.aside,
                shares_percent=extent.noise_shares_percent,
                seeds=extent.noise_seeds,
            )
        if whole.name in _HARD_INFORMATION or censored:
            tell(f"{whole.name}: less information")
            _censored(figures, prepared, extent)
        if whole.name in _HARD_INFORMATION:
            _decide_first(figures, prepared, extent)
    tell("known laws")
    figures["known_law"] = known_law_table(
        jobs=extent.known_law_jobs,
        pasts=extent.known_law_pasts,
        futures=extent.known_law_futures,
        most_entries=extent.known_law_entries,
    )
    figures["meta"] = _meta(families, missing, forecaster, command, extent)
    figures["meta"]["selector_jobs"] = selector_jobs
    figures["targets"] = judged(figures)
    figures["meta"]["wall_s"] = round(time.perf_counter() - began_s, 1)
    plain: dict[str, Any] = without_nan(figures)
    return plain


def _fewer(family: Family, most_series: int | None) -> Family:
    """The first series of the first world."""
    if most_series is None:
        return family
    first = [one for one in family.series if one.world == 0]
    return replace(family, series=tuple(first[:most_series]))


def _prepare(family: Family, forecaster: str, extent: QualityExtent) -> _Prepared:
    said = forecast_family(family.series, forecaster)
    forecasts: Forecasts = {
        (one.together, one.name, one.world): found[one.name]
        for group in said
        for found in (window_forecasts(group, judged=True),)
        for one in group.series
    }
    courses = courses_of(family, forecasts, relearn_slots=extent.relearn_slots)
    return _Prepared(family=family, said=said, courses=courses)


def _regimes(
    figures: dict[str, Any], prepared: _Prepared, extent: QualityExtent, tell: Tell, *, dense: bool
) -> Cell:
    """Run a family in every regime and at every deadline; returns the densest cell."""
    family = prepared.family
    kept: Cell | None = None
    for regime in REGIMES:
        name = regime.named(family.name)
        figures["families"][name] = {}
        for deadline in DEADLINES_SLOTS:
            tell(f"{name}: d = {deadline}")
            density = (extent.base if regime is BASE else extent.other)[deadline]
            if dense and regime is BASE and deadline == _SELECTOR_DEADLINE:
                density = extent.dense
            cell = run_cell(family, prepared.courses, regime, deadline, density, adapt=False)
            figures["families"][name][str(deadline)] = _rows(cell)
            figures["misses"] += listed_misses(cell, SHOWN)
            if regime is BASE:
                adapting = under_laws(cell, adapt=True)
                figures["adapting"].setdefault(name, {})[str(deadline)] = _rows(adapting)
            if kept is None:
                kept = cell
    if kept is None:
        raise ValueError("there must be a regime")
    return kept


def _rows(cell: Cell) -> Table:
    return {policy: cell.row(policy) for policy in SHOWN if policy in _known(cell)}


def _known(cell: Cell) -> set[str]:
    return {*cell.policy_ids, *(name for name in SHOWN if name not in POLICY_IDS)}


def _censored(figures: dict[str, Any], prepared: _Prepared, extent: QualityExtent) -> None:
    prices: Forecasts = {
        (one.together, one.name, one.world): found[one.name]
        for group in prepared.said
        for found in (uncounted_forecasts(group),)
        for one in group.series
    }
    family = prepared.family
    uncounted = tuple(course.told(prices) for course in prepared.courses)
    cell = run_information(family, uncounted, Information.CENSORED, extent.aside)
    counted = run_counted(family, prepared.courses, extent.aside)
    rows = _rows(cell)
    rows[SPOTLINE]["vs_counted_points"] = list(points_behind(cell, counted))
    figures["censored"][family.name] = {str(cell.deadline_slots): rows}


def _decide_first(figures: dict[str, Any], prepared: _Prepared, extent: QualityExtent) -> None:
    cell = run_information(
        prepared.family, prepared.courses, Information.DECIDE_FIRST, extent.aside
    )
    figures["decide_first"][prepared.family.name] = {str(cell.deadline_slots): _rows(cell)}


def _selector(cell: Cell, extent: QualityExtent) -> dict[str, dict[str, float | None]]:
    """Compare ways of choosing on the jobs of a cell, in the order of their arrival."""
    order = np.lexsort((cell.soft.series, cell.soft.start))[: extent.selector_jobs]
    programs = [
        program_of(
            cell.regime,
            cell.family.size,
            cell.deadline_slots,
            course.series.on_demand_price,
            hard=False,
        )
        for course in cell.courses
    ]
    worst = max(
        cost_micro_usd(course.series.on_demand_price, program.max_instances, SLOT_S)
        * program.end_slots
        for course, program in zip(cell.courses, programs, strict=True)
    )
    most = max(program.value_micro_usd[0] for program in programs)
    return selector_table(
        cell.soft.utility[order] / MICRO_USD_PER_USD,
        floor_usd=-worst / MICRO_USD_PER_USD,
        ceiling_usd=most / MICRO_USD_PER_USD,
    )


def _meta(
    families: Sequence[Family],
    missing: Sequence[str],
    forecaster: str,
    command: str,
    extent: QualityExtent,
) -> dict[str, Any]:
    return {
        "command": command,
        "environment": asdict(environment()),
        "seeds": {"prices": list(PRICE_SEEDS), "noise": list(extent.noise_seeds)},
        "slot_s": SLOT_S,
        "forecaster": forecaster,
        "rule": DEFAULT_RULE,
        "policies": len(POLICY_IDS),
        "families": {one.name: one.description for one in families},
        "series": {one.name: len(one.series) for one in families},
        "families_without_data": list(missing),
        "quick": extent.most_slots is not None,
    }
